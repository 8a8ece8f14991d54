"""Gates: one answer each, and nothing is allowed by silence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.wire.jsonrpc import parse_client
from gateway.wire.questions import GateKind, gate_kind
from workers.gates import Gate, Gates, Settled

OPTIONS = [
    {"optionId": "always-allow", "kind": "allow_always"},
    {"optionId": "allow-once", "kind": "allow_once"},
    {"optionId": "reject-always", "kind": "reject_always"},
    {"optionId": "no", "kind": "reject_once"},
]
KINDS = list(GateKind)


def gate(
    number: int = 1, kind: GateKind = GateKind.PRE_HOOK, session: str = "s", options: Any = OPTIONS
) -> Gate:
    return Gate(b"%d" % number, f"g.{number}", kind, session, {"options": options}, 0.0)


def result(line: bytes) -> Any:
    return json.loads(line)["result"]


@pytest.mark.parametrize(
    ("method", "event", "kind"),
    [
        ("_x.ai/hooks/run", "pre_tool_use", GateKind.PRE_HOOK),
        ("_x.ai/hooks/run", "PreToolUse", GateKind.PRE_HOOK),
        ("_x.ai/hooks/run", "post_tool_use", GateKind.HOOK),
        ("_x.ai/hooks/run", None, GateKind.HOOK),
        ("session/request_permission", None, GateKind.PERMISSION),
        ("_x.ai/ask_user_question", None, GateKind.QUESTION),
        ("_x.ai/exit_plan_mode", None, GateKind.PLAN),
        ("fs/read_text_file", None, GateKind.OTHER),
    ],
)
def test_kinds(method: str, event: str | None, kind: GateKind) -> None:
    assert gate_kind(method, {"hookEventName": event}) is kind


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (GateKind.HOOK, {"decision": "continue"}),
        (GateKind.PERMISSION, {"outcome": {"outcome": "selected", "optionId": "no"}}),
        (GateKind.QUESTION, {"outcome": "cancelled"}),
        (GateKind.PLAN, {"outcome": "cancelled"}),
    ],
)
def test_what_nobody_answers_allows_nothing(kind: GateKind, expected: Any) -> None:
    assert result(gate(kind=kind).closed("nobody is there")) == expected


def test_a_hook_that_nobody_answers_is_denied_and_says_why() -> None:
    answer = result(gate().closed("nobody is there"))
    assert answer["decision"] == "deny"
    assert "nobody is there" in answer["reason"]


def test_an_unknown_question_gets_an_error() -> None:
    assert "error" in json.loads(gate(kind=GateKind.OTHER).closed("nobody is there"))


@pytest.mark.parametrize("options", [None, [], [7], [{"kind": "allow_once", "optionId": "x"}], "reject_once"])
def test_a_permission_without_a_way_to_reject_once_is_cancelled(options: Any) -> None:
    answer = result(gate(kind=GateKind.PERMISSION, options=options).closed("nobody is there"))
    assert answer == {"outcome": {"outcome": "cancelled"}}


def test_a_permission_of_a_cancelled_turn_is_cancelled() -> None:
    gates = Gates()
    gates.open(gate(kind=GateKind.PERMISSION))
    (settled,) = gates.cancel({"s"})
    assert result(settled.line) == {"outcome": {"outcome": "cancelled"}}


def test_the_first_answer_counts() -> None:
    gates = Gates()
    first = gate()
    assert gates.open(first) is True
    assert gates.answered(b"1") is first
    assert gates.answered(b"1") is None
    assert gates.counters == {"opened": 1, "answered": 1, "late": 1}


def test_an_id_that_is_used_again_is_another_gate() -> None:
    gates = Gates()
    gates.open(gate())
    gates.answered(b"1")
    again = gate()
    assert gates.open(again) is True
    assert gates.answered(b"1") is again


def test_a_gate_that_is_open_is_not_shown_twice() -> None:
    gates = Gates()
    assert gates.open(gate()) is True
    assert gates.open(gate()) is False
    assert len(gates) == 1


def test_after_the_gateway_has_answered_the_client_comes_too_late() -> None:
    gates = Gates()
    gates.open(gate(1))
    gates.open(gate(2, GateKind.PERMISSION))
    assert [s.gate.id_raw for s in gates.close_all("gone")] == [b"1", b"2"]
    assert gates.close_all("gone") == []
    assert gates.answered(b"1") is None


def test_only_the_gates_of_a_cancelled_session_and_its_subagents_are_closed() -> None:
    gates = Gates()
    for number, session in enumerate(("s", "child", "other")):
        gates.open(gate(number, session=session))
    assert [s.gate.session_id for s in gates.cancel({"s", "child"})] == ["s", "child"]
    assert [g.session_id for g in gates] == ["other"]


def test_too_many_gates_are_answered_at_once() -> None:
    gates = Gates(capacity=1)
    gates.open(gate(1))
    refused = gates.open(gate(2))
    assert isinstance(refused, Settled)
    assert result(refused.line)["decision"] == "deny"
    assert len(gates) == 1


def test_a_lost_bridge_voids_hooks_only() -> None:
    gates = Gates()
    for number, kind in enumerate(KINDS):
        gates.open(gate(number, kind))
    assert [g.kind for g in gates.bridge_lost()] == [GateKind.PRE_HOOK, GateKind.HOOK]
    assert [g.kind for g in gates] == [k for k in KINDS if k not in (GateKind.PRE_HOOK, GateKind.HOOK)]
    assert len(gates.leader_lost()) == len(KINDS) - 2
    assert len(gates) == 0


def test_only_what_a_person_answers_counts_as_asking() -> None:
    gates = Gates()
    for number, kind in enumerate(KINDS):
        gates.open(gate(number, kind))
    assert gates.asking({"s"}) == 3
    assert gates.asking({"t"}) == 0


# -- the client's answers ----------------------------------------------------------------------


def answered(kind: GateKind, body: str) -> Any:
    message = parse_client(f'{{"jsonrpc":"2.0","id":"g.1",{body}}}'.encode())
    return json.loads(gate(kind=kind).answer(message))


def test_an_answer_goes_on_as_it_was_with_the_engines_id() -> None:
    message = parse_client(b'{ "jsonrpc":"2.0", "result":{"x": 1.0}, "id":"g.1" }')
    assert gate().answer(message) == b'{ "jsonrpc":"2.0", "result":{"x": 1.0}, "id":1 }'


@pytest.mark.parametrize("body", ['"error":{"code":1,"message":"x"}', '"result":[]', '"result":"deny"'])
def test_grok_would_run_the_tool_after_an_answer_that_it_does_not_understand(body: str) -> None:
    assert answered(GateKind.PRE_HOOK, body)["result"]["decision"] == "deny"


@pytest.mark.parametrize("body", ['"result":{}', '"result":null', '"result":{"decision":"deny"}'])
def test_what_a_client_says_to_a_hook_is_passed_on(body: str) -> None:
    assert answered(GateKind.PRE_HOOK, body)["result"] == json.loads(f"{{{body}}}")["result"]


def test_errors_to_other_questions_are_passed_on() -> None:
    assert "error" in answered(GateKind.QUESTION, '"error":{"code":1,"message":"x"}')
