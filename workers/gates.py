"""Questions of the engine that a person or a policy answers: hooks, permissions, questions, plans.

Sans-I/O.  A gate opens when the engine asks and is settled by exactly one answer; whoever comes second
is dropped and counted.  Grok fails open: it runs the tool of a hook that nobody answers, and waits
for ever on a permission.  So whatever ends a client settles its gates with an answer that allows
nothing.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gateway.wire.jsonrpc import Message, replace_id
from gateway.wire.limits import SIZES
from gateway.wire.questions import GateKind, closed_answer

__all__ = ["Gate", "Gates", "Settled"]

_ASKING = frozenset({GateKind.PERMISSION, GateKind.QUESTION, GateKind.PLAN})


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """One open question."""

    id_raw: bytes  #: the engine's id
    shown: str  #: the id that the client sees
    kind: GateKind
    session_id: str | None
    params: Mapping[str, Any]
    opened: float  #: monotonic seconds

    def answer(self, message: Message) -> bytes:
        """The engine's line for the client's answer.

        Grok takes an error, and anything that it does not understand, for leave to run the tool.
        """
        odd = message.error is not None or not isinstance(message.result, dict | None)
        if self.kind is GateKind.PRE_HOOK and odd:
            return self.closed("the client's answer to the hook was not understood")
        return replace_id(message.data, self.id_raw)

    def closed(self, why: str, *, cancelled: bool = False) -> bytes:
        """The engine's line that settles it without the client."""
        return closed_answer(self.id_raw, self.kind, self.params, why, cancelled=cancelled)


@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """A gate that was settled without its client: the engine's line, and why."""

    gate: Gate
    line: bytes
    why: str


class Gates:
    """Open gates of one connection by the engine's id."""

    def __init__(self, capacity: int = SIZES.open_gates) -> None:
        self._capacity = capacity
        self._open = dict[bytes, Gate]()
        self.counters = collections.Counter[str]()

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Gate]:
        return iter(tuple(self._open.values()))

    def open(self, gate: Gate) -> Settled | bool:
        """The engine asks.  True: show it to the client; False: it is on show already (a bridge that
        replaced another is told again of what is still open); Settled: answered at once."""
        if gate.id_raw in self._open:
            return False
        if len(self._open) >= self._capacity:
            self.counters["overflow"] += 1
            return self._settled(gate, "too many questions are open")
        self._open[gate.id_raw] = gate
        self.counters["opened"] += 1
        return True

    def answered(self, id_raw: bytes) -> Gate | None:
        """The client answers; None: somebody has answered before, or nobody asked."""
        gate = self._open.pop(id_raw, None)
        self.counters["late" if gate is None else "answered"] += 1
        return gate

    def shows(self, shown: str) -> bool:
        """Whether a gate that the client may have seen is still open."""
        return any(gate.shown == shown for gate in self._open.values())

    def asking(self, session_ids: Collection[str]) -> int:
        """How many open gates of these sessions wait for a person."""
        return sum(g.kind in _ASKING and g.session_id in session_ids for g in self)

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

    def bridge_lost(self) -> list[Gate]:
        """The bridge died.  Returns the hooks that were open and are void: Grok never asks them again
        and would run their tools.  What Grok asks again stays open."""
        hooks = [g for g in self if g.kind in (GateKind.PRE_HOOK, GateKind.HOOK)]
        for gate in hooks:
            del self._open[gate.id_raw]
        return hooks

    def leader_lost(self) -> list[Gate]:
        """Whoever asked is gone.  Returns the gates that are void."""
        gates = list(self)
        self._open.clear()
        return gates

    @staticmethod
    def _settled(gate: Gate, why: str, *, cancelled: bool = False) -> Settled:
        return Settled(gate, gate.closed(why, cancelled=cancelled), why)
