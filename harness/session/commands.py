"""Prompts that are commands to the engine: ``/compact`` and its kind.

A text that begins with the name of a command is one, in upper or lower case; any other text with a slash
goes to the model.  A command has a place in the queue, a turn and an end that clients hear of, but the model
does not see it, hooks of prompts do not hear of it, it names no session and counts as no turn of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["COMMANDS", "Command", "Sheet", "approval_wish", "read_command"]


class Command(NamedTuple):
    """``argument`` is what stands behind the name."""

    name: str
    argument: str


class _Row(NamedTuple):
    description: str
    hint: str | None


_ROWS: Mapping[str, _Row] = {
    "compact": _Row("Replace the conversation so far by a summary of it", "what the summary must keep"),
    "always-approve": _Row("Run tools without asking, or ask again", "on|off"),
    "context": _Row("How much of the model's window is used", None),
    "session-info": _Row("Title, folder, model, turns and window of this session", None),
}

#: As clients are told of them.
COMMANDS: Sequence[Mapping[str, Any]] = tuple(
    {"name": name, "description": row.description, "input": {"hint": row.hint} if row.hint else None}
    for name, row in _ROWS.items()
)


def read_command(text: str) -> Command | None:
    """The command that a prompt is, if it is one."""
    name, *rest = text.strip().split(maxsplit=1)[:2] or [""]
    if not name.startswith("/") or name[1:].lower() not in _ROWS:
        return None
    return Command(name[1:].lower(), rest[0].strip() if rest else "")


def approval_wish(argument: str, holds: bool) -> bool | None:
    """Whether tools are to run unasked; None for a word that must not be what changes it."""
    return {"": not holds, "on": True, "off": False}.get(argument.lower())


@dataclasses.dataclass(frozen=True, slots=True)
class Sheet:
    """What there is to say about a session."""

    id: str
    title: str | None
    cwd: str
    model: str
    turns: int
    tokens: int
    window: int

    def context(self) -> str:
        percent = min(100, (200 * self.tokens + self.window) // (2 * self.window))
        return f"**Context:** {self.tokens} of {self.window} tokens ({percent}%)"

    def text(self) -> str:
        rows = {
            "Title": self.title or "(none)",
            "Session": self.id,
            "Folder": self.cwd,
            "Model": self.model,
            "Turns": self.turns,
        }
        return "\n\n".join([*(f"**{name}:** {value}" for name, value in rows.items()), self.context()])
