"""A turn of Grok as a message of Pi: updates, tools, ends and tokens."""

from __future__ import annotations

from typing import Any

import pytest

from workers.pi.tool_activity import LINE, OUTPUT, ToolActivity, output_of
from workers.pi.turn import Turn, ending
from workers.pi.usage import Totals, Usage


def update(turn: Turn, what: str, session: str = "s", meta: Any = None, **more: Any) -> list[Any]:
    return turn.update(session, "s", {"sessionUpdate": what, **more}, meta or {})


def call(turn: Turn, call_id: str = "c1", session: str = "s", **more: Any) -> list[Any]:
    return update(
        turn, "tool_call", session, toolCallId=call_id, title="run", **{"rawInput": {"a": 1}, **more}
    )


def text_of(events: list[Any]) -> str:
    return "".join(e["text"] for e in events if e["op"] == "delta")


# -- tools -------------------------------------------------------------------------------------------


def test_a_call_is_two_lines_and_one_entry() -> None:
    turn = Turn("p")
    assert text_of(call(turn)) == '[grok run] #1 {"a":1}\n'
    assert update(turn, "tool_call_update", toolCallId="c1", kind="execute", rawInput={"variant": "X"}) == []
    done = update(turn, "tool_call_update", toolCallId="c1", status="completed", rawOutput={"stdout": "out"})
    assert text_of(done) == "[grok run completed] #1 out\n"
    assert update(turn, "tool_call_update", toolCallId="c1", status="in_progress", rawInput={}) == []
    assert update(turn, "tool_call_update", toolCallId="c1", status="completed") == []
    (entry,) = [c.entry() for c in turn.tools.take_entries()]
    assert (entry["id"], entry["n"], entry["input"], entry["status"]) == ("c1", 1, {"a": 1}, "completed")
    assert turn.tools.take_entries() == []


def test_calls_are_numbered_in_the_order_of_their_lines() -> None:
    turn = Turn("p")
    assert "#1" in text_of(call(turn, "x"))
    assert "#2" in text_of(call(turn, "y"))
    done = [
        update(turn, "tool_call_update", toolCallId=name, status="completed", rawOutput=name)
        for name in ("y", "x")
    ]
    assert "#2" in text_of(done[0])
    assert [c.number for c in turn.tools.take_entries()] == [2, 1]


def test_lines_and_entries_are_bounded() -> None:
    turn = Turn("p")
    line = text_of(call(turn, rawInput={"a": "x" * 20_000}))
    assert len(line) < LINE + 40
    update(turn, "tool_call_update", toolCallId="c1", status="completed", rawOutput="y" * 20_000)
    (ended,) = turn.tools.take_entries()
    assert len(ended.entry()["output"]) == OUTPUT + 1
    assert len(ended.entry()["input"]["a"]) == 20_000


def test_a_denied_call_says_why_whichever_comes_first() -> None:
    for early in (True, False):
        turn = Turn("p")
        if early:
            turn.tools.denied("c1", "no bash")
        call(turn)
        if not early:
            turn.tools.denied("c1", "no bash")
        done = update(turn, "tool_call_update", toolCallId="c1", status="failed", rawOutput="Hook denied")
        assert text_of(done) == "[grok run denied] #1 no bash\n"
        assert turn.tools.take_entries()[0].entry()["denyReason"] == "no bash"


def test_a_subagents_call_is_under_its_name_and_its_words_are_not_told() -> None:
    turn = Turn("p")
    update(turn, "subagent_spawned", child_session_id="kid", description="a look")
    assert update(turn, "agent_message_chunk", "kid", content={"type": "text", "text": "x"}) == []
    assert text_of(call(turn, "k1", "kid")).startswith("[grok a look › run] #1")
    assert call(turn, "o1", "stranger") == []
    assert "finished" in text_of(update(turn, "subagent_finished", child_session_id="kid"))
    update(turn, "tool_call_update", "kid", toolCallId="k1", status="completed")
    turn.answered({"stopReason": "end_turn"})
    assert [c.entry()["subagent"] for c in turn.tools.take_entries()] == ["a look"]


def test_what_still_runs_ends_with_its_turn() -> None:
    turn = Turn("p")
    call(turn)
    turn.answered({"stopReason": "cancelled"})
    assert turn.tools.take_entries()[0].status == "failed"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"content": [{"type": "content", "content": {"type": "text", "text": "a"}}]}, "a"),
        ({"rawOutput": {"type": "Bash", "output_for_prompt": "a", "output": [1]}}, "a"),
        ({"rawOutput": {"type": "Bash", "output": [104, 105]}}, "hi"),
        ({"rawOutput": {"type": "ReadFile", "FileContent": {"content": "a"}}}, "a"),
        ({"rawOutput": {"type": "ReadFile", "FileNotFound": "a"}}, "a"),
        (
            {"content": None, "rawOutput": {"type": "MCP", "tool_name": "t", "output": {"OkayOutput": "a"}}},
            "a",
        ),
        ({"rawOutput": {"type": "X", "b": 1, "c": 2}}, '{"b":1,"c":2}'),
        ({}, ""),
    ],
)
def test_output(values: dict[str, Any], text: str) -> None:
    assert output_of(values) == text


