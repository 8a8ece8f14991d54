"""Path mediation."""

from __future__ import annotations

import dataclasses

__all__ = ["PathHints", "ResolvedPath"]


@dataclasses.dataclass(frozen=True, slots=True)
class ResolvedPath:
    """Where a path a model wrote leads; act on ``real``, show ``shown``."""

    given: str  # as the model wrote it
    path: str  # absolute, links not followed
    real: str  # canonical: every link followed
    shown: str  # for outputs: below the display directory where the session has one
    repaired: bool = False  # a name was found only after folding look-alike characters

    def __str__(self) -> str:
        return self.real


@dataclasses.dataclass(frozen=True, slots=True)
class PathHints:
    """Help for a path that does not exist, as facts; the tool words them."""

    cwd: str
    corrected: str | None = None  # the same path with the missing directory put in
    similar: tuple[str, ...] = ()  # names in the same directory
