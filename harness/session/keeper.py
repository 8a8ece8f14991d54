"""Whoever keeps a session: see `harness.session.journal`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from harness.session.updates import Update

__all__ = ["Keeper"]


class Keeper(Protocol):
    """Told of everything before anybody outside is."""

    def record(self, update: Update, /) -> None:
        """An update; what does not belong to the history is passed over."""

    def message(self, message: Mapping[str, Any], /) -> None:
        """A message of the conversation with the model."""

    def replaced(self, messages: Sequence[Mapping[str, Any]], /) -> None:
        """The conversation is another one now."""

    def began(self, prompt_id: str, /) -> None:
        """A turn begins."""

    def ended(self) -> None:
        """A turn has ended."""

    def note(self, **fields: Any) -> None:
        """Title, model, effort."""
