"""The prompts of a session that wait for their turn, in the order in which they will have it.

Pure: what to tell of a change is `PromptQueue.entries`, sent by whoever made the change.  Each entry has a
version, which clients name when they change it: a change that was made for another version is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from harness.session.commands import Command, read_command
from harness.session.prompt import Prompt

__all__ = ["PromptQueue", "Queued"]


@dataclasses.dataclass(slots=True)
class Queued:
    """A prompt that waits.  ``autonomous``: no client asked for it, and none awaits an answer.

    ``as_query``: the model gets it as the user's text, introduced by ``interruption``; else as it is.
    ``ticket`` is whatever its maker needs to answer it.
    """

    id: str
    prompt: Prompt
    autonomous: bool = False
    as_query: bool = True
    interruption: str = ""
    ticket: Any = None
    version: int = 0

    @property
    def command(self) -> Command | None:
        """The command to the engine that the prompt is, if it is one."""
        return read_command(self.prompt.shown) if self.as_query and not self.autonomous else None

    @property
    def running(self) -> dict[str, Any]:
        """How a queue notification names it once it runs."""
        return {"runningPromptId": self.id, "runningText": self.prompt.shown, "runningKind": "prompt"}


class PromptQueue:
    """First come, first served, except for prompts that are to run at once."""

    def __init__(self) -> None:
        self._waiting: list[Queued] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Queued]:
        return iter(tuple(self._waiting))

    def add(self, queued: Queued, *, first: bool = False) -> None:
        self._waiting.insert(0 if first else len(self._waiting), queued)

    def take(self) -> Queued | None:
        """The next one, which no longer waits."""
        return self._waiting.pop(0) if self._waiting else None

    def remove(self, prompt_id: str, version: int | None = None) -> Queued | None:
        """Take one out; None when there is none such, or of another version."""
        found = self._find(prompt_id, version)
        if found is not None:
            self._waiting.remove(found)
        return found

    def edit(self, prompt_id: str, text: str, version: int | None = None) -> bool:
        found = self._find(prompt_id, version)
        if found is None:
            return False
        found.prompt = Prompt(text, text, found.prompt.attached, found.prompt.dropped)
        found.version += 1
        return True

    def reorder(self, ids: Sequence[str]) -> None:
        """Those named first, in that order; the others stay behind them as they were."""
        place = {prompt_id: i for i, prompt_id in enumerate(ids)}
        self._waiting.sort(key=lambda queued: place.get(queued.id, len(place)))

    def clear(self) -> list[Queued]:
        gone, self._waiting = self._waiting, []
        return gone

    def entries(self) -> list[dict[str, Any]]:
        """The waiting prompts as clients see them; what nobody asked for is not shown."""
        shown = (queued for queued in self._waiting if not queued.autonomous)
        return [
            {"id": q.id, "version": q.version, "kind": "prompt", "text": q.prompt.shown, "position": i}
            for i, q in enumerate(shown)
        ]

    def _find(self, prompt_id: str, version: int | None) -> Queued | None:
        return next(
            (q for q in self._waiting if q.id == prompt_id and (version is None or version == q.version)),
            None,
        )
