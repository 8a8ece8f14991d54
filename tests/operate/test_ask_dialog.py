"""Dialogs: what is asked, what is understood, and that nothing but a yes allows anything."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.operate.ask_dialog import Dialog, dialog_for

OPTIONS = [
    {"optionId": "always-allow", "kind": "allow_always", "name": "Yes, always"},
    {"optionId": "allow-once", "kind": "allow_once"},
    {"optionId": "reject-once", "kind": "reject_once"},
    {"optionId": "reject-always", "kind": "reject_always"},
]


def permission(options: Any = OPTIONS) -> Dialog:
    call = {"toolCallId": "c1", "title": "Execute `rm\n-rf x`"}
    dialog = dialog_for("session/request_permission", {"toolCall": call, "options": options})
    assert dialog is not None
    return dialog


def question(*questions: dict[str, Any]) -> Dialog:
    dialog = dialog_for("_x.ai/ask_user_question", {"toolCallId": "c1", "questions": list(questions)})
    assert dialog is not None
    return dialog


COLOUR = {"question": "Colour?", "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}]}


def selected(option: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("y", selected("allow-once")),
        (" YES ", selected("allow-once")),
        ("a", selected("always-allow")),
        ("n", selected("reject-once")),
        ("no", selected("reject-once")),
        ("1", selected("always-allow")),
        ("4", selected("reject-always")),
        ("0", None),
        ("5", None),
        ("", None),
        ("yep", None),
        ("allow_once", None),
        ("²", None),
    ],
)
def test_permission(line: str, answer: Any) -> None:
    assert permission().typed(line) == answer


def test_permission_is_shown_on_lines_of_its_own() -> None:
    lines = permission().lines()
    assert lines[0] == "? allow: Execute `rm -rf x`"
    assert "    1. Yes, always" in lines
    assert "    2. allow_once" in lines
    assert lines[-1].startswith("  [y=allow once")


@pytest.mark.parametrize(
    ("kinds", "refusal"),
    [
        (["allow_once", "reject_once"], selected("reject_once")),
        (["allow_once", "reject_always"], selected("reject_always")),
        (["allow_once"], {"outcome": {"outcome": "cancelled"}}),
        ([], {"outcome": {"outcome": "cancelled"}}),
    ],
)
def test_refusal_never_allows(kinds: list[str], refusal: Any) -> None:
    dialog = permission([{"optionId": kind, "kind": kind} for kind in kinds])
    assert dialog.refusal() == refusal
    assert dialog.typed("n") == refusal


@given(st.text(max_size=20))
def test_only_a_yes_or_its_number_allows(line: str) -> None:
    answer = permission().typed(line)
    if answer in (selected("allow-once"), selected("always-allow")):
        assert line.strip().lower() in {"y", "yes", "a", "always"} or int(line) in (1, 2)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("1", {"outcome": "accepted", "answers": {"Colour?": ["Red"]}}),
        ("blue", {"outcome": "accepted", "answers": {"Colour?": ["Blue"]}}),
        (
            "green, rather",
            {
                "outcome": "accepted",
                "answers": {"Colour?": ["Other"]},
                "annotations": {"Colour?": {"notes": "green, rather"}},
            },
        ),
        ("", {"outcome": "cancelled"}),
        ("3", None),
        ("0", None),
    ],
)
def test_question(line: str, answer: Any) -> None:
    assert question(COLOUR).typed(line) == answer


def test_question_with_several_choices() -> None:
    several = {**COLOUR, "multiSelect": True}
    assert question(several).typed("2, 1") == {
        "outcome": "accepted",
        "answers": {"Colour?": ["Blue", "Red"]},
    }
    assert question(several).typed("1,7") is None


def test_questions_are_asked_one_after_the_other() -> None:
    size = {"question": "Size?", "options": [{"label": "S"}]}
    dialog = question(COLOUR, size)
    assert dialog.lines()[0] == "? Colour?"
    assert dialog.typed("1") is None
    assert dialog.lines()[0] == "? Size?"
    assert dialog.typed("1") == {"outcome": "accepted", "answers": {"Colour?": ["Red"], "Size?": ["S"]}}


def test_two_questions_of_the_same_text_end() -> None:
    dialog = question(COLOUR, COLOUR)
    assert dialog.typed("1") is None
    assert dialog.typed("2") is not None


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("y", {"outcome": "approved"}),
        ("No", {"outcome": "abandoned"}),
        ("tests first", {"outcome": "cancelled", "feedback": "tests first"}),
        ("", None),
    ],
)
def test_plan(line: str, answer: Any) -> None:
    dialog = dialog_for("_x.ai/exit_plan_mode", {"toolCallId": "c", "planContent": "1. a\n2. b"})
    assert dialog is not None
    assert dialog.typed(line) == answer
    assert dialog.refusal() == {"outcome": "abandoned"}
    assert "    2. b" in dialog.lines()


def test_what_is_unknown_has_no_dialog() -> None:
    assert dialog_for("_x.ai/hooks/run", {}) is None


@pytest.mark.parametrize(
    "method", ["session/request_permission", "_x.ai/ask_user_question", "_x.ai/exit_plan_mode"]
)
def test_a_request_with_nothing_in_it_can_still_be_refused(method: str) -> None:
    dialog = dialog_for(method, {})
    assert dialog is not None
    assert dialog.lines()
    assert dialog.subject
    assert dialog.refusal()
