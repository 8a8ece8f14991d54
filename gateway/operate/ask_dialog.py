"""What the engine asks in a turn, as lines for a person and an answer for the engine.  No I/O.

Three things are asked: may this tool run (``session/request_permission``), which of these
(``_x.ai/ask_user_question``), is this plan all right (``_x.ai/exit_plan_mode``).  Each is answered
exactly once; nobody there to ask, an end of input and a cancelled turn are answers too, never an allow.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.operate.turn_view import clean, one_line
from gateway.wire import acp

__all__ = ["Dialog", "PermissionDialog", "PlanDialog", "QuestionDialog", "dialog_for"]

Answer = Mapping[str, Any]


def dialog_for(method: str, params: Mapping[str, Any]) -> Dialog | None:
    """The dialog of a request, None for a request that this client does not know."""
    match method:
        case acp.PERMISSION:
            return PermissionDialog(params)
        case acp.QUESTION:
            return QuestionDialog(params)
        case acp.PLAN_APPROVAL:
            return PlanDialog(params)
    return None


class Dialog(abc.ABC):
    """One open request.  ``call`` is the id of the tool call it belongs to."""

    def __init__(self, call: Any) -> None:
        self.call = str(call)

    @abc.abstractmethod
    def lines(self) -> Sequence[str]:
        """What is asked now, the last line without a line end: the answer is typed behind it."""

    @abc.abstractmethod
    def typed(self, line: str) -> Answer | None:
        """The answer for a typed line; None: not understood, or the next part is to be asked."""

    @abc.abstractmethod
    def refusal(self) -> Answer:
        """The answer when nobody can be asked."""

    @property
    @abc.abstractmethod
    def subject(self) -> str:
        """What it is about, on one line."""


class PermissionDialog(Dialog):
    """May a tool run.  The choices are the engine's own, by number or by the first letter of a kind."""

    _LETTERS: Mapping[str, str] = {"y": "allow_once", "a": "allow_always", "n": "reject_once"}

    def __init__(self, params: Mapping[str, Any]) -> None:
        call = params.get("toolCall") or {}
        super().__init__(call.get("toolCallId"))
        self._title = one_line(str(call.get("title") or "a tool"))
        self._options = [o for o in params.get("options") or () if isinstance(o, dict)]

    @property
    def subject(self) -> str:
        return self._title

    def lines(self) -> Sequence[str]:
        kinds = {o.get("kind") for o in self._options}
        keys = [f"{k}={kind.replace('_', ' ')}" for k, kind in self._LETTERS.items() if kind in kinds]
        choices = [f"    {i}. {self._name(o)}" for i, o in enumerate(self._options, 1)]
        return [f"? allow: {self._title}", *choices, f"  [{', '.join([*keys, 'or a number'])}] "]

    def typed(self, line: str) -> Answer | None:
        word = line.strip().lower()
        if word.isdecimal() and 1 <= int(word) <= len(self._options):
            return _selected(self._options[int(word) - 1])
        kind = self._LETTERS.get({"yes": "y", "no": "n", "always": "a"}.get(word, word))
        option = next((o for o in self._options if kind and o.get("kind") == kind), None)
        if option is None and kind == "reject_once":
            return self.refusal()
        return _selected(option) if option else None

    def refusal(self) -> Answer:
        for kind in ("reject_once", "reject_always"):
            if option := next((o for o in self._options if o.get("kind") == kind), None):
                return _selected(option)
        return {"outcome": {"outcome": "cancelled"}}

    @staticmethod
    def _name(option: Mapping[str, Any]) -> str:
        return one_line(str(option.get("name") or option.get("kind") or option.get("optionId")))


def _selected(option: Mapping[str, Any]) -> Answer:
    return {"outcome": {"outcome": "selected", "optionId": option.get("optionId")}}


class QuestionDialog(Dialog):
    """One or more questions, asked one after the other; an empty line cancels all of them.

    Numbers choose options (several with commas where that is allowed), other text is a free answer.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        super().__init__(params.get("toolCallId"))
        self._questions = [q for q in params.get("questions") or () if isinstance(q, dict)]
        self._asked = 0
        self._answers = dict[str, list[str]]()
        self._notes = dict[str, dict[str, str]]()

    @property
    def subject(self) -> str:
        return one_line("; ".join(str(q.get("question")) for q in self._questions) or "a question")

    def lines(self) -> Sequence[str]:
        question = self._questions[self._asked] if self._questions else {}
        lines = [f"? {one_line(str(question.get('question') or 'question'))}"]
        for i, option in enumerate(_options(question), 1):
            description = one_line(str(option.get("description") or ""))
            label = one_line(str(option.get("label")))
            lines.append(f"    {i}. {label}" + (f": {description}" if description not in ("", label) else ""))
        several = ", several with commas" if question.get("multiSelect") else ""
        return [*lines, f"  [a number{several}, or text; empty cancels] "]

    def typed(self, line: str) -> Answer | None:
        if not line.strip() or not self._questions:
            return self.refusal()
        question = self._questions[self._asked]
        text = str(question.get("question"))
        chosen = _chosen(line, _options(question), several=bool(question.get("multiSelect")))
        if chosen is None:
            return None
        if not chosen:
            self._answers[text], self._notes[text] = ["Other"], {"notes": line.strip()}
        else:
            self._answers[text] = chosen
        self._asked += 1
        if self._asked < len(self._questions):
            return None
        notes = {"annotations": self._notes} if self._notes else {}
        return {"outcome": "accepted", "answers": self._answers, **notes}

    def refusal(self) -> Answer:
        return {"outcome": "cancelled"}


def _options(question: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [o for o in question.get("options") or () if isinstance(o, dict)]


def _chosen(line: str, options: Sequence[Mapping[str, Any]], *, several: bool) -> list[str] | None:
    """Labels for a line of numbers, [] for free text, None for numbers that are no choice."""
    words = line.replace(",", " ").split() if several else [line.strip()]
    if not all(word.isdecimal() for word in words):
        labels = {str(o.get("label")).lower(): str(o.get("label")) for o in options}
        return [labels[line.strip().lower()]] if line.strip().lower() in labels else []
    if not all(1 <= int(word) <= len(options) for word in words):
        return None
    return [str(options[int(word) - 1].get("label")) for word in words]


class PlanDialog(Dialog):
    """Is a plan all right.  Text instead of yes or no is feedback, with which planning goes on."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        super().__init__(params.get("toolCallId"))
        self._plan = clean(str(params.get("planContent") or ""))

    @property
    def subject(self) -> str:
        return "the plan"

    def lines(self) -> Sequence[str]:
        plan = [f"    {line}" for line in self._plan.splitlines()]
        return ["? go ahead with this plan", *plan, "  [y=yes, n=no, or what to change] "]

    def typed(self, line: str) -> Answer | None:
        match line.strip().lower():
            case "":
                return None
            case "y" | "yes":
                return {"outcome": "approved"}
            case "n" | "no":
                return {"outcome": "abandoned"}
        return {"outcome": "cancelled", "feedback": line.strip()}

    def refusal(self) -> Answer:
        return {"outcome": "abandoned"}
