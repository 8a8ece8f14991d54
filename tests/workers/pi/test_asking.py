"""Permissions, questions, plans and the queue of dialogs."""

from __future__ import annotations

from typing import Any

import pytest

from workers.pi import permissions, questions
from workers.pi.answering import mcp_hints
from workers.pi.dialogs import Dialog, Dialogs, Stage
from workers.pi.questions import Interview

OPTIONS = [
    {"optionId": "always", "kind": "allow_always", "name": "Yes, always"},
    {"optionId": "once", "kind": "allow_once", "name": "Yes"},
    {"optionId": "no", "kind": "reject_once", "name": "No"},
]


def asked(kind: str = "execute", options: Any = OPTIONS) -> dict[str, Any]:
    stamp = {"name": "run_terminal_command", "kind": kind}
    call = {
        "toolCallId": "c",
        "title": "Execute `x`",
        "rawInput": {"command": "x"},
        "_meta": {"x.ai/tool": stamp},
    }
    return {"toolCall": call, "options": options}


def chosen(answer: Any) -> str:
    return str(answer["outcome"].get("optionId", answer["outcome"]["outcome"]))


@pytest.mark.parametrize(
    ("policy", "kind", "answer"),
    [
        ("dialog", "execute", "no"),
        ("deny", "read", "no"),
        ("reads", "read", "once"),
        ("reads", "execute", "no"),
        ("allow", "execute", "once"),
    ],
)
def test_headless_policies(policy: str, kind: str, answer: str) -> None:
    result = permissions.headless(asked(kind), policy)
    assert chosen(result) == answer
    assert ("followup_message" in result.get("_meta", {})) is (answer == "no"), "the turn goes on"


def test_always_is_never_chosen_by_itself() -> None:
    only_always = [OPTIONS[0], OPTIONS[2]]
    assert chosen(permissions.headless(asked(options=only_always), "allow")) == "cancelled"
    assert chosen(permissions.with_kind(asked(options=only_always), "allow_once")) == "cancelled"


def test_a_permission_dialog_has_the_input_and_every_option() -> None:
    args, answers = permissions.dialog_of(asked())
    assert args["title"].startswith("Grok: Execute `x`\n")
    assert '"command": "x"' in args["title"]
    assert args["options"] == ["1. Yes, always (allow_always)", "2. Yes (allow_once)", "3. No (reject_once)"]
    assert [chosen(answers[label]) for label in args["options"]] == ["always", "once", "no"]


# -- questions ---------------------------------------------------------------------------------------

COLOR = {"question": "Color?", "options": [{"label": "Red", "description": "warm"}, {"label": "Blue"}]}
PETS = {"question": "Pets?", "options": [{"label": "Cat"}, {"label": "Dog"}], "multiSelect": True}


def run(params: dict[str, Any], *values: str | None) -> tuple[Any, list[Any]]:
    interview, shown = Interview(params), list[Any]()
    for value in values:
        assert interview.outcome is None
        shown.append(interview.next())
        interview.answered(value)
    return interview.outcome, shown


def test_a_question_has_one_answer() -> None:
    outcome, (prompt,) = run({"questions": [COLOR]}, "Red - warm")
    assert outcome == {"outcome": "accepted", "answers": {"Color?": ["Red"]}}
    assert prompt.args["title"] == "Grok asks (1/1): Color?"
    assert prompt.args["options"] == ["Red - warm", "Blue", questions.OTHER]


def test_other_is_a_text() -> None:
    outcome, shown = run({"questions": [COLOR]}, questions.OTHER, "mauve")
    assert outcome == {
        "outcome": "accepted",
        "answers": {"Color?": ["Other"]},
        "annotations": {"Color?": {"notes": "mauve"}},
    }
    assert [p.kind for p in shown] == ["select", "input"]


def test_several_choices_until_done() -> None:
    outcome, shown = run({"questions": [PETS]}, "Dog", "Cat", questions.DONE)
    assert outcome is not None
    assert outcome["answers"] == {"Pets?": ["Dog", "Cat"]}
    assert "Dog" not in shown[1].args["options"]
    assert len({p.key for p in shown}) == 3


def test_dialogs_of_two_questions_have_keys_of_their_own() -> None:
    _, shown = run({"questions": [PETS, COLOR]}, "Dog", questions.DONE, "Blue")
    assert len({p.key for p in shown}) == 3


@pytest.mark.parametrize(
    ("value", "outcome"), [(questions.CHAT, "chat_about_this"), (questions.SKIP, "skip_interview")]
)
def test_plan_mode_has_two_more_ways_out(value: str, outcome: str) -> None:
    result, shown = run({"questions": [COLOR, PETS], "mode": "plan"}, "Blue", value)
    assert result == {"outcome": outcome, "partial_answers": {"Color?": "Blue"}}
    assert questions.CHAT in shown[0].args["options"]


@pytest.mark.parametrize("values", [(None,), ("Blue", None), (questions.OTHER, None)])
def test_a_dismissed_dialog_cancels_all(values: tuple[str | None, ...]) -> None:
    outcome, _ = run({"questions": [COLOR, PETS]}, *values)
    assert outcome == {"outcome": "cancelled"}


def test_no_question_is_cancelled() -> None:
    assert Interview({"questions": []}).outcome == {"outcome": "cancelled"}


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        (questions.APPROVE, "approved"),
        (questions.ABANDON, "abandoned"),
        (questions.KEEP, "cancelled"),
        (None, "cancelled"),
    ],
)
def test_plan_approval(value: str | None, outcome: str) -> None:
    assert questions.plan_outcome(value) == {"outcome": outcome}
    assert "the plan" in questions.plan_dialog({"planContent": "the plan"})["title"]


# -- queue -------------------------------------------------------------------------------------------


def dialog(name: str) -> Dialog:
    return Dialog(name, "s", "select", {})


def test_one_dialog_at_a_time_in_order() -> None:
    dialogs, one, two = Dialogs(), dialog("1"), dialog("2")
    dialogs.add(one)
    dialogs.add(two)
    assert dialogs.due() is None, "nobody is there"
    dialogs.here(True)
    assert dialogs.due() is one
    assert dialogs.due() is None
    assert dialogs.shown("2") is None
    assert dialogs.shown("1") is one
    assert one.stage is Stage.SHOWN
    assert dialogs.end(one), "it may be on screen"
    assert dialogs.due() is two


def test_a_dialog_is_sent_again_after_a_lost_socket() -> None:
    dialogs, one = Dialogs(), dialog("1")
    dialogs.add(one)
    dialogs.here(True)
    assert dialogs.due() is one
    dialogs.shown("1")
    dialogs.here(False)
    assert dialogs.due() is None
    dialogs.here(True)
    assert dialogs.due() is one


def test_a_dialog_that_was_never_sent_needs_no_closing() -> None:
    dialogs, one = Dialogs(), dialog("1")
    dialogs.add(one)
    assert not dialogs.end(one)
    assert len(dialogs) == 0


def test_hints_of_mcp_tools() -> None:
    tools = [
        {"name": "look", "annotations": {"readOnlyHint": True}},
        {"name": "peek", "_meta": {"readOnlyHint": True}},
        {"name": "poke"},
    ]
    result = {"result": {"servers": [{"name": "srv", "session": {"tools": tools}}, {"name": "off"}]}}
    assert mcp_hints(result) == {"srv__look": True, "srv__peek": True, "srv__poke": False}
    assert mcp_hints({}) == {}
