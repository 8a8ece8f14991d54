"""The replay of a load and its answer, in the usual order and in the other one."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.jsonrpc import EngineLine, parse_engine
from workers.replay_order import ReplayOrder, wants_no_replay

KEY = b'"gw-1"'


def line(**message: Any) -> EngineLine:
    return parse_engine(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode())


def chunk(number: int, session: str = "s", *, replay: bool = False) -> EngineLine:
    meta = {"eventId": f"{session}-{number}", **({"isReplay": True} if replay else {})}
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": str(number)}}
    params = {"sessionId": session, "update": update, "_meta": meta}
    return line(method="session/update", params=params)


ANSWER = line(id="gw-1", result={"models": {}})
NEWS = line(
    method="_x.ai/session_notification",
    params={"sessionId": "s", "update": {"sessionUpdate": "background_tasks", "tasks": []}},
)
HOOK = line(id=7, method="_x.ai/hooks/run", params={"sessionId": "s", "hookEventName": "pre_tool_use"})


def passed(*lines: EngineLine) -> list[EngineLine]:
    order = ReplayOrder()
    order.expect(KEY, "s")
    return [out for one in lines for out in order.sort(one)]


def test_the_usual_order_stays_as_it_is() -> None:
    lines = [chunk(1, replay=True), ANSWER, NEWS, chunk(2)]
    assert passed(*lines) == lines


def test_an_answer_waits_for_its_replay() -> None:
    late = [chunk(1, replay=True), chunk(2, replay=True)]
    assert passed(ANSWER, *late) == late
    assert passed(ANSWER, *late, NEWS, chunk(3)) == [*late, ANSWER, NEWS, chunk(3)]


def test_live_lines_wait_with_it_and_what_the_replay_has_is_left_out() -> None:
    early = [chunk(4), HOOK, NEWS]
    late = [chunk(3, replay=True), chunk(4, replay=True)]
    assert passed(ANSWER, *early, *late, chunk(5), NEWS) == [*late, ANSWER, HOOK, NEWS, chunk(5), NEWS]


def test_other_sessions_and_other_answers_pass() -> None:
    other = line(id="gw-2", result=None)
    assert passed(ANSWER, chunk(1, "t"), other, chunk(1, "t", replay=True)) == [
        chunk(1, "t"),
        other,
        chunk(1, "t", replay=True),
    ]


def test_an_error_waits_for_nothing() -> None:
    refusal = line(id="gw-1", error={"code": -32603, "message": "Path not found."})
    assert passed(refusal, NEWS) == [refusal, NEWS]


def test_a_session_without_history_is_released_in_order() -> None:
    order = ReplayOrder()
    order.expect(KEY, "s")
    assert not order.keeps(KEY)
    assert [out for one in (ANSWER, NEWS, HOOK) for out in order.sort(one)] == []
    assert order.keeps(KEY)
    assert order.release(KEY) == [ANSWER, NEWS, HOOK]
    assert not order.keeps(KEY)
    assert order.release(KEY) == []  # the timer of a load that is through
    assert order.sort(chunk(9)) == [chunk(9)]


def test_nothing_waits_for_a_load_that_was_given_up() -> None:
    order = ReplayOrder()
    order.expect(KEY, "s")
    assert order.release(KEY) == []
    assert order.sort(ANSWER) == [ANSWER]


@given(st.permutations(["answer", *"rrr", *"lll"]))
def test_nothing_is_lost_or_doubled(kinds: list[str]) -> None:
    numbers = iter(range(1, 20))
    lines = [ANSWER if k == "answer" else chunk(next(numbers), replay=k == "r") for k in kinds]
    replay, live = kinds.index("r"), [one for one in lines if one is not ANSWER and not one.is_replay]
    out = passed(*lines, NEWS)
    if kinds.index("answer") < replay:
        first, last = lines.index(ANSWER), max(n for n, one in enumerate(lines) if one.is_replay)
        live = [one for one in live if not first < lines.index(one) < last]  # the replay has them
    assert [one for one in out if one.update and not one.is_replay] == [*live, NEWS]
    assert [one for one in out if one.is_replay] == [one for one in lines if one.is_replay]
    assert out.count(ANSWER) == 1
    assert out.index(ANSWER) > out.index(lines[replay])


def test_a_cursor_asks_for_no_replay() -> None:
    assert wants_no_replay({"sessionId": "s", "_meta": {"cursor": "s-4"}})
    assert not wants_no_replay({"sessionId": "s", "_meta": {}})
    assert not wants_no_replay({"sessionId": "s", "_meta": 3})
    assert not wants_no_replay(None)
