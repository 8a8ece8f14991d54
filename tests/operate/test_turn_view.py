"""Notifications in, lines out."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.operate.turn_view import Piece, TurnView, clean, one_line

SESSION = "s1"


def update(
    kind: str, session: str = SESSION, method: str = "session/update", /, **fields: Any
) -> dict[str, Any]:
    return {"method": method, "params": {"sessionId": session, "update": {"sessionUpdate": kind, **fields}}}


def said(text: str) -> dict[str, Any]:
    return update("agent_message_chunk", content={"type": "text", "text": text})


def thought(text: str) -> dict[str, Any]:
    return update("agent_thought_chunk", content={"type": "text", "text": text})


def call(**fields: Any) -> dict[str, Any]:
    return update("tool_call_update", toolCallId="c1", **fields)


def shown(*messages: dict[str, Any], shared: bool = True) -> list[tuple[str, str]]:
    view = TurnView(SESSION, shared=shared)
    pieces = [piece for message in messages for piece in view.notification(message)]
    return [(piece.stream, piece.text) for piece in pieces + view.finish()]


BEGUN = update("tool_call", toolCallId="c1", title="run_terminal_command", rawInput={})
NAMED = call(kind="execute", title="Execute `ls`")
FAILED = call(status="failed", content=[{"type": "content", "content": {"type": "text", "text": "no\nway"}}])


@pytest.mark.parametrize(
    ("messages", "pieces"),
    [
        pytest.param([said("a"), said("b\n")], [("answer", "a"), ("answer", "b\n")], id="text"),
        pytest.param([said("a")], [("answer", "a"), ("answer", "\n")], id="the last line is ended"),
        pytest.param(
            [thought("hm"), said("a\n")],
            [("thought", "hm"), ("thought", "\n"), ("answer", "a\n")],
            id="thought before text",
        ),
        pytest.param(
            [said("a"), BEGUN, NAMED],
            [("answer", "a"), ("answer", "\n"), ("note", "● Execute `ls`\n")],
            id="a call ends the line",
        ),
        pytest.param([BEGUN], [], id="a call without a title for people is not shown yet"),
        pytest.param(
            [BEGUN, NAMED, call(status="in_progress"), call(status="completed"), NAMED],
            [("note", "● Execute `ls`\n")],
            id="one line a call",
        ),
        pytest.param(
            [BEGUN, call(status="completed")],
            [("note", "● run_terminal_command\n")],
            id="a call that never got a title",
        ),
        pytest.param(
            [BEGUN, NAMED, FAILED],
            [("note", "● Execute `ls`\n"), ("note", "✗ Execute `ls`: no way\n")],
            id="a failed call",
        ),
        pytest.param(
            [call(status="failed")],
            [("note", "● tool call\n"), ("note", "✗ tool call: failed\n")],
            id="a failed call without anything",
        ),
        pytest.param(
            [
                update(
                    "plan",
                    entries=[
                        {"content": "one", "status": "completed"},
                        {"content": "two", "status": "in_progress"},
                    ],
                )
            ],
            [("note", "○ plan 2/2: two\n")],
            id="plan",
        ),
        pytest.param(
            [
                update(
                    "retry_state",
                    SESSION,
                    "_x.ai/session_notification",
                    type="retrying",
                    attempt=2,
                    reason="500",
                )
            ],
            [("note", "  the model is asked again (2): 500\n")],
            id="retry",
        ),
        pytest.param(
            [{"method": "gateway/leader_restarted", "params": {}}],
            [("note", "  the engine was restarted; the session is loaded again\n")],
            id="leader",
        ),
        pytest.param([update("agent_message_chunk", "child", content={"text": "x"})], [], id="other session"),
        pytest.param([update("nonsense"), {"method": "x"}, {"method": "x", "params": []}], [], id="unknown"),
        pytest.param([update("agent_message_chunk"), update("plan"), said("")], [], id="nothing in it"),
    ],
)
def test_what_is_shown(messages: list[dict[str, Any]], pieces: list[tuple[str, str]]) -> None:
    assert shown(*messages) == pieces


def test_the_answer_alone_is_not_broken_by_notes() -> None:
    pieces = shown(said("a"), NAMED, said("b"), shared=False)
    assert "".join(text for stream, text in pieces if stream == "answer") == "ab\n"


def test_a_note_of_our_own_ends_the_line() -> None:
    view = TurnView(SESSION, shared=True)
    view.notification(said("a"))
    assert view.note("b") == [Piece("answer", "\n"), Piece("note", "  b\n")]
    assert view.finish() == []


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("\x1b]0;title\x07x", "]0;titlex"),
        ("a\rb\x08c\x7fd\x9be", "abcde"),
        ("a\u202eb\u2066c", "abc"),
        ("ünï ✓", "ünï ✓"),
    ],
)
def test_control_characters_never_reach_the_terminal(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned
    assert shown(said(text))[0] == ("answer", cleaned)


def test_one_line_is_one_line_of_bounded_length() -> None:
    assert one_line("a\n  b\x1b[2J") == "a b"
    assert len(one_line("x" * 500)) == 160
