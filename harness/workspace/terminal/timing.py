"""When a command is ended, and when it is moved to the background instead.  Pure figures.

A model's own time limit is not how long a call may block: a command that goes on is worth more than one
that was killed, so where the background is open the call returns early and the command lives on.
"""

from __future__ import annotations

import dataclasses

from harness.limits import LIMITS

__all__ = ["Deadline", "TimingPolicy", "resolve"]


@dataclasses.dataclass(frozen=True, slots=True)
class TimingPolicy:
    """The configured side, in seconds.  ``block_budget`` 0: a call blocks for the whole time limit."""

    default: float = LIMITS.command_default
    ceiling: float = LIMITS.command_ceiling
    auto_background: bool = True
    block_budget: float = LIMITS.command_block
    foreground: float = LIMITS.command_foreground

    @property
    def bounded_ceiling(self) -> float:
        return min(self.ceiling, LIMITS.command_longest)


@dataclasses.dataclass(frozen=True, slots=True)
class Deadline:
    """Seconds from the start; None: never.  A move cancels nothing: it says when the call stops waiting."""

    kill: float | None
    move: float | None = None


def resolve(requested_ms: int | None, *, background: bool, policy: TimingPolicy) -> Deadline:
    """What a requested time limit (None or 0: none given) comes to."""
    requested = (requested_ms or 0) / 1000
    if background:
        wanted = requested if requested > 0 else LIMITS.command_longest
        return Deadline(min(wanted, LIMITS.command_longest))
    limit = min(requested if requested > 0 else policy.default, policy.bounded_ceiling)
    if not policy.auto_background:
        return Deadline(min(limit, max(policy.foreground, policy.default)))
    block = min(limit, policy.block_budget) if policy.block_budget > 0 else limit
    return Deadline(LIMITS.command_longest, move=block)
