"""The conversation as lines of ``chat_history.jsonl``, in the layout of the original.

Pure.  Messages as servers take them, one line each, except that a thought stands in a line before its
answer.  What a process left without a result gets one that says so: servers refuse the conversation else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.session.conversation import reminder

__all__ = ["INTERRUPTED", "closing", "from_lines", "to_lines"]

Message = dict[str, Any]

#: For the model, before the next prompt.
INTERRUPTED = "The turn before this one was cut off because the engine ended. Its last steps may be missing."
_NO_RESULT = "The engine ended while the tool `{name}` ran; its result is not known."


def to_lines(message: Mapping[str, Any], model: str) -> list[Message]:
    """A message as it is kept; ``model`` is what an answer comes from."""
    role, content = message["role"], message.get("content")
    if role == "user":
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        return [{"type": "user", "content": parts}]
    if role == "tool":
        return [{"type": "tool_result", "tool_call_id": message["tool_call_id"], "content": content}]
    lines = list[Message]()
    if thought := message.get("reasoning_content"):
        summary = [{"type": "summary_text", "text": thought}]
        lines.append({"type": "reasoning", "id": "", "summary": summary})
    answer: Message = {"type": "assistant", "content": content}
    if calls := message.get("tool_calls"):
        answer["tool_calls"] = [{"id": call["id"], **call["function"]} for call in calls]
    return [*lines, {**answer, "model_id": model}]


def from_lines(lines: Iterable[Mapping[str, Any]]) -> list[Message]:
    """The conversation after its opening."""
    messages = list[Message]()
    thought = ""
    for line in lines:
        match line.get("type"):
            case "reasoning":
                thought = "".join(str(part.get("text", "")) for part in line.get("summary", ()))
                continue
            case "user":
                messages.append({"role": "user", "content": _content(line.get("content"))})
            case "tool_result":
                call_id = line.get("tool_call_id")
                messages.append({"role": "tool", "tool_call_id": call_id, "content": line.get("content")})
            case "assistant":
                messages.append(_answer(line, thought))
        thought = ""
    return messages


def closing(messages: Iterable[Mapping[str, Any]], *, interrupted: bool) -> list[Message]:
    """What must come behind the messages of a process that is no more."""
    calls = dict[str, str]()
    for message in messages:
        for call in message.get("tool_calls", ()):
            calls[call["id"]] = call["function"]["name"]
        calls.pop(str(message.get("tool_call_id")), None)
    results: list[Message] = [
        {"role": "tool", "tool_call_id": call_id, "content": _NO_RESULT.format(name=name)}
        for call_id, name in calls.items()
    ]
    told = [{"role": "user", "content": reminder(INTERRUPTED)}] if interrupted else []
    return results + told


def _content(content: Any) -> Any:
    """One text is sent as such: some servers take nothing else."""
    if isinstance(content, list) and len(content) == 1 and content[0].get("type") == "text":
        return content[0].get("text", "")
    return content


def _answer(line: Mapping[str, Any], thought: str) -> Message:
    message: Message = {"role": "assistant", "content": line.get("content")}
    if thought:
        message["reasoning_content"] = thought
    if calls := line.get("tool_calls"):
        message["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in calls
        ]
    return message
