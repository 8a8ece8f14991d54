"""``ask_user_question``: questions with choices, put to the person by the client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from harness.limits import LIMITS
from harness.outcome import FaultKind, ToolFault, ToolOutput
from harness.registry.contract import CallContext, Resource, Tool, ToolKind, ToolSpec
from harness.registry.requirements import HasResource
from harness.tools.plan_mode import PlanMode

__all__ = ["METHOD", "TOOLS", "Ask", "request"]

METHOD = "_x.ai/ask_user_question"
Question = Mapping[str, Any]


class Ask:
    spec: ClassVar = ToolSpec(
        namespace="GrokBuild",
        id="ask_user_question",
        kind=ToolKind.ASK_USER,
        variant="AskUserQuestion",
        requires=HasResource(Resource.QUESTIONS),
        shown=lambda given: {**given, "questions": [_wire(question) for question in given["questions"]]},
        description=(
            "Put questions with several choices to the person.\n\n"
            '- Every question has a further choice "Other", behind which the person writes an answer of '
            "their own; do not offer it yourself.\n"
            '- The choice that you would take comes first, with "(Recommended)" at the end of its label.'
        ),
        input_schema={
            "type": "object",
            "properties": {
                "questions": {
                    "type": "array",
                    "description": "What is asked, each with its choices.",
                    "items": {
                        "type": "object",
                        "description": "One question.",
                        "properties": {
                            "question": {"type": "string", "description": "The question, as a sentence."},
                            "options": {
                                "type": "array",
                                "description": "What can be chosen.",
                                "items": {
                                    "type": "object",
                                    "description": "One choice.",
                                    "properties": {
                                        "label": {"type": "string", "description": "A few words to show."},
                                        "description": {
                                            "type": "string",
                                            "description": "What follows from this choice.",
                                        },
                                        "preview": {
                                            "type": ["string", "null"],
                                            "description": "Something to compare, shown while the choice is "
                                            "looked at: a sketch, a piece of code. Not with several answers.",
                                        },
                                    },
                                    "required": ["label", "description"],
                                },
                            },
                            "multi_select": {
                                "type": ["boolean", "null"],
                                "default": None,
                                "description": "Whether more than one may be chosen (default false).",
                            },
                        },
                        "required": ["question", "options"],
                    },
                }
            },
            "required": ["questions"],
        },
        params_schema={"type": "object", "properties": {"timeout_secs": {"type": ["number", "null"]}}},
        default_params={"timeout_secs": LIMITS.question},
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        questions: Sequence[Question] = arguments["questions"]
        if not questions:
            text = "There was no question. Go on with the task."
            fields = {"QuestionsSent": {"message": text, "question_count": 0}}
            return ToolOutput("AskUserQuestion", fields, text)
        texts = [question["question"] for question in questions]
        twice = next((text for place, text in enumerate(texts) if text in texts[:place]), None)
        if twice is not None:
            raise ToolFault(FaultKind.INVALID_ARGUMENTS, f'the question "{twice}" is asked more than once')
        if context.client is None:
            return _said("Nobody is there to answer. Decide by your own judgment and say what you assumed.")
        params = {
            "sessionId": context.session.id,
            "toolCallId": context.call_id,
            "questions": [_wire(question) for question in questions],
            "mode": "plan" if context.resources.get(PlanMode).active else "default",
        }
        reply = await request(context, METHOD, params, context.params.get("timeout_secs"))
        return _said(_told(texts, reply))


async def request(
    context: CallContext, method: str, params: Mapping[str, Any], timeout: float | None
) -> Mapping[str, Any] | None:
    """The client's answer; None when there was none in time.  A cancelled turn asks no longer."""
    assert context.client is not None
    asking = asyncio.ensure_future(context.client.request(method, params))
    stop = asyncio.ensure_future(context.cancelled.wait())
    try:
        await asyncio.wait({asking, stop}, timeout=timeout or None, return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return asking.result()
        if stop.done():
            raise ToolFault(FaultKind.CANCELLED, "the turn was cancelled before there was an answer")
        return None
    except (ToolFault, asyncio.CancelledError):
        raise
    except Exception as error:  # whatever a client's connection raises
        raise ToolFault(FaultKind.EXECUTION, f"the client gave no answer: {error}") from error
    finally:
        stop.cancel()
        asking.cancel()


def _wire(question: Question) -> dict[str, Any]:
    options = [{key: value for key, value in one.items() if value is not None} for one in question["options"]]
    return {
        "question": question["question"],
        "options": options,
        "multiSelect": question.get("multi_select"),
    }


def _said(text: str) -> ToolOutput:
    return ToolOutput("AskUserQuestion", {"UserAnswered": {"message": text}}, text)


def _told(asked: Sequence[str], reply: Mapping[str, Any] | None) -> str:
    """The answer in words; what cannot be read is a fault of the client."""
    match None if reply is None else reply.get("outcome"):
        case "accepted":
            answers = _answers(reply, "answers", lists=True)
            notes = reply.get("annotations") if reply else None
            told = [_answer(text, answers[text], notes) for text in _in_order(asked, answers)]
            return f"The user answered: {', '.join(told)}. Go on with that in mind."
        case "chat_about_this":
            partial = _answers(reply, "partial_answers", lists=False)
            return (
                "The user would rather talk about the questions first. They may know something that you do "
                "not, or have a question themselves. Begin by asking what they want to have cleared up; take "
                "up what they say and put the questions differently where that helps.\n\n"
                f"What was asked:\n{_partly(asked, partial)}"
            )
        case "skip_interview":
            partial = _answers(reply, "partial_answers", lists=False)
            return (
                "The user has answered enough for the plan. Ask nothing more and finish the plan with what "
                f"you know.\n\nWhat was asked, and the answers:\n{_partly(asked, partial)}"
            )
        case None if reply is not None:
            raise ToolFault(FaultKind.EXECUTION, "the client's answer has no outcome")
        case None | "cancelled":
            return "The user gave no answer. Go on by your own judgment, or ask something else."
        case other:
            raise ToolFault(FaultKind.EXECUTION, f"the client's answer has an unknown outcome: {other!r}")


def _answers(reply: Mapping[str, Any] | None, key: str, *, lists: bool) -> dict[str, str]:
    given = (reply or {}).get(key) or {}
    if not isinstance(given, Mapping):
        raise ToolFault(FaultKind.EXECUTION, f"the client's answer has {key} that are no object")
    answers = dict[str, str]()
    for question, answer in given.items():
        if lists and isinstance(answer, list) and all(isinstance(label, str) for label in answer):
            answers[question] = ", ".join(answer)
        elif isinstance(answer, str):
            answers[question] = answer
        else:
            raise ToolFault(FaultKind.EXECUTION, f"the client's answer has {key} that are no texts")
    return answers


def _in_order(asked: Sequence[str], answers: Mapping[str, str]) -> list[str]:
    """As they were asked; what a client made up comes last."""
    return [*(text for text in asked if text in answers), *(text for text in answers if text not in asked)]


def _answer(question: str, answer: str, notes: Any) -> str:
    told = f'"{question}" = "{answer}"'
    about = notes.get(question) if isinstance(notes, Mapping) else None
    if not isinstance(about, Mapping):
        return told
    if about.get("preview"):
        told += f", which looks like this:\n{about['preview']}\n"
    if about.get("notes"):
        told += f" with the remark: {about['notes']}"
    return told


def _partly(asked: Sequence[str], answers: Mapping[str, str]) -> str:
    return "\n".join(f'- "{text}"\n  {answers.get(text) or "(no answer)"}' for text in asked)


TOOLS: tuple[Tool, ...] = (Ask(),)
