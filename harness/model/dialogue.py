"""What the offline model answers: one request's messages in, one `Reply` out.  No I/O, no clock, no
chance: the same request always gets the same reply.

An agent wraps what the user typed (``<user_query>…</user_query>``) among messages of its own: the
workspace, rules, reminders, results of hooks.  The newest wrapped text is the block to obey; its
instructions are carried out in order, one tool call a model call.  A conversation without such
wrapping is taken at its word.  Besides the turns, an agent asks for titles, one-line summaries and
compactions; these are recognised by their place (a reminder or a bare text after the last answer)
and answered with text only.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.model.instructions import HELP, Call, Instruction, Parsed, call_for, parse

__all__ = ["LABEL", "Reply", "reply_to"]

#: Stands before every answer, so that nobody takes it for a model's.
LABEL = "[offline model]"

#: Characters of one tool result that an answer repeats.
RESULT_MAX = 4000

_QUERY = re.compile(r"<user_query>\n?(.*)\n?</user_query>", re.DOTALL)
_WORKSPACE = re.compile(r"^Workspace Path: (/.*)$", re.MULTILINE)
_REMINDER = "<system-reminder>"
_SUMMARY_WANTED = "<summary>"
#: What stands in for a conversation: in grok, and in the embedded engine.
_SUMMARIES = ("This session is being continued", "<conversation_summary>")

Message = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """Thought, text (in the pieces in which it is streamed) and at most one tool call."""

    text: tuple[str, ...] = ()
    thought: str = ""
    call: Call | None = None


def reply_to(messages: Sequence[Message], tools: Sequence[Message], forced: str | None = None) -> Reply:
    """The reply to one request.  ``tools`` are the functions offered, ``forced`` the one demanded."""
    position, query = _newest_query(messages)
    parsed = parse(query)
    if forced is not None:
        return _forced(forced, tools, query)
    fresh = _since_last_answer(messages)
    answered = position is None or (position < len(messages) - len(fresh) and not _has_result(fresh))
    if answered or _compacted(messages):
        return _aside(messages, fresh)
    assert position is not None
    return _turn(parsed, _calls_with_results(messages[position + 1 :]), tools, _workspace(messages))


# -- the conversation ------------------------------------------------------------------------------


def text_of(message: Message) -> str:
    """The text of a message whose content is a string or a list of parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and "text" in part)


def _newest_query(messages: Sequence[Message]) -> tuple[int | None, str]:
    """Position and text of the newest block that a user typed."""
    users = [(i, text_of(m)) for i, m in enumerate(messages) if m.get("role") == "user"]
    for i, text in reversed(users):
        if found := _QUERY.search(text):
            return i, found[1]
    for i, text in reversed(users):
        if not text.lstrip().startswith(_REMINDER):
            return i, text
    return None, ""


def _since_last_answer(messages: Sequence[Message]) -> Sequence[Message]:
    """What came after the last message of the assistant."""
    for i in range(len(messages) - 1, -1, -1):
        if messages[i].get("role") == "assistant":
            return messages[i + 1 :]
    return messages


def _has_result(messages: Sequence[Message]) -> bool:
    return any(m.get("role") == "tool" for m in messages)


def _compacted(messages: Sequence[Message]) -> bool:
    """Whether the newest message asks for a summary, or is followed by nothing but one.

    A turn that was compacted on its way has lost its results: going on would begin it again, for ever.
    """
    position, _ = _newest_query(messages)
    if not _QUERY.search(text_of(messages[-1])) and _wants_summary(text_of(messages[-1])):
        return True
    behind = [text_of(m) for m in messages[(position or 0) + 1 :]]
    return any(mark in text for text in behind for mark in _SUMMARIES)


def _wants_summary(text: str) -> bool:
    """Whether an agent asks for one; the word of a background task that has ended holds one itself."""
    return _SUMMARY_WANTED in text and "<task-id>" not in text


