"""Texts of errors, worded so that Pi does what is right.

Pi reads errors with regular expressions: what looks like trouble of a network or a server it repeats by
itself, and what looks like a full context makes it compact its transcript and ask again.  Neither is
right for a model that keeps its own history: the prompt may be at work.  So every text is checked, and
disarmed where it would match; only `NOT_WRITTEN` is meant to be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["NOT_WRITTEN", "disarmed", "engine_failure", "triggers"]

#: The engine was lost before it had the prompt: Pi may ask again.
NOT_WRITTEN = "Gateway connection lost before Grok had the message."

#: What Pi 0.73 to 1.6 take for a failure that passes, and for a full context.
_RETRIED = re.compile(
    r"overloaded|provider.?returned.?error|rate.?limit|too many requests|\b(?:429|500|502|503|504|529)\b"
    r"|service.?unavailable|server.?error|internal.?error|network.?(?:error|connection)|connection.?(?:error"
    r"|refused|lost|closed|reset|terminated)|websocket.?(?:closed|error)|other side closed|fetch failed"
    r"|upstream.?connect|reset before headers|socket hang up|timed? ?out|timeout|terminated"
    r"|ended without|http2 request did not get a response|retry delay|econn\w+|etimedout|enotfound|epipe",
    re.IGNORECASE,
)
_OVERFLOW = re.compile(
    r"prompt (?:is )?too long|request_too_large|input is too long|exceeds? (?:the )?(?:model'?s? )?"
    r"(?:maximum )?(?:context|available|limit)|maximum (?:prompt|context) length|context[_ ](?:length|window)"
    r"|input token count"
    r"|reduce the length|too many tokens|token limit|too large for model|model_context_window",
    re.IGNORECASE,
)

_DOT = "\u2060"  # word joiner: no width, and no expression expects it


def triggers(text: str) -> bool:
    """Whether Pi would repeat the call, or compact, because of this text."""
    return bool(_RETRIED.search(text) or _OVERFLOW.search(text))


def disarmed(text: str) -> str:
    """The same text for a person, which nothing of Pi matches."""
    while match := _RETRIED.search(text) or _OVERFLOW.search(text):
        middle = match.start() + 1
        text = text[:middle] + _DOT + text[middle:]
    return text


def engine_failure(error: Mapping[str, Any]) -> str:
    """The text for an error of the engine."""
    data, message = error.get("data"), str(error.get("message") or "no reason given")
    detail = data if isinstance(data, str) else ""
    if isinstance(data, dict):
        detail = str(data.get("message") or "")
        if data.get("http_status"):
            detail = f"{detail} (HTTP status {data['http_status']})".strip()
    text = f"{message}: {detail}" if detail and detail not in message else message
    return disarmed(f"Grok could not answer: {text}")
