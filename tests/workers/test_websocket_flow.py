"""Clocks and backpressure of the WebSocket: silent, stalled, slow and greedy clients."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from gateway.wire.limits import SIZES
from tests.workers.raw_client import CLOSE, CONT, PING, PONG, TEXT, Server, frame


@contextlib.asynccontextmanager
async def serving(**rows: float):
    server = Server(**rows)
    try:
        yield server
    finally:
        server.close()


# -- keepalive -----------------------------------------------------------------------------------


async def test_an_idle_client_is_asked_and_one_that_answers_stays() -> None:
    async with serving(ping_interval=0.1, ping_timeout=5) as server:
        client = await server.connect()
        for _ in range(3):
            assert await client.frame() == (PING, b"", True)
            client.send(frame(PONG))
        assert not server.closed.done()


async def test_a_client_that_gives_no_sign_of_life_is_reset() -> None:
    async with serving(ping_interval=0.1, ping_timeout=0.2) as server:
        client = await server.connect()
        assert await client.frame() == (PING, b"", True)
        assert await server.end() == (1006, "no sign of life for 0.2 s after a ping")
        assert not await client.eof()


async def test_any_byte_is_a_sign_of_life() -> None:
    """One long frame that arrives slowly, and never a pong."""
    async with serving(ping_interval=0.2, ping_timeout=0.4) as server:
        client = await server.connect()
        data = frame(TEXT, b"slow but alive......")
        for at in range(len(data)):
            client.send(data[at : at + 1])
            await asyncio.sleep(0.06)
        assert not server.closed.done()
        client.send(frame(PING))
        while (await client.frame())[0] != PONG:
            pass
        assert server.texts == [b"slow but alive......"]


async def test_silence_proves_nothing_while_we_do_not_read() -> None:
    async with serving(ping_interval=0.05, ping_timeout=0.1) as server:
        client = await server.connect()
        server.ws.pause_reading()
        client.send(frame(TEXT, b"waiting in the kernel"))
        await asyncio.sleep(0.5)
        assert not server.closed.done()
        assert server.texts == []
        server.ws.resume_reading()
        await asyncio.sleep(0.05)
        assert server.texts == [b"waiting in the kernel"]
        assert (await server.end())[0] == 1006  # counting goes on


async def test_a_ping_passes_between_the_parts_of_a_long_message() -> None:
    """The client reads nothing for a while; what it reads then holds the ping near the front."""
    async with serving(ping_interval=0.1, ping_timeout=20, write=20) as server:
        client = await server.connect(receive_buffer=65_536)
        server.ws.send_text(b"x" * (30 << 20))
        waiting = server.ws.waiting
        assert waiting > 20 << 20
        await asyncio.sleep(0.4)
        before = after = 0
        seen_ping = fin = False
        while not fin:
            opcode, payload, fin = await client.frame()
            if opcode == PING:
                seen_ping, fin = True, False
            elif seen_ping:
                after += len(payload)
            else:
                before += len(payload)
        assert seen_ping
        assert before + after == 30 << 20
        assert before < (30 << 20) - waiting + 2 * SIZES.fragment


async def test_a_pong_passes_in_front_of_queued_messages() -> None:
    async with serving(write=20) as server:
        client = await server.connect(receive_buffer=65_536)
        for _ in range(2000):
            server.ws.send_text(b"y" * 10_000)
        waiting = server.ws.waiting
        client.send(frame(PING, b"am I late?"))
        await asyncio.sleep(0.1)
        read = 0
        while (got := await client.frame())[0] != PONG:
            read += len(got[1])
        assert got[1] == b"am I late?"
        assert read <= 20_000_000 - waiting + SIZES.unsent + 10_000


async def test_a_flood_of_pings_by_a_client_that_does_not_read_stays_bounded() -> None:
    async with serving(write=20) as server:
        client = await server.connect(receive_buffer=65_536)
        server.ws.send_text(b"z" * (8 << 20))
        for _ in range(50):
            client.send(frame(PING, b"p" * 125) * 400)
            await client.writer.drain()
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        assert server.ws.waiting <= 8 << 20
        assert len(server.ws._writer._urgent) <= SIZES.control_frames
        pongs, fin = 0, False
        while not fin:
            opcode, _, last = await client.frame()
            pongs += opcode == PONG
            fin = last and opcode in (TEXT, CONT)
        assert 1 <= pongs <= 20_000


# -- the write deadline --------------------------------------------------------------------------


async def test_a_client_that_reads_nothing_is_reset_and_the_loop_stays_free() -> None:
    async with serving(write=0.3, ping_interval=20) as server:
        client = await server.connect(receive_buffer=65_536)
        worst, last = 0.0, time.perf_counter()
        server.ws.send_text(b"x" * (20 << 20))
        while not server.closed.done():
            await asyncio.sleep(0.01)
            now = time.perf_counter()
            worst, last = max(worst, now - last), now
        assert await server.end() == (1006, "the client read nothing for 0.3 s")
        assert not await client.eof()
        assert worst < 2, "something blocked the loop"


async def test_a_client_that_reads_slowly_is_served_to_the_end() -> None:
    """It takes several times the deadline; only standing still counts."""
    async with serving(write=1, ping_interval=20) as server:
        client = await server.connect(receive_buffer=65_536)
        server.ws.send_text(b"x" * (8 << 20))
        read = 0
        begin = time.monotonic()
        while read < 8 << 20:
            opcode, payload, _ = await client.frame()
            assert opcode in (TEXT, CONT)
            read += len(payload)
            await asyncio.sleep(0.08)
        assert time.monotonic() - begin > 2
        assert not server.closed.done()


async def test_a_stalled_close_is_bounded() -> None:
    async with serving(write=0.2, close=0.2) as server:
        await server.connect(receive_buffer=65_536)
        server.ws.send_text(b"x" * (20 << 20))
        server.ws.close(1001, "drain")
        assert (await server.end())[0] == 1001


# -- backpressure --------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [300, 5_000, 1 << 20])
async def test_a_stalled_reader_holds_the_producer_back_and_misses_nothing(size: int) -> None:
    count = min(30_000, (40 << 20) // size)
    async with serving(write=60) as server:
        client = await server.connect(receive_buffer=65_536)
        peak = made = 0

        async def produce() -> None:
            nonlocal peak, made
            while made < count:
                while server.pauses and server.pauses[-1]:
                    await asyncio.sleep(0.001)
                for _ in range(min(8, count - made)):
                    server.ws.send_text(b"%010d" % made + b"m" * (size - 10))
                    made += 1
                    peak = max(peak, server.ws.waiting)
                    if server.pauses and server.pauses[-1]:
                        break
                await asyncio.sleep(0)

        task = asyncio.create_task(produce())
        await asyncio.sleep(0.5)
        assert server.pauses[-1:] == [True]
        stalled = made
        await asyncio.sleep(0.2)
        assert made == stalled < count
        for number in range(count):
            message = await client.message()
            assert len(message) == size
            assert message.startswith(b"%010d" % number)
        await task
        assert peak <= SIZES.write_high + size + 100
        assert server.pauses.count(True) - server.pauses.count(False) in (0, 1)
        assert server.ws.sent == count


async def test_a_fast_reader_never_pauses_small_messages() -> None:
    async with serving() as server:
        client = await server.connect()
        for number in range(20_000):
            server.ws.send_text(b"%d" % number)
            if number % 100 == 0:
                assert await client.message() == b"%d" % (number // 100)
        for number in range(200, 20_000):
            assert await client.message() == b"%d" % number


async def test_pausing_reading_holds_the_client_back() -> None:
    async with serving() as server:
        client = await server.connect()
        sent = 0
        server.on_text = lambda data: (server.texts.append(data), server.ws.pause_reading())[0]
        while sent < 200:
            client.send(frame(TEXT, b"w" * 200_000))
            sent += 1
        await asyncio.sleep(0.3)
        held = len(server.texts)
        assert held <= 2
        server.on_text = server.texts.append
        server.ws.resume_reading()
        client.send(frame(PING))
        assert (await client.frame())[0] == PONG
        assert len(server.texts) == 200


async def test_after_the_end_nothing_is_called() -> None:
    async with serving() as server:
        client = await server.connect()
        server.ws.send_text(b"x" * (20 << 20))
        server.ws.abort("enough")
        count = len(server.pauses)
        server.ws.pause_reading()
        server.ws.resume_reading()
        server.ws.close(1000)
        server.ws.abort()
        assert not server.ws.send_text(b"x")
        client.send(frame(TEXT, b"x"), frame(CLOSE))
        await asyncio.sleep(0.05)
        assert await server.end() == (1006, "enough")
        assert server.texts == []
        assert len(server.pauses) == count
