"""Entries as lines for Pi's terminal, which the extension only paints.

A line is ``{"spans": [[colour, text], …]}``, colours by their names in Pi's themes, or ``{"text": text}``,
which is wrapped.  ``"expanded": true`` marks a line that is shown only when a person has unfolded the entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Line", "tool_lines", "turn_lines"]

Line = dict[str, Any]

#: Characters of a call's input, of its unfolded output or diff, and of why it was denied.
INPUT, BODY, REASON = 100, 600, 160

# Text must not steer the terminal.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def tool_lines(data: Mapping[str, Any]) -> list[Line]:
    """Lines of a ``grok-tool`` entry from its data."""
    subagent = f"{_line(data['subagent'], 40)} › " if data.get("subagent") else ""
    seconds = data["durationMs"] / 1000
    end = f" {data['status']}" + (f" {seconds:.1f} s" if seconds >= 0.1 else "")
    head = [
        ["toolTitle", f"[grok {subagent}{_line(data['tool'], 60)}] #{data['n']} "],
        ["muted", _line(_text(data["input"]), INPUT)],
        ["dim" if data["status"] == "completed" else "error", end],
    ]
    lines: list[Line] = [{"spans": head}]
    if reason := data.get("denyReason"):
        lines.append(_row("error", _line(reason, REASON)))
    if context := data.get("hookContext"):
        lines.append(_row("error", _line(context, REASON), expanded=True))
    diff = data.get("diff")
    colours = _DIFF_COLOURS if diff else {}
    rows = _clean(diff or data["output"])[:BODY].split("\n")
    return lines + [_row(colours.get(row[:1], "muted"), row, expanded=True) for row in rows]


def turn_lines(reason: str, tools: Iterable[Mapping[str, Any]], text: str) -> list[Line]:
    """Lines of a ``grok-turn`` entry; ``tools``: data of ``grok-tool`` entries."""
    lines: list[Line] = [{"spans": [["accent", f"Grok went on by itself: {_line(reason, INPUT)}"]]}]
    for tool in tools:
        lines += tool["lines"]
    return lines + [{"text": row} for row in _clean(text).split("\n")]


_DIFF_COLOURS = {"+": "success", "-": "error"}


def _row(colour: str, text: str, *, expanded: bool = False) -> Line:
    line: Line = {"spans": [[colour, f"  {text}"]]}
    return {**line, "expanded": True} if expanded else line


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps({} if value is None else value, ensure_ascii=False, separators=(",", ":"))


def _clean(text: str) -> str:
    return _CONTROL.sub("", text.replace("\t", "  "))


def _line(text: str, limit: int) -> str:
    flat = re.sub(r"\s+", " ", _clean(text))
    return flat if len(flat) <= limit else flat[:limit] + "…"
