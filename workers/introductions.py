"""A new session is loaded once on the bridge that has made it, before its client may use it.

A bridge that loses its connection to the leader makes another, and loads its sessions by itself before
anybody knows: those that it saw made without their hooks, so that tools run unasked; those that it saw
loaded with all that the load said.  The load takes 10 ms, on a busy machine a second, and one that falls
into a turn can cost the rest of its text.  So the answer to ``session/new``, and what the engine says of the
session, waits for it, ``2 × LIMITS.first_request`` at most.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from gateway.wire.jsonrpc import EngineLine
from gateway.wire.limits import SIZES
from workers.ledger import Ledger
from workers.link import Link
from workers.requests import Request
from workers.sessions import Session

__all__ = ["Introductions"]


@dataclasses.dataclass(slots=True, eq=False)
class _Newcomer:
    request: Request
    frame: bytes
    lines: list[EngineLine] = dataclasses.field(default_factory=list)


class Introductions:
    """Of one connection.  ``passed(line)`` gets the notifications that waited, after the answer."""

    def __init__(self, ledger: Ledger, link: Link, passed: Callable[[EngineLine], None]) -> None:
        self._ledger, self._link, self._passed = ledger, link, passed
        self._loop = asyncio.get_running_loop()
        self._newcomers = dict[str, _Newcomer]()  # by session id

    def holds(self, request: Request, frame: bytes, session: Session | None) -> bool:
        """Whether ``frame``, the answer to a session/new, is given later."""
        if session is None or not session.has_hooks:
            return False
        session_id = session.session_id
        self._newcomers[session_id] = _Newcomer(request, frame)
        # Not sent again when it seems lost: the second one would fall into a turn.
        self._link.ask("session/load", session.load_params(), lambda: self._release(session_id))
        self._loop.call_later(2 * self._ledger.limits.first_request, self._release, session_id)
        return True

    def takes(self, line: EngineLine) -> bool:
        """Whether a notification waits for the answer that tells the client of its session."""
        newcomer = self._newcomers.get(line.session or "")
        if newcomer is None:
            return False
        newcomer.lines.append(line)
        if len(newcomer.lines) > SIZES.open_requests:
            self._release(line.session or "")
        return True

    def bridge_lost(self) -> None:
        """The sessions are there, and come back with the next bridge."""
        for session_id in list(self._newcomers):
            self._release(session_id)

    def _release(self, session_id: str) -> None:
        newcomer = self._newcomers.pop(session_id, None)
        if newcomer is None:
            return
        self._ledger.answer(newcomer.request, newcomer.frame)
        for line in newcomer.lines:
            self._passed(line)
