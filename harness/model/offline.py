"""The offline model: an OpenAI-compatible chat-completions endpoint on loopback.

It lets the whole service run, tools included, with no account and no network.  Its replies come from
`harness.model.dialogue`; this is the HTTP around them: streamed (server-sent events) or whole, with
usage numbers, ``GET /v1/models`` and anything else that an agent looks at when it starts.

``python -m harness.model.offline`` listens on 127.0.0.1 at the port it had before (so that an engine
that is still running finds it again), else at a free one, and writes the port to
``Paths.offline_port``.  It ends when the process that started it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from gateway.paths import PathError, Paths
from gateway.wire.limits import LIMITS, SIZES
from gateway.wire.process import Exit, Identity
from harness.model.dialogue import Reply, reply_to

__all__ = ["MODEL", "application", "listen"]

#: The model's id, as an engine's configuration names it.
MODEL = "offline"

_LOG = logging.getLogger("offline-model")


class _BadRequestError(Exception):
    """The body is not a chat-completions request; the text says why."""


def application() -> web.Application:
    """The endpoint as an aiohttp application."""
    app = web.Application(client_max_size=SIZES.model_request)
    app.router.add_get("/v1/models", _models)
    app.router.add_post("/v1/chat/completions", _chat)
    app.router.add_route("*", "/{rest:.*}", _other)
    return app


async def _models(request: web.Request) -> web.Response:
    return web.json_response(
        {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "grok-gateway"}]}
    )


async def _other(request: web.Request) -> web.Response:
    """Agents warm their connection up with a plain ``GET /``."""
    if request.path == "/" and request.method in ("GET", "HEAD"):
        return web.Response(text="Offline model of the Grok Gateway.\n")
    return _error(404, f"{request.method} {request.path}: this endpoint has only /v1/chat/completions")


async def _chat(request: web.Request) -> web.StreamResponse:
    started = time.monotonic()
    try:
        body = _checked(await request.read())
        reply = _reply(body)
    except web.HTTPRequestEntityTooLarge:
        return _error(413, f"the request is larger than {SIZES.model_request} bytes")
    except _BadRequestError as error:
        return _error(400, str(error))
    answer = _Answer(body, reply)
    if not body.get("stream"):
        return web.json_response(answer.whole(), dumps=_dumps)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    try:
        await response.prepare(request)
        async with asyncio.timeout(LIMITS.model_answer):
            async for event in answer.events():
                await response.write(b"data: " + event + b"\n\n")
            await response.write_eof()
    except (ConnectionResetError, TimeoutError):  # the engine cancelled the turn, or stopped reading
        _LOG.info("answer given up after %.3f s: the engine went away", time.monotonic() - started)
        if request.transport is not None:
            request.transport.abort()
        return response
    _LOG.info("answered %s in %.3f s", "a call" if reply.call else "text", time.monotonic() - started)
    return response


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": "invalid_request_error"}}, status=status)


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()


def _checked(data: bytes) -> dict[str, Any]:
    """Raises _BadRequestError unless the body has the shape that `reply_to` reads."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _BadRequestError(f"the body is not JSON: {error}") from error
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise _BadRequestError("'messages' must be a list of objects that is not empty")
    tools = body.setdefault("tools", None) or []
    if not isinstance(tools, list) or not all(isinstance(t, dict) for t in tools):
        raise _BadRequestError("'tools' must be a list of objects")
    assert isinstance(body, dict)
    return body


def _reply(body: Mapping[str, Any]) -> Reply:
    choice = body.get("tool_choice")
    function = choice.get("function") if isinstance(choice, dict) else None
    forced = function.get("name") if isinstance(function, dict) else None
    tools = [t["function"] for t in body["tools"] or () if isinstance(t.get("function"), dict)]
    return reply_to(body["messages"], tools, forced)


