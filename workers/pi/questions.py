"""Questions of the model and the approval of its plan, as a row of dialogs.

Sans-I/O.  `Interview` asks one dialog at a time: `next` says which, `answered` takes what the person chose;
in the end `outcome` is the engine's answer.  A dismissed dialog cancels the whole interview.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

__all__ = ["CANCELLED", "Interview", "Prompt", "plan_dialog", "plan_outcome"]

CANCELLED: Mapping[str, Any] = {"outcome": "cancelled"}

OTHER = "Other…"
DONE = "Done selecting"
CHAT = "Chat about this"
SKIP = "Skip interview and plan immediately"

#: Characters of a plan in its dialog.
PLAN = 4000


@dataclasses.dataclass(frozen=True, slots=True)
class Prompt:
    """One dialog; ``key`` tells it from the others of its interview."""

    key: str
    kind: Literal["select", "input"]
    args: Mapping[str, Any]


class Interview:
    """One ``ask_user_question``."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        questions = params.get("questions")
        self._questions = [q for q in questions if isinstance(q, dict)] if isinstance(questions, list) else []
        self._plan = params.get("mode") == "plan"
        self._index = 0
        self._rounds = 0  # dialogs of the present question so far
        self._typing = False  # the free text of "other"
        self._chosen = list[str]()
        self._answers = dict[str, list[str]]()
        self._notes = dict[str, dict[str, str]]()
        self._outcome: Mapping[str, Any] | None = None
        if not self._questions:
            self._outcome = CANCELLED

    @property
    def outcome(self) -> Mapping[str, Any] | None:
        """The engine's answer; None while there is another dialog."""
        return self._outcome

    def next(self) -> Prompt:
        """The dialog to show now; only while there is no outcome."""
        question = self._questions[self._index]
        number = f"({self._index + 1}/{len(self._questions)})"
        title = f"Grok asks {number}: {question.get('question', '')}"
        key = f"{self._index}.{self._rounds}"
        if self._typing:
            return Prompt(key, "input", {"title": title, "placeholder": "Your answer"})
        return Prompt(key, "select", {"title": title, "options": list(self._labels(question))})

    def answered(self, value: str | None) -> None:
        """``value``: the option or text; None: dismissed, or nobody could be asked."""
        question = self._questions[self._index]
        if value is None:
            self._outcome = CANCELLED
        elif self._typing:
            self._typing = False
            text = str(question.get("question", ""))
            self._notes[text] = {"notes": value}
            self._choose(question, "Other")
        elif value == OTHER:
            self._typing = True
        elif value in (CHAT, SKIP):
            outcome = "chat_about_this" if value == CHAT else "skip_interview"
            partial = {text: labels[0] for text, labels in self._answers.items() if labels}
            self._outcome = {"outcome": outcome, "partial_answers": partial}
        elif value == DONE:
            self._finish(question)
        else:
            self._choose(question, self._labels(question).get(value, value))
        self._rounds += 1

    def _choose(self, question: Mapping[str, Any], label: str) -> None:
        if label not in self._chosen:
            self._chosen.append(label)
        if not _is_multiple(question):
            self._finish(question)

    def _finish(self, question: Mapping[str, Any]) -> None:
        self._answers[str(question.get("question", ""))] = self._chosen
        self._chosen, self._rounds = [], -1
        self._index += 1
        if self._index == len(self._questions):
            answer: dict[str, Any] = {"outcome": "accepted", "answers": self._answers}
            self._outcome = {**answer, "annotations": self._notes} if self._notes else answer

    def _labels(self, question: Mapping[str, Any]) -> dict[str, str]:
        """Option as it is shown: label that the engine gets."""
        labels = dict[str, str]()
        options = question.get("options")
        for option in options if isinstance(options, list) else ():
            label = str(option.get("label", "")) if isinstance(option, dict) else str(option)
            if label in self._chosen:
                continue
            text = option.get("description") if isinstance(option, dict) else ""
            labels[f"{label} - {text}" if text else label] = label
        labels[OTHER] = OTHER
        if _is_multiple(question):
            labels[DONE] = DONE
        if self._plan:
            labels |= {CHAT: CHAT, SKIP: SKIP}
        return labels


def _is_multiple(question: Mapping[str, Any]) -> bool:
    return bool(question.get("multiSelect") or question.get("multi_select"))


APPROVE, KEEP, ABANDON = "Approve the plan", "Keep planning", "Abandon the plan"


def plan_dialog(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arguments of the select dialog for an ``exit_plan_mode``."""
    plan = params.get("planContent")
    text = plan if isinstance(plan, str) else ""
    text = text if len(text) <= PLAN else text[:PLAN] + "…"
    title = f"Grok has a plan.\n{text}" if text else "Grok wants to leave plan mode."
    return {"title": title, "options": [APPROVE, KEEP, ABANDON]}


def plan_outcome(value: str | None) -> Mapping[str, Any]:
    """The engine's answer for what was chosen; None: dismissed."""
    if value == APPROVE:
        return {"outcome": "approved"}
    return {"outcome": "abandoned"} if value == ABANDON else CANCELLED
