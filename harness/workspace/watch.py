"""What others did to files since the last look.

Looked at when somebody asks (a turn begins, a client wants the hunks), not watched: a watch on a large
tree costs a descriptor a directory and reports thousands of changes of a build that nobody asks for.
"""

from __future__ import annotations

import asyncio
import posixpath

from harness.limits import SIZES
from harness.workspace.filesystem import canonical
from harness.workspace.hunks import HunkMode
from harness.workspace.paths import below
from harness.workspace.session import WorkspaceSession
from harness.workspace.vcs import Git, GitError

__all__ = ["look"]


async def look(session: WorkspaceSession) -> list[str]:
    """Tell the session's hunks of changes made by others; the paths that changed.

    Files with hunks are read again.  With all changes tracked, git names the further ones, and what it has
    committed is their baseline; outside of a checkout only known files can be looked at.
    """
    changed: list[str] = []
    for path in session.hunks.paths():
        content = await asyncio.to_thread(_text, session, path)
        if content != _UNKNOWN and content != session.hunks.current(path):
            session.hunks.file_changed(path, content)
            changed.append(path)
    if session.hunks.mode is HunkMode.ALL_DIRTY:
        changed += await _dirty(session)
    return sorted(set(changed))


async def _dirty(session: WorkspaceSession) -> list[str]:
    git = await asyncio.to_thread(Git.of, session.executor, session.fs, session.cwd)
    if git is None:
        return []
    try:
        status = await git.status()
    except GitError:
        return []
    root = git.repository.root
    within = canonical(session.fs, session.cwd)
    names = {change.path for change in (*status.staged, *status.unstaged)} | set(status.untracked)
    known = set(session.hunks.paths())
    changed = []
    for name in sorted(names):
        path = posixpath.join(root, name)
        if path in known or not below(path, within) or any(p.startswith(".") for p in name.split("/")):
            continue
        content = await asyncio.to_thread(_text, session, path)
        try:
            committed = await git.at_revision(name)
        except GitError:
            continue
        if content == _UNKNOWN or (committed and len(committed) > SIZES.hunk_file):
            continue
        baseline = None if committed is None else committed.decode("utf-8", "surrogateescape")
        if content != baseline:
            session.hunks.file_changed(path, content, baseline)
            changed.append(path)
    return changed


#: Too large, binary, or not readable: nothing is known, which is not the same as "removed".
_UNKNOWN = "\0"


def _text(session: WorkspaceSession, path: str) -> str | None:
    try:
        content = session.fs.read(path, SIZES.hunk_file)
    except FileNotFoundError:
        return None
    except OSError:
        return _UNKNOWN
    if content.truncated or b"\0" in content.data:
        return _UNKNOWN
    return content.data.decode("utf-8", "surrogateescape")
