"""The two ends that the benchmark compares: a client of the gateway and a bare bridge.

Both count chunks and wait for answers with the same code, and both read their bytes as plainly as they
can be read: an instrument that costs more than what it measures would hide the difference.
"""

from __future__ import annotations

import abc
import asyncio
import base64
import functools
import os
import secrets
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import orjson

from gateway.wire import acp
from gateway.wire.insist import insist
from gateway.wire.limits import LIMITS
from gateway.wire.ndjson import LineSplitter
from gateway.wire.process import end_group, spawn

__all__ = ["Agent", "AgentError", "BareBridge", "FrameReader", "GatewayClient", "PipedAgent"]

INITIALIZE = {"protocolVersion": 1, "clientCapabilities": {}}


class AgentError(Exception):
    """A request failed, or the connection is gone."""


class Agent(abc.ABC):
    """One ACP client.  ``gone`` is set when it ends."""

    def __init__(self) -> None:
        self._chunks = list[bytes]()
        self.gone = asyncio.Event()
        self._numbers = 0
        self._answers = dict[int, asyncio.Future[Mapping[str, Any]]]()

    @abc.abstractmethod
    async def open(self) -> None:
        """Connect, or start.  Raises AgentError or OSError."""

    @abc.abstractmethod
    async def close(self) -> None:
        """End it; nothing is left."""

    @abc.abstractmethod
    def _send(self, message: bytes) -> None: ...

    def text(self) -> str:
        """All text that came.  Read only now: to look at each piece would slow the measurement down."""
        updates = (orjson.loads(chunk)["params"]["update"] for chunk in self._chunks)
        return "".join(update["content"]["text"] for update in updates)

    async def request(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result, within LIMITS.ready seconds.  Raises AgentError."""
        if self.gone.is_set():
            raise AgentError("the connection is gone")
        self._numbers += 1
        number = self._numbers
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        self._send(orjson.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
        try:
            async with asyncio.timeout(LIMITS.ready):
                answer = await future
        except TimeoutError:
            raise AgentError(f"{method}: no answer within {LIMITS.ready:g} s") from None
        finally:
            self._answers.pop(number, None)
        if "result" not in answer:
            raise AgentError(f"{method}: {answer.get('error')}")
        result = answer["result"]
        return result if isinstance(result, dict) else {}

    async def start_session(self, cwd: str) -> str:
        """Initialize and open a session; its id."""
        await insist(functools.partial(self.request, "initialize", INITIALIZE), LIMITS.first_request)
        return str((await self.request("session/new", {"cwd": cwd, "mcpServers": []}))["sessionId"])

    async def prompt(self, session: str, text: str) -> None:
        """One turn to its end."""
        blocks = [{"type": "text", "text": text}]
        meta = {"promptId": secrets.token_hex(8)}
        await self.request("session/prompt", {"sessionId": session, "prompt": blocks, "_meta": meta})

    def _message(self, data: bytes) -> None:
        if b'"agent_message_chunk"' in data:
            self._chunks.append(bytes(data))
        elif b'"result":' in data or b'"error":' in data:
            message = orjson.loads(data)
            future = self._answers.get(message.get("id")) if "method" not in message else None
            if future is not None and not future.done():
                future.set_result(message)

    def _lost(self) -> None:
        self.gone.set()
        for future in self._answers.values():
            if not future.done():
                future.set_exception(AgentError("the connection is gone"))


class FrameReader:
    """Frames of a server (never masked, never compressed here) out of a stream of bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._parts = list[bytes]()

    def feed(self, data: bytes) -> tuple[list[bytes], list[tuple[int, bytes]]]:
        """(complete messages, control frames as opcode and payload)."""
        self._buffer += data
        messages, controls = list[bytes](), list[tuple[int, bytes]]()
        position = 0
        while (frame := self._frame(position)) is not None:
            first, start, end = frame
            payload, position = bytes(self._buffer[start:end]), end
            if first & 0x08:
                controls.append((first & 0x0F, payload))
                continue
            self._parts.append(payload)
            if first & 0x80:
                messages.append(b"".join(self._parts))
                self._parts.clear()
        del self._buffer[:position]
        return messages, controls

    def _frame(self, at: int) -> tuple[int, int, int] | None:
        """(first byte, start and end of the payload) of the frame at ``at``, None: not complete."""
        buffer, size = self._buffer, len(self._buffer)
        if size < at + 2:
            return None
        length, start = buffer[at + 1], at + 2
        if length >= 126:
            code, width = ("!H", 2) if length == 126 else ("!Q", 8)
            if size < start + width:
                return None
            (length,) = struct.unpack_from(code, buffer, start)
            start += width
        return (buffer[at], start, start + length) if size >= start + length else None


class GatewayClient(Agent, asyncio.Protocol):
    """A WebSocket on ``/ws``."""

    PATH = "/ws"

    def __init__(self, port: int, secret: str) -> None:
        super().__init__()
        self._port, self._secret = port, secret
        self._transport: asyncio.Transport | None = None
        self._head = bytearray()
        self._upgraded: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._frames = FrameReader()

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(LIMITS.ready):
                await loop.create_connection(lambda: self, "127.0.0.1", self._port)
                status = await self._upgraded
        except TimeoutError:
            raise AgentError(f"no answer to the upgrade within {LIMITS.ready:g} s") from None
        if status != 101:
            raise AgentError(f"the gateway answered {status}")

    async def close(self) -> None:
        if self._transport is not None:
            self._transport.write(_frame(0x88, struct.pack("!H", 1000)))
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not one by class
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        lines = (
            f"GET {self.PATH} HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            f"Authorization: Bearer {self._secret}",
        )
        self._transport.write("\r\n".join([*lines, "", ""]).encode())

    def data_received(self, data: bytes) -> None:
        if not self._upgraded.done():
            self._head += data
            head, blank, rest = bytes(self._head).partition(b"\r\n\r\n")
            if not blank:
                return
            self._upgraded.set_result(int(head.split(b" ", 2)[1]))
            data = rest
        messages, controls = self._frames.feed(data)
        for message in messages:
            self._message(message)
        for opcode, payload in controls:
            if opcode == 0x9:
                self._write(_frame(0x8A, payload))
            elif opcode == 0x8:
                self._lost()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._upgraded.done():
            self._upgraded.set_exception(AgentError("closed before the upgrade"))
        self._lost()

    def _send(self, message: bytes) -> None:
        self._write(_frame(0x81, message))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


def _frame(first: int, payload: bytes) -> bytes:
    """A client's frame.  Masked, as it must be, with zeros: nothing to compute here or to undo there
    would be saved by a random mask, and no proxy is in the way that it protects."""
    size = len(payload)
    if size < 126:
        length = struct.pack("!B", 0x80 | size)
    elif size < 1 << 16:
        length = struct.pack("!BH", 0x80 | 126, size)
    else:
        length = struct.pack("!BQ", 0x80 | 127, size)
    return bytes((first,)) + length + bytes(4) + payload


class PipedAgent(Agent, asyncio.Protocol):
    """A program that speaks ACP over its pipes, with nothing in between."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        super().__init__()
        self._argv, self._env = list(argv), env
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: asyncio.BaseTransport | None = None
        self._lines = LineSplitter()

    @property
    def pid(self) -> int:
        """Of the running program."""
        assert self._process is not None
        return self._process.pid

    async def open(self) -> None:
        pipe = subprocess.PIPE
        self._process = spawn(self._argv, env=self._env, stdin=pipe, stdout=pipe)
        loop = asyncio.get_running_loop()
        assert self._process.stdout is not None
        self._pipe, _ = await loop.connect_read_pipe(lambda: self, self._process.stdout)

    async def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            await end_group(self._process)
        if self._pipe is not None:
            self._pipe.close()

    def data_received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if line.startswith(acp.RECONNECTED_LINE):  # what was under way will never be answered
                self._lost()
            self._message(line)

    def connection_lost(self, error: Exception | None) -> None:
        self._lost()

    def _send(self, message: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), message + b"\n")


class BareBridge(PipedAgent):
    """A bridge to the gateway's own leader.

    ``argv[0]`` is started through a hard link that is gone after the first answer: a bridge that
    can find its own executable would start a leader of its own as soon as it misses the other one.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        binary = Path(argv[0])
        self._link, self._binary = binary.with_name(f"bare-{secrets.token_hex(8)}"), binary
        super().__init__([str(self._link), *argv[1:]], env)

    async def open(self) -> None:
        self._link.hardlink_to(self._binary)
        await super().open()

    async def close(self) -> None:
        await super().close()
        self._link.unlink(missing_ok=True)

    def data_received(self, data: bytes) -> None:
        self._link.unlink(missing_ok=True)
        super().data_received(data)
