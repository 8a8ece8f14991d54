from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.wire.control import Channel, ControlError, Packet, Server, ask, connect
from gateway.wire.limits import SIZES


@pytest.mark.parametrize(
    "packet",
    [
        Packet("ping"),
        Packet("socket", {"kind": "ws", "n": 1}, b"GET / HTTP/1.1\r\n\r\n\n\n"),
        Packet("x", {"text": "line\nend \u20ac"}, b"\x00\n\xff"),
    ],
)
def test_a_packet_survives_the_wire(packet: Packet) -> None:
    assert Packet.decode(packet.encode()) == packet


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"x"', b"{}", b'{"op":1}', b"\n{}"])
def test_anything_else_is_no_packet(data: bytes) -> None:
    with pytest.raises(ControlError):
        Packet.decode(data)


def test_a_packet_is_bounded() -> None:
    with pytest.raises(ControlError, match="at most"):
        Packet("x", payload=b"y" * SIZES.packet).encode()


class Peer:
    """A server that answers ``ping``, gives descriptors back and remembers the rest."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "c"
        self.got: list[Packet] = []
        self.closed: list[Channel] = []
        self.server = Server(self.path, self._packet, on_closed=self.closed.append)

    def _packet(self, channel: Channel, packet: Packet) -> None:
        match packet.op:
            case "ping":
                channel.answer(packet, "pong", state="ready")
            case "silence":
                pass
            case "boom":
                raise ValueError("a defect in a handler")
            case _:
                self.got.append(packet)


@pytest.fixture
async def peer(short_tmp: Path) -> AsyncIterator[Peer]:
    made = Peer(short_tmp)
    yield made
    made.server.close()


async def until(condition: object) -> None:
    async with asyncio.timeout(60):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.005)


def quiet(channel: Channel, packet: Packet) -> None:
    pytest.fail(f"unexpected {packet}")


async def test_questions_are_matched_with_their_answers(peer: Peer) -> None:
    channel = connect(peer.path, quiet)
    answers = await asyncio.gather(*(channel.request(Packet("ping")) for _ in range(50)))
    assert {answer.op for answer in answers} == {"pong"}
    channel.close()


async def test_a_question_has_a_bound(peer: Peer) -> None:
    channel = connect(peer.path, quiet)
    with pytest.raises(ControlError, match="no answer within"):
        await channel.request(Packet("silence"), timeout=0.05)
    channel.close()
    with pytest.raises(ControlError, match="closed"):
        await channel.request(Packet("ping"))


async def test_the_end_of_the_peer_fails_what_is_open(peer: Peer) -> None:
    closed: list[Channel] = []
    channel = connect(peer.path, quiet, closed.append)
    question = asyncio.create_task(channel.request(Packet("silence")))
    await until(lambda: peer.server.channels)
    peer.server.close()
    with pytest.raises(ControlError, match="closed"):
        await question
    assert closed == [channel]
    assert not peer.path.exists()


async def test_a_descriptor_travels_with_its_words(peer: Peer) -> None:
    reader, writer = os.pipe()
    channel = connect(peer.path, quiet)
    assert channel.send_now(Packet("socket", {"kind": "ws"}, b"head", (writer,)))
    os.close(writer)
    await until(lambda: peer.got)
    (packet,) = peer.got
    assert (packet.fields, packet.payload) == ({"kind": "ws"}, b"head")
    os.write(packet.fds[0], b"through")
    packet.close_fds()
    assert os.read(reader, 100) == b"through"
    assert os.read(reader, 100) == b""  # every copy of the writing end is closed
    os.close(reader)
    channel.close()


async def test_a_defect_in_a_handler_leaks_no_descriptor(peer: Peer) -> None:
    reader, writer = os.pipe()
    loop_errors: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: loop_errors.append(context))
    channel = connect(peer.path, quiet)
    assert channel.send_now(Packet("boom", fds=(writer,)))
    os.close(writer)
    await until(lambda: channel.closed)
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert loop_errors


async def test_a_peer_that_reads_nothing_is_given_up(short_tmp: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    closed: list[Channel] = []
    channel = Channel(ours, quiet, closed.append)
    for _ in range(SIZES.channel_queue + 2000):
        channel.send(Packet("flood", payload=b"x" * 1000))
        if channel.closed:
            break
    assert closed == [channel]
    theirs.close()


async def test_waiting_packets_go_out_in_order() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    got: list[int] = []
    sender = Channel(ours, quiet)
    count = 0
    while True:  # until the kernel's buffer is full and some more wait in the queue
        sender.send(Packet("n", {"n": count}, b"x" * 4000))
        count += 1
        if not sender.send_now(Packet("probe")):
            break
    for _ in range(20):
        sender.send(Packet("n", {"n": count}))
        count += 1
    receiver = Channel(theirs, lambda channel, p: got.append(p.fields["n"]) if p.op == "n" else None)
    await until(lambda: len(got) == count)
    assert got == list(range(count))
    sender.close()
    receiver.close()


async def test_the_socket_file_is_private_and_replaces_a_stale_one(short_tmp: Path) -> None:
    path = short_tmp / "c"
    stale = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stale.bind(str(path))
    stale.close()
    server = Server(path, quiet)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    server.close()


async def test_the_command_line_asks_without_a_loop(peer: Peer) -> None:
    answer = await asyncio.to_thread(ask, peer.path, Packet("ping"))
    assert (answer.op, answer.fields["state"]) == ("pong", "ready")
    with pytest.raises(ControlError, match="no answer within"):
        await asyncio.to_thread(ask, peer.path, Packet("silence"), 0.05)
    with pytest.raises(ControlError, match="No such file"):
        await asyncio.to_thread(ask, peer.path.with_name("nobody"), Packet("ping"))


async def test_nonsense_from_a_peer_closes_only_its_channel(peer: Peer) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    good = connect(peer.path, quiet)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as bad:
        bad.connect(str(peer.path))
        bad.send(b"not a packet")
        await until(lambda: peer.closed)
    assert (await good.request(Packet("ping"))).op == "pong"
    good.close()
