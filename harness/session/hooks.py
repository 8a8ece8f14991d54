"""The seam between a turn and the hooks that a client or a file registered.

The engine's hooks implement it, also for a session without any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

__all__ = ["TurnHooks"]


class TurnHooks(Protocol):
    """What is asked and told around a turn; a hook that fails or is late lets things go on."""

    async def before(
        self, call_id: str, name: str, arguments: Mapping[str, Any], prompt_id: str, /
    ) -> str | None:
        """The reason why the call must not run, or None."""
        ...

    async def after(
        self,
        call_id: str,
        name: str,
        arguments: Mapping[str, Any],
        result: Mapping[str, Any] | None,
        seconds: float,
        backgrounded: bool,
        /,
    ) -> Sequence[str]:
        """What the model is to hear behind the results of the batch."""
        ...

    async def stop(self, prompt_id: str, text: str, /) -> Sequence[str]:
        """What the model is to go on with; nothing lets the turn end."""
        ...

    def denied(self, call_id: str, name: str, arguments: Mapping[str, Any], /) -> None:
        """A call does not run, by its user's word or a rule's."""
        ...

    def tell(self, event: str, fields: Mapping[str, Any], prompt_id: str, /) -> None:
        """Something happened that no hook can change."""
        ...
