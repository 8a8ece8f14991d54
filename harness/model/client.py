"""The connection to model endpoints: one request, its pieces as they come, and failures in clear words.

aiohttp is imported with the first call, not with the engine: it takes longer to import than all the rest,
and a session may be opened long before the model is asked.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import re
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from harness.limits import LIMITS, SIZES
from harness.model.errors import Failure, ModelError, redacted
from harness.model.openai import Answer, Assembler, Piece, pieces_of

if TYPE_CHECKING:
    import aiohttp

    from harness.model.endpoints import Endpoint

__all__ = ["ChatClient", "refusal"]

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: Statuses that say nothing about the request itself: the same one may be answered later.
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
#: How servers say that a conversation is longer than they take.
_TOO_LONG = frozenset({400, 413, 422})
_TOO_LONG_WORDS = re.compile(
    r"context[ _](length|window|size)|maximum context|prompt is too long|too many tokens", re.IGNORECASE
)
_AGENT = "grok-gateway"


class ChatClient:
    """Calls models.  One client serves all sessions; connections are kept and used again."""

    def __init__(self) -> None:
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def answer(
        self,
        endpoint: Endpoint,
        body: Mapping[str, Any],
        show: Callable[[Piece], None],
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One try.  ``show`` gets each piece at once.  Raises ModelError."""
        import aiohttp

        started = time.monotonic()
        assembler = Assembler()
        try:
            async with self._session(endpoint).post(
                endpoint.url,
                data=_dumped(body),
                headers=_headers(endpoint, headers or {}),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=LIMITS.model_connect, sock_read=endpoint.idle_timeout
                ),
                allow_redirects=False,  # a key must not follow to wherever a server points
            ) as response:
                if response.status != HTTPStatus.OK:
                    content = await response.content.read(SIZES.model_error_body)
                    raise refusal(endpoint, response.status, response.headers, content)
                if "json" in response.content_type:
                    await _whole(response, assembler, show)
                else:
                    async for piece in pieces_of(response.content.iter_any(), assembler):
                        show(piece)
            answer = assembler.answer()
        except aiohttp.ConnectionTimeoutError as error:
            raise _unreachable(endpoint, f"no connection within {LIMITS.model_connect:g} s") from error
        except (TimeoutError, aiohttp.ServerTimeoutError) as error:
            text = f"{_place(endpoint)} sent nothing for {endpoint.idle_timeout:g} s"
            raise ModelError(Failure.TIMEOUT, text, transient=True) from error
        except aiohttp.ClientConnectorError as error:
            raise _unreachable(endpoint, error.os_error.strerror or "no connection") from error
        except aiohttp.ClientPayloadError as error:
            raise ModelError(Failure.HTTP, "the model's stream broke off", transient=True) from error
        except (aiohttp.ClientError, OSError) as error:
            text = redacted(f"the connection to {_place(endpoint)} broke: {error}", endpoint.secrets())
            raise ModelError(Failure.HTTP, text, transient=True) from error
        seconds = time.monotonic() - started
        return Answer(answer.text, answer.thought, answer.calls, answer.finish, answer.usage, seconds)

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    def _session(self, endpoint: Endpoint) -> aiohttp.ClientSession:
        import aiohttp

        # A proxy from the environment is for the network, never for a server on this machine.
        proxied = urlsplit(endpoint.url).hostname not in _LOOPBACK
        if proxied not in self._sessions:
            self._sessions[proxied] = aiohttp.ClientSession(
                trust_env=proxied, auto_decompress=True, read_bufsize=SIZES.model_error_body
            )
        return self._sessions[proxied]


def _dumped(body: Mapping[str, Any]) -> bytes:
    """The body as UTF-8; what of a file name or an output is none becomes a question mark."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def _headers(endpoint: Endpoint, more: Mapping[str, str]) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "Accept": "text/event-stream",
        "User-Agent": _AGENT,
        **more,
    }
    if endpoint.key is not None:
        headers["Authorization"] = f"Bearer {endpoint.key.reveal()}"
    for name, value in endpoint.headers.items():
        headers = {k: v for k, v in headers.items() if k.lower() != name.lower()}
        headers[name] = value.reveal()
    return headers


async def _whole(response: Any, assembler: Assembler, show: Callable[[Piece], None]) -> None:
    """The answer of a server that does not stream."""
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > SIZES.model_answer:
            raise ModelError(Failure.HTTP, f"the answer exceeds {SIZES.model_answer} bytes")
    for piece in assembler.event(bytes(content)):
        show(piece)
    assembler.done = True


# -- failures --------------------------------------------------------------------------------------


def refusal(endpoint: Endpoint, status: int, headers: Mapping[str, str], body: bytes) -> ModelError:
    """The error for a response that is no answer: what the endpoint said, and what a person can do."""
    detail = redacted(_detail(body), endpoint.secrets())
    said = f": {detail}" if detail else ""
    if status == HTTPStatus.UNAUTHORIZED:
        origin = endpoint.key_origin or "none"
        text = f"{_place(endpoint)} refused the key (401){said}\nThe key in use: {origin}."
        return ModelError(Failure.AUTH, text, status=status)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        text = f"{_place(endpoint)} refused the call for its rate (429){said}"
        wait = _retry_after(headers)
        return ModelError(Failure.RATE_LIMITED, text, transient=True, status=status, retry_after=wait)
    hint = ""
    if status == HTTPStatus.NOT_FOUND:
        hint = f"\nCheck base_url and model ({endpoint.model!r}) of [model.{endpoint.id}]."
    elif HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        hint = f"\nIt points elsewhere; put the final address into base_url of [model.{endpoint.id}]."
    text = f"{_place(endpoint)} answered {status}{_phrase(status)}{said}{hint}"
    if status in _TOO_LONG and _TOO_LONG_WORDS.search(detail):
        return ModelError(Failure.CONTEXT, text, status=status)
    transient = status in _PASSING
    wait = _retry_after(headers) if transient else None
    return ModelError(Failure.API, text, transient=transient, status=status, retry_after=wait)


def _place(endpoint: Endpoint) -> str:
    """The endpoint without what may be secret in its address: user, password, query."""
    parts = urlsplit(endpoint.url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def _unreachable(endpoint: Endpoint, why: str) -> ModelError:
    text = f"{_place(endpoint)} cannot be reached: {why}. Is the server of [model.{endpoint.id}] running?"
    return ModelError(Failure.HTTP, text, transient=True)


def _phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""


def _detail(body: bytes) -> str:
    """What the body says; servers put it under ``error.message``, ``error``, ``message`` or ``detail``."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        text = body.decode(errors="replace")
        return "" if text.lstrip().startswith("<") else text  # a page for browsers says nothing here
    for name in ("error", "message", "detail"):
        if isinstance(parsed, dict) and parsed.get(name):
            parsed = parsed[name]
    return parsed if isinstance(parsed, str) else orjson.dumps(parsed).decode()


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After header, which holds seconds or a date."""
    value = headers.get("Retry-After", "").strip()
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


async def pause(seconds: float) -> None:
    """The wait between two tries; a function of its own so that tests need not wait."""
    await asyncio.sleep(seconds)
