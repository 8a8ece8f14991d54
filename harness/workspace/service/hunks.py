"""Hunks and the decisions on them, as JSON; files are looked at again before each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from harness.workspace.hunks import Hunk, HunkTracker
from harness.workspace.service.fields import field, iso_time
from harness.workspace.session import WorkspaceSession
from harness.workspace.watch import look

__all__ = [
    "all_action",
    "file_action",
    "get_files",
    "get_hunks",
    "get_summary",
    "hunk_action",
    "turn_action",
]

_ACTIONS = ("accept", "reject")


def _hunk(hunk: Hunk) -> dict[str, Any]:
    source: dict[str, Any] = {"type": str(hunk.origin.source)}
    if hunk.origin.prompt_index is not None:
        source["prompt_index"] = hunk.origin.prompt_index
    return {
        "id": hunk.id,
        "path": hunk.path,
        "lineInfo": {
            "oldStart": hunk.old_start,
            "oldCount": hunk.old_count,
            "newStart": hunk.new_start,
            "newCount": hunk.new_count,
        },
        "source": source,
        "oldText": hunk.old_text or None,
        "newText": hunk.new_text,
        "patch": None,
        "createdAt": iso_time(hunk.created_at),
    }


async def get_hunks(session: WorkspaceSession, params: Mapping[str, Any]) -> dict[str, Any]:
    await look(session)
    path, turn = params.get("path"), params.get("promptIndex")
    return {"hunks": [_hunk(hunk) for hunk in session.hunks.hunks(path=path, prompt_index=turn)]}


async def get_files(session: WorkspaceSession, _params: Mapping[str, Any]) -> dict[str, Any]:
    await look(session)
    files = []
    for path in session.hunks.paths():
        hunks = session.hunks.hunks(path=path)
        if hunks:
            files.append(
                {
                    "path": path,
                    "isAgentFile": session.hunks.by_agent(path),
                    "hunkCount": len(hunks),
                    "additions": _added(hunks),
                    "deletions": _removed(hunks),
                }
            )
    return {"files": files}


async def get_summary(session: WorkspaceSession, _params: Mapping[str, Any]) -> dict[str, Any]:
    await look(session)
    tracker = session.hunks
    hunks = tracker.hunks()
    owned = [hunk for hunk in hunks if hunk.origin.prompt_index is not None]
    turns = sorted({hunk.origin.prompt_index for hunk in owned if hunk.origin.prompt_index is not None})
    return {
        "stats": _stats(tracker),
        "turns": [_turn(turn, tracker.hunks(prompt_index=turn)) for turn in turns],
        "filesModified": sum(tracker.by_agent(path) for path in tracker.paths()),
        "filesWithPending": len({hunk.path for hunk in owned}),
        "pendingHunks": len(owned),
        "pendingLinesAdded": _added(owned),
        "pendingLinesRemoved": _removed(owned),
        "unattributedPending": len(hunks) - len(owned),
    }


def _turn(index: int, hunks: list[Hunk]) -> dict[str, Any]:
    return {
        "promptIndex": index,
        "files": sorted({hunk.path for hunk in hunks}),
        "pendingHunks": [_hunk(hunk) for hunk in hunks],
        "linesAdded": _added(hunks),
        "linesRemoved": _removed(hunks),
    }


def _stats(tracker: HunkTracker) -> dict[str, int]:
    return {
        f"{name}{what}": number
        for name, decided in (("accepted", tracker.accepted), ("rejected", tracker.rejected))
        for what, number in (
            ("Hunks", decided.hunks),
            ("LinesAdded", decided.additions),
            ("LinesRemoved", decided.deletions),
        )
    }


def _added(hunks: Iterable[Hunk]) -> int:
    return sum(hunk.new_count for hunk in hunks)


def _removed(hunks: Iterable[Hunk]) -> int:
    return sum(hunk.old_count for hunk in hunks)


async def hunk_action(session: WorkspaceSession, params: Mapping[str, Any]) -> dict[str, Any]:
    wanted = field(params, "hunkId", str)
    chosen = await _chosen(session, params, lambda hunk: hunk.id == wanted)
    if not chosen:
        return {"success": False, "error": f"hunk action failed: there is no hunk {wanted}"}
    return await _act(session, params, chosen)


async def file_action(session: WorkspaceSession, params: Mapping[str, Any]) -> dict[str, Any]:
    path = field(params, "path", str)
    return await _act(session, params, await _chosen(session, params, lambda hunk: hunk.path == path))


async def turn_action(session: WorkspaceSession, params: Mapping[str, Any]) -> dict[str, Any]:
    turn = field(params, "promptIndex", int)
    chosen = await _chosen(session, params, lambda hunk: hunk.origin.prompt_index == turn)
    return await _act(session, params, chosen)


async def all_action(session: WorkspaceSession, params: Mapping[str, Any]) -> dict[str, Any]:
    return await _act(session, params, await _chosen(session, params, lambda _hunk: True))


async def _chosen(
    session: WorkspaceSession, params: Mapping[str, Any], matches: Callable[[Hunk], bool]
) -> list[Hunk]:
    """Looked for in what the files hold now: a decision on an older state would undo a newer one."""
    action = field(params, "action", str)
    if action not in _ACTIONS:
        raise ValueError(f"unknown action: {action}")
    await look(session)
    return [hunk for hunk in session.hunks.hunks() if matches(hunk)]


async def _act(session: WorkspaceSession, params: Mapping[str, Any], chosen: list[Hunk]) -> dict[str, Any]:
    ids = [hunk.id for hunk in chosen]
    if params["action"] == "accept":
        session.hunks.accept(ids)
    else:
        await session.restore(session.hunks.reject(ids))
    return {"success": True, "affectedCount": len(ids)}
