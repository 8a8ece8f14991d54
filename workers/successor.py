"""The other side of a planned hand-over: a connection that this worker is about to get.

A `Successor` has a bridge and loads the sessions on it while their old bridge still serves the client.
Until its connection is taken it is mute: what the bridge says is kept, in order, and nothing is answered.
With a second subscriber the work of idle sessions outlives the end of the first, and once the first has
gone Grok asks this one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets
from collections.abc import Sequence
from typing import Any, Literal

from gateway.wire.insist import insist
from gateway.wire.jsonrpc import EngineLine
from gateway.wire.limits import LIMITS, SIZES, Limits
from gateway.wire.ndjson import Overlong
from gateway.wire.questions import GateKind, closed_answer, gate_kind
from gateway.wire.records import ConnectionRecord
from workers.leader import LeaderWatch
from workers.link import CallError, Link, Loss
from workers.sessions import Session

__all__ = ["Heard", "Loaded", "Successor"]

log = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class Loaded:
    """A session that was loaded: the replay, and the result of the load."""

    replay: list[EngineLine] = dataclasses.field(default_factory=list)
    result: Any = None


@dataclasses.dataclass(slots=True)
class Heard:
    """What a mute bridge has said: by session what its last load replayed, then everything since."""

    loads: dict[str, Loaded] = dataclasses.field(default_factory=dict)
    lines: list[EngineLine] = dataclasses.field(default_factory=list)
    asked: list[EngineLine] = dataclasses.field(default_factory=list)


class Successor:
    """See the module.  `load` as often as told; then the connection takes `link` and `heard`, or `drop`."""

    def __init__(self, leader: LeaderWatch, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self._name, self._numbers = secrets.token_hex(8), 0
        self._loop = asyncio.get_running_loop()
        self._up = asyncio.Event()
        self._failure = ""
        self._loading = dict[str, Loaded]()
        self.heard = Heard()
        self.link = Link(self, leader, limits)
        self.run = self._loop.create_task(self.link.run())

    async def load(self, record: ConnectionRecord, sessions: Sequence[str]) -> None:
        """Load these sessions as the journal tells.  Raises CallError; then this is of no use any more."""
        try:
            async with asyncio.timeout(self._limits.bridge_start):
                await self._up.wait()
        except TimeoutError:
            raise CallError("no bridge came up") from None
        self.check()
        await asyncio.gather(*(self._load(record, session_id) for session_id in sessions))
        self.check()

    def check(self) -> None:
        """Raises CallError when something that was said is missing."""
        if self._failure:
            raise CallError(self._failure)

    async def drop(self) -> None:
        """The connection goes elsewhere: what was asked here is answered so that nothing runs."""
        for line in self.heard.asked:
            kind = gate_kind(line.method, line.params)
            if kind in (GateKind.PRE_HOOK, GateKind.HOOK):
                why = "the hand-over to this worker has failed"
                self.link.send(closed_answer(line.id_raw, kind, line.params, why))
        self._failure = self._failure or "the connection goes elsewhere"
        self.link.give_up(Loss("bridge", self._failure))
        self._up.set()
        self.run.cancel()
        await asyncio.gather(self.run, return_exceptions=True)

    async def _load(self, record: ConnectionRecord, session_id: str) -> None:
        kept = record.sessions.get(session_id)
        if kept is None:
            raise CallError(f"session {session_id} is not in the journal")
        loaded = self._loading[session_id] = Loaded()

        def done(result: Any) -> None:
            if self._loading.get(session_id) is loaded:  # else it was sent twice
                loaded.result = result
                self.heard.loads[session_id] = self._loading.pop(session_id)

        # The new replay has what came before it.
        self.heard.lines = [line for line in self.heard.lines if line.session != session_id]
        params = Session(session_id, kept.params, self._loop.time()).load_params()
        at_work = any(request.session_id == session_id for request in record.requests.values())
        name, limits = session_id if at_work else "", self._limits
        # A load can be lost (`workers.arrivals`), and the hand-over would wait for it to the end of its time.
        await insist(
            lambda: self.link.call("session/load", params, limits.session_open, done, replays=name),
            limits.first_request,
            silent=lambda since: not loaded.replay,
        )

    # -- the link (LinkOwner) ------------------------------------------------------------------

    def new_key(self) -> bytes:
        self._numbers += 1
        return b'"gw-%s-%d"' % (self._name.encode(), self._numbers)

    def engine_line(self, line: EngineLine) -> None:
        if line.kind == "request":
            self.heard.asked.append(line)
        elif line.kind == "notification" and (loaded := self._loading.get(line.session)):
            loaded.replay.append(line)
        elif line.kind == "notification":
            self.heard.lines.append(line)
        if max(len(self.heard.lines), len(self.heard.asked)) > SIZES.held_lines:
            self._failure = "too much was said before the connection was taken"
            self.heard.lines.clear()

    def engine_overlong(self, line: Overlong) -> None:
        self._failure = "a line of the engine was too long"

    async def attach_sessions(self, cause: Literal["", "bridge", "leader"]) -> None:
        """Nothing: what is loaded is told."""

    def link_up(self) -> None:
        self._up.set()

    def link_lost(self, loss: Loss) -> None:
        self._up.clear()
        self._failure = loss.reason

    def link_writable(self, writable: bool) -> None:
        """It is written next to nothing."""
