"""The gates of one connection: shown to the client, answered by it or by the guard, written down.

`workers.guard` decides; here its answers reach the engine, the client, the journal and the audit log.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterable
from typing import Any, Literal

from gateway.wire import acp, jsonrpc
from gateway.wire.audit import Decision
from gateway.wire.jsonrpc import EngineLine, Message
from gateway.wire.questions import GateKind, gate_kind
from gateway.wire.records import GateClosed, GateOpened
from workers.arrivals import Arrivals
from workers.guard import Ack, Gate, Settled
from workers.ledger import Ledger
from workers.link import Link

__all__ = ["Gatekeeper", "answer_word"]


class Gatekeeper:
    """Between the guard of a ledger and everybody who asks or answers."""

    def __init__(self, ledger: Ledger, link: Link, arrivals: Arrivals) -> None:
        self._ledger, self._link, self._arrivals = ledger, link, arrivals

    # -- the engine ----------------------------------------------------------------------------

    def asked(self, line: EngineLine, *, shown: bool = False) -> None:
        """The engine asks: a gate opens.  ``shown``: the client has it already."""
        ledger, now = self._ledger, self._ledger.now()
        gate = self._gate(line, now)
        opened = ledger.guard.open(gate, now)
        if isinstance(opened, Settled):
            self._refuse(opened)
        elif opened and not ledger.registry.record(_opened(gate, line.method)):
            # After a kill nobody would know of this gate, and its tool would run.
            self._refuse(ledger.guard.close(gate, "the gateway cannot write its journal"))
        elif opened:
            gate.frame = jsonrpc.replace_id(line.data, jsonrpc.dump(gate.shown))
            if not shown:
                ledger.emit(gate.frame)
            ledger.asking_changed(gate.session_id)
            ledger.arm()

    def missed(self, line: EngineLine) -> None:
        """The engine asks, but its bridge is closed already: the next owner of the journal must know."""
        gate = self._gate(line, self._ledger.now())
        self._ledger.registry.record(_opened(gate, line.method))
        self._audit(gate, "gateway", b"", "its bridge was being closed")

    def _gate(self, line: EngineLine, now: float) -> Gate:
        params, session_id = line.params, line.session or None
        shown = f"{self._link.generation}.{line.id_raw.decode()}"
        gate = Gate(line.id_raw, shown, gate_kind(line.method, params), session_id, params, now)
        if gate.kind in (GateKind.PRE_HOOK, GateKind.HOOK):
            gate.registered = self._ledger.sessions.hook_timeout(session_id, params, self._ledger.limits)
            gate.age = _age(params.get("timestamp"))
        return gate

    def _refuse(self, settled: Settled) -> None:
        """A gate that the client never sees."""
        self._answer(settled.gate, settled.line)
        self._audit(settled.gate, "gateway", settled.line, settled.why)

    def _answer(self, gate: Gate, line: bytes) -> None:
        self._link.send(line)
        self._arrivals.answered(gate, line)

    # -- the client ----------------------------------------------------------------------------

    def answered(self, message: Message) -> None:
        """A response of the client: its id names the leader's generation and the engine's id."""
        ledger, shown = self._ledger, message.spans["id"].value
        generation, _, number = shown.partition(".") if isinstance(shown, str) else ("", "", "")
        if not number or generation != self._link.generation:
            ledger.counters["stale_answers"] += 1
            return
        ledger.expire_gates()
        gate = ledger.guard.answered(number.encode(), ledger.now())
        if gate is not None:
            line = gate.answer(message)
            self._answer(gate, line)
            ledger.registry.record(GateClosed(gate.shown))
            ledger.asking_changed(gate.session_id)
            self._audit(gate, "client", line)

    def acked(self, params: Any) -> None:
        """``pi/gate-ack {id | key, dialog?, check?}``: the client has a gate and says what it does."""
        params = params if isinstance(params, dict) else {}
        name = params.get("id", params.get("key"))
        ack = Ack.DIALOG if params.get("dialog") is True else Ack.RECEIVED
        if ack is Ack.RECEIVED and params.get("check") is True:
            ack = Ack.CHECK
        self._ledger.guard.acked(name if isinstance(name, str) else "", ack, self._ledger.now())
        self._ledger.arm()

    def sent_again(self, frame: bytes) -> bytes:
        """A frame that a client missed; a question that is settled by now is not asked any more."""
        line = jsonrpc.parse_engine(frame)
        if line.kind != "request" or line.method == acp.LENT_CALL:
            return frame
        shown = str(line.body.get("id"))
        if self._ledger.guard.shows(shown):
            return frame
        params = {"id": shown, "reason": "it was settled meanwhile"}
        return jsonrpc.notification_bytes(acp.GATE_CLOSED, params)

    # -- without the client --------------------------------------------------------------------

    def expired(self, settled: Iterable[Settled]) -> None:
        """The guard has answered what was due."""
        self._close(settled, "guard")

    def close(self, settled: Iterable[Settled]) -> None:
        """Gates that the client has seen were settled because somebody is gone or does not wait."""
        self._close(settled, "gateway")

    def _close(self, settled: Iterable[Settled], by: Literal["guard", "gateway"]) -> None:
        for one in settled:
            self._answer(one.gate, one.line)
            self._audit(one.gate, by, one.line, one.why)
            self._withdraw(one.gate, one.why)

    def void(self, gates: Iterable[Gate], why: str) -> None:
        """Gates that the client has seen are open no longer, and nobody waits for their answers."""
        for gate in gates:
            self._audit(gate, "gateway", b"", why)
            self._withdraw(gate, why)

    def _withdraw(self, gate: Gate, why: str) -> None:
        self._ledger.registry.record(GateClosed(gate.shown))
        self._ledger.emit(jsonrpc.notification_bytes(acp.GATE_CLOSED, {"id": gate.shown, "reason": why}))
        self._ledger.asking_changed(gate.session_id)

    def _audit(
        self, gate: Gate, by: Literal["client", "guard", "gateway"], line: bytes, why: str = ""
    ) -> None:
        registry, params = self._ledger.registry, gate.params
        call = params.get("toolCall")
        call_id = call.get("toolCallId") if isinstance(call, dict) else params.get("toolCallId")
        registry.audit(
            Decision(
                registry.id,
                gate.session_id or "",
                str(params.get("hookEventName") or gate.kind.value),
                str(params.get("toolName") or ""),
                str(params.get("toolUseId") or call_id or ""),
                by,
                answer_word(gate, line),
                round((self._ledger.now() - gate.opened) * 1000),
                why,
            )
        )


def answer_word(gate: Gate, line: bytes) -> str:
    """One word for the engine's answer in ``line``; ``void`` when it got none."""
    if not line:
        return "void"
    message = json.loads(line)
    result = message.get("result")
    if "error" in message:
        return "error"
    result = result if isinstance(result, dict) else {}
    if gate.kind in (GateKind.PRE_HOOK, GateKind.HOOK):
        denied = result.get("decision") in ("deny", "block")
        return "deny" if denied else "allow" if gate.kind is GateKind.PRE_HOOK else "continue"
    outcome = result.get("outcome")
    if isinstance(outcome, dict):
        options = gate.params.get("options")
        chosen = [
            str(option.get("kind"))
            for option in (options if isinstance(options, list) else ())
            if isinstance(option, dict) and option.get("optionId") == outcome.get("optionId")
        ]
        return chosen[0] if chosen else str(outcome.get("outcome"))
    return str(outcome)


def _age(timestamp: Any) -> float:
    """Seconds since Grok asked, by the hook's own ``timestamp``; 0 when it has none to be read."""
    try:
        asked = datetime.datetime.fromisoformat(timestamp)
    except (TypeError, ValueError):
        return 0.0
    return time.time() - asked.timestamp()


def _opened(gate: Gate, method: str) -> GateOpened:
    asked = time.time() - max(0.0, gate.age)
    return GateOpened(
        gate.shown,
        method,
        gate.session_id or "",
        event=str(gate.params.get("hookEventName", "")),
        tool_use_id=str(gate.params.get("toolUseId", "")),
        opened=asked,
        deadline=asked + gate.registered if gate.kind is GateKind.PRE_HOOK else 0.0,
    )
