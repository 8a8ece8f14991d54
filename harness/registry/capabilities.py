"""What a session may do at most, by kind of tool.

The modes form a lattice: ``read_only`` below ``read_write`` and below ``execute``, both below ``all``;
the two in the middle cannot be compared.  A fork may keep or narrow its parent's mode, never widen it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from harness.registry.contract import ToolKind as Kind

__all__ = ["CapabilityMode", "allows", "within"]


class CapabilityMode(StrEnum):
    READ_ONLY = "read_only"
    READ_WRITE = "read_write"
    EXECUTE = "execute"
    ALL = "all"


_ALWAYS = frozenset(
    {
        Kind.PLAN,
        Kind.ENTER_PLAN,
        Kind.EXIT_PLAN,
        Kind.ASK_USER,
        Kind.SKILL,
        Kind.SEARCH_TOOL,
        Kind.GOAL_UPDATE,
        Kind.READ,
        Kind.MEMORY_SEARCH,
        Kind.MEMORY_GET,
        Kind.SEARCH,
        Kind.WEB_SEARCH,
        Kind.WEB_FETCH,
        Kind.LSP,
        Kind.LIST_DIR,
        Kind.LIST,
    }
)
_WRITING = frozenset(
    {
        Kind.EDIT,
        Kind.WRITE,
        Kind.DELETE,
        Kind.MOVE,
        Kind.IMAGE_GEN,
        Kind.VIDEO_GEN,
        Kind.IMAGE_TO_VIDEO,
        Kind.REFERENCE_TO_VIDEO,
        Kind.DEPLOY_APP,
    }
)
_EXECUTING = frozenset(
    {
        Kind.EXECUTE,
        Kind.BACKGROUND_TASK,
        Kind.WAIT_TASKS,
        Kind.KILL_TASK,
        Kind.TASK,
        Kind.MONITOR,
        Kind.WORKFLOW,
    }
)

#: ``other`` is in none of them: nobody knows what such a tool does, so only ``all`` lets it in.
_ALLOWED: Mapping[CapabilityMode, frozenset[Kind]] = {
    CapabilityMode.READ_ONLY: _ALWAYS,
    CapabilityMode.READ_WRITE: _ALWAYS | _WRITING | {Kind.USE_TOOL},
    CapabilityMode.EXECUTE: _ALWAYS | _EXECUTING | {Kind.USE_TOOL},
    CapabilityMode.ALL: frozenset(Kind),
}


def allows(mode: CapabilityMode, kind: Kind) -> bool:
    return kind in _ALLOWED[mode]


def within(child: CapabilityMode, parent: CapabilityMode) -> bool:
    """Whether ``child`` allows nothing that ``parent`` does not."""
    return _ALLOWED[child] <= _ALLOWED[parent]
