"""Conformance of the WebSocket: handshake, frames, closing.  Raw sockets and a real client."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import socket
import struct

import pytest
import websockets
from websockets.asyncio.client import connect

from gateway.wire.limits import SIZES
from tests.workers.raw_client import (
    BINARY,
    CLOSE,
    CONT,
    PING,
    PONG,
    TEXT,
    Client,
    Server,
    close,
    frame,
    head,
)
from workers.websocket import warn_without_speedups


@pytest.fixture
async def server():
    made = Server()
    yield made
    made.close()


# -- handshake -----------------------------------------------------------------------------------

LONG = "x" * 9000


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (head(drop="Sec-WebSocket-Key"), 400),
        (head(Sec_WebSocket_Key="c2hvcnQ="), 400),
        (head(Sec_WebSocket_Key="not base64!"), 400),
        (head(Sec_WebSocket_Version="8"), 400),
        (head(drop="Sec-WebSocket-Version"), 400),
        (head(drop="Upgrade"), 426),
        (head(Upgrade="h2c"), 426),
        (head(drop="Connection"), 426),
        (head(Connection="keep-alive"), 426),
        (head(method="POST"), 405),
        (head(version="HTTP/1.0"), 505),
        (head(X_Long=LONG), 431),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"hello\r\n\r\n", 400),
    ],
)
async def test_a_bad_handshake_is_answered_and_ends_in_order(
    server: Server, request_head: bytes, status: int
) -> None:
    client = await server.connect(request_head)
    line = await client.reader.readline()
    assert line.split()[:2] == [b"HTTP/1.1", str(status).encode()]
    assert await client.eof()
    client.writer.close()
    code, reason = await server.end()
    assert code == 1006
    assert str(status) in reason
    assert server.opened == 0


async def test_a_client_that_half_closes_within_its_head_gets_400(server: Server) -> None:
    client = await server.connect(b"GET /ws HTTP/1.1\r\n")
    client.writer.write_eof()
    assert (await client.reader.readline()).startswith(b"HTTP/1.1 400 ")
    assert await client.eof()
    assert (await server.end())[0] == 1006


async def test_a_slow_head_is_bounded() -> None:
    server = Server(head=0.1)
    client = await server.connect(b"GET /ws HTTP/1.1\r\n")
    assert await server.end() == (1006, "handshake timed out")
    assert not await client.eof()
    server.close()


async def test_extra_headers_and_no_compression(server: Server) -> None:
    server.extra = {"Grok-Gateway-Connection": "ab" * 16, "Grok-Gateway-Received": "0"}
    client = await server.connect(
        head(Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits", X_Mine="1")
    )
    answer = await client.reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert b"\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer
    assert b"\r\nGrok-Gateway-Connection: " + b"ab" * 16 + b"\r\n" in answer
    assert b"extensions" not in answer.lower()
    assert server.ws.request is not None
    assert server.ws.request.headers["X-Mine"] == "1"
    client.send(frame(TEXT, b"hi", bits=0x40))  # a compressed frame, although nothing was agreed
    assert (await client.closed_with())[0] == 1002


async def test_frames_that_came_with_the_head_are_served(server: Server) -> None:
    client = await server.connect(head() + frame(TEXT, b"one") + frame(TEXT, b"two")[:5])
    await client.reader.readuntil(b"\r\n\r\n")
    client.send(frame(TEXT, b"two")[5:], frame(PING, b"?"))
    assert await client.frame() == (PONG, b"?", True)
    assert server.texts == [b"one", b"two"]
    assert server.ws.received == 2


# -- frames --------------------------------------------------------------------------------------

EURO = "€".encode()

GOOD = {
    "text": ([frame(TEXT, b"hello")], [b"hello"]),
    "empty": ([frame(TEXT)], [b""]),
    "125, 126, 65535, 65536 bytes": (
        [frame(TEXT, b"x" * n) for n in (125, 126, 65535, 65536)],
        [b"x" * n for n in (125, 126, 65535, 65536)],
    ),
    "fragments": ([frame(TEXT, b"a", fin=False), frame(CONT, b"b", fin=False), frame(CONT, b"c")], [b"abc"]),
    "empty fragments": ([frame(TEXT, fin=False), frame(CONT, fin=False), frame(CONT)], [b""]),
    "control frames between fragments": (
        [
            frame(TEXT, b"a", fin=False),
            frame(PING, b"1"),
            frame(CONT, b"b", fin=False),
            frame(PONG, b"unasked"),
            frame(CONT, b"c"),
        ],
        [b"abc"],
    ),
    "a character cut by fragments": ([frame(TEXT, EURO[:1], fin=False), frame(CONT, EURO[1:])], [EURO]),
    "a character cut by an empty fragment": (
        [frame(TEXT, EURO[:2], fin=False), frame(CONT, fin=False), frame(CONT, EURO[2:])],
        [EURO],
    ),
    "unusual but valid text": (
        [frame(TEXT, b"\0\xef\xbf\xbf\xf4\x8f\xbf\xbf")],
        [b"\0\xef\xbf\xbf\xf4\x8f\xbf\xbf"],
    ),
}

BAD = {
    "reserved bit 1": ([frame(TEXT, b"x", bits=0x40)], 1002),
    "reserved bit 3 of a ping": ([frame(PING, b"x", bits=0x10)], 1002),
    **{f"opcode {n}": ([frame(n, b"x")], 1002) for n in (3, 7, 11, 15)},
    "not masked": ([frame(TEXT, b"x", mask=None)], 1002),
    "a continuation of nothing": ([frame(CONT, b"x")], 1002),
    "a new message within fragments": ([frame(TEXT, b"x", fin=False), frame(TEXT, b"y")], 1002),
    "a long ping": ([frame(PING, b"x" * 126)], 1002),
    "a fragmented ping": ([frame(PING, b"x", fin=False)], 1002),
    "a close of one byte": ([frame(CLOSE, b"x")], 1002),
    "close code 1005": ([frame(CLOSE, close(1005))], 1002),
    "close code 999": ([frame(CLOSE, close(999))], 1002),
    "a close reason that is not UTF-8": ([frame(CLOSE, close(1000, b"\xff"))], 1007),
    "binary": ([frame(BINARY, b"x")], 1003),
    "fragmented binary": ([frame(BINARY, b"x", fin=False), frame(CONT, b"y")], 1003),
    "not UTF-8": ([frame(TEXT, b"abc\xff")], 1007),
    "a surrogate": ([frame(TEXT, b"\xed\xa0\x80")], 1007),
    "an overlong encoding": ([frame(TEXT, b"\xc0\xaf")], 1007),
    "above U+10FFFF": ([frame(TEXT, b"\xf4\x90\x80\x80")], 1007),
    "a character never finished": ([frame(TEXT, EURO[:2])], 1007),
    "not UTF-8 across fragments": ([frame(TEXT, EURO[:2], fin=False), frame(CONT, b"x")], 1007),
    "1001 bytes": ([frame(TEXT, b"x" * 1001)], 1009),
    "1200 bytes in fragments": ([frame(TEXT, b"x" * 600, fin=False), frame(CONT, b"x" * 600)], 1009),
    "a header that promises 2^62 bytes": ([b"\x81\xff" + (1 << 62).to_bytes(8, "big")], 1009),
}


@pytest.mark.parametrize("step", [0, 1], ids=["at once", "byte by byte"])
@pytest.mark.parametrize("name", GOOD)
async def test_good_frames(server: Server, name: str, step: int) -> None:
    frames, texts = GOOD[name]
    client = await server.connect()
    data = b"".join(frames)
    if step and len(data) < 1000:
        for at in range(len(data)):
            client.send(data[at : at + 1])
            await asyncio.sleep(0)
    else:
        client.send(data)
    client.send(frame(PING, b"end"))
    opcode, payload, _ = await client.frame()
    if payload == b"1":
        opcode, payload, _ = await client.frame()
    assert (opcode, payload) == (PONG, b"end")
    assert server.texts == texts
    assert server.ws.received == len(texts)


@pytest.mark.parametrize("name", BAD)
async def test_bad_frames(server: Server, name: str) -> None:
    frames, code = BAD[name]
    server.sizes = dataclasses.replace(SIZES, frame=1000)
    client = await server.connect()
    client.send(frame(TEXT, b"before"), *frames, frame(TEXT, b"after"))
    got, reason = await client.closed_with()
    assert got == code
    assert reason
    client.send(frame(CLOSE, close(code)))
    assert await client.eof(), "ends by FIN: the client must be able to read the frame"
    client.writer.close()
    assert (await server.end())[0] == code
    assert server.texts == [b"before"]
    assert server.ws.received == 1


async def test_exactly_the_largest_message(server: Server) -> None:
    server.sizes = dataclasses.replace(SIZES, frame=1000)
    client = await server.connect()
    client.send(frame(TEXT, b"x" * 1000), frame(TEXT, b"x" * 400, fin=False), frame(CONT, b"x" * 600))
    client.send(frame(PING))
    assert (await client.frame())[0] == PONG
    assert [len(text) for text in server.texts] == [1000, 1000]


async def test_the_client_of_an_oversize_message_learns_why(server: Server) -> None:
    """It is still writing when it is refused; the reason must not be lost to a reset."""
    serve = asyncio.create_task(server.accept(b""))
    client = await connect(f"ws://127.0.0.1:{server.port}/ws", proxy=None)
    await serve
    with contextlib.suppress(websockets.ConnectionClosed):
        await client.send("x" * (SIZES.frame + 1))
    with pytest.raises(websockets.ConnectionClosedError) as caught:
        await client.recv()
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1009
    assert str(SIZES.frame) in caught.value.rcvd.reason


@pytest.mark.parametrize(
    "size", [0, 1, 125, 126, 65_535, 65_536, SIZES.fragment, SIZES.fragment + 1, 1 << 20]
)
async def test_messages_to_the_client(server: Server, size: int) -> None:
    client = await server.connect()
    data = random.Random(size).randbytes(size).hex().encode()[:size]
    assert server.ws.send_text(data)
    assert server.ws.send_text(b"next")
    assert await client.message() == data
    assert await client.message() == b"next"
    assert server.ws.sent == 2


async def test_large_messages_both_ways_with_a_real_client(server: Server) -> None:
    server.on_text = lambda data: server.ws.send_text(data) and None
    serve = asyncio.create_task(server.accept(b""))
    uri = f"ws://127.0.0.1:{server.port}/ws"
    async with connect(uri, proxy=None, max_size=SIZES.frame, ping_interval=None) as client:
        await serve
        assert "Sec-WebSocket-Extensions" not in client.response.headers
        for text in ("ä" * (1 << 19), "x" * (60 << 20), "€" * (1 << 20)):
            await client.send(text)
            assert await client.recv() == text
        await client.send(iter(["frag", "men", "ted"]))
        assert await client.recv() == "fragmented"
        await (await client.ping())
    assert await server.end() == (1000, "")


# -- closing -------------------------------------------------------------------------------------


async def test_the_client_closes(server: Server) -> None:
    client = await server.connect()
    client.send(frame(TEXT, b"last"), frame(CLOSE, close(1001, b"bye")), frame(TEXT, b"too late"))
    assert await client.closed_with() == (1001, "bye")
    assert await client.eof()
    client.writer.close()
    assert await server.end() == (1001, "bye")
    assert server.texts == [b"last"]
    assert not server.ws.send_text(b"x")
    assert server.ws.sent == 0


async def test_the_client_closes_without_a_code(server: Server) -> None:
    client = await server.connect()
    client.send(frame(CLOSE))
    assert await client.frame() == (CLOSE, b"", True)
    client.writer.close()
    assert (await server.end())[0] == 1005


async def test_we_close_after_what_is_queued(server: Server) -> None:
    client = await server.connect()
    messages = [b"%d" % n + b"x" * 300_000 for n in range(40)]
    for message in messages:
        server.ws.send_text(message)
    server.ws.close(1012, "restart")
    assert not server.ws.send_text(b"too late")
    client.send(frame(TEXT, b"arrives after close"))
    for message in messages:
        assert await client.message() == message
    assert await client.closed_with() == (1012, "restart")
    client.send(frame(CLOSE, close(1012)))
    assert await client.eof()
    client.writer.close()
    assert await server.end() == (1012, "")
    assert server.texts == []
    assert (server.ws.sent, server.ws.received) == (40, 0)


async def test_both_close_at_once(server: Server) -> None:
    client = await server.connect()
    client.send(frame(CLOSE, close(1000)))
    server.ws.close(1001, "drain")
    assert await client.closed_with() == (1001, "drain")
    assert await client.eof()
    client.writer.close()
    assert (await server.end())[0] == 1000


async def test_a_client_that_never_answers_our_close_is_reset() -> None:
    server = Server(close=0.1)
    client = await server.connect()
    server.ws.close(1001, "é" * 100)
    code, reason = await client.closed_with()
    assert (code, reason) == (1001, "é" * 61)  # 122 of the 123 bytes: no half character
    assert await server.end() == (1001, "the client did not finish in time")
    assert not await client.eof()
    server.close()


async def test_a_client_that_does_not_hang_up_after_the_handshake_is_reset() -> None:
    server = Server(close=0.1)
    client = await server.connect()
    client.send(frame(CLOSE, close(1000)))
    await client.closed_with()
    assert await server.end() == (1000, "the client did not finish in time")
    server.close()


async def test_close_without_flush_overtakes_what_is_queued(server: Server) -> None:
    client = await server.connect(receive_buffer=65_536)
    for _ in range(20):
        server.ws.send_text(b"x" * (1 << 20))
    assert server.ws.waiting > 5 << 20
    server.ws.close(1013, "too slow", flush=False)
    assert server.ws.waiting < 1 << 20
    opcode, read = TEXT, 0
    while opcode != CLOSE:
        opcode, payload, _ = await client.frame()
        read += len(payload)
    assert struct.unpack("!H", payload[:2])[0] == 1013
    assert read < 15 << 20


async def test_a_half_closed_socket_is_a_lost_client(server: Server) -> None:
    client = await server.connect()
    client.send(frame(TEXT, b"last words"))
    client.writer.write_eof()
    assert await server.end() == (1006, "")
    assert server.texts == [b"last words"]
    assert await client.eof()


async def test_a_reset_is_a_lost_client(server: Server) -> None:
    client = await server.connect()
    sock = client.writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()
    code, reason = await server.end()
    assert code == 1006
    assert "socket failed" in reason


async def test_the_last_words_of_a_client_that_is_gone_are_heard(server: Server) -> None:
    """It wrote, and exited without reading: our next write fails before the words were read."""
    client = await server.connect()
    server.ws.send_text(b"never read")
    await asyncio.sleep(0.05)
    server.ws.pause_reading()
    client.send(frame(TEXT, b"cancel"))
    await asyncio.sleep(0.05)
    client.writer.transport.abort()
    while not server.closed.done():
        server.ws.send_text(b"x" * 1000)
        await asyncio.sleep(0.01)
    assert (await server.end())[0] == 1006
    assert server.texts == [b"cancel"]


async def test_an_exception_in_a_callback_closes_with_1011(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(data: bytes) -> None:
        raise RuntimeError("a defect")

    server.on_text = fails
    client = await server.connect()
    client.send(frame(TEXT, b"the prompt"))
    assert await client.closed_with() == (1011, "internal error")
    assert "a defect" in caplog.text
    assert "the prompt" not in caplog.text


async def test_close_within_a_callback(server: Server) -> None:
    server.on_text = lambda data: server.ws.close(1000, "done")
    client = await server.connect()
    client.send(frame(TEXT, b"1"), frame(TEXT, b"2"))
    assert await client.closed_with() == (1000, "done")
    assert server.ws.received == 1


async def test_abort_within_a_callback(server: Server) -> None:
    server.on_text = lambda data: server.ws.abort("enough")
    client = await server.connect()
    client.send(frame(TEXT, b"1"), frame(TEXT, b"2"))
    assert await server.end() == (1006, "enough")
    assert not await client.eof()
    assert server.ws.received == 1


async def test_frames_are_never_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    client: Client = await server.connect()
    client.send(frame(TEXT, b"a secret prompt"), frame(CLOSE, close(1000)))
    await client.closed_with()
    client.writer.close()
    await server.end()
    assert "secret prompt" not in caplog.text


def test_a_library_without_its_c_extension_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    warn_without_speedups()
    assert caplog.records == []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    warn_without_speedups()
    assert "without its C extension" in caplog.text
