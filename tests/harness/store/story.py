"""What updates tell of a session, so that two tellings can be compared: a client's, and a replay's."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Iterable
from typing import Any

__all__ = ["Story", "missing"]

Update = dict[str, Any]  # the params of a notification: sessionId, update, _meta

_CHUNKS = ("agent_message_chunk", "agent_thought_chunk")
_CALLS = ("tool_call", "tool_call_update")
_FINAL = ("completed", "failed")
#: Fields of a call that stay as they were told, however it ends.
_CALL_FIELDS = ("title", "kind", "rawInput", "locations")


@dataclasses.dataclass
class Story:
    """``texts``: by model call, its runs of thoughts and text; ``calls``: by id, what is known of each;
    ``others``: every other update, whole; ``order``: model calls and ends of turns as they came first."""

    texts: dict[str, list[list[str]]] = dataclasses.field(default_factory=dict)
    calls: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    others: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    users: list[str] = dataclasses.field(default_factory=list)
    order: list[str] = dataclasses.field(default_factory=list)
    twice: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, told: Iterable[Update]) -> Story:
        story = cls()
        for params in told:
            story.add(params)
        return story

    def add(self, params: Update) -> None:
        update, meta = params["update"], params.get("_meta", {})
        kind = update["sessionUpdate"]
        if kind == "user_message_chunk":
            self.users.append(update["content"]["text"])
        elif "eventId" not in meta or kind == "available_commands_update":
            return  # passes and is not kept
        elif kind in _CHUNKS:
            self._text(kind, update["content"]["text"], f"{meta['promptId']}/{meta['streamStartMs']}")
        elif kind in _CALLS:
            self._call(kind, update)
        else:
            self.others[json.dumps(update, sort_keys=True)] += 1
            if kind == "turn_completed":
                self._comes(f"end of {update['prompt_id']}")

    def _text(self, kind: str, text: str, stream: str) -> None:
        runs = self.texts.setdefault(stream, [])
        self._comes(stream)
        if runs and runs[-1][0] == kind:
            runs[-1][1] += text
        else:
            runs.append([kind, text])

    def _call(self, kind: str, update: dict[str, Any]) -> None:
        known = self.calls.setdefault(update["toolCallId"], {})
        if kind == "tool_call" and known:
            self.twice.append(f"call {update['toolCallId']}")
        known |= {name: value for name, value in update.items() if name not in ("sessionUpdate", "_meta")}

    def _comes(self, what: str) -> None:
        if what not in self.order:
            self.order.append(what)


def missing(seen: Story, replayed: Story) -> list[str]:
    """What was seen and is not told by the replay, or is told otherwise; each as a line."""
    found = [f"told twice: {what}" for what in replayed.twice]
    for stream, runs in seen.texts.items():
        if not _begins(replayed.texts.get(stream, []), runs):
            found.append(f"text of {stream}: {replayed.texts.get(stream)} does not begin with {runs}")
    for call_id, known in seen.calls.items():
        found += _call_differs(call_id, known, replayed.calls.get(call_id))
    found += [f"update: {text}" for text in (seen.others - replayed.others)]
    told = [what for what in replayed.order if what in seen.order]
    if told != [what for what in seen.order if what in told]:
        found.append(f"order: {told} for {seen.order}")
    if replayed.users[: len(seen.users)] != seen.users:
        found.append(f"prompts: {replayed.users} for {seen.users}")
    return found


def _begins(told: list[list[str]], runs: list[list[str]]) -> bool:
    *before, last = runs
    here = told[len(before)] if len(told) > len(before) else ["", ""]
    return told[: len(before)] == before and here[0] == last[0] and here[1].startswith(last[1])


def _call_differs(call_id: str, known: dict[str, Any], told: dict[str, Any] | None) -> list[str]:
    if told is None:
        return [f"call {call_id}"]
    names = [name for name in _CALL_FIELDS if name in known and known[name] != []]
    if known.get("status") in _FINAL:
        names += [name for name in ("status", "content", "rawOutput") if name in known]
    return [
        f"call {call_id} {name}: {told.get(name)!r} for {known[name]!r}"
        for name in names
        if told.get(name) != known[name]
    ]