@pytest.mark.parametrize(
    "values",
    [
        {"content": [{"type": "diff", "path": "f", "oldText": "a\nb\n", "newText": "a\nc\n"}]},
        {
            "rawOutput": {
                "type": "SearchReplace",
                "EditsApplied": {"file_path": "f", "old_string": "a\nb\n", "new_string": "a\nc\n"},
            }
        },
    ],
)
def test_an_edit_has_a_diff(values: dict[str, Any]) -> None:
    tools = ToolActivity()
    tools.update(
        {"toolCallId": "c", "title": "edit", "rawInput": {}, "status": "completed", **values}, now=1.0
    )
    diff = tools.take_entries()[0].entry()["diff"].splitlines()
    assert diff[-3:] == [" a", "-b", "+c"]


# -- ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "aborted", "category", "stop"),
    [
        ("end_turn", False, "", "stop"),
        ("refusal", False, "", "stop"),
        ("max_tokens", False, "", "length"),
        ("cancelled", False, "PermissionRejected", "stop"),
        ("cancelled", False, "MidTurnAbort", "error"),
        ("cancelled", True, "MidTurnAbort", "aborted"),
        ("end_turn", True, "", "aborted"),
    ],
)
def test_endings(reason: str, aborted: bool, category: str, stop: str) -> None:
    end = ending(reason, aborted, category)
    assert (end.stop, end.raw) == (stop, reason)
    assert bool(end.error) is (stop == "error")


def test_a_truncation_is_a_length_and_another_error_is_one() -> None:
    cut, failed, aborted = Turn("p"), Turn("p"), Turn("p", aborted=True)
    cut.failed({"message": "Internal error", "data": {"error_kind": "max_tokens_truncation"}})
    failed.failed({"message": "Rate limited"})
    aborted.failed({"message": "whatever"})
    ends = [turn.end for turn in (cut, failed, aborted)]
    assert [end.stop for end in ends if end] == ["length", "error", "aborted"]


def test_nothing_comes_after_the_end() -> None:
    turn = Turn("p")
    update(turn, "agent_message_chunk", content={"type": "text", "text": "a"})
    assert turn.answered({"stopReason": "end_turn"}) == [{"op": "end", "i": 0}]
    assert update(turn, "agent_message_chunk", content={"type": "text", "text": "late"}) == []
    assert turn.failed({"message": "late"}) == []
    assert turn.end is not None
    assert turn.end.stop == "stop"


# -- tokens ------------------------------------------------------------------------------------------


def test_usage_is_that_of_the_last_call() -> None:
    usage = Usage()
    usage.call_ended(
        {
            "usage": {
                "input_tokens": 60,
                "cache_read_input_tokens": 30,
                "cache_creation_input_tokens": 10,
                "output_tokens": 5,
            }
        }
    )
    usage.answered(
        {
            "inputTokens": 100,
            "outputTokens": 5,
            "cachedReadTokens": 30,
            "totalTokens": 105,
            "usage": {"inputTokens": 900, "outputTokens": 50, "modelCalls": 9, "costUsdTicks": 5e9},
        }
    )
    pi = usage.for_pi(1000)
    assert [pi[k] for k in ("input", "cacheRead", "cacheWrite", "output", "totalTokens")] == [
        60,
        30,
        10,
        5,
        105,
    ]
    assert pi["cost"]["total"] == pi["cost"]["input"] == 0.5


def test_usage_is_never_zero_and_never_above_the_window() -> None:
    assert Usage().for_pi(100)["totalTokens"] == 1
    seen = Usage()
    seen.update({"totalTokens": 77})
    assert seen.for_pi(0)["totalTokens"] == 77
    large = Usage()
    large.answered({"inputTokens": 9000, "outputTokens": 10, "cachedReadTokens": 8500})
    pi = large.for_pi(8192)
    assert pi["input"] + pi["cacheRead"] + pi["cacheWrite"] <= 8192
    assert pi["totalTokens"] <= 8192


@pytest.mark.parametrize("window", [8192, 32768, 262144])
def test_pi_never_compacts_by_accident(window: int) -> None:
    """Its own rules, with the window that is registered."""
    registered = window + 32768
    for used in range(0, window + 1, window // 20):
        usage = Usage()
        usage.answered(
            {"inputTokens": used, "outputTokens": 9, "cachedReadTokens": used // 2, "totalTokens": used + 9}
        )
        pi = usage.for_pi(window)
        assert pi["input"] + pi["cacheRead"] <= registered
        assert pi["totalTokens"] <= registered - 16384


def test_totals_are_sums() -> None:
    totals = Totals()
    for _ in range(2):
        totals.add(
            {
                "inputTokens": 10,
                "outputTokens": 2,
                "cachedReadTokens": 5,
                "modelCalls": 3,
                "costUsdTicks": 1e10,
            }
        )
    assert (totals.turns, totals.calls, totals.input, totals.cost) == (2, 6, 20, 2.0)
