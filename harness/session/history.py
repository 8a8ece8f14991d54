"""A session's history: which updates it keeps, and what a client that loads the session is shown of it.

Pure.  An *entry* is one line of ``updates.jsonl``: ``{timestamp, method, params}``.  Kept is what happened
(texts, calls, plans, ends of turns and tasks); what only passes (arguments that stream in, waits, lists of
commands) is not.  Chunks of one text are kept as one entry, updates of one call are shown as one call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.session.updates import SESSION_UPDATE, Update

__all__ = [
    "KEPT",
    "Entry",
    "Lost",
    "Text",
    "entry",
    "event_of",
    "is_chunk",
    "is_kept",
    "lost",
    "prompt_starts",
    "replay",
    "turns_begun",
]

Entry = dict[str, Any]

#: The method of kept updates that are not ACP's own; sent at once they have several.
KEPT = "_x.ai/session/update"
_CHUNKS = frozenset({"agent_message_chunk", "agent_thought_chunk"})
_CALLS = frozenset({"tool_call", "tool_call_update"})
_ENDED = frozenset({"completed", "failed"})
#: In the order in which a client is shown them.
_CALL_FIELDS = ("toolCallId", "title", "kind", "status", "content", "locations", "rawInput", "rawOutput")


def is_kept(update: Update) -> bool:
    """Whether an update belongs to the history."""
    kind = _kind(update.params)
    if update.event is None:
        return kind == "plan"  # the steps that the end of a turn closed
    return kind != "available_commands_update"  # a load tells the present ones


def is_chunk(update: Update) -> bool:
    return update.event is not None and _kind(update.params) in _CHUNKS


def entry(method: str, params: Mapping[str, Any], timestamp: int) -> Entry:
    """An update as it is kept."""
    kept = method if method == SESSION_UPDATE else KEPT
    return {"timestamp": timestamp, "method": kept, "params": dict(params)}


def event_of(kept: Mapping[str, Any]) -> int | None:
    """The number of an entry's event."""
    event_id = _meta(kept["params"]).get("eventId")
    if not isinstance(event_id, str):
        return None
    number = event_id.rpartition("-")[2]
    return int(number) if number.isdecimal() else None


class Text:
    """A text that is being written: chunks of one kind and one model call, next to each other."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._params = params
        self._key = _key(params)
        self._texts = [_text(params)]
        self._latest: Mapping[str, Any] = {}

    def takes(self, params: Mapping[str, Any]) -> bool:
        return _key(params) == self._key

    def add(self, params: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
        """The next chunk; what of it has to be noted."""
        meta = _meta(params)
        latest = {name: meta[name] for name in ("eventId", "agentTimestampMs", "chunkId") if name in meta}
        self.restore(latest, _text(params))
        return latest, self._texts[-1]

    def restore(self, latest: Mapping[str, Any], text: str) -> None:
        """A chunk as it was noted."""
        self._latest = latest
        self._texts.append(text)

    def whole(self) -> dict[str, Any]:
        """One chunk in the place of all, with the numbers of the last."""
        update = {**self._params["update"], "content": {"type": "text", "text": "".join(self._texts)}}
        return {**self._params, "update": update, "_meta": {**_meta(self._params), **self._latest}}


# -- replay ------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Call:
    """A call, gathered from its updates."""

    update: dict[str, Any] = dataclasses.field(default_factory=dict)
    place: int = 0
    turn: int = 0

    def add(self, update: Mapping[str, Any]) -> None:
        card = self.update.get("_meta")
        self.update |= update
        if card is not None:
            self.update["_meta"] = card

    def shown(self, *, running: bool) -> dict[str, Any]:
        status = self.update.get("status")
        if status not in _ENDED:
            # Its turn has ended without it: nobody will tell more of it.
            status = ("in_progress" if "kind" in self.update else "pending") if running else "failed"
        fields = {**self.update, "status": status}
        found = {name: fields[name] for name in _CALL_FIELDS if name in fields}
        if not found.get("locations", True):
            del found["locations"]
        card = {"_meta": self.update["_meta"]} if "_meta" in self.update else {}
        return {"sessionUpdate": "tool_call", **found, **card}


def replay(
    entries: Iterable[Entry],
    *,
    running: bool = False,
    asked: Collection[str] = (),
    after: int | None = None,
    stamp: Mapping[str, Any] | None = None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Methods and parameters of what a load shows.

    A call stands where its last news came.  ``running``: a turn goes on, and calls of it, too.  ``asked``:
    calls that wait to be allowed: whoever loads the session is asked, and told of them there.  ``after``:
    only what came behind this event, which is news then and not marked.  ``stamp`` goes into the ``_meta``
    of each.
    """
    shown, turn = _gathered(entries)
    marks = {**({"isReplay": True} if after is None else {}), **(stamp or {})}
    for item in shown:
        if item is None:
            continue
        kept, call = item
        if after is not None and (event_of(kept) or 0) <= after:
            continue
        if call and call.update["toolCallId"] in asked and running and call.turn == turn:
            continue
        params = kept["params"]
        update = call.shown(running=running and call.turn == turn) if call else params["update"]
        yield kept["method"], {**params, "update": update, "_meta": {**_meta(params), **marks}}


