"""What a client wants of a new session."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.model.endpoints import Endpoint

__all__ = ["SessionWishes", "WishError"]


class WishError(ValueError):
    """A session cannot be made as it was wished for; the text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class SessionWishes:
    """``rules`` are added to our instructions, ``system_prompt`` takes their place.

    ``permission_mode`` is the command line's word; ``hooks`` is what the client registered, as it came.
    """

    id: str
    cwd: str
    endpoint: Endpoint
    rules: str = ""
    system_prompt: str = ""
    always_approve: bool = False
    permission_mode: str | None = None
    auto_approve: bool = False
    trusted: bool = False  #: the command line says that the project may tell the model what to do
    hooks: object = None
