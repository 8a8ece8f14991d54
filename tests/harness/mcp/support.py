"""An MCP server behind HTTP whose every answer a test may choose, and the entries that name servers."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

KEY = "Bearer a-key-that-nobody-may-see"
ECHO = {
    "name": "echo",
    "description": "Says it again",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
    "_meta": {"hint": 1},
}

Message = dict[str, Any]
#: Answers a request in the place of the server; None lets that do it.
Special = Callable[[web.Request, Message], Awaitable[web.StreamResponse | None]]


@dataclasses.dataclass
class Seen:
    """A request as it came; ``message`` is empty for GET and DELETE."""

    verb: str
    headers: dict[str, str]
    message: Message

    @property
    def method(self) -> str:
        return str(self.message.get("method", self.verb))


def said(text: str, **more: Any) -> Message:
    return {"content": [{"type": "text", "text": text}], **more}


class HttpMcp:
    """``stream``: answers are streams of events; ``session``: the id that it gives."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.tools: list[Message] = [ECHO]
        self.stream = False
        self.session = ""
        self.special: Special | None = None
        self.version = "2025-11-25"
        self.events: asyncio.Queue[Message] = asyncio.Queue()  # for the stream of its own
        self.released = asyncio.Event()  # what `held` waits for
        self._news = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> HttpMcp:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/mcp/a-secret-part-of-the-address"
        return self

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def entry(self, name: str = "srv", **more: Any) -> Message:
        headers = [{"name": "Authorization", "value": KEY}]
        return {"type": "http", "name": name, "url": self.url, "headers": headers, **more}

    def methods(self) -> list[str]:
        return [seen.method for seen in self.seen]

    def calls(self) -> list[Message]:
        return [seen.message["params"] for seen in self.seen if seen.method == "tools/call"]

    async def until(self, found: Callable[[], Any]) -> Any:
        """Wait until something has come."""
        async with asyncio.timeout(60):
            while not (value := found()):
                self._news.clear()
                await self._news.wait()
        return value

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        message = json.loads(body) if body else {}
        self.seen.append(Seen(request.method, dict(request.headers), message))
        self._news.set()
        if self.special is not None and (answer := await self.special(request, message)) is not None:
            return answer
        if request.method == "GET":
            return await self._own_stream(request)
        if "id" not in message or "method" not in message:
            return web.Response(status=202)
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": self.result(message)}
        headers = (
            {"Mcp-Session-Id": self.session} if self.session and message["method"] == "initialize" else {}
        )
        if not self.stream:
            return web.json_response(reply, headers=headers)
        return await events(request, [reply], headers)

    def result(self, message: Message) -> Message:
        params = message.get("params", {})
        if message["method"] == "initialize":
            about = {"serverInfo": {"name": "x", "version": "1"}, "instructions": "Handle with care."}
            return {"protocolVersion": self.version, "capabilities": {"tools": {}}, **about}
        if message["method"] == "tools/list":
            return {"tools": self.tools}
        return said(f"{params['name']}: {params['arguments'].get('text')}")

    async def _own_stream(self, request: web.Request) -> web.StreamResponse:
        if not self.session:
            return web.Response(status=405)
        response = await opened(request)
        while True:
            await event(response, await self.events.get())


async def opened(request: web.Request, headers: dict[str, str] | None = None) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **(headers or {})})
    await response.prepare(request)
    return response


async def event(response: web.StreamResponse, message: Message) -> None:
    await response.write(b"event: message\r\ndata: " + json.dumps(message).encode() + b"\r\n\r\n")


async def events(
    request: web.Request, messages: list[Message], headers: dict[str, str] | None = None
) -> web.StreamResponse:
    response = await opened(request, headers)
    await response.write(b": a comment\n\n")
    for message in messages:
        await event(response, message)
    await response.write_eof()
    return response


def dropped(request: web.Request) -> web.StreamResponse:
    """Close the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def process_entry(log: Path, *words: str, name: str = "std", **env: str) -> Message:
    """A server that is a process; it carries the mark of the run, so that a leak is seen."""
    marks = {key: os.environ[key] for key in ("GROK_GATEWAY_TEST_ID",) if key in os.environ}
    pairs = [{"name": key, "value": value} for key, value in {**marks, **env}.items()]
    script = str(Path(__file__).with_name("process_server.py"))
    return {"name": name, "command": sys.executable, "args": ["-S", script, str(log), *words], "env": pairs}


def logged(log: Path) -> list[Message]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
