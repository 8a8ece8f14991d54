"""What files held before each prompt, so that a session can go back to one.

A point keeps, for every file written during its prompt, the content before the first of these writes.
Going back to a prompt restores each file from the oldest point that knows it, from that prompt on.  What was
last written is remembered by its digest: a file that holds something else was changed by somebody since,
and going back would undo that too.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable

from harness.limits import SIZES

__all__ = ["RewindPoint", "RewindPoints"]


@dataclasses.dataclass(slots=True)
class RewindPoint:
    """``files`` maps a canonical path to its bytes before the prompt, None where there was no file."""

    prompt_index: int
    preview: str
    created_at: float
    files: dict[str, bytes | None] = dataclasses.field(default_factory=dict)


class RewindPoints:
    """The points of one session, oldest first."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._points: list[RewindPoint] = []
        self._written: dict[str, bytes | None] = {}
        self._clock = clock

    def begin(self, preview: str) -> RewindPoint:
        index = self._points[-1].prompt_index + 1 if self._points else 0
        point = RewindPoint(index, _shortened(preview), self._clock())
        self._points.append(point)
        return point

    def wrote(self, path: str, previous: bytes | None, content: bytes | None) -> None:
        """A file is written (None: removed) for the running prompt; its first content stays kept."""
        if self._points:
            self._points[-1].files.setdefault(path, previous)
            self._written[path] = _digest(content)

    def changed_since(self, path: str, content: bytes | None) -> bool:
        """Whether somebody else has put this content there."""
        return path in self._written and self._written[path] != _digest(content)

    def points(self) -> list[RewindPoint]:
        return list(self._points)

    def before(self, prompt_index: int) -> dict[str, bytes | None]:
        """What every file written since must hold to be as it was before that prompt."""
        wanted: dict[str, bytes | None] = {}
        for point in self._points:
            if point.prompt_index >= prompt_index:
                for path, content in point.files.items():
                    wanted.setdefault(path, content)
        return wanted

    def forget_files_from(self, prompt_index: int) -> None:
        """The files are back; the conversation may still go back to these prompts."""
        for point in self._points:
            if point.prompt_index >= prompt_index:
                point.files.clear()

    def forget_from(self, prompt_index: int) -> None:
        self._points = [point for point in self._points if point.prompt_index < prompt_index]


def _digest(content: bytes | None) -> bytes | None:
    return None if content is None else hashlib.blake2b(content, digest_size=16).digest()


def _shortened(preview: str) -> str:
    if len(preview) <= SIZES.rewind_preview:
        return preview
    return preview[: SIZES.rewind_preview - 3] + "..."
