"""Entries on their way into sessions of Pi.

Only the session on screen takes entries.  What it cannot take now is kept and sent again when it can;
every entry has an id, so that it is never appended twice.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Mapping
from typing import Any

from gateway.wire.limits import SIZES
from workers.pi.peer import Peer

__all__ = ["Outbox"]


class Outbox:
    """The entries of one Pi process that have not arrived."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.on_screen = ""  #: a session of Pi
        self._waiting = collections.OrderedDict[tuple[str, str], dict[str, Any]]()

    def put(self, session: str, id_: str, kind: str, data: Mapping[str, Any]) -> None:
        """An entry for a session."""
        name = kind, id_
        self._waiting[name] = {"session": session, "id": id_, "type": kind, "data": dict(data)}
        while len(self._waiting) > SIZES.pi_entries:
            self._waiting.popitem(last=False)
        if session == self.on_screen:
            self._send(name)

    def show(self, session: str) -> None:
        """Another session, or the same one again, is on screen."""
        self.on_screen = session
        for name in [n for n, params in self._waiting.items() if params["session"] == session]:
            self._send(name)

    def _send(self, name: tuple[str, str]) -> None:
        def answered(answer: asyncio.Future[Mapping[str, Any] | None]) -> None:
            result = None if answer.cancelled() else answer.result()
            if result is not None and result.get("ok"):
                self._waiting.pop(name, None)

        self._peer.request("entry", self._waiting[name]).add_done_callback(answered)
