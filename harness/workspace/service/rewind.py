"""Going back to a prompt: what there is to go back to, and the files' part of it."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from harness.workspace.service.fields import field, iso_time
from harness.workspace.session import WorkspaceSession

__all__ = ["rewind", "rewind_points"]

_REWINDS = ("all", "conversation_only", "code_only", "files_only")


def rewind_points(session: WorkspaceSession) -> dict[str, Any]:
    return {
        "rewind_points": [
            {
                "prompt_index": point.prompt_index,
                "created_at": iso_time(point.created_at),
                "num_file_snapshots": len(point.files),
                "has_file_changes": bool(point.files),
                "prompt_preview": point.preview,
            }
            for point in session.rewind.points()
        ]
    }


async def rewind(session: WorkspaceSession, params: Mapping[str, Any]) -> dict[str, Any]:
    """The files' part of going back; the conversation's is the session's, which fills in ``prompt_text``.

    Without ``force`` it only tells what would happen.
    """
    target = field(params, "targetPromptIndex", int)
    mode = params.get("mode") or "all"
    if mode not in _REWINDS:
        raise ValueError(f"unknown variant `{mode}`, expected one of {', '.join(_REWINDS)}")
    answer: dict[str, Any] = {
        "success": False,
        "target_prompt_index": target,
        "mode": mode,
        "reverted_files": [],
        "clean_files": [],
        "conflicts": [],
        "prompt_text": None,
        "error": None,
    }
    known = [point.prompt_index for point in session.rewind.points()]
    if target not in known:
        there = f"; there are {known[0]} to {known[-1]}" if known else ""
        return answer | {"error": f"there is no prompt {target} to go back to{there}"}
    files = mode != "conversation_only"
    conflicts = await session.rewind_conflicts(target) if files else {}
    answer["conflicts"] = [
        {"path": _relative(session, path), "conflict_type": kind} for path, kind in sorted(conflicts.items())
    ]
    if params.get("force") is not True:
        touched = session.rewind.before(target) if files else {}
        answer["clean_files"] = sorted(_relative(session, path) for path in touched if path not in conflicts)
        if conflicts:
            answer["error"] = "Somebody else has changed files since. Confirm to put them back all the same."
        return answer
    whole = mode in ("all", "conversation_only")
    if files:
        written = await session.rewind_to(target, forget=whole)
        answer["reverted_files"] = [_relative(session, path) for path in written]
    else:
        session.rewind.forget_from(target)
    return answer | {"success": True}


def _relative(session: WorkspaceSession, path: str) -> str:
    shown = session.display(path)
    root = (session.display_cwd or session.cwd).rstrip("/") + "/"
    return posixpath.relpath(shown, root) if shown.startswith(root) else shown
