"""The guard: every question of the engine gets exactly one answer, in time, and silence allows nothing.

Sans-I/O.  Grok fails open: it runs the tool of a ``pre_tool_use`` hook that nobody answers, and waits for
ever on a permission.  So each reverse request becomes a `Gate` with a deadline; at the deadline the guard
answers itself (`gateway.wire.questions.closed_answer`), and whoever comes later is dropped and counted.

Two clocks bound a gate.  The *absolute* deadline belongs to the hook: so long before the registered time
is up that a denial still reaches Grok, counted from when Grok asked.  Nothing moves it.  The *tier* says
how long the client may take for what it is doing:

========= ==================================================== =========================
tier      the client                                            has
========= ==================================================== =========================
ACK       has not been heard of since the gate was shown        ``LIMITS.ack``
POLICY    has it and decides by itself                          ``LIMITS.policy``
CHECK     runs a check (an ack said ``check``)                  ``LIMITS.check``
DIALOG    shows it to a person (an ack said ``dialog``)         ``LIMITS.dialog``
OWN       does not send acks                                    ``LIMITS.dialog``; a hook: its own time
========= ==================================================== =========================

Time is passed in, never read: monotonic seconds.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gateway.wire.jsonrpc import Message
from gateway.wire.limits import LIMITS, SIZES, Limits
from gateway.wire.questions import GateKind, closed_answer

__all__ = ["Ack", "Gate", "Guard", "Settled", "Tier", "content_key"]

_ASKING = frozenset({GateKind.PERMISSION, GateKind.QUESTION, GateKind.PLAN})
_HOOKS = frozenset({GateKind.PRE_HOOK, GateKind.HOOK})


class Tier(enum.Enum):
    ACK = "ack"
    POLICY = "policy"
    CHECK = "check"
    DIALOG = "dialog"
    OWN = "own"


class Ack(enum.Enum):
    """What an acknowledgement says."""

    RECEIVED = "received"
    CHECK = "check"
    DIALOG = "dialog"


class _Event(enum.Enum):
    SHOWN = "shown to a client"
    LOST = "its client's socket is gone"


#: event → tier, for a connection that sends acks.  The tier before does not matter: an ack says what
#: the client does now, and a later one may say something else.
_MOVES: dict[_Event | Ack, Tier] = {
    _Event.SHOWN: Tier.ACK,
    _Event.LOST: Tier.ACK,
    Ack.RECEIVED: Tier.POLICY,
    Ack.CHECK: Tier.CHECK,
    Ack.DIALOG: Tier.DIALOG,
}
#: The same for a connection without; its acks are not looked at.
_MOVES_WITHOUT_ACKS: dict[_Event | Ack, Tier] = {_Event.SHOWN: Tier.OWN, _Event.LOST: Tier.ACK}

_WHY = {
    Tier.ACK: "its client did not acknowledge it in time",
    Tier.POLICY: "its client did not decide in time",
    Tier.CHECK: "its client's check did not end in time",
    Tier.DIALOG: "nobody answered the dialog in time",
    Tier.OWN: "its client did not answer in time",
}


@dataclasses.dataclass(slots=True, eq=False)
class Gate:
    """One open question.

    ``registered``: seconds after which Grok gives up on a hook; ``age``: seconds since Grok asked.
    """

    id_raw: bytes  #: the engine's id
    shown: str  #: the id that the client sees
    kind: GateKind
    session_id: str | None
    params: Mapping[str, Any]
    opened: float
    registered: float = math.inf
    age: float = 0.0
    frame: bytes = b""  #: as the client is shown it
    tier: Tier = Tier.ACK
    deadline: float = math.inf

    @property
    def key(self) -> str:
        """What both sides can name it by without its id; "" if it has no such name."""
        return content_key(self.kind, self.params)

    def answer(self, message: Message) -> bytes:
        """The engine's line for the client's answer.

        Grok takes an error, and anything that it does not understand, for leave to run the tool.
        """
        odd = message.error is not None or not isinstance(message.result, dict | None)
        if self.kind is GateKind.PRE_HOOK and odd:
            return self.closed("the client's answer to the hook was not understood")
        return message.with_id(self.id_raw)

    def closed(self, why: str, *, cancelled: bool = False) -> bytes:
        """The engine's line that settles it without the client."""
        return closed_answer(self.id_raw, self.kind, self.params, why, cancelled=cancelled)


