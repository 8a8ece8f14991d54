from __future__ import annotations

from gateway.wire.control import Packet
from gateway.wire.handoff import LeaderInfo, SocketOffer, WorkerHello


def test_words_survive_the_wire() -> None:
    info = LeaderInfo(
        "ready", "", "0a1b2c3d", 7, 1.5, "/s", ("grok", "agent"), True, {"PATH": "/bin"}, "grok"
    )
    packet = Packet.decode(Packet("leader", info.to_fields()).encode())
    again = LeaderInfo.from_fields(packet.fields)
    assert (again.generation, tuple(again.bridge), dict(again.env)) == (
        info.generation,
        tuple(info.bridge),
        dict(info.env),
    )


def test_another_versions_fields_are_no_obstacle() -> None:
    hello = WorkerHello("worker_00", 1, "ready", 0, 512)
    assert WorkerHello.from_fields({**hello.to_fields(), "colour": "red"}) == hello
    assert LeaderInfo.from_fields({"state": "lost", "reason": "killed"}).pid == 0


def test_an_offer_carries_the_consumed_bytes() -> None:
    packet = SocketOffer("ws", "ab" * 16, 3).packet(b"GET /ws HTTP/1.1\r\n\r\n\n{", 9)
    assert packet.payload == b"GET /ws HTTP/1.1\r\n\r\n\n{"
    assert packet.fds == (9,)
    assert SocketOffer.from_fields(Packet.decode(packet.encode()).fields) == SocketOffer("ws", "ab" * 16, 3)
