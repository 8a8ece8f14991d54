"""``/grok debug`` and ``/grok perms``, and the status line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

from workers.pi import protocol
from workers.pi.conversation import Conversation
from workers.pi.models import Models
from workers.pi.settings import MODES, PiSettings, save_mode, settings_file

__all__ = ["run", "status_line"]


class _Desk(Protocol):
    settings: PiSettings
    models: Models
    agent_dir: str
    pi: str
    current: str
    conversations: dict[str, Conversation]

    def show_status(self) -> None:
        """The status line may have changed."""

    def connection_lines(self) -> list[str]:
        """Engine and connection, for `debug`."""


async def run(desk: _Desk, text: str) -> Mapping[str, Any]:
    """The answer to a ``command``, what was typed after ``/grok``.  Raises PiSettingError."""
    name, _, args = text.strip().partition(" ")
    match name:
        case "debug":
            return {"notice": "\n".join(_debug(desk)), "level": "info"}
        case "perms":
            return _perms(desk, args.strip().lower())
    known = ", ".join(c["value"] for c in protocol.COMMANDS if " " not in c["value"])
    return {"notice": f"/grok knows: {known}.", "level": "info" if not name else "warning"}


def _perms(desk: _Desk, mode: str) -> Mapping[str, Any]:
    mode = "read-only" if mode == "readonly" else mode
    if not mode:
        return {
            "notice": f"Grok's tools: {desk.settings.mode}. Choose one of {', '.join(MODES)}.",
            "level": "info",
        }
    if mode not in MODES:
        return {"notice": f"There is no mode {mode!r}. Choose one of {', '.join(MODES)}.", "level": "warning"}
    desk.settings = dataclasses.replace(desk.settings, mode=mode)  # counts even if it cannot be kept
    desk.show_status()
    save_mode(desk.agent_dir, mode)
    return {"notice": f"Grok's tools: {mode}, kept in {settings_file(desk.agent_dir)}.", "level": "info"}


def _debug(desk: _Desk) -> list[str]:
    lines = [f"Pi {desk.pi}, permissions {desk.settings.mode}, Grok's own mode {desk.settings.grok_mode}"]
    lines += desk.connection_lines()
    conversation = desk.conversations.get(desk.current)
    if conversation is None:
        return [*lines, "No session of Pi is known here."]
    totals, grok = conversation.totals, conversation.grok
    spent = f"{totals.input} tokens in ({totals.cached} cached), {totals.output} out, ${totals.cost:.4f}"
    return [
        *lines,
        f"Pi session {conversation.session} in {conversation.cwd}",
        f"Grok session {grok.id or '(made by the first message)'}, model {grok.model or '-'}",
        f"Newest entry that Grok knows: {grok.binding.delivered if grok.binding else '-'}",
        f"Pi's active tools: {', '.join(sorted(conversation.active)) or 'none'}",
        f"{totals.turns} turns, {totals.calls} model calls, {spent}",
    ]


def status_line(desk: _Desk) -> str:
    """Engine, model, mode and context in use."""
    conversation = desk.conversations.get(desk.current)
    parts = ["grok"]
    if conversation is not None and conversation.grok.model:
        parts.append(conversation.grok.model)
    parts.append(desk.settings.mode)
    if conversation is not None and conversation.context:
        window = desk.models.window(conversation.grok.model)
        share = f" of {_short(window)}" if window else ""
        parts.append(f"{_short(conversation.context)}{share}")
    return " · ".join(parts)


def _short(tokens: int) -> str:
    return str(tokens) if tokens < 1000 else f"{tokens / 1000:.0f}k"
