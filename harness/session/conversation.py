"""The messages that a model is sent: added to only at the end, always in an order that servers accept.

Every call of an assistant message gets a result, whatever became of it: servers refuse a conversation in
which one is missing.  What the user typed stands in ``<user_query>``, what the engine adds beside it in
``<system-reminder>``; models tell the two apart by that.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from harness.model.openai import Answer

__all__ = ["QUERY", "Conversation", "Interruption", "reminder", "user_query"]

#: Marks what a user typed.
QUERY = "<user_query>"

#: What stands around a text that did not wait for the turn to end.
_AFTER = "Answer the user first where an answer is wanted. Then finish what is left of the earlier request."


class Interruption:
    """How a text of the user came between."""

    WHILE_WORKING = "The user wrote this while you were at work:"
    AFTER_CANCEL = "The user stopped the previous turn before it was done, then wrote:"


def user_query(text: str, interruption: str = "") -> str:
    """A user's text as the model gets it."""
    query = f"{QUERY}\n{text}\n</user_query>"
    return f"{interruption}\n{query}\n{_AFTER}" if interruption else query


def reminder(text: str) -> str:
    """A text of the engine's own."""
    return f"<system-reminder>\n{text}\n</system-reminder>"


@dataclasses.dataclass
class Conversation:
    """``head`` are the messages before the first prompt: system prompt, workspace, rules.

    ``added`` is told every message behind them, ``replaced`` all of them when they are others.
    """

    head: list[dict[str, Any]]
    body: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    added: Callable[[Mapping[str, Any]], None] = lambda _: None
    replaced: Callable[[Sequence[Mapping[str, Any]]], None] = lambda _: None
    _open: dict[str, str] = dataclasses.field(default_factory=dict)  # call id → tool name

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [*self.head, *self.body]

    @property
    def open_calls(self) -> Mapping[str, str]:
        """Calls without a result yet, with the names of their tools."""
        return self._open

    def add_user(self, text: str, images: Iterable[str] = ()) -> None:
        """``images`` are data URLs."""
        assert not self._open, "a result is missing"
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in images]
        content = [{"type": "text", "text": text}, *parts] if parts else text
        self._add({"role": "user", "content": content})

    def add_answer(self, answer: Answer) -> None:
        assert not self._open, "a result is missing"
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.thought:
            message["reasoning_content"] = answer.thought
        if answer.calls:
            message["tool_calls"] = [
                {
                    "id": c.id,
                    "type": "function",
                    "function": {"name": c.name, "arguments": _json(c.arguments)},
                }
                for c in answer.calls
            ]
            self._open = {call.id: call.name for call in answer.calls}
        self._add(message)

    def add_result(self, call_id: str, text: str) -> None:
        """The result of an open call; another one for the same call is dropped."""
        if self._open.pop(call_id, None) is not None:
            self._add({"role": "tool", "tool_call_id": call_id, "content": text})

    def replace(self, body: list[dict[str, Any]]) -> None:
        """Go on with these messages in the place of all behind the head."""
        assert not self._open, "a result is missing"
        self.body = body
        self.replaced(body)

    def _add(self, message: dict[str, Any]) -> None:
        self.body.append(message)
        self.added(message)


def _json(arguments: str) -> str:
    """Arguments as they may go back to a server, which refuses what is no JSON object.

    What the model wrote in its place is told by the result of the call.
    """
    try:
        return arguments if isinstance(json.loads(arguments), dict) else "{}"
    except (ValueError, RecursionError):
        return "{}"
