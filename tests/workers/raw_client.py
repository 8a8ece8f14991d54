"""A WebSocket client that can break every rule, and a server of `workers.websocket` to try it on."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import struct
from collections.abc import Callable, Mapping

from gateway.wire.limits import LIMITS, SIZES, Limits, Sizes
from workers.websocket import WebSocket

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="


def head(*, method: str = "GET", version: str = "HTTP/1.1", drop: str = "", **changes: str) -> bytes:
    """A good request head with some headers changed (``_`` for ``-``) or dropped."""
    headers = {
        "Host": "127.0.0.1",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": KEY.decode(),
        "Sec-WebSocket-Version": "13",
    }
    headers |= {name.replace("_", "-"): value for name, value in changes.items()}
    headers.pop(drop, None)
    lines = [f"{method} /ws {version}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, bits: int = 0, mask: bytes | None = b"\1\2\3\4"
) -> bytes:
    """One frame as a client sends it."""
    first = (0x80 if fin else 0) | bits | opcode
    masked = 0x80 if mask is not None else 0
    size = len(payload)
    if size < 126:
        header = struct.pack("!BB", first, masked | size)
    elif size < 1 << 16:
        header = struct.pack("!BBH", first, masked | 126, size)
    else:
        header = struct.pack("!BBQ", first, masked | 127, size)
    if mask is None:
        return header + payload
    key = (mask * (size // 4 + 1))[:size]
    data = (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")
    return header + mask + data


def close(code: int, reason: bytes = b"") -> bytes:
    """The payload of a close frame."""
    return struct.pack("!H", code) + reason


class Client:
    """The client's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))

    async def frame(self) -> tuple[int, bytes, bool]:
        """The next frame: (opcode, payload, fin)."""
        async with asyncio.timeout(60):
            first, second = await self.reader.readexactly(2)
            assert not second & 0x80, "a server must not mask"
            size = second & 0x7F
            if size == 126:
                (size,) = struct.unpack("!H", await self.reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
            return first & 0x0F, await self.reader.readexactly(size), bool(first & 0x80)

    async def message(self) -> bytes:
        """The next text message; control frames between are kept in ``control``."""
        parts = []
        while True:
            opcode, payload, fin = await self.frame()
            if opcode >= CLOSE:
                raise AssertionError(f"control frame {opcode} instead of a message")
            assert opcode == (CONT if parts else TEXT)
            parts.append(payload)
            if fin:
                return b"".join(parts)

    async def closed_with(self) -> tuple[int, str]:
        """The next frame must be a close: (code, reason)."""
        opcode, payload, _ = await self.frame()
        assert opcode == CLOSE, (opcode, payload[:100])
        return struct.unpack("!H", payload[:2])[0], payload[2:].decode()

    async def eof(self) -> bool:
        """Whether the stream ends in order (FIN); False for a reset."""
        try:
            async with asyncio.timeout(60):
                while await self.reader.read(1 << 16):
                    pass
        except ConnectionResetError:
            return False
        return True


class Server:
    """Accepts sockets and hands each to a `WebSocket`; records what that says."""

    def __init__(self, **rows: float) -> None:
        self.limits: Limits = dataclasses.replace(LIMITS, **rows)
        self.sizes: Sizes = SIZES
        self.extra: Mapping[str, str] = {}
        self.opened = 0
        self.texts: list[bytes] = []
        self.pauses: list[bool] = []
        self.closed: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self.on_text: Callable[[bytes], None] = self.texts.append
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self.ws: WebSocket
        self._clients: list[Client] = []

    async def connect(self, request: bytes | None = None, *, receive_buffer: int = 0) -> Client:
        """A connected client; with no ``request`` it has done the handshake."""
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.setblocking(False)
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await loop.sock_connect(sock, ("127.0.0.1", self.port))
        # A small limit: what the client has not asked for stays in the kernel.
        client = Client(*await asyncio.open_connection(sock=sock, limit=1 << 16))
        self._clients.append(client)
        await self.accept(head() if request is None else request)
        if request is None:
            assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        return client

    async def accept(self, request: bytes = b"") -> None:
        """Hand the next connection over, with ``request`` as the consumed head."""
        accepted, _ = await asyncio.get_running_loop().sock_accept(self._listener)
        self.ws = WebSocket(
            on_open=self._open,
            on_text=lambda data: self.on_text(data),
            on_closed=lambda code, reason: self.closed.set_result((code, reason)),
            on_pause=lambda: self.pauses.append(True),
            on_resume=lambda: self.pauses.append(False),
            limits=self.limits,
            sizes=self.sizes,
        )
        await self.ws.adopt(accepted, request, self.extra)

    async def end(self) -> tuple[int, str]:
        """What ``on_closed`` was told."""
        async with asyncio.timeout(60):
            return await asyncio.shield(self.closed)

    def close(self) -> None:
        for client in self._clients:
            client.writer.transport.abort()
        if hasattr(self, "ws"):
            self.ws.abort()
        self._listener.close()

    def _open(self) -> None:
        self.opened += 1
