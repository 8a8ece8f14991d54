"""What a client may ask of a session's workspace, as JSON.

One function a method, found in `METHODS` by the name without the vendor's prefix.  Wrong parameters raise
`ValueError` with the text for the client, a repository that git cannot read `GitError`.  Going back to a
prompt is the session's business too (`rewind` does the files' part), so it stands beside the table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from harness.workspace.service import git, hunks
from harness.workspace.service.rewind import rewind, rewind_points
from harness.workspace.service.skills import skills_json
from harness.workspace.session import WorkspaceSession

__all__ = ["METHODS", "Method", "rewind", "rewind_points", "skills_json"]

Method = Callable[[WorkspaceSession, Mapping[str, Any]], Awaitable[Any]]

METHODS: Mapping[str, Method] = {
    "git/status": git.status,
    "git/info": git.info,
    "git/branches": git.branches,
    "git/diffs": git.diffs,
    "git/files": git.files,
    "git/current_commit": git.current_commit,
    "hunk-tracker/get-hunks": hunks.get_hunks,
    "hunk-tracker/get-files": hunks.get_files,
    "hunk-tracker/get-summary": hunks.get_summary,
    "hunk-tracker/hunk-action": hunks.hunk_action,
    "hunk-tracker/file-action": hunks.file_action,
    "hunk-tracker/turn-action": hunks.turn_action,
    "hunk-tracker/all-action": hunks.all_action,
}
