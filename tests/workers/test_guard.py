"""The guard: one answer each, in time, and nothing is allowed by silence."""

from __future__ import annotations

import json
import math
import os
import random
from typing import Any

import pytest

from gateway.wire.jsonrpc import parse_client
from gateway.wire.limits import Limits
from gateway.wire.questions import GateKind, gate_kind
from workers.guard import Ack, Gate, Guard, Settled, Tier, content_key

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
    guard = Guard(acks=False)
    guard.open(gate(kind=GateKind.PERMISSION), 0)
    (settled,) = guard.cancel({"s"})
    assert result(settled.line) == {"outcome": {"outcome": "cancelled"}}


def test_the_first_answer_counts() -> None:
    guard = Guard(acks=False)
    first = gate()
    assert guard.open(first, 0) is True
    assert guard.answered(b"1", 0) is first
    assert guard.answered(b"1", 0) is None
    assert guard.counters == {"opened": 1, "answered": 1, "late": 1}


def test_an_id_that_is_used_again_is_another_gate() -> None:
    guard = Guard(acks=False)
    guard.open(gate(), 0)
    guard.answered(b"1", 0)
    again = gate()
    assert guard.open(again, 0) is True
    assert guard.answered(b"1", 0) is again


def test_a_gate_that_is_open_is_not_shown_twice() -> None:
    guard = Guard(acks=False)
    assert guard.open(gate(), 0) is True
    assert guard.open(gate(), 0) is False
    assert len(guard) == 1


def test_after_the_gateway_has_answered_the_client_comes_too_late() -> None:
    guard = Guard(acks=False)
    guard.open(gate(1), 0)
    guard.open(gate(2, GateKind.PERMISSION), 0)
    assert [s.gate.id_raw for s in guard.close_all("gone")] == [b"1", b"2"]
    assert guard.close_all("gone") == []
    assert guard.answered(b"1", 0) is None


def test_only_the_gates_of_a_cancelled_session_and_its_subagents_are_closed() -> None:
    guard = Guard(acks=False)
    for number, session in enumerate(("s", "child", "other")):
        guard.open(gate(number, session=session), 0)
    assert [s.gate.session_id for s in guard.cancel({"s", "child"})] == ["s", "child"]
    assert [g.session_id for g in guard] == ["other"]


def test_too_many_gates_are_answered_at_once() -> None:
    guard = Guard(acks=False, capacity=1)
    guard.open(gate(1), 0)
    refused = guard.open(gate(2), 0)
    assert isinstance(refused, Settled)
    assert result(refused.line)["decision"] == "deny"
    assert len(guard) == 1


def test_a_lost_bridge_voids_hooks_only() -> None:
    guard = Guard(acks=False)
    for number, kind in enumerate(KINDS):
        guard.open(gate(number, kind), 0)
    assert [g.kind for g in guard.bridge_lost()] == [GateKind.PRE_HOOK, GateKind.HOOK]
    assert [g.kind for g in guard] == [k for k in KINDS if k not in (GateKind.PRE_HOOK, GateKind.HOOK)]
    assert len(guard.leader_lost()) == len(KINDS) - 2
    assert len(guard) == 0


def test_only_what_a_person_answers_counts_as_asking() -> None:
    guard = Guard(acks=False)
    for number, kind in enumerate(KINDS):
        guard.open(gate(number, kind), 0)
    assert guard.asking({"s"}) == 3
    assert guard.asking({"t"}) == 0


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


# -- time --------------------------------------------------------------------------------------

LIMITS = Limits()


def asked(kind: GateKind, number: int = 1, **more: Any) -> Gate:
    return Gate(b"%d" % number, f"g.{number}", kind, "s", {}, 0.0, **more)


