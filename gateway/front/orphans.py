"""Orphans: connections whose worker is gone and whose client may come back, to any worker.

Their journals wait for ``LIMITS.resume_window``.  Without an end to it, the sessions of a client that
never returns would stay attached to nobody, and no other client could load them.  `OrphanBook` is the
decision; `Orphans` reads the journals when a worker is lost, and again only when something expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable

from gateway.paths import Paths
from gateway.wire.journal import forget, read_journals, sweep
from gateway.wire.leases import LeaseError
from gateway.wire.limits import LIMITS
from gateway.wire.process import Identity

__all__ = ["OrphanBook", "Orphans"]

log = logging.getLogger("front.orphans")


class OrphanBook:
    """Since when each connection has been an orphan.  Times are seconds of any monotonic clock."""

    def __init__(self, window: float = LIMITS.resume_window) -> None:
        self._window = window
        self._expiry = dict[str, float]()

    def see(self, orphans: Iterable[str], now: float) -> None:
        """These are the orphans now; one that was taken over in between begins anew."""
        self._expiry = {conn: self._expiry.get(conn, now + self._window) for conn in orphans}

    def take_expired(self, now: float) -> list[str]:
        """Those whose window is over; they are told once (and seen again, they begin anew)."""
        expired = [conn for conn, expiry in self._expiry.items() if expiry <= now]
        for conn in expired:
            del self._expiry[conn]
        return expired

    @property
    def next_expiry(self) -> float | None:
        return min(self._expiry.values(), default=None)


class Orphans:
    """Forgets the connections that nobody resumes."""

    def __init__(self, paths: Paths, clock: Callable[[], float] = time.monotonic) -> None:
        self._paths = paths
        self._clock = clock
        self._book = OrphanBook()
        self._look = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Clear away what is no journal (before new connections write theirs), then begin to watch."""
        await asyncio.to_thread(self._sweep)
        self._look.set()
        self._task = asyncio.create_task(self._watch())

    def worker_lost(self) -> None:
        """Its connections are orphans now."""
        self._look.set()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _watch(self) -> None:
        while True:
            expiry = self._book.next_expiry
            wait = None if expiry is None else max(0.0, expiry - self._clock())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._look.wait()
            self._look.clear()
            await asyncio.to_thread(self._round)

    def _round(self) -> None:
        """Look and forget in one go: a moment later a worker may have taken a connection over."""
        now = self._clock()
        self._book.see(self._found(), now)
        for conn in self._book.take_expired(now):
            log.info("connection %s: its worker is gone and its client has not come back", conn[:8])
            try:
                forget(self._paths, conn)
            except (OSError, LeaseError) as error:
                log.error("connection %s cannot be forgotten: %s", conn[:8], error)

    def _found(self) -> list[str]:
        states = read_journals(self._paths)
        return [state.connection for state in states if not Identity(state.pid, state.created).alive()]

    def _sweep(self) -> None:
        try:
            sweep(self._paths, lambda state: True)
        except (OSError, LeaseError) as error:
            log.error("journals cannot be swept: %s", error)
