"""The repository around a session, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.limits import SIZES
from harness.workspace.service.fields import field, strings
from harness.workspace.session import WorkspaceSession
from harness.workspace.vcs import Change, Git, GitError

__all__ = ["branches", "current_commit", "diffs", "files", "info", "status"]


async def _of(session: WorkspaceSession) -> Git:
    git = Git.of(session.executor, session.fs, session.cwd)
    if git is None:
        raise GitError(f"{session.cwd} is in no git repository")
    return git


async def status(session: WorkspaceSession, _params: Mapping[str, Any]) -> dict[str, Any]:
    git = await _of(session)
    now = await git.status()
    about = await git.info(now)
    answer: dict[str, Any] = {
        "root": about.root,
        "mainRoot": about.main_root,
        "isWorktree": about.is_worktree,
        "branch": now.branch,
        "commit": now.commit,
        "remoteUrl": about.remotes[0] if about.remotes else None,
    }
    answer = {key: value for key, value in answer.items() if value is not None}
    return answer | {
        "staged": [_change(change) for change in now.staged],
        "unstaged": [_change(change) for change in now.unstaged],
    }


def _change(change: Change) -> dict[str, Any]:
    # Counts are those of `git/diffs`; a status does not read the files.
    found = {
        "path": change.path,
        "type": change.type,
        "staged": change.staged,
        "additions": 0,
        "deletions": 0,
    }
    return found if change.old_path is None else found | {"oldPath": change.old_path}


async def info(session: WorkspaceSession, _params: Mapping[str, Any]) -> dict[str, Any]:
    about = await (await _of(session)).info()
    branch = about.branch if about.commit else None
    return {"root": about.root, "remotes": list(about.remotes), "currentBranch": branch, "vcsKind": "git"}


async def branches(session: WorkspaceSession, params: Mapping[str, Any]) -> dict[str, Any]:
    git = await _of(session)
    found = await git.branches(remote=params.get("includeRemote") is True)
    return {
        "currentBranch": next((branch.name for branch in found if branch.current), None),
        "repoRoot": git.repository.root,
        "branches": [{"name": b.name, "current": b.current, "remote": b.remote} for b in found],
    }


async def diffs(session: WorkspaceSession, params: Mapping[str, Any]) -> dict[str, Any]:
    git = await _of(session)
    changed = []
    for diff in await git.diffs(strings(params, "paths")):
        file: dict[str, Any] = {
            "path": diff.path,
            "type": diff.type,
            "additions": diff.additions or 0,
            "deletions": diff.deletions or 0,
        }
        if params.get("includePatch") is True:
            patch = await git.change_of(diff)
            file |= {"patch": patch, "patchBytes": len(patch.encode()), "patchLines": patch.count("\n")}
        changed.append(file)
    return {"files": changed}


async def files(session: WorkspaceSession, params: Mapping[str, Any]) -> dict[str, Any]:
    field(params, "paths", list)
    version = params.get("version") or "HEAD"
    if not isinstance(version, str):
        raise ValueError("field `version` has the wrong type")
    git = await _of(session)
    found: list[dict[str, Any]] = []
    errors: list[dict[str, str]] = []
    for path in strings(params, "paths"):
        try:
            content = await (git.present(path) if version == "working" else git.at_revision(path, version))
            reason = f"{path} is not in {version}"
        except GitError as error:
            content, reason = None, str(error)
        if content is None:
            errors.append({"path": path, "code": "READ_FAILED", "message": reason})
            continue
        binary = b"\0" in content[: SIZES.binary_sample]
        text = "" if binary else content.decode("utf-8", "replace")
        found.append({"path": path, "version": version, "content": text, "isBinary": binary})
    return {"files": found, "errors": errors}


async def current_commit(session: WorkspaceSession, _params: Mapping[str, Any]) -> str | None:
    return await (await _of(session)).current_commit()