@pytest.mark.parametrize(
    ("kind", "registered", "age", "deadline"),
    [
        (GateKind.PRE_HOOK, 600, 0, 585),
        (GateKind.PRE_HOOK, 600, 100, 485),
        (GateKind.PRE_HOOK, 10_000, 0, 585),  # Grok cuts a longer time
        (GateKind.HOOK, 30, 0, 29),
        (GateKind.HOOK, 30, 10, 19),
        (GateKind.PERMISSION, math.inf, 0, 570),
        (GateKind.QUESTION, math.inf, 0, 570),
        (GateKind.PLAN, math.inf, 0, 570),
        (GateKind.OTHER, math.inf, 0, 570),
    ],
)
def test_deadlines_of_a_client_that_sends_no_acks(
    kind: GateKind, registered: float, age: float, deadline: float
) -> None:
    guard = Guard(acks=False)
    assert guard.open(asked(kind, registered=registered, age=age), 0) is True
    assert guard.next_deadline() == deadline
    assert guard.acked("g.1", Ack.DIALOG, 1) is False
    assert guard.next_deadline() == deadline
    assert guard.expired(deadline - 0.001) == []
    assert guard.answered(b"1", deadline) is None, "the guard's answer is on its way"
    (settled,) = guard.expired(deadline)
    assert settled.gate.kind is kind
    assert guard.next_deadline() == math.inf
    assert guard.counters[f"expired_{kind.value}"] == 1


def test_the_tiers_of_a_client_that_sends_acks() -> None:
    guard = Guard(acks=True)
    guard.open(asked(GateKind.PRE_HOOK, registered=600), 0)
    assert guard.next_deadline() == LIMITS.ack
    guard.acked("g.1", Ack.RECEIVED, 4)
    assert guard.next_deadline() == 4 + LIMITS.policy
    guard.acked("g.1", Ack.CHECK, 10)
    assert guard.next_deadline() == 10 + LIMITS.check
    guard.acked("g.1", Ack.DIALOG, 12)
    assert guard.next_deadline() == 12 + LIMITS.dialog
    guard.acked("g.1", Ack.DIALOG, 500)
    assert guard.next_deadline() == 585, "no ack moves the absolute deadline"


@pytest.mark.parametrize("ack", list(Ack))
def test_an_ack_at_the_deadline_comes_too_late(ack: Ack) -> None:
    guard = Guard(acks=True)
    guard.open(asked(GateKind.PERMISSION), 0)
    assert guard.acked("g.1", ack, LIMITS.ack) is False
    assert len(guard.expired(LIMITS.ack)) == 1


def test_a_hook_that_comes_too_late_is_denied_at_once() -> None:
    guard = Guard(acks=False)
    settled = guard.open(asked(GateKind.PRE_HOOK, registered=600, age=590), 0)
    assert isinstance(settled, Settled)
    assert result(settled.line)["decision"] == "deny"


def test_a_lost_socket_leaves_the_time_of_an_ack_and_no_more() -> None:
    guard = Guard(acks=False)
    guard.open(asked(GateKind.PERMISSION), 0)
    guard.client_lost(100)
    assert guard.next_deadline() == 100 + LIMITS.ack
    guard.client_lost(102)
    assert guard.next_deadline() == 100 + LIMITS.ack, "a second loss gives no more time"
    guard.open(asked(GateKind.QUESTION, 2), 103)
    assert [s.gate.id_raw for s in guard.expired(105)] == [b"1"]
    guard.client_back(106)
    assert guard.next_deadline() == 106 + LIMITS.dialog


def test_who_comes_back_has_to_acknowledge_again() -> None:
    guard = Guard(acks=True)
    guard.open(asked(GateKind.PERMISSION), 0)
    guard.acked("g.1", Ack.DIALOG, 1)
    guard.client_lost(2)
    assert guard.acked("g.1", Ack.DIALOG, 3) is False, "an ack of a socket that is gone"
    guard.client_back(4)
    assert guard.next_deadline() == 4 + LIMITS.ack


