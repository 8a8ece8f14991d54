"""The engine's one table of limits: every number of seconds and every bound in bytes or items.

Nothing else in ``harness`` holds such a number.  A row says its unit in its class and its reason beside
it; figures without a reason of our own are the original's (grok 1.0.41), kept so that a model trained on
it meets the same bounds.
"""

from __future__ import annotations

import dataclasses
from typing import Any

__all__ = ["LIMITS", "SIZES", "EngineLimits", "EngineSizes"]


def _row(default: float, reason: str) -> Any:
    return dataclasses.field(default=default, metadata={"reason": reason})


def _size(default: int, reason: str) -> Any:
    return dataclasses.field(default=default, metadata={"reason": reason})


@dataclasses.dataclass(frozen=True, slots=True)
class EngineLimits:
    """Seconds, all of them."""

    # -- registry, bridge, reminders -----------------------------------------------------------------
    short_lived: float = _row(1, "a signalled command that lived less may have been hit by its own pkill")

    # -- workspace -----------------------------------------------------------------------------------
    vcs: float = _row(30, "a git command on a large checkout with a cold cache; then it counts as stuck")
    vcs_terminate: float = _row(1, "TERM to KILL: git removes its lock files in milliseconds")
    path_hints: float = _row(0.1, "looking for what a wrong path may have meant; the model waits for it")

    # -- terminal, tasks, monitor --------------------------------------------------------------------

    # -- file tools ----------------------------------------------------------------------------------

    # -- model, session, agent -----------------------------------------------------------------------

    # -- permissions, hooks --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class EngineSizes:
    """Bytes, characters, lines or items; the reason says which."""

    # -- registry, bridge, reminders -----------------------------------------------------------------
    tool_output: int = _size(40_000, "bytes of one result for the model, whatever tool made it")
    completion_inline: int = _size(4_000, "bytes of a finished command told without a retrieval tool")
    completion_preview: int = _size(2_000, "bytes of output in such a telling; the log has the rest")
    mcp_output: int = _size(20_000, "bytes of an MCP tool's result")
    mcp_description: int = _size(2_048, "characters of a description that a foreign server wrote")
    skill_entry: int = _size(400, "bytes of one skill in the listing")
    skill_description_floor: int = _size(20, "bytes; a shorter description says nothing, the name alone does")
    skill_listing_unknown: int = _size(400_000, "characters, where the model's window is not known")
    skill_listing_per_token: int = _size(
        2, "characters for each token of the window: half of it at 4 a token"
    )

    # -- workspace -----------------------------------------------------------------------------------
    vcs_output: int = _size(16 << 20, "bytes of a status or diff; more is cut and said to be")
    vcs_complaint: int = _size(64 << 10, "bytes of what a program says on its error output")
    pipe_read: int = _size(64 << 10, "bytes; what a pipe holds")
    path_similar: int = _size(3, "names suggested for a missing file")
    path_component: int = _size(255, "bytes of one name; no common filesystem takes more")
    symlink_hops: int = _size(40, "links in a row before a path counts as a loop, as in the kernel")

    # -- terminal, tasks, monitor --------------------------------------------------------------------

    # -- file tools ----------------------------------------------------------------------------------

    # -- model, session, agent -----------------------------------------------------------------------

    # -- permissions, hooks --------------------------------------------------------------------------


LIMITS = EngineLimits()
SIZES = EngineSizes()