class _Answer:
    """A `Reply` in the two shapes of the protocol."""

    def __init__(self, body: Mapping[str, Any], reply: Reply) -> None:
        self._reply = reply
        # Ids come from the request: equal conversations give equal answers, and no two calls of one
        # conversation share an id, since every call makes the conversation longer.
        digest = hashlib.sha256(orjson.dumps(body["messages"])).hexdigest()[:16]
        self._head = {
            "id": f"chatcmpl-{digest}",
            "created": int(time.time()),
            "model": body.get("model") or MODEL,
        }
        self._call_id = f"call_{digest}"
        self._finish = "tool_calls" if reply.call else "stop"
        prompt = len(orjson.dumps(body["messages"])) // 4 + 1
        words = len(reply.thought) + sum(map(len, reply.text))
        words += len(_dumps(dict(reply.call.arguments))) if reply.call else 0
        self._usage = {
            "prompt_tokens": prompt,
            "completion_tokens": words // 4 + 1,
            "total_tokens": prompt + words // 4 + 1,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": len(reply.thought) // 4},
        }

    def whole(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._reply.text) or None}
        if self._reply.thought:
            message["reasoning_content"] = self._reply.thought
        if self._reply.call:
            message["tool_calls"] = [{**self._function(), "id": self._call_id, "type": "function"}]
        choice = {"index": 0, "message": message, "finish_reason": self._finish}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": self._usage}

    async def events(self) -> AsyncIterator[bytes]:
        yield self._chunk({"role": "assistant", "content": ""})
        if self._reply.thought:
            yield self._chunk({"reasoning_content": self._reply.thought})
        for piece in self._reply.text:
            yield self._chunk({"content": piece})
        if self._reply.call:
            call = {**self._function(), "index": 0, "id": self._call_id, "type": "function"}
            yield self._chunk({"tool_calls": [call]})
        yield self._chunk({}, self._finish)
        yield self._event({"choices": [], "usage": self._usage})
        yield b"[DONE]"

    def _function(self) -> dict[str, Any]:
        assert self._reply.call is not None
        arguments = _dumps(dict(self._reply.call.arguments))
        return {"function": {"name": self._reply.call.name, "arguments": arguments}}

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        return self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def _event(self, fields: Mapping[str, Any]) -> bytes:
        return orjson.dumps({**self._head, "object": "chat.completion.chunk", **fields})


# -- the process -----------------------------------------------------------------------------------


def listen(port_file: Path) -> socket.socket:
    """A listening socket on 127.0.0.1: at the port named in ``port_file`` if it is free, else at any.

    The port is written back atomically: a reader sees the old port or the new one, never half of it.
    """
    try:
        wanted = int(port_file.read_text("ascii"))
    except (FileNotFoundError, ValueError):
        wanted = 0
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", wanted))
        sock.listen(SIZES.backlog)
    except (OSError, OverflowError):
        sock.close()
        sock = socket.create_server(("127.0.0.1", 0), backlog=SIZES.backlog)
    temporary = port_file.with_suffix(f".{os.getpid()}")
    temporary.write_text(str(sock.getsockname()[1]), "ascii")
    temporary.replace(port_file)
    return sock


async def serve(paths: Paths) -> None:
    """Serve until TERM or INT, or until the process that started this one has ended."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    parent = Identity.of(os.getppid())
    if parent is None:
        return
    watch = Exit(parent, stop.set)
    runner = web.AppRunner(application(), access_log=None, shutdown_timeout=LIMITS.close)
    await runner.setup()
    try:
        sock = listen(paths.offline_port)
        await web.SockSite(runner, sock).start()
        _LOG.info("listening on 127.0.0.1:%d", sock.getsockname()[1])
        await stop.wait()
    finally:
        watch.cancel()
        await runner.cleanup()


def main() -> int:
    """Exit code 0 after an orderly stop, 1 when the instance's folders cannot be used."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        paths = Paths.from_environment()
        paths.create()
    except PathError as error:
        _LOG.error("%s", error)
        return 1
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(paths))
    return 0


if __name__ == "__main__":
    sys.exit(main())
