"""The leader as a worker sees it: what the front says, checked against the process itself.

The worker holds a pidfd of its own, so it knows of a leader's death before the front can say so; and
a front that has just been restarted, and knows of no leader yet, takes none away from the connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gateway.wire.handoff import LeaderInfo
from gateway.wire.process import Exit, Identity

__all__ = ["LeaderWatch"]

log = logging.getLogger(__name__)


class LeaderWatch:
    """The one leader of the instance.

    `on_lost` holds callbacks ``(reason)``, called when the leader in use has ended or was replaced.
    `on_broken` holds callbacks ``(reason)``, called when the front gives up starting one for now.
    """

    def __init__(self) -> None:
        self._info: LeaderInfo | None = None  # of the leader in use
        self._exit: Exit | None = None
        self._ready = asyncio.Event()
        self._said = LeaderInfo(reason="the front has not said anything of a leader yet")
        self.on_lost = set[Callable[[str], None]]()
        self.on_broken = set[Callable[[str], None]]()

    @property
    def info(self) -> LeaderInfo | None:
        """The leader in use; None while there is none."""
        return self._info

    @property
    def reason(self) -> str:
        """Why there is none, for people."""
        return self._said.reason or f"the leader is {self._said.state}"

    def said(self, info: LeaderInfo) -> None:
        """The front tells how the leader is."""
        self._said = info
        if info.state == "ready" and (self._info is None or self._info.generation != info.generation):
            if self._info is not None:
                self._lose("another leader has taken its place")
            if not Identity(info.pid, info.created).alive():
                return  # the front will see it as well and say what comes next
            self._info = info
            self._exit = Exit(Identity(info.pid, info.created), self._ended)
            self._ready.set()
        elif info.state == "ready":
            self._info = info
        elif info.state == "broken" and self._info is None:
            for callback in tuple(self.on_broken):
                callback(self.reason)

    async def ready(self) -> LeaderInfo:
        """The leader in use, as soon as there is one."""
        while self._info is None:
            await self._ready.wait()
        return self._info

    def close(self) -> None:
        if self._exit is not None:
            self._exit.cancel()
            self._exit = None

    def _ended(self) -> None:
        log.warning("leader %s has ended", self._info and self._info.pid)
        self._lose("the leader has ended")

    def _lose(self, reason: str) -> None:
        self.close()
        self._info = None
        self._ready.clear()
        for callback in tuple(self.on_lost):
            callback(reason)