def _gathered(entries: Iterable[Entry]) -> tuple[list[tuple[Entry, _Call | None] | None], int]:
    """Entries with their calls, each call at one place only; and the number of turns that have ended."""
    shown = list[tuple[Entry, _Call | None] | None]()
    calls = dict[str, _Call]()
    turn = 0
    for kept in entries:
        kind, update = _kind(kept["params"]), kept["params"].get("update")
        if update is None:
            continue
        call = None
        if kind in _CALLS:
            call = calls.get(update["toolCallId"])
            if call is None or kind == "tool_call":  # an id may come again: models number their calls anew
                call = calls[update["toolCallId"]] = _Call(turn=turn)
            else:
                shown[call.place] = None
            call.add(update)
            call.place = len(shown)
        turn += kind == "turn_completed"
        shown.append((kept, call))
    return shown, turn


# -- the end of a process ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Lost:
    """What was under way when the process ended."""

    turn: bool  #: a turn had begun
    calls: tuple[str, ...]
    tasks: tuple[Mapping[str, Any], ...]  #: as they were told when they went to the background


def lost(entries: Iterable[Entry]) -> Lost:
    """What entries tell the beginning of, and not the end."""
    turn = False
    calls, tasks = dict[str, None](), dict[str, Mapping[str, Any]]()
    for kept in entries:
        update = kept["params"].get("update") or {}
        match update.get("sessionUpdate"):
            case "user_message_chunk" if _starts(update):
                turn, calls = True, {}
            case "turn_completed":
                turn, calls = False, {}
            case "tool_call":
                calls[update["toolCallId"]] = None
            case "tool_call_update" if update.get("status") in _ENDED:
                calls.pop(update["toolCallId"], None)
            case "task_backgrounded":
                tasks[str(update.get("task_id"))] = update
            case "task_completed":
                tasks.pop(str((update.get("task_snapshot") or {}).get("task_id")), None)
    return Lost(turn, tuple(calls) if turn else (), tuple(tasks.values()))


def prompt_starts(entries: Sequence[Entry]) -> list[int]:
    """Where turns begin."""
    return [i for i, kept in enumerate(entries) if _starts(kept["params"].get("update") or {})]


def turns_begun(entries: Iterable[Entry]) -> int:
    """How many turns the session has had, those before a cut included."""
    updates = (kept["params"].get("update") or {} for kept in entries)
    return max((u["_meta"]["promptIndex"] + 1 for u in updates if _starts(u)), default=0)


def _starts(update: Mapping[str, Any]) -> bool:
    index = _meta(update).get("promptIndex")
    return update.get("sessionUpdate") == "user_message_chunk" and isinstance(index, int)


def _kind(params: Mapping[str, Any]) -> str:
    update = params.get("update")
    return str(update.get("sessionUpdate")) if isinstance(update, dict) else ""


def _meta(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _text(params: Mapping[str, Any]) -> str:
    return str(params["update"]["content"]["text"])


def _key(params: Mapping[str, Any]) -> tuple[object, ...]:
    meta = _meta(params)
    return (_kind(params), meta.get("promptId"), meta.get("streamStartMs"))