def test_the_same_id_with_other_content_is_another_question() -> None:
    guard = Guard(acks=False)
    first = Gate(b"1", "g.1", GateKind.PERMISSION, "s", {"toolCall": {"toolCallId": "a"}}, 0.0)
    second = Gate(b"1", "g.1", GateKind.PERMISSION, "s", {"toolCall": {"toolCallId": "b"}}, 0.0)
    assert guard.open(first, 0) is True
    assert guard.open(second, 1) is True
    assert guard.answered(b"1", 2) is second
    assert guard.answered(b"1", 2) is None


@pytest.mark.parametrize(
    ("kind", "params", "key"),
    [
        (GateKind.PRE_HOOK, {"hookEventName": "pre_tool_use", "toolUseId": "c"}, "pre_tool_use:c"),
        (GateKind.HOOK, {"hookEventName": "post_tool_use", "toolUseId": "c"}, "post_tool_use:c"),
        (GateKind.HOOK, {"hookEventName": "stop", "sessionId": "s"}, "stop:s"),
        (GateKind.HOOK, {"hookEventName": "post_tool_use"}, ""),
        (GateKind.PERMISSION, {"toolCall": {"toolCallId": "c"}}, "perm:c"),
        (GateKind.PERMISSION, {"toolCall": None}, ""),
        (GateKind.QUESTION, {"toolCallId": "c"}, "ask:c"),
        (GateKind.QUESTION, {"tool_call_id": "c"}, "ask:c"),
        (GateKind.QUESTION, {}, "ask:"),
        (GateKind.PLAN, {"toolCallId": "c"}, ""),
    ],
)
def test_content_keys(kind: GateKind, params: dict[str, Any], key: str) -> None:
    assert content_key(kind, params) == key
    if key:
        guard = Guard(acks=True)
        guard.open(Gate(b"1", "g.1", kind, "s", params, 0.0, registered=600), 0)
        assert guard.acked(key, Ack.DIALOG, 1) is True
        assert next(iter(guard)).tier is Tier.DIALOG


def test_an_ack_of_something_unknown_or_nameless_changes_nothing() -> None:
    guard = Guard(acks=True)
    guard.open(asked(GateKind.PLAN), 0)
    assert guard.acked("", Ack.DIALOG, 1) is False
    assert guard.acked("g.2", Ack.DIALOG, 1) is False
    assert guard.next_deadline() == LIMITS.ack


# -- any interleaving, against a model ---------------------------------------------------------


class Model:
    """What a gate's fate must be, told in one place and without states: who settles it, and when."""

    def __init__(self, acks: bool) -> None:
        self.acks, self.connected = acks, True
        self.fate: dict[bytes, list[str]] = {}  # id: answers of each occurrence
        self.until: dict[bytes, float] = {}
        self.hard: dict[bytes, float] = {}
        self.hook: dict[bytes, bool] = {}

    def window(self, number: bytes) -> float:
        if not self.connected or self.acks:
            return LIMITS.ack
        return math.inf if self.hook[number] else LIMITS.dialog

    def asked(self, gate: Gate, now: float) -> None:
        hooks = {GateKind.PRE_HOOK: LIMITS.pre_hook_margin, GateKind.HOOK: LIMITS.early_answer}
        margin = hooks.get(gate.kind, 0.0)
        self.hook[gate.id_raw] = gate.kind in hooks
        self.hard[gate.id_raw] = now - gate.age + gate.registered - margin
        self.until[gate.id_raw] = min(self.hard[gate.id_raw], now + self.window(gate.id_raw))
        self.fate[gate.id_raw] = []

    def rearm(self, number: bytes, window: float, now: float) -> None:
        self.until[number] = min(self.hard[number], now + window)