def _calls_with_results(messages: Sequence[Message]) -> list[str]:
    """The results of the tool calls of this turn, in the order of the calls."""
    results = {m.get("tool_call_id"): text_of(m) for m in messages if m.get("role") == "tool"}
    calls = (call for m in messages if m.get("role") == "assistant" for call in m.get("tool_calls") or ())
    return [results.get(call.get("id"), "(no result)") for call in calls]


def _workspace(messages: Sequence[Message]) -> str | None:
    for message in messages:
        if message.get("role") != "assistant" and (found := _WORKSPACE.search(text_of(message))):
            return found[1].strip()
    return None


# -- a turn ----------------------------------------------------------------------------------------


def _turn(parsed: Parsed, results: Sequence[str], tools: Sequence[Message], workspace: str | None) -> Reply:
    """Carry out the next instruction, or tell how all of them went."""
    if not parsed.instructions:
        return Reply((f"{LABEL} {HELP}",))
    # An instruction that no tool can carry out makes no call, so results belong to the others in order.
    planned = [(i, call_for(i, tools, workspace)) for i in parsed.instructions]
    calls = [(i, call) for i, call in planned if call is not None]
    if len(results) < len(calls):
        instruction, call = calls[len(results)]
        return Reply(thought=f"{LABEL} next: {instruction}\n", call=call)
    remaining = iter(results)
    pieces = list[str]()
    for instruction, planned_call in planned:
        pieces += _told(instruction, next(remaining) if planned_call else None)
    pieces += [f"{LABEL} not understood: {line}\n" for line in parsed.unknown]
    return Reply(tuple(pieces))


def _told(instruction: Instruction, result: str | None) -> list[str]:
    if instruction.verb == "count":
        return [f"{LABEL} "] + [f"{n} " for n in range(1, instruction.values["number"] + 1)] + ["\n"]
    if result is None:
        return [f"{LABEL} {instruction}: the agent offers no tool that I know for this\n"]
    return [f"{LABEL} {instruction}\n", f"{_cut(result.strip(), RESULT_MAX)}\n"]


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[:size]}\n… {len(text) - size} characters more"


# -- beside the turns ------------------------------------------------------------------------------


def _forced(name: str, tools: Sequence[Message], query: str) -> Reply:
    """A demanded call: every required parameter gets a line about the newest block."""
    schema = next((t.get("parameters") or {} for t in tools if t.get("name") == name), {})
    line = _line(query) or "conversation"
    return Reply(call=Call(name, dict.fromkeys(schema.get("required") or (), f"Offline model: {line}")))


def _aside(messages: Sequence[Message], fresh: Sequence[Message]) -> Reply:
    """Something the agent asks or says for itself."""
    text = "\n".join(text_of(m) for m in fresh)
    if _wants_summary(text):
        return Reply((f"<summary>\n{_summary(messages)}\n</summary>",))
    line = _line(_newest_query(messages)[1])
    if "title" in text or "dashboard line" in text:
        return Reply((f"Offline model: {line}",))
    return Reply((f"{LABEL} noted\n",))


def _summary(messages: Sequence[Message]) -> str:
    """Every block that the user typed and how often a tool ran after it."""
    told = ["Conversation with the offline model, which obeys plain instructions. What the user asked:"]
    for message in messages:
        if message.get("role") == "user" and (found := _QUERY.search(text_of(message))):
            told.append(f"- {_cut(found[1].strip(), RESULT_MAX)}")
        elif message.get("role") == "tool":
            told.append(f"  a tool answered: {_cut(text_of(message).strip(), 200)}")
        elif any(mark in text_of(message) for mark in _SUMMARIES):
            told.append(_cut(text_of(message), RESULT_MAX))
    return "\n".join(told)


def _line(text: str) -> str:
    """The first line of a text, cut to a title's length."""
    return _cut(text.strip().partition("\n")[0], 60).partition("\n")[0]
