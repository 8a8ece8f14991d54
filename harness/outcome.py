"""What a tool call comes to: a value with two projections, or a fault.

A `ToolOutput` is a value, also when the work failed for a reason that the model can mend (no match, exit
status 3, a missing file).  It holds the client's projection (``fields``, ``diffs``, ``locations``: facts
to draw a card from) and the model's (``prompt``: text to go on with); neither is derived from the other,
because a client wants the whole diff and a model wants the ten lines around it.  A `ToolFault` is raised
only when the tool could not do its work at all: wrong arguments, a closed session, a lost connection.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

__all__ = ["Completeness", "Diff", "FaultKind", "Location", "Notification", "ToolFault", "ToolOutput"]


class Completeness(StrEnum):
    """How much of the result a projection holds."""

    COMPLETE = "complete"
    TRUNCATED = "truncated"
    RUNNING = "running"


@dataclasses.dataclass(frozen=True, slots=True)
class Notification:
    """Something a tool tells the session while it works or when it has worked.

    ``kind`` is a tag that the tool's spec declares (``file_written``, ``progress``, …).
    """

    kind: str
    fields: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Diff:
    """One file's change; ``old_text`` is None for a file that did not exist."""

    path: str
    old_text: str | None
    new_text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Location:
    """A place that a client may show; ``line`` counts from 1."""

    path: str
    line: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ToolOutput:
    """The outcome of a call that ran; see the module for the two projections.

    ``type`` is the tag of the client's projection (``Bash``, ``ReadFile``, …), ``fields`` its content
    without the tag, ready for JSON.  ``completeness`` holds for both projections unless
    ``prompt_completeness`` says that the model was given less.  ``settles`` are the background tasks whose
    end this very result tells, so that no reminder tells it again.
    """

    type: str
    fields: Mapping[str, Any]
    prompt: str
    is_error: bool = False
    completeness: Completeness = Completeness.COMPLETE
    prompt_completeness: Completeness | None = None
    diffs: tuple[Diff, ...] = ()
    locations: tuple[Location, ...] = ()
    settles: frozenset[str] = frozenset()

    def raw(self) -> dict[str, Any] | None:
        """The client's projection as one JSON object; None for a result that is nothing but its text.

        Without a type it is a fault of the machinery, told as ``error`` and ``message``, or a refusal.
        """
        if self.type:
            return {"type": self.type, **self.fields}
        return dict(self.fields) if "error" in self.fields else None


class FaultKind(StrEnum):
    """Why a tool could not do its work; the spelling goes over the wire."""

    INVALID_ARGUMENTS = "invalid_arguments"
    NOT_FOUND = "not_found"
    PERMISSION_DENIED = "permission_denied"
    UNAUTHORIZED = "unauthorized"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    RATE_LIMITED = "rate_limited"
    EXECUTION = "execution"
    NETWORK = "network"
    NOT_IMPLEMENTED = "not_implemented"


class ToolFault(Exception):  # noqa: N818 - its kinds are faults of a call, not errors of ours
    """A failure of the machinery, not of the work; ``message`` is written for the model and the person."""

    def __init__(self, kind: FaultKind | str, message: str) -> None:
        super().__init__(message)
        self.kind = FaultKind(kind)
        self.message = message

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"
