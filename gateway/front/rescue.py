"""Rescues of the front: the turns of a connection that nobody serves are ended over a throwaway bridge.

The bridge is the leader's warm standby (`LeaderKeeper.throwaway_bridge`): to start one would take 0.3 s.
`gateway.wire.rescue` decides what it says; every gate that a rescue voids or answers goes to the audit log.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from gateway.front.control_bridge import BridgeStartError, NoAnswerError
from gateway.wire.acp import HOOK
from gateway.wire.audit import AuditLog, Decision
from gateway.wire.questions import GateKind, gate_kind, is_pre_hook
from gateway.wire.records import ConnectionRecord, GateOpened
from gateway.wire.rescue import Refused, Rescue, RescueRun

__all__ = ["Bridge", "Rescuer", "Ward", "everything_of", "open_hooks", "turns_with_a_hook"]

log = logging.getLogger("front.rescue")

_ANSWERS = {
    GateKind.PRE_HOOK: "deny",
    GateKind.HOOK: "continue",
    GateKind.PERMISSION: "reject",
    GateKind.QUESTION: "cancelled",
    GateKind.PLAN: "cancelled",
    GateKind.OTHER: "refused",
}


class Bridge(Protocol):
    """An initialized bridge whose lines and end are told to whoever asked for it."""

    def write(self, line: bytes) -> None: ...
    async def close(self) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Ward:
    """What a rescue does for one connection: ``sessions`` are cancelled, ``suspects`` if they are at work.

    ``gates`` are those that it voids.
    """

    connection: str
    sessions: tuple[str, ...]
    suspects: tuple[str, ...] = ()
    gates: tuple[GateOpened, ...] = ()


def open_hooks(record: ConnectionRecord, generation: str) -> list[GateOpened]:
    """The hooks that wait for an answer of this connection, or their tools run.

    ``generation`` is the leader's, "" while it is not known; those that another one asked are void.
    """
    hooks = [gate for gate in record.gates.values() if gate.method == HOOK and is_pre_hook(gate.event)]
    return [gate for gate in hooks if generation in ("", gate.id.partition(".")[0])]


def turns_with_a_hook(record: ConnectionRecord, generation: str) -> Ward:
    """Rescue now: the turns with an open hook, which Grok never asks again."""
    hooks = open_hooks(record, generation)
    sessions = {gate.session_id for gate in hooks}
    if not sessions <= record.sessions.keys():  # a subagent's: which session started it is not recorded
        sessions = set(record.sessions)
    gates = tuple(gate for gate in record.gates.values() if gate in hooks or gate.session_id in sessions)
    return Ward(record.connection, tuple(sorted(sessions)), gates=gates)


def everything_of(record: ConnectionRecord) -> Ward:
    """Rescue when nobody came: whatever of the connection is at work.

    Turns without a request of the client exist, too: the look of the rescue finds them.
    """
    asked = {gate.session_id for gate in record.gates.values()}
    asked |= {request.session_id for request in record.requests.values()}
    sessions = sorted(asked & record.sessions.keys() - record.rescued.keys())
    return Ward(record.connection, tuple(sessions), tuple(record.sessions), tuple(record.gates.values()))


class Rescuer:
    """Carries out rescues, each over a bridge of its own.

    ``bridge(on_line, on_end)`` gives an initialized one; it raises BridgeStartError or NoAnswerError.
    ``counters`` are for `status`.
    """

    def __init__(
        self,
        bridge: Callable[[Callable[[bytes], None], Callable[[], None]], Awaitable[Bridge]],
        audit: AuditLog,
    ) -> None:
        self._bridge, self._audit = bridge, audit
        self.counters = collections.Counter[str]()

    async def rescue(self, wards: Sequence[Ward], reason: str) -> bool:
        """End the turns of the wards: whether nothing of them is at work any more.

        The bridge has exited when this returns.
        """
        rescue = Rescue(
            [session for ward in wards for session in ward.sessions],
            [session for ward in wards for session in ward.suspects],
            reason=reason,
        )
        began = time.monotonic()
        run = RescueRun(rescue, lambda line: bridge.write(line))
        try:
            bridge = await self._bridge(run.line, run.lost)
        except (BridgeStartError, NoAnswerError) as error:
            log.error("no bridge for a rescue: %s", error)
            self.counters["rescues_failed"] += 1
            return False
        try:
            idle = await run.run()
        finally:
            await bridge.close()
            self._record(wards, rescue.refused, reason)
        self.counters["rescues" if idle else "rescues_failed"] += 1
        self.counters["rescued_sessions"] += len(rescue.ended)
        log.info(
            "rescue of %d connections, %s: %d sessions ended, %d questions refused, %s after %.0f ms",
            len(wards),
            reason,
            len(rescue.ended),
            len(rescue.refused),
            rescue.state.value,
            (time.monotonic() - began) * 1000,
        )
        return idle

    def _record(self, wards: Sequence[Ward], refused: Iterable[Refused], reason: str) -> None:
        now = time.time()
        for ward in wards:
            for gate in ward.gates:
                ms = max(0, round((now - gate.opened) * 1000)) if gate.opened else 0
                kind = gate_kind(gate.method, {"hookEventName": gate.event})
                names = (gate.session_id, gate.event or kind.value, "", gate.tool_use_id)
                self._audit.write(
                    Decision(ward.connection, *names, by="gateway", answer="cancelled", ms=ms, why=reason),
                    now,
                )
        owners = {session: w.connection for w in wards for session in (*w.sessions, *w.suspects)}
        for one in refused:
            names = (one.session_id, one.event or one.kind.value, one.tool, one.tool_use_id)
            connection = owners.get(one.session_id, "")
            decision = Decision(connection, *names, "gateway", _ANSWERS[one.kind], 0, reason)
            self._audit.write(decision, now)
