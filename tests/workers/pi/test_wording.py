"""Error texts against Pi's own expressions (those of Pi 1.6)."""

from __future__ import annotations

import re

import pytest

from workers.pi.wording import NOT_WRITTEN, disarmed, engine_failure

#: What Pi takes for a failure that passes.
RETRIED = re.compile(
    r"overloaded|server_busy|servers are currently busy|currently experiencing high demand"
    r"|model is at capacity"
    r"|rate.?limit|too many requests|(?<![a-z0-9])(?:429|500|502|503|504|520|524)(?![a-z0-9])"
    r"|service.?(?:is.?)?(?:temporarily.?)?unavailable|server.?error|internal.?error"
    r"|provider.?returned.?(?:an.?)?error|exceeded request buffer limit while retrying upstream"
    r"|unable to forward upstream|upstream.?request.?failed|upstream_stream_read_error|stream was interrupted"
    r"|http/?2 stream failed|network.?error|connection.?error|connection.?refused|connection.?lost"
    r"|connection.?closed|other side closed|fetch failed|request to \S+ failed, reason:|getaddrinfo"
    r"|(?<![a-z0-9_])(?:ECONNRESET|ECONNABORTED|ECONNREFUSED|ETIMEDOUT|EPIPE)(?![a-z0-9_])"
    r"|connection reset by peer|ENOTFOUND|EAI_AGAIN|upstream.?connect|reset before headers|socket hang up"
    r"|socket connection was closed|timed? out|timeout|terminated|websocket.?closed|websocket.?error"
    r"|websocket.?connection.?limit.?reached|ended without|stream ended before message_stop"
    r"|http2 request did not get a response|stream disconnected before completion"
    r"|cut short after the reply had begun|pending stream has been canceled|retry delay",
    re.IGNORECASE,
)

#: What Pi takes for a full context.
OVERFLOW = re.compile(
    r"prompt (?:is )?too long|prompt exceeds max length|request_too_large"
    r"|input is too long for requested model"
    r"|exceeds the context window|exceeds (?:the )?(?:model'?s )?maximum context length"
    r"|context window exceeded"
    r"|input token count.*exceeds the maximum|maximum prompt length is \d+|reduce the length of the messages"
    r"|maximum context length is \d+ tokens|exceeds (?:the )?maximum allowed input length"
    r"|exceeds the limit of \d+"
    r"|input \(\d+ tokens\) is longer than the model'?s context length|exceeds the available context size"
    r"|greater than the context length|context window exceeds limit|exceeded model token limit"
    r"|too large for model with \d+ maximum context length|the configured context size is"
    r"|model_context_window_exceeded|prompt too long; exceeded|range of input length should be"
    r"|context[_ ]length[_ ]exceeded|too many tokens|token limit exceeded"
    r"|^(?:[\w -]+ API error \(413\):|413)",
    re.IGNORECASE,
)

TEXTS = [
    "529 overloaded",
    "Rate limited",
    "rate_limit_exceeded",
    "HTTP 503 Service Unavailable",
    "internal error",
    "the provider returned an error",
    "upstream_stream_read_error",
    "connection refused (os error 111)",
    "read ECONNRESET",
    "request timed out",
    "stream ended before message_stop",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
    "prompt is too long: 213462 tokens > 200000 maximum",
    "413 request_too_large",
    "context_length_exceeded",
    "Please reduce the length of the messages or completion",
    "error sending request for url (http://127.0.0.1:9/v1/chat/completions): client error (Connect)",
    "the request exceeds the available context size, try increasing it",
    "Input length (265330) exceeds model's maximum context length (262144).",
    "websocket closed",
    "pending stream has been canceled",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_of_the_engine_is_disarmed(text: str) -> None:
    for shown in (
        disarmed(text),
        engine_failure({"message": text}),
        engine_failure({"message": "x", "data": text}),
    ):
        assert not RETRIED.search(shown)
        assert not OVERFLOW.search(shown)
    assert disarmed(text).replace("\u2060", "") == text


def test_the_samples_would_trigger() -> None:
    assert sum(bool(RETRIED.search(t) or OVERFLOW.search(t)) for t in TEXTS) > len(TEXTS) - 3


def test_a_message_that_grok_never_had_is_sent_again() -> None:
    assert RETRIED.search(NOT_WRITTEN)
    assert not OVERFLOW.search(NOT_WRITTEN)


def test_detail_and_status_are_told() -> None:
    error = {"message": "Internal error", "data": {"message": "no such thing", "http_status": 404}}
    shown = engine_failure(error).replace("\u2060", "")
    assert shown == "Grok could not answer: Internal error: no such thing (HTTP status 404)"