def play(rng: random.Random) -> None:
    acks = rng.random() < 0.5
    guard, model, now, number = Guard(acks=acks), Model(acks), 0.0, 0
    alive: dict[bytes, Gate] = {}

    def settle(settled: list[Settled], now: float, *, in_time: bool = False) -> None:
        for one in settled:
            body = json.loads(one.line)
            assert "allow" not in json.dumps(body.get("result")), body
            model.fate[one.gate.id_raw].append("guard")
            assert not in_time or now <= model.hard[one.gate.id_raw]
            del alive[one.gate.id_raw]

    for _ in range(rng.randint(5, 40)):
        step = rng.choice((0.0, 0.5, 1.0, 5.0, 14.0, 100.0, 300.0))
        target = now + step
        if rng.random() < 0.8:  # a loop that wakes in time
            while (deadline := guard.next_deadline()) <= target:
                in_time = deadline >= now
                now = max(now, deadline)
                settle(guard.expired(now), now, in_time=in_time)
        # else it was busy: answers may be waiting when it wakes
        now = target
        for known, gate in alive.items():
            assert gate.deadline == model.until[known]
        action = rng.choice(
            ("ask", "ask", "answer", "ack", "lost", "back", "cancel", "again", "wake", "close")
        )
        if action == "ask":
            number += 1
            kind = rng.choice(KINDS)
            registered = rng.choice((30.0, 120.0, 600.0)) if kind is GateKind.HOOK else 600.0
            registered = registered if kind in (GateKind.PRE_HOOK, GateKind.HOOK) else math.inf
            params = {
                "toolUseId": f"t{number}",
                "toolCallId": f"t{number}",
                "hookEventName": "x",
                "options": OPTIONS,
            }
            name = b"%d" % rng.choice((number, rng.randint(1, number)))  # sometimes an id is used again
            gate = Gate(
                name, f"g.{name.decode()}", kind, "s", params, now, registered, rng.choice((0.0, 3.0))
            )
            if name in alive and alive[name].key == gate.key:
                assert guard.open(gate, now) is False
                continue
            model.asked(gate, now)
            outcome = guard.open(gate, now)
            alive[name] = gate
            if isinstance(outcome, Settled):
                settle([outcome], now)
        elif action == "answer" and number:
            name = b"%d" % rng.randint(1, number)
            expected = name in alive and model.until[name] > now
            got = guard.answered(name, now)
            assert (got is not None) == expected
            if got is not None:
                assert now < model.hard[name], "an answer after the absolute deadline"
                assert model.fate[name] == []
                model.fate[name].append("client")
                del alive[name]
        elif action == "ack" and number:
            name = b"%d" % rng.randint(1, number)
            ack = rng.choice(list(Ack))
            taken = guard.acked(f"g.{name.decode()}", ack, now)
            assert taken == (acks and model.connected and name in alive and model.until[name] > now)
            if taken:
                windows = {Ack.RECEIVED: LIMITS.policy, Ack.CHECK: LIMITS.check, Ack.DIALOG: LIMITS.dialog}
                model.rearm(name, windows[ack], now)
        elif action == "lost":
            guard.client_lost(now)
            model.connected = False
            for name in alive:
                model.until[name] = min(model.until[name], now + LIMITS.ack)
        elif action == "back":
            guard.client_back(now)
            model.connected = True
            for name in alive:
                if model.until[name] > now:
                    model.rearm(name, model.window(name), now)
        elif action == "cancel" and rng.random() < 0.2:
            settle(guard.cancel({"s"}), now)
        elif action == "again" and alive:
            assert guard.open(rng.choice(list(alive.values())), now) is False
        elif action == "wake":
            settle(guard.expired(now), now)
        elif action == "close" and rng.random() < 0.1:
            settle(guard.close_all("gone"), now)
        assert {g.id_raw for g in guard} == set(alive)
        assert all(len(answers) <= 1 for answers in model.fate.values())
    settle(guard.expired(math.inf), now)
    assert len(guard) == 0
    assert all(len(answers) == 1 for name, answers in model.fate.items())


def test_any_interleaving_agrees_with_the_model() -> None:
    seed = random.randrange(2**32)
    for round_number in range(int(os.environ.get("GROK_GATEWAY_TEST_INTERLEAVINGS", "3000"))):
        try:
            play(random.Random(f"{seed}.{round_number}"))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}.{round_number}: {error}") from error
