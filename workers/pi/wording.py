"""Texts of errors, worded so that Pi does what is right.

Pi reads errors with regular expressions: what looks like trouble of a network or a server it repeats by
itself, and what looks like a full context makes it compact its transcript and ask again.  Neither is
right for a model that keeps its own history: the prompt may be at work.  So texts of others are disarmed;
only `NOT_WRITTEN` is meant to be repeated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["NOT_WRITTEN", "disarmed", "engine_failure"]

#: The engine was lost before it had the prompt: Pi may ask again.
NOT_WRITTEN = "Gateway connection lost before Grok had the message."

#: Each of Pi's expressions needs one of these words (seen in Pi 0.73 and 1.6); with something invisible in
#: them none matches, whatever the rest is.
_WORDS = re.compile(
    r"\b(?:aborted|busy|capacity|closed|code|connect\w*|context|cut|demand|disconnected|eai_again|econn\w*"
    r"|ended|enotfound|epipe|errors?|etimedout|exceed\w*|fetch|getaddrinfo|http\d?|input|interrupted|lengths?"
    r"|limits?|long|longer|lost|max|maximum|network|overloaded|pending|prompts?|provider|rate\w*|reached|request"
    r"\w*|reset|retry\w*|returned|servers?|server_\w+|service|socket|status|streams?|terminated|timed|timeouts?"
    r"|tokens?|unavailable|upstream\w*|websockets?|window\w*|\w+_exceeded|\w+_error|\w+_too_large|too)\b"
    r"|\b[45]\d\d\b",
    re.IGNORECASE,
)

_JOINER = "\u2060"  # no width, breaks no line


def disarmed(text: str) -> str:
    """The same text for a person, which nothing of Pi matches."""
    return _WORDS.sub(lambda match: match[0][0] + _JOINER + match[0][1:], text)


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
