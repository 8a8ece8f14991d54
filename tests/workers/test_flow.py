"""Reader and Writer on real descriptors: nothing torn, nothing lost, urgent frames only between frames."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import struct

import pytest

from gateway.wire.limits import SIZES
from workers.flow import Reader, Writer


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    yield ours, theirs
    ours.close()
    theirs.close()


def fail(error: OSError) -> None:
    raise error


def frame(kind: bytes, payload: bytes) -> bytes:
    return kind + struct.pack("!I", len(payload)) + payload


def unframe(stream: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    frames, at = [], 0
    while len(stream) - at >= 5:
        (size,) = struct.unpack_from("!I", stream, at + 1)
        if len(stream) - at - 5 < size:
            break
        frames.append((stream[at : at + 1], stream[at + 5 : at + 5 + size]))
        at += 5 + size
    return frames, stream[at:]


@pytest.mark.parametrize("seed", range(6))
async def test_frames_stay_whole_and_urgent_ones_pass_between(pair, seed: int) -> None:
    ours, theirs = pair
    rng = random.Random(seed)
    writer = Writer(ours.fileno(), fail)
    received = bytearray()
    reader = Reader(theirs.fileno(), received.extend, lambda error: None)
    data, urgent = [], []
    for number in range(600):
        payload = b"%d:" % number + rng.randbytes(rng.choice((0, 10, 300, 20_000, 400_000)))
        if rng.random() < 0.3:
            urgent.append(b"%d" % number)
            writer.urgent(frame(b"U", urgent[-1]))
        if len(payload) > 10_000:
            whole = frame(b"D", payload)
            writer.write(whole[:5], memoryview(whole)[5:])
        else:
            writer.write(frame(b"D", payload))
        data.append(payload)
        if rng.random() < 0.2:
            (reader.pause if reader.reading else reader.resume)()
        if rng.random() < 0.3:
            await asyncio.sleep(0)
    reader.resume()
    flushed = asyncio.Event()
    writer.when_flushed(flushed.set)
    async with asyncio.timeout(60):
        await flushed.wait()
        while not (frames := unframe(bytes(received)))[0] or len(frames[0]) < len(data):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
    frames, rest = unframe(bytes(received))
    assert rest == b""
    assert [payload for kind, payload in frames if kind == b"D"] == data
    passed = [payload for kind, payload in frames if kind == b"U"]
    assert passed == [u for u in urgent if u in passed], "in order; only the oldest may be dropped"
    assert passed[-1] == urgent[-1]
    assert writer.size == 0
    reader.close()
    writer.close()


async def test_clear_keeps_the_rest_of_the_frame_that_has_begun(pair) -> None:
    ours, theirs = pair
    writer = Writer(ours.fileno(), fail)
    whole = frame(b"D", b"x" * 500_000)
    writer.write(whole[:5], memoryview(whole)[5:])
    for _ in range(10):
        writer.write(frame(b"D", b"never sent"))
    writer.clear()
    writer.write(frame(b"E", b"the end"))
    received = bytearray()
    Reader(theirs.fileno(), received.extend, lambda error: None)
    async with asyncio.timeout(60):
        while not received.endswith(b"the end"):
            await asyncio.sleep(0.01)
    assert unframe(bytes(received)) == ([(b"D", b"x" * 500_000), (b"E", b"the end")], b"")


async def test_too_many_urgent_frames_drop_the_oldest(pair) -> None:
    ours, theirs = pair
    writer = Writer(ours.fileno(), fail)
    writer.write(frame(b"D", b"x" * 500_000))
    for number in range(1000):
        writer.urgent(frame(b"U", b"%d" % number))
    received = bytearray()
    Reader(theirs.fileno(), received.extend, lambda error: None)
    async with asyncio.timeout(60):
        while not received.endswith(b"999"):
            await asyncio.sleep(0.01)
    frames, _ = unframe(bytes(received))
    assert [p for k, p in frames if k == b"U"] == [
        b"%d" % n for n in range(1000 - SIZES.control_frames, 1000)
    ]


async def test_pause_and_resume_once_each(pair) -> None:
    ours, theirs = pair
    heard: list[str] = []
    writer = Writer(
        ours.fileno(),
        fail,
        lambda: heard.append("pause"),
        lambda: heard.append("resume"),
        lambda: heard.append("blocked"),
    )
    for _ in range(5):
        writer.write(b"x" * SIZES.write_high)
    assert heard == ["blocked", "pause"]
    received = bytearray()
    Reader(theirs.fileno(), received.extend, lambda error: None)
    async with asyncio.timeout(60):
        while len(received) < 5 * SIZES.write_high:
            await asyncio.sleep(0.01)
    assert heard == ["blocked", "pause", "resume"]
    assert not writer.blocked


async def test_small_writes_of_one_delivery_are_one_system_call(
    pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pair
    calls: list[int] = []
    writev = os.writev

    def counting(fd: int, buffers: list[bytes]) -> int:
        calls.append(len(buffers))
        return writev(fd, buffers)

    monkeypatch.setattr(os, "writev", counting)
    writer = Writer(ours.fileno(), fail)
    source, sink = os.pipe()
    os.set_blocking(source, False)
    done = asyncio.Event()

    def deliver(data: bytes) -> None:
        for line in data.split():
            writer.write(line)
        done.set()

    reader = Reader(source, deliver, lambda error: None)
    os.write(sink, b" ".join([b"word"] * 100))
    await done.wait()
    await asyncio.sleep(0)
    assert calls == [100]
    writer.write(b"now")
    assert calls == [100, 1], "outside of a delivery nothing waits"
    assert theirs.recv(1000) == b"word" * 100 + b"now"
    reader.close()
    os.close(source)
    os.close(sink)


async def test_an_error_is_told_once_and_not_inside_write(pair) -> None:
    ours, theirs = pair
    errors: list[OSError] = []
    writer = Writer(ours.fileno(), errors.append)
    theirs.close()
    writer.write(b"x")
    writer.write(b"y")
    assert errors == []
    await asyncio.sleep(0.01)
    assert len(errors) == 1
    writer.urgent(b"z")
    await asyncio.sleep(0.01)
    assert len(errors) == 1


async def test_the_end_of_a_stream_is_told_once(pair) -> None:
    ours, theirs = pair
    received, ends = bytearray(), []
    reader = Reader(ours.fileno(), received.extend, ends.append)
    theirs.send(b"last words")
    theirs.close()
    async with asyncio.timeout(60):
        while not ends:
            await asyncio.sleep(0.01)
    reader.resume()
    reader.drain()
    assert (bytes(received), ends) == (b"last words", [None])


async def test_drain_reads_what_is_there_although_paused(pair) -> None:
    ours, theirs = pair
    received, ends = bytearray(), []
    reader = Reader(ours.fileno(), received.extend, ends.append)
    reader.pause()
    theirs.send(b"1" * 3000)
    reader.drain()
    assert len(received) == 3000
    assert ends == []
    assert not reader.reading
    reader.close()


async def test_a_writer_that_was_cleared_rests(pair) -> None:
    ours, theirs = pair
    writer = Writer(ours.fileno(), fail)
    while not writer.blocked:
        writer.write(b"x" * 100)
    with contextlib.suppress(BlockingIOError):
        while theirs.recv(1 << 20):
            pass
    writer._queue.clear()  # as if the frame that had begun ended here
    writer.size = 0
    await asyncio.sleep(0.01)
    assert not writer.blocked, "or the loop would spin"
    writer.write(b"y")
    assert theirs.recv(10) == b"y"
