"""What a call wants, in the terms of rules: read, edit, run, reach a server or a page.

A tool is judged by its kind and by what its arguments say, so that a tool of any family (and one that
nobody has heard of) falls under the same rules.  What cannot be told counts as an edit of something
unknown: it is asked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from harness.registry.contract import ToolKind

__all__ = ["Access", "AccessKind", "access_of"]


class AccessKind(StrEnum):
    NONE = "none"  # touches the session itself only
    READ = "read"
    GREP = "grep"
    EDIT = "edit"
    BASH = "bash"
    MCP = "mcp"
    WEB_FETCH = "webfetch"
    WEB_SEARCH = "websearch"
    OTHER = "other"  # starts work of its own kind: a subagent, a schedule


@dataclasses.dataclass(frozen=True, slots=True)
class Access:
    """``subject``: the path, command, ``server__tool``, URL or query; None where there is none.

    ``further``: more paths that the same call edits.  ``pattern``: the names a search looks into.
    ``folder``: where a command runs, if not where the session works.
    """

    kind: AccessKind
    subject: str | None = None
    further: tuple[str, ...] = ()
    pattern: str | None = None
    folder: str | None = None


_HARMLESS = frozenset(
    {
        ToolKind.PLAN,
        ToolKind.BACKGROUND_TASK,
        ToolKind.WAIT_TASKS,
        ToolKind.KILL_TASK,
        ToolKind.SKILL,
        ToolKind.MEMORY_SEARCH,
        ToolKind.MEMORY_GET,
        ToolKind.ENTER_PLAN,
        ToolKind.EXIT_PLAN,
        ToolKind.ASK_USER,
        ToolKind.SEARCH_TOOL,
        ToolKind.GOAL_UPDATE,
    }
)
_PATHS = (
    "file_path",
    "target_file",
    "path",
    "target_directory",
    "filePath",
    "dir_path",
    "notebook_path",
    "filename",
)
_EDITS = frozenset({ToolKind.EDIT, ToolKind.WRITE, ToolKind.DELETE, ToolKind.MOVE})
_READS = frozenset({ToolKind.READ, ToolKind.LIST_DIR, ToolKind.LIST, ToolKind.LSP})


def access_of(kind: ToolKind, name: str, arguments: Mapping[str, Any]) -> Access:
    """The access of one call; ``arguments`` under their canonical names."""
    if kind in (ToolKind.EXECUTE, ToolKind.MONITOR):
        return _command(arguments, _text(arguments, "command", "cmd") or "")
    if kind in _EDITS:
        return _edit(arguments)
    if kind in _READS:
        return Access(AccessKind.READ, _text(arguments, *_PATHS))
    if kind is ToolKind.SEARCH:
        glob = _text(arguments, "glob", "include")
        return Access(AccessKind.GREP, _text(arguments, *_PATHS), pattern=glob)
    if kind is ToolKind.USE_TOOL:
        return Access(AccessKind.MCP, _text(arguments, "tool_name") or "")
    if kind is ToolKind.WEB_FETCH:
        return Access(AccessKind.WEB_FETCH, _text(arguments, "url") or "")
    if kind is ToolKind.WEB_SEARCH:
        return Access(AccessKind.WEB_SEARCH, _text(arguments, "query", "search_term") or "")
    if kind in _HARMLESS:
        return Access(AccessKind.NONE)
    if "__" in name:  # a tool of a server, called by its own name
        return Access(AccessKind.MCP, name)
    if kind is ToolKind.TASK:
        return Access(AccessKind.OTHER, _text(arguments, "subagent_type") or "")
    if (command := _text(arguments, "command", "cmd")) is not None:
        return _command(arguments, command)
    return Access(AccessKind.OTHER, name)


def _command(arguments: Mapping[str, Any], command: str) -> Access:
    return Access(AccessKind.BASH, command, folder=_text(arguments, "workdir", "cwd", "working_directory"))


def _edit(arguments: Mapping[str, Any]) -> Access:
    """All that an edit names: where a file is moved to is edited as well, and a patch names many."""
    named = [arguments[key] for key in (*_PATHS, "destination", "new_path", "target") if key in arguments]
    patch = _text(arguments, "patch", "input")
    paths = [p for p in named if isinstance(p, str)] + (_patched(patch) if patch is not None else [])
    if not paths:
        return Access(AccessKind.EDIT, None)
    return Access(AccessKind.EDIT, paths[0], tuple(paths[1:]))


def _patched(patch: str) -> list[str]:
    """Files that a patch in the ``*** Update File:`` form or a unified diff touches."""
    marks = ("*** Update File:", "*** Add File:", "*** Delete File:", "*** Move to:", "--- ", "+++ ")
    found = []
    for line in patch.splitlines():
        for mark in marks:
            if line.startswith(mark):
                path = line[len(mark) :].split("\t")[0].strip()
                found.append(path[2:] if path[:2] in ("a/", "b/") and mark in ("--- ", "+++ ") else path)
    return [path for path in dict.fromkeys(found) if path and path != "/dev/null"]


def _text(arguments: Mapping[str, Any], *keys: str) -> str | None:
    return next((arguments[k] for k in keys if isinstance(arguments.get(k), str)), None)
