"""Clients that read slowly or not at all: they wait or are cut off, nobody else notices."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import socket
from pathlib import Path

from tests.e2e.gateway import Gateway
from tests.engines.fake import do

MIB = 2**20


class Deaf:
    """A client on a plain socket with a tiny receive buffer that reads only when told to."""

    def __init__(self, gateway: Gateway) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", gateway.port))
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        self.socket.sendall(
            f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            f"Authorization: Bearer {gateway.secret}\r\n\r\n".encode()
        )
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.socket.recv(1)
        assert b" 101 " in head
        self.read = bytearray()

    def send(self, text: str) -> None:
        data = text.encode()
        mask = os.urandom(4)
        if len(data) < 126:
            size = bytes([0x80 | len(data)])
        else:
            size = bytes([0x80 | 126]) + len(data).to_bytes(2, "big")
        masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))
        self.socket.sendall(b"\x81" + size + mask + masked)

    def read_until(self, wanted: bytes) -> None:
        while wanted not in self.read:
            data = self.socket.recv(65536)
            assert data, "closed"
            self.read += data

    def session(self, cwd: Path) -> str:
        self.send('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}')
        self.read_until(b'"id":1,')
        self.send(
            f'{{"jsonrpc":"2.0","id":2,"method":"session/new","params":{{"cwd":"{cwd}","mcpServers":[]}}}}'
        )
        self.read_until(b'"sessionId":"')
        self.read_until(b'"models"')
        return bytes(self.read).split(b'"sessionId":"')[1].split(b'"')[0].decode()

    def prompt(self, session: str, text: str) -> None:
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        self.send(
            f'{{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{{"sessionId":"{session}",'
            f'"prompt":[{{"type":"text","text":"{quoted}"}}]}}}}'
        )


async def test_a_client_that_reads_nothing_is_cut_off_alone(shared_fake: Gateway) -> None:
    """20 MB for a client that reads nothing: its socket ends, its worker's other clients stay quick."""
    others = [await shared_fake.session() for _ in range(2)]
    deaf = await asyncio.to_thread(Deaf, shared_fake)
    session = await asyncio.to_thread(deaf.session, shared_fake.work)
    deaf.prompt(session, do(*[{"bytes": MIB}] * 20))
    turns = 0
    async with asyncio.timeout(60):
        while _established(shared_fake, deaf.socket):
            for client, own in others:
                assert (await client.prompt(own, "ping"))["stopReason"] == "end_turn"
                turns += 1
            await asyncio.sleep(0.1)
    assert turns >= 10
    deaf.socket.close()
    for client, _ in others:
        assert not client.closed.done()
        await client.close()


def _established(gateway: Gateway, client: socket.socket) -> bool:
    """Whether the kernel still has the gateway's end of this connection as an open one.

    The client itself cannot tell: unread data keeps the end of the stream from reaching it.
    """
    ends = [f"0100007F:{port:04X}" for port in (gateway.port, client.getsockname()[1])]
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1:3] == ends and row[3] == "01" for row in rows)


async def test_a_slow_reader_gets_everything(shared_fake: Gateway) -> None:
    """8 MB to a reader that pauses: slow is not dead, nothing may be lost."""
    slow = await asyncio.to_thread(Deaf, shared_fake)
    session = await asyncio.to_thread(slow.session, shared_fake.work)
    slow.prompt(session, do(*[{"bytes": MIB}] * 8, {"say": "the very end"}))

    def read_slowly() -> int:
        import time

        total = len(slow.read)
        slow.read.clear()
        while b'"stopReason":' not in slow.read:
            data = slow.socket.recv(256 * 1024)
            assert data, f"cut off after {total} bytes"
            total += len(data)
            slow.read = slow.read[-4096:] + data
            time.sleep(0.002)
        return total

    assert await asyncio.to_thread(read_slowly) > 8 * MIB
    slow.socket.close()


async def test_a_dead_client_does_not_stop_the_engine(shared_fake: Gateway, tmp_path: Path) -> None:
    """The turn of a client that is gone goes on to its end: the marker is written."""
    client, session = await shared_fake.session()
    marker = tmp_path / "done"
    script = do(*[{"bytes": MIB}] * 10, {"tool": "write", "marker": str(marker)})
    await client.start_prompt(session, script)
    await client.wait_for(lambda m: m.get("method") == "session/update")
    await client.abort()
    async with asyncio.timeout(60):
        while not marker.exists():
            await asyncio.sleep(0.05)


async def test_a_silent_client_is_kept(shared_fake: Gateway) -> None:
    """A client that neither sends nor is asked anything answers pings, and stays."""
    client, session = await shared_fake.session()
    await asyncio.sleep(1)
    assert (await client.prompt(session, "still here"))["stopReason"] == "end_turn"
    await client.close()


async def test_a_deflate_offer_is_not_accepted(shared_fake: Gateway) -> None:
    offer = {"Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}
    client = await shared_fake.connect(headers=offer)
    assert "Sec-WebSocket-Extensions" not in client.socket.response.headers
    await client.initialize()
    await client.close()
