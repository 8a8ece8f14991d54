"""A server behind HTTP, in the protocol's streamable form: each message is a POST of its own.

The answer to a POST is JSON or a stream of events; a server with a session may have a stream of its own, too.
Nothing goes out that the client did not name: no cookies, no proxy or password of the environment, no
redirect followed.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from harness.limits import LIMITS, SIZES
from harness.mcp.config import HttpServer
from harness.mcp.protocol import Failing, McpError, refusal
from harness.model.errors import ModelError
from harness.model.openai import EventStream

if TYPE_CHECKING:
    import aiohttp

__all__ = ["HttpTransport"]

_AGENT = "grok-gateway"
_BOTH, _EVENTS = "application/json, text/event-stream", "text/event-stream"
#: Headers that the protocol or HTTP itself fills; a client's list cannot.
_OURS = frozenset(
    {
        "accept",
        "content-type",
        "content-length",
        "transfer-encoding",
        "connection",
        "host",
        "mcp-session-id",
        "mcp-protocol-version",
    }
)
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_OK, _UNKNOWN = range(200, 300), 404


class HttpTransport:
    """``receive`` gets each message of the server."""

    inline = True  #: the answer to a request comes within `send`, or not at all

    def __init__(self, server: HttpServer, receive: Callable[[object], None]) -> None:
        self._server, self._receive = server, receive
        self._http: aiohttp.ClientSession | None = None
        self._session = self._version = ""
        self._listening: asyncio.Task[None] | None = None

    async def open(self) -> None:
        aiohttp = await asyncio.to_thread(importlib.import_module, "aiohttp")
        self._http = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=LIMITS.mcp_connect),
            read_bufsize=SIZES.relay_chunk,
        )

    def negotiated(self, version: str) -> None:
        """From now on each request says which version is spoken."""
        self._version = version

    def listen(self) -> None:
        """Open the server's own stream, if it has sessions; it may have no such stream."""
        if self._session:
            self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def send(self, message: Mapping[str, Any]) -> None:
        """Post a message and take in what comes as its answer.  Raises McpError."""
        import aiohttp

        assert self._http is not None, "`open` comes first"
        answered, known = False, self._session
        headers = self._headers(_BOTH, {"Content-Type": "application/json"})
        url = self._server.url.reveal()
        try:
            async with self._http.post(
                url, data=json.dumps(message).encode(), headers=headers, allow_redirects=False
            ) as response:
                answered = True
                if response.status == _UNKNOWN and known:
                    raise McpError(Failing.EXPIRED, "it does not know its session any more")
                if response.status not in _OK:
                    raise refusal(response.status, await _excerpt(response))
                if message.get("method") == "initialize":
                    self._session = _token(response.headers.get("Mcp-Session-Id", ""))
                if "id" in message and "method" in message:  # nothing else has an answer worth a wait
                    await self._take(response)
        except aiohttp.ClientConnectorCertificateError:
            text = f"{self._server.place} cannot be reached: its certificate is not trusted"
            raise McpError(Failing.ABSENT, text) from None
        except aiohttp.ClientConnectorError as error:
            why = error.os_error.strerror or "no connection"
            raise McpError(Failing.ABSENT, f"{self._server.place} cannot be reached: {why}") from None
        except aiohttp.ConnectionTimeoutError:
            text = f"{self._server.place} cannot be reached within {LIMITS.mcp_connect:g} s"
            raise McpError(Failing.ABSENT, text) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            kind = Failing.BROKEN if answered else Failing.DROPPED
            text = f"the connection to {self._server.place} broke ({type(error).__name__})"
            raise McpError(kind, text) from None

    async def close(self) -> None:
        """Tell the server that its session is over, and close the connections."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self._http is None:
            return
        try:
            if self._session:
                await self._goodbye(self._http)
        finally:
            await self._http.close()

    async def _goodbye(self, http: aiohttp.ClientSession) -> None:
        import aiohttp

        try:
            async with asyncio.timeout(LIMITS.mcp_goodbye):
                url, headers = self._server.url.reveal(), self._headers("*/*")
                await (await http.delete(url, headers=headers, allow_redirects=False)).release()
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError):
            pass  # a server that has gone needs no goodbye

    def _headers(self, accept: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
        own = {name: value.reveal() for name, value in self._server.headers if name.lower() not in _OURS}
        named = {name.lower() for name in own}
        ours = {"User-Agent": _AGENT, "Accept-Encoding": "identity"}
        headers = {name: value for name, value in ours.items() if name.lower() not in named}
        headers |= {**own, "Accept": accept, **(more or {})}
        if self._version:
            headers["MCP-Protocol-Version"] = self._version
        if self._session:
            headers["Mcp-Session-Id"] = self._session
        return headers

    # -- what it says ----------------------------------------------------------------------------
    async def _take(self, response: aiohttp.ClientResponse) -> None:
        """The messages of an answer, as they come."""
        if response.content_type == _EVENTS:
            events = EventStream()
            async for chunk in response.content.iter_any():
                self._events(events, chunk)
            for data in events.finish():
                self._receive(_value(data))
            return
        content = bytearray()
        async for chunk in response.content.iter_any():
            content += chunk
            if len(content) > SIZES.mcp_message:
                raise McpError(Failing.NONSENSE, f"its answer has more than {SIZES.mcp_message} bytes")
        if content.strip():
            self._receive(_value(bytes(content)))

    def _events(self, events: EventStream, chunk: bytes) -> None:
        try:
            complete = events.feed(chunk)
        except ModelError:
            raise McpError(Failing.NONSENSE, "an event of its stream has no end") from None
        for data in complete:
            self._receive(_value(data))

    async def _listen(self) -> None:
        """Follow the server's own stream, and open it again when it breaks off."""
        import aiohttp

        assert self._http is not None
        loop = asyncio.get_running_loop()
        pause = LIMITS.mcp_listen_first
        while True:
            began = loop.time()
            try:
                async with self._http.get(
                    self._server.url.reveal(), headers=self._headers(_EVENTS), allow_redirects=False
                ) as response:
                    if response.status not in _OK or response.content_type != _EVENTS:
                        return  # it has none
                    await self._take(response)
            except (aiohttp.ClientError, OSError, ValueError, McpError):
                pass
            if loop.time() - began > LIMITS.mcp_settle:
                pause = LIMITS.mcp_listen_first
            await asyncio.sleep(pause)
            pause = min(2 * pause, LIMITS.mcp_listen_last)


def _value(data: bytes) -> object:
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        raise McpError(Failing.NONSENSE, "its answer is no JSON") from None
    return value


def _token(text: str) -> str:
    """The id of a session as the server may have it back; one that is no plain word is none."""
    return text if len(text) <= SIZES.mcp_token and _VISIBLE.fullmatch(text) else ""


async def _excerpt(response: aiohttp.ClientResponse) -> str:
    """The beginning of what a refusal says; pages for browsers say nothing."""
    text = (await response.content.read(SIZES.mcp_complaint)).decode(errors="replace").strip()
    return "" if text.startswith("<") else text
