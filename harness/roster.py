"""Lists of sessions and of their histories, as clients are answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.limits import SIZES
from harness.session.history import Entry, prompt_starts
from harness.session.summary import Summary, iso

__all__ = ["described", "dormant", "history_page", "listed"]


def listed(found: Sequence[Summary], cursor: str | None, *, more: bool = False) -> dict[str, Any]:
    """A page of sessions; ``more``: with everything that is known of each."""
    start = int(cursor) if cursor and cursor.isdecimal() else 0
    page = found[start : start + SIZES.session_page]
    answer: dict[str, Any] = {"sessions": [described(s) if more else _short(s) for s in page]}
    if start + len(page) < len(found):
        answer["nextCursor"] = str(start + len(page))
    return answer


def described(summary: Summary) -> dict[str, Any]:
    return {
        **_short(summary),
        "summary": summary.title or "",
        "createdAt": iso(summary.created_ms),
        "lastActiveAt": iso(summary.updated_ms),
        "source": "local",
        "modelId": summary.model_name,
        "numMessages": summary.messages,
    }


def dormant(summary: Summary) -> dict[str, Any]:
    """A session that is not in memory, in the roster."""
    return {
        "sessionId": summary.id,
        "title": summary.title,
        "cwd": summary.cwd,
        "isWorktree": False,
        "modelId": summary.model_name,
        "yolo": False,
        "activity": "dormant",
        "resident": False,
        "lastChangeUnixMs": summary.updated_ms,
        "origin": {"kind": "local"},
    }


def history_page(entries: Sequence[Entry], params: Mapping[str, Any]) -> dict[str, Any]:
    """Entries from ``offset`` on, counted from the end where it is negative."""
    offset, limit = _number(params, "offset", 0), _number(params, "limit", SIZES.session_entries)
    start = max(0, len(entries) + offset) if offset < 0 else offset
    page = entries[start : start + min(max(0, limit), SIZES.session_entries)]
    answer: dict[str, Any] = {
        "updates": list(page),
        "totalCount": len(entries),
        "hasMore": start + len(page) < len(entries),
        "promptStarts": prompt_starts(entries),
    }
    event_ids = ((kept["params"].get("_meta") or {}).get("eventId") for kept in reversed(page))
    if (last := next((event_id for event_id in event_ids if event_id), None)) is not None:
        answer["lastEventId"] = last
    return answer


def _short(summary: Summary) -> dict[str, Any]:
    facets = {"kind": "build", "facets": {"cwd": summary.cwd, "kind": "build"}}
    title = {} if summary.title is None else {"title": summary.title}
    updated = iso(summary.updated_ms)
    meta = {"x.ai/session": facets}
    return {"sessionId": summary.id, "cwd": summary.cwd, **title, "updatedAt": updated, "_meta": meta}


def _number(params: Mapping[str, Any], name: str, default: int) -> int:
    value = params.get(name)
    return value if isinstance(value, int) else default