@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """A gate that was settled without its client: the engine's line, and why."""

    gate: Gate
    line: bytes
    why: str


def content_key(kind: GateKind, params: Mapping[str, Any]) -> str:
    """``event:toolUseId``, ``stop:sessionId``, ``perm:toolCallId`` or ``ask:toolCallId``; "" if none."""

    def text(holder: Any, *names: str) -> str:
        found = (holder.get(name) for name in names) if isinstance(holder, Mapping) else ()
        return next((value for value in found if isinstance(value, str)), "")

    if kind in _HOOKS:
        event = text(params, "hookEventName")
        if event.lower() == "stop":
            return f"stop:{text(params, 'sessionId')}"
        call = text(params, "toolUseId")
        return f"{event}:{call}" if call else ""
    if kind is GateKind.PERMISSION:
        call = text(params.get("toolCall"), "toolCallId", "tool_call_id")
        return f"perm:{call}" if call else ""
    if kind is GateKind.QUESTION:
        return f"ask:{text(params, 'toolCallId', 'tool_call_id')}"
    return ""


class Guard:
    """Open gates of one connection by the engine's id.  ``acks``: its client acknowledges gates."""

    def __init__(self, *, acks: bool, limits: Limits = LIMITS, capacity: int = SIZES.open_gates) -> None:
        self._moves = _MOVES if acks else _MOVES_WITHOUT_ACKS
        self._limits, self._capacity = limits, capacity
        self._open = dict[bytes, Gate]()
        self._client = True
        self._left = ""
        self.counters = collections.Counter[str]()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Gate]:
        return iter(tuple(self._open.values()))

    # -- the engine asks -----------------------------------------------------------------------

    def open(self, gate: Gate, now: float) -> Settled | bool:
        """True: show it to the client; False: it is on show already (a bridge that replaced another is
        told again of what is still open); Settled: answered at once."""
        before = self._open.get(gate.id_raw)
        if before is not None and before.key == gate.key:
            return False  # another key: the id was used again, and nobody waits for the first one
        if before is None and len(self._open) >= self._capacity:
            self.counters["overflow"] += 1
            return self._settled(gate, "too many questions are open")
        self._open[gate.id_raw] = gate
        self.counters["opened"] += 1
        if self._left:
            return self.close(gate, self._left)
        self._move(gate, _Event.SHOWN if self._client else _Event.LOST, now)
        if gate.deadline <= now:
            return self.close(gate, "its time was up when it came")
        return True

    # -- the client ----------------------------------------------------------------------------

    def answered(self, id_raw: bytes, now: float) -> Gate | None:
        """The client answers; None: somebody has answered before, nobody asked, or it is too late."""
        gate = self._open.get(id_raw)
        if gate is None or gate.deadline <= now:  # the latter is settled by `expired`
            self.counters["late"] += 1
            return None
        del self._open[id_raw]
        self.counters["answered"] += 1
        return gate

    def acked(self, name: str, ack: Ack, now: float) -> bool:
        """The client says by id or content key what it does with a gate; False: nothing changes."""
        gate = next((g for g in reversed(tuple(self)) if name and name in (g.shown, g.key)), None)
        if gate is None or gate.deadline <= now or ack not in self._moves or not self._client:
            self.counters["acks_ignored"] += 1
            return False
        self.counters["acks"] += 1
        self._move(gate, ack, now)
        return True

    def client_lost(self, now: float) -> None:
        """The socket is gone: it has the time of an acknowledgement to come back."""
        self._client = False
        for gate in self:
            before = gate.deadline
            self._move(gate, _Event.LOST, now)
            gate.deadline = min(before, gate.deadline)

    def client_back(self, now: float) -> None:
        """A socket is there again; the open gates are shown to it again."""
        self._client = True
        for gate in self:
            if gate.deadline > now:
                self._move(gate, _Event.SHOWN, now)

    def leave(self, why: str) -> list[Settled]:
        """The client is gone for good: settle what is open, and at once whatever is asked later."""
        self._left = why
        return self.close_all(why)

    def asks(self, id_raw: bytes) -> bool:
        """Whether a gate with the engine's id is open."""
        return id_raw in self._open

    def shows(self, shown: str) -> bool:
        """Whether a gate that the client may have seen is still open."""
        return any(gate.shown == shown for gate in self._open.values())

    def asking(self, session_ids: Collection[str]) -> int:
        """How many open gates of these sessions wait for a person."""
        return sum(g.kind in _ASKING and g.session_id in session_ids for g in self)

    # -- time ----------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """When `expired` has something to do; infinite: never."""
        return min((gate.deadline for gate in self._open.values()), default=math.inf)

    def expired(self, now: float) -> list[Settled]:
        """Settle the gates whose time is up."""
        due = [gate for gate in self if gate.deadline <= now]
        for gate in due:
            self.counters[f"expired_{gate.kind.value}"] += 1
        return [self.close(gate, _WHY[gate.tier]) for gate in due]

    # -- settled without the client ------------------------------------------------------------

    def close(self, gate: Gate, why: str) -> Settled:
        """Settle one gate without the client."""
        del self._open[gate.id_raw]
        self.counters["closed"] += 1
        return self._settled(gate, why)

    def cancel(self, session_ids: Collection[str]) -> list[Settled]:
        """The client cancels the turn of these sessions: nobody will answer their gates any more."""
        gates = [gate for gate in self if gate.session_id in session_ids]
        for gate in gates:
            del self._open[gate.id_raw]
            self.counters["cancelled"] += 1
        return [self._settled(gate, "the turn was cancelled", cancelled=True) for gate in gates]

    def close_all(self, why: str) -> list[Settled]:
        """Nobody is there to answer."""
        return [self.close(gate, why) for gate in self]

    def close_hooks(self, why: str) -> list[Settled]:
        """The bridge is about to be closed: what Grok asks again stays open."""
        return [self.close(gate, why) for gate in self if gate.kind in _HOOKS]

    def bridge_lost(self) -> list[Gate]:
        """The bridge died.  Returns the hooks that were open and are void: Grok never asks them again
        and would run their tools.  What Grok asks again stays open."""
        hooks = [gate for gate in self if gate.kind in _HOOKS]
        for gate in hooks:
            del self._open[gate.id_raw]
        return hooks

    def leader_lost(self) -> list[Gate]:
        """Whoever asked is gone.  Returns the gates that are void."""
        gates = list(self)
        self._open.clear()
        return gates

    # -- deadlines -----------------------------------------------------------------------------

    def _move(self, gate: Gate, event: _Event | Ack, now: float) -> None:
        gate.tier = self._moves[event]
        gate.deadline = min(self._absolute(gate), now + self._window(gate))

    def _window(self, gate: Gate) -> float:
        match gate.tier:
            case Tier.ACK:
                return self._limits.ack
            case Tier.POLICY:
                return self._limits.policy
            case Tier.CHECK:
                return self._limits.check
            case Tier.DIALOG:
                return self._limits.dialog
            case Tier.OWN:
                return math.inf if gate.kind in _HOOKS else self._limits.dialog

    def _absolute(self, gate: Gate) -> float:
        """Before Grok gives up on a hook, with time for the answer to get there."""
        asked = gate.opened - max(0.0, gate.age)
        match gate.kind:
            case GateKind.PRE_HOOK:
                return (
                    asked
                    + min(gate.registered, self._limits.pre_hook_registered)
                    - self._limits.pre_hook_margin
                )
            case GateKind.HOOK:
                return asked + gate.registered - self._limits.early_answer
            case _:
                return math.inf

    @staticmethod
    def _settled(gate: Gate, why: str, *, cancelled: bool = False) -> Settled:
        return Settled(gate, gate.closed(why, cancelled=cancelled), why)
