"""Registration and answers of hooks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.hooks import Event, HookError, PreAnswer, cut, parse_hooks, read_post, read_pre, read_stop
from harness.limits import LIMITS, SIZES


def group(**more: Any) -> dict[str, Any]:
    return {"hookCallbackIds": ["h"], **more}


@pytest.mark.parametrize("name", ["pre_tool_use", "PreToolUse", "preToolUse"])
def test_names_of_events(name: str) -> None:
    assert parse_hooks({name: [group()]}).for_event(Event.PRE_TOOL_USE, "x")


def test_an_unknown_event_is_only_noted() -> None:
    found = parse_hooks({"Bogus": [group()], "SubagentEnd": [group()]})
    assert list(found.by_event) == [Event.SUBAGENT_STOP]
    assert found.notes


@pytest.mark.parametrize(
    ("matcher", "tool", "matches"),
    [
        (None, "anything", True),
        ("", "anything", True),
        ("*", "anything", True),
        ("Bash", "run_terminal_command", True),
        ("Bash|Read", "read_file", True),
        ("Edit", "write", False),
        ("Write", "write", True),
        ("run_terminal", "run_terminal_command", False),  # plain names are whole names
        ("run_terminal.*", "run_terminal_command", True),
        ("run_terminal.*|read_file", "read_file", True),
        ("term.", "run_terminal_command", True),  # a pattern need not match the whole
        ("^srv__.*$", "srv__tool", True),
        ("^Bash$", "run_terminal_command", True),
        ("srv__other", "srv__tool", False),
    ],
)
def test_matchers(matcher: str | None, tool: str, matches: bool) -> None:
    hooks = parse_hooks({"pre_tool_use": [group(matcher=matcher)]})
    assert bool(hooks.for_event(Event.PRE_TOOL_USE, tool)) is matches


def test_matchers_are_about_tools_only() -> None:
    hooks = parse_hooks({"stop": [group(matcher="Bash")], "user_prompt_submit": [group(matcher="x")]})
    assert hooks.for_event(Event.STOP)
    assert hooks.for_event(Event.USER_PROMPT_SUBMIT)


@pytest.mark.parametrize(
    ("event", "timeout", "seconds"),
    [
        ("pre_tool_use", None, LIMITS.hook_pre),
        ("stop", None, LIMITS.hook_stop),
        ("post_tool_use", None, LIMITS.hook_post),
        ("pre_tool_use", 2, 2),
        ("pre_tool_use", 0.5, 0.5),
        ("pre_tool_use", 10_000, LIMITS.hook_longest),
    ],
)
def test_times(event: str, timeout: float | None, seconds: float) -> None:
    (hook,) = next(iter(parse_hooks({event: [group(timeout=timeout)]}).by_event.values()))
    assert hook.seconds == seconds


@pytest.mark.parametrize(
    "groups",
    [
        3,
        "x",
        {},
        ["x"],
        [{}],
        [{"hookCallbackIds": "x"}],
        [{"hookCallbackIds": [3]}],
        [{"hookCallbackIds": [""]}],
        [group(matcher="(")],
        [group(matcher=3)],
        [group(timeout=0)],
        [group(timeout="2")],
        [group(timeout=True)],
        [group(timeout=float("nan"))],
    ],
)
def test_a_gate_that_cannot_be_read_is_no_gate_that_is_skipped(groups: Any) -> None:
    with pytest.raises(HookError):
        parse_hooks({"pre_tool_use": groups})
    assert parse_hooks({"post_tool_use": groups}).notes


def test_no_hooks() -> None:
    assert not parse_hooks(None).by_event
    assert not parse_hooks({}).by_event
    with pytest.raises(HookError):
        parse_hooks([])


# -- answers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"decision": None},
        {"decision": "allow"},
        {"decision": "continue"},
        {"additionalContext": "x"},
        {"continue": False},
    ],
)
def test_answers_that_let_a_tool_go_on(answer: Any) -> None:
    assert read_pre(answer) == PreAnswer()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"decision": "deny", "reason": "no"}, "no"),
        ({"decision": "block", "systemMessage": "no"}, "no"),
        ({"decision": "deny", "reason": " ", "systemMessage": "no"}, "no"),
    ],
)
def test_denials(answer: Any, reason: str) -> None:
    assert read_pre(answer) == PreAnswer(reason)


@given(
    st.one_of(
        st.text(), st.integers(), st.booleans(), st.lists(st.integers()), st.floats(allow_nan=False)
    ).map(lambda x: x)
)
def test_what_is_no_object_denies(answer: Any) -> None:
    read = read_pre(answer)
    assert read.denied
    assert read.failed


@pytest.mark.parametrize("decision", ["maybe", "Deny", "DENIED", 1, [], {}, True])
def test_a_decision_that_is_not_known_denies(decision: Any) -> None:
    assert read_pre({"decision": decision}).denied


def test_post_answers() -> None:
    assert read_post({"additionalContext": "c"}).context == "c"
    assert read_post({"decision": "block", "reason": "r"}).feedback == "r"
    assert read_post({"hookSpecificOutput": {"additionalContext": "c"}}) == read_post({})
    assert read_post([1]).error
    assert read_post(None) == read_post({})


def test_stop_answers() -> None:
    assert read_stop({"decision": "block", "reason": "r"}).feedback == "r"
    assert read_stop({"decision": "deny", "systemMessage": "s"}).feedback == "s"
    assert read_stop({"additionalContext": "c"}).context == "c"
    assert read_stop({"continue": False, "stopReason": "enough"}).halt == "enough"
    assert read_stop({"continue": True}).halt is None
    assert read_stop(3).error


def test_what_is_too_large_is_cut_to_a_text() -> None:
    assert cut({"a": 1}) == ({"a": 1}, False)
    shown, short = cut({"content": "ä" * SIZES.hook_payload})
    assert short
    assert isinstance(shown, str)
    assert shown.startswith('{"content":"ä')
    assert SIZES.hook_payload - 4 < len(shown.encode()) <= SIZES.hook_payload
    exactly = {"a": "x" * (SIZES.hook_payload - len(json.dumps({"a": ""}, separators=(",", ":"))))}
    assert cut(exactly) == (exactly, False)
