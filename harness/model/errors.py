"""Why a model call failed, in words for a person and in the terms that a retry and a client go by.

No text of an error holds a credential: what an endpoint says is cleaned with `redacted` first, because
some repeat the key that they refuse.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from harness.limits import SIZES

__all__ = ["Failure", "ModelError", "redacted"]

#: A shorter value is no secret, and cutting it out would only spoil the text.
_SHORTEST_SECRET = 6


class Failure(StrEnum):
    """The kind of a failure; the spelling goes over the wire as ``error_type`` or ``error_kind``."""

    AUTH = "auth"
    RATE_LIMITED = "rate_limited"
    API = "api"
    HTTP = "http"
    TIMEOUT = "timeout"
    EMPTY = "empty_response"
    TRUNCATED = "max_tokens_truncation"
    CONFIG = "config"
    CONTEXT = "context_length_exceeded"
    COMPACTION = "compact_failed"


class ModelError(Exception):
    """A model call failed.  ``transient``: the same call may succeed later."""

    def __init__(
        self,
        kind: Failure,
        message: str,
        *,
        transient: bool = False,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.transient = transient
        self.status = status
        self.retry_after = retry_after
        self.attempts = 0  #: tries after the first, once all of them are over


def redacted(text: str, secrets: Iterable[str]) -> str:
    """``text`` without the secrets, control characters and more length than a person reads."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "…")
    text = "".join(c if c.isprintable() or c == "\n" else " " for c in text).strip()
    return text if len(text) <= SIZES.model_error else f"{text[: SIZES.model_error]}…"
