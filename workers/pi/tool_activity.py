"""Tools that Grok runs itself, as Pi shows them: a line each, and an entry when the call has ended.

Sans-I/O.  Grok repeats itself: a call is told early, refined, told again with all output so far, and an
update may follow its end.  `ToolActivity` numbers each call once and ends it once.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from workers.pi.capabilities import mcp_target
from workers.pi.drawing import tool_lines

__all__ = ["LINE", "OUTPUT", "Call", "ToolActivity", "output_of"]

#: Characters of a call's input, and of its output, in a line of thinking text.
LINE = 400
#: Characters of a call's output, or of its diff, in an entry.
OUTPUT = 8000
#: Lines of a file beyond which no diff is made: the comparison would hold up everybody else.
_DIFF_LINES = 5000

_FINAL = ("completed", "failed")


@dataclasses.dataclass(slots=True, eq=False)
class Call:
    """One call of a tool."""

    id: str
    number: int
    name: str
    subagent: str = ""
    input: Any = None
    stamp: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    status: str = ""  #: completed, failed or denied; "" while it runs
    output: str = ""
    diff: str = ""
    deny_reason: str = ""
    hook_context: str = ""
    started: float = 0.0  #: seconds since the epoch
    ended: float = 0.0
    told: bool = False  #: its first line is out

    def first_line(self) -> str:
        """How the call begins."""
        text = "" if self.input is None else _compact(self.input)
        return f"[grok {self._label()}] #{self.number} {_cut(text, LINE)}".rstrip() + "\n"

    def last_line(self) -> str:
        """How it has ended."""
        text = self.deny_reason if self.status == "denied" else self.output
        return (
            f"[grok {self._label()} {self.status}] #{self.number} {_cut(text.strip(), LINE)}".rstrip() + "\n"
        )

    def entry(self) -> dict[str, Any]:
        """Data of its ``grok-tool`` entry."""
        data: dict[str, Any] = {
            "id": self.id,
            "n": self.number,
            "toolUseId": self.id,
            "tool": self.name,
            "input": self.input,
            "status": self.status,
            "output": _cut(self.output, OUTPUT),
            "durationMs": max(0, round((self.ended - self.started) * 1000)),
        }
        more = {
            "denyReason": self.deny_reason,
            "hookContext": self.hook_context,
            "diff": _cut(self.diff, OUTPUT),
            "subagent": self.subagent,
        }
        data |= {name: value for name, value in more.items() if value}
        return {**data, "lines": tool_lines(data)}

    def _label(self) -> str:
        return f"{self.subagent} › {self.name}" if self.subagent else self.name


class ToolActivity:
    """The calls of one turn, its subagents' among them."""

    def __init__(self) -> None:
        self._calls = dict[str, Call]()
        self._ended = list[Call]()  # entries that are not out yet
        self._denied = dict[str, str]()  # before the call itself was told

    def __iter__(self) -> Iterator[Call]:
        return iter(self._calls.values())

    def get(self, call_id: str) -> Call | None:
        return self._calls.get(call_id)

    def update(self, update: Mapping[str, Any], *, subagent: str = "", now: float | None = None) -> str:
        """A ``tool_call`` or ``tool_call_update``.  Returns text for the thinking block, "" for none."""
        call_id = str(update.get("toolCallId") or "")
        known = self._calls.get(call_id)
        if known is not None and known.status:
            return ""
        moment = time.time() if now is None else now
        call = known or Call(call_id, len(self._calls) + 1, "tool", subagent, started=moment)
        self._calls[call_id] = call
        if call_id in self._denied:
            call.deny_reason = self._denied.pop(call_id)
        _learn(call, update)
        text = ""
        if not call.told and (update.get("rawInput") is not None or update.get("status") in _FINAL):
            call.told = True
            text = call.first_line()
        if update.get("status") in _FINAL:
            call.status = "denied" if call.deny_reason else str(update["status"])
            call.ended = moment
            self._ended.append(call)
            text += call.last_line()
        return text

    def denied(self, call_id: str, reason: str) -> None:
        """The gate has denied the call; Grok will tell that it failed."""
        if call := self._calls.get(call_id):
            call.deny_reason = reason
        else:
            self._denied[call_id] = reason

    def hooked(self, call_id: str, context: str) -> None:
        """A check after the call has something to say."""
        if call := self._calls.get(call_id):
            call.hook_context = context

    def take_entries(self) -> list[Call]:
        """Calls that have ended since the last time."""
        ended, self._ended = self._ended, []
        return ended

    def end_all(self, now: float | None = None) -> None:
        """The turn is over: what still runs was stopped with it."""
        for call in self._calls.values():
            if not call.status:
                call.status, call.ended = "failed", time.time() if now is None else now
                call.output = call.output or "(stopped with its turn)"
                self._ended.append(call)


def _learn(call: Call, update: Mapping[str, Any]) -> None:
    stamp = _mapping(_mapping(update.get("_meta")).get("x.ai/tool"))
    if stamp:
        call.stamp = stamp
    raw = update.get("rawInput")
    # Only the first input is the model's own; later ones are Grok's reading of it.
    if raw is not None and call.input is None:
        call.input = raw
    name = stamp.get("name") or (update.get("title") if call.name == "tool" else None)
    if isinstance(name, str) and name:
        call.name = mcp_target(name, call.input)
    if output := output_of(update):
        call.output = output
    if diff := _diff_of(update):
        call.diff = diff


# -- output ----------------------------------------------------------------------------------------------

#: Members of a raw output that hold its text, best first.
_TEXTS = ("output_for_prompt", "raw_output", "output", "stdout", "text", "content", "message")


def output_of(update: Mapping[str, Any]) -> str:
    """The text of a tool's output, "" if an update has none."""
    content = update.get("content")
    parts = list[str]()
    for item in content if isinstance(content, list) else ():
        inner = _mapping(_mapping(item).get("content"))
        if isinstance(inner.get("text"), str):
            parts.append(inner["text"])
    return "\n".join(parts) or _raw_text(update.get("rawOutput"))


def _raw_text(raw: Any) -> str:
    if isinstance(raw, str):
        return raw
    if isinstance(raw, list) and raw and all(isinstance(one, int) and 0 <= one < 256 for one in raw):
        return bytes(raw).decode("utf-8", "replace")  # Grok writes bytes as numbers
    if not isinstance(raw, dict) or not raw:
        return ""
    for name in _TEXTS:
        if text := _raw_text(raw.get(name)):
            return text
    values = [value for name, value in raw.items() if name != "type"]
    if len(values) == 1 and (text := _raw_text(values[0])):  # {"FileContent": {…}}, {"OkayOutput": "…"}
        return text
    return _compact({name: value for name, value in raw.items() if name != "type"})


def _diff_of(update: Mapping[str, Any]) -> str:
    content = update.get("content")
    for item in content if isinstance(content, list) else ():
        item = _mapping(item)
        if item.get("type") == "diff":
            return _diff(str(item.get("path", "")), item.get("oldText"), item.get("newText"))
    applied = _mapping(_mapping(update.get("rawOutput")).get("EditsApplied"))
    if applied:  # a hashline edit tells whole files
        path = str(applied.get("file_path") or applied.get("path") or "")
        return _diff(path, applied.get("old_string"), applied.get("new_string"))
    return ""


def _diff(path: str, old: Any, new: Any) -> str:
    before = old.splitlines() if isinstance(old, str) else []
    after = new.splitlines() if isinstance(new, str) else []
    if max(len(before), len(after)) > _DIFF_LINES:
        return ""
    return "\n".join(difflib.unified_diff(before, after, path, path, lineterm=""))


def _compact(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + "…"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
