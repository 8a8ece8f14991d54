"""From accept to a worker or an answer: real sockets, the stand-in worker, both loops."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import errno
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.front import admission, intake, listener
from gateway.front.admission import Gate, Page
from gateway.front.intake import Intake
from gateway.front.roster import Roster, Workers
from gateway.front.web import Response, health
from gateway.wire.handoff import LeaderInfo, SocketOffer
from gateway.wire.limits import LIMITS, SIZES
from tests.conftest import find_free_port
from tests.front.stand_ins import NobodyBereft, StandInWorker

NAMES = ("worker_00", "worker_01")
SECRET = "5e" * 32
CONN = "ab" * 16


class Setting:
    """An intake with its roster; workers are added by the test."""

    def __init__(self, folder: Path, listening: socket.socket | None = None) -> None:
        self.folder = folder
        self.port = find_free_port()
        self.listener = listening or listener.bind(self.port)
        self.journals = set[str]()
        self.holds = dict[str, asyncio.Future[None]]()
        self.roster = Roster(NAMES, lambda conn: conn in self.journals)
        self.bereft = NobodyBereft()
        self.leader = LeaderInfo("ready", generation="00000001", bridge=["grok"])
        self.links = Workers(self.roster, self.socket_of, lambda: self.leader, self.bereft)
        gate = Gate(
            self.port,
            lambda: SECRET,
            self.roster.known,
            self.roster.owned,
            lambda conn: bool(self.roster.candidates(conn)),
        )
        self.intake = Intake(self.listener, gate, self.links.offer, self.page, self.holds.get)
        self.workers = list[StandInWorker]()
        self.links.start()
        self.intake.open()

    def socket_of(self, name: str) -> Path:
        return self.folder / f"{name}.sock"

    def add(self, name: str, **options: object) -> StandInWorker:
        worker = StandInWorker(self.socket_of(name), name, **options)  # type: ignore[arg-type]
        self.workers.append(worker)
        return worker

    async def page(self, page: Page) -> Response:
        return health()

    def head(self, line: str = "GET /ws HTTP/1.1", *fields: str) -> bytes:
        fields = fields or (f"Authorization: Bearer {SECRET}", "Connection: Upgrade", "Upgrade: websocket")
        return "\r\n".join([line, f"Host: 127.0.0.1:{self.port}", *fields, "", ""]).encode()

    async def talk(self, data: bytes) -> bytes:
        """All that comes back until the end.  Raises ConnectionResetError if it ends by RST."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        with contextlib.closing(writer):
            writer.write(data)
            return await reader.read()

    def resume(self) -> bytes:
        common = (f"Authorization: Bearer {SECRET}", "Connection: Upgrade", "Upgrade: websocket")
        again = (f"Grok-Gateway-Connection: {CONN}", "Grok-Gateway-Received: 0")
        return self.head("GET /ws HTTP/1.1", *common, *again)

    def hold(self) -> asyncio.Future[None]:
        """A connection that may not be taken over yet."""
        self.journals.add(CONN)
        self.holds[CONN] = asyncio.get_running_loop().create_future()
        return self.holds[CONN]

    async def status(self, data: bytes) -> int:
        return int((await self.talk(data)).split()[1])

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.005)

    async def close(self) -> None:
        await self.intake.close()
        await self.links.close()
        for worker in self.workers:
            worker.close()
        self.listener.close()


@pytest.fixture
async def setting(short_tmp: Path) -> AsyncIterator[Setting]:
    one = Setting(short_tmp)
    yield one
    await one.close()


def shorten(monkeypatch: pytest.MonkeyPatch, **rows: float) -> None:
    table = dataclasses.replace(LIMITS, **rows)
    for module in (intake, admission):
        monkeypatch.setattr(module, "LIMITS", table)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_the_worker_gets_the_socket_and_every_byte(setting: Setting) -> None:
    worker = setting.add("worker_00", connections=(CONN,))
    await setting.until(lambda: setting.roster.known(CONN))
    resume = (f"Grok-Gateway-Connection: {CONN}", "Grok-Gateway-Received: 7")
    head = setting.head(
        "GET /pi HTTP/1.1",
        f"Authorization: Bearer {SECRET}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        *resume,
    )
    answer = await setting.talk(head + b"\x81early")
    assert answer.endswith(b"\r\n\r\nworker_00")
    assert worker.offers[0].payload == head + b"\x81early"
    assert SocketOffer.from_fields(worker.offers[0].fields) == SocketOffer("pi", CONN, 7)
    assert worker.leaders == [setting.leader]


async def test_a_head_in_pieces(setting: Setting) -> None:
    setting.add("worker_00")
    await setting.until(lambda: setting.roster.ready)
    reader, writer = await asyncio.open_connection("127.0.0.1", setting.port)
    for byte in setting.head():
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    assert (await reader.read()).endswith(b"worker_00")
    writer.close()


async def test_connections_are_spread_and_counted(setting: Setting) -> None:
    for name in NAMES:
        setting.add(name, keep=True)
    await setting.until(lambda: all(seat.state == "ready" for seat in setting.roster.seats))
    streams = [await asyncio.open_connection("127.0.0.1", setting.port) for _ in range(10)]
    for _, writer in streams:
        writer.write(setting.head())
    await setting.until(lambda: sum(len(worker.sockets) for worker in setting.workers) == 10)
    assert [len(worker.sockets) for worker in setting.workers] == [5, 5]
    assert setting.intake.counters == {"accepted": 10, "handed_ws": 10}
    for _, writer in streams:
        writer.close()


async def test_no_worker_is_503_until_one_is_there(setting: Setting) -> None:
    answer = await setting.talk(setting.head())
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"\r\nRetry-After: 1\r\n" in answer
    worker = setting.add("worker_00", state="starting")
    await setting.until(lambda: setting.roster.seats[0].pid)
    assert await setting.status(setting.head()) == 503
    worker.load("ready", 0)
    await setting.until(lambda: setting.roster.ready)
    assert await setting.status(setting.head()) == 200
    worker.load("draining", 0)
    await setting.until(lambda: not setting.roster.ready)
    assert await setting.status(setting.head()) == 503


async def test_a_dead_worker_is_skipped_and_taken_back(setting: Setting) -> None:
    first, _ = setting.add("worker_00"), setting.add("worker_01")
    await setting.until(lambda: all(seat.state == "ready" for seat in setting.roster.seats))
    first.close()
    assert {(await setting.talk(setting.head()))[-9:] for _ in range(4)} == {b"worker_01"}
    setting.add("worker_00")
    await setting.until(lambda: setting.roster.seats[0].state == "ready")
    assert (await setting.talk(setting.head())).endswith(b"worker_00")


async def test_a_worker_with_no_seat_left_is_skipped(setting: Setting) -> None:
    setting.add("worker_00", capacity=0)
    setting.add("worker_01", keep=True, capacity=1)
    await setting.until(lambda: setting.roster.ready)
    _, writer = await asyncio.open_connection("127.0.0.1", setting.port)
    writer.write(setting.head())
    await setting.until(lambda: setting.workers[1].sockets)
    assert await setting.status(setting.head()) == 503
    writer.close()


async def test_a_worker_that_reads_nothing_is_skipped_once_its_queue_is_full(setting: Setting) -> None:
    """Hung, but with the fewest sockets: it takes what its queue holds, then the others get all."""
    hung = setting.add("worker_00", capacity=10**6)
    setting.add("worker_01", state="draining")
    await setting.until(lambda: setting.roster.ready)
    channel = next(iter(hung.server.channels))
    loop = asyncio.get_running_loop()
    loop.remove_reader(channel._socket.fileno())
    queued = 0
    with socket.socket() as sock:
        offer = admission.HandOver("ws")
        while setting.links.offer(offer, b"x" * 8000, sock.fileno()):
            queued += 1
            assert queued < 10_000
    setting.workers[1].load("ready", 0)
    await setting.until(lambda: setting.roster.seats[1].state == "ready")
    setting.roster.load("worker_00", "ready", 0)
    assert setting.roster.candidates()[0] == "worker_00"
    assert (await setting.talk(setting.head())).endswith(b"worker_01")
    loop.add_reader(channel._socket.fileno(), channel._readable)
    await setting.until(lambda: len(hung.offers) == queued)


async def test_lent_calls_go_to_their_owner(setting: Setting) -> None:
    setting.add("worker_00", tokens=("t0",))
    owner = setting.add("worker_01", tokens=("t1",), state="draining")
    await setting.until(lambda: setting.roster.owned("t0") and setting.roster.owned("t1"))
    call = setting.head("POST /mcp/t1 HTTP/1.1", "Content-Length: 2") + b"{}"
    assert (await setting.talk(call)).endswith(b"worker_01")
    assert owner.offers[0].payload == call
    owner.say("disowns", tokens=["t1"])
    await setting.until(lambda: not setting.roster.owned("t1"))
    assert await setting.status(call) == 404
    setting.workers[0].close()
    assert await setting.status(call.replace(b"t1", b"t0")) == 503


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST /mcp/unknown HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 3000000\r\n\r\n", 404),
        (b"GET /ws HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET /ws HTTP/1.1\n", 400),
        (b"y" * 20_000, 431),
    ],
)
async def test_a_refusal_ends_by_fin_whatever_else_the_client_sends(
    setting: Setting, data: bytes, status: int
) -> None:
    """Closing with unread bytes would reset the connection and could take the answer with it."""
    data = data.replace(b"{port}", str(setting.port).encode())
    answer = await setting.talk(data + b"z" * 3_000_000)
    top, _, body = answer.partition(b"\r\n\r\n")
    assert int(top.split()[1]) == status
    assert b"\r\nConnection: close" in top
    assert f"\r\nContent-Length: {len(body)}\r\n".encode() in top


async def test_a_slow_head(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch, head=0.1)
    assert await setting.status(b"GET /ws HTTP/1.1\r\n") == 408
    assert await setting.status(b"") == 408


async def test_half_close_is_answered_and_a_reset_is_noticed(setting: Setting) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", setting.port)
    writer.write(b"GET /ws HTTP/1.1\r\n")
    writer.write_eof()
    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    writer.close()
    with socket.create_connection(("127.0.0.1", setting.port)) as sock:
        sock.send(b"GET /ws")
        await setting.until(lambda: setting.intake._reading)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await setting.until(lambda: setting.intake.counters["gone"] == 1)
    assert not setting.intake._reading


async def test_a_client_that_reads_and_says_nothing_is_let_go(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch, close=0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", setting.port)
    writer.write(b"\0")
    assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
    await setting.until(lambda: not setting.intake._answering)
    writer.close()


async def test_connections_above_the_bound_wait(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "SIZES", dataclasses.replace(SIZES, pending_heads=2))
    setting.add("worker_00")
    await setting.until(lambda: setting.roster.ready)
    idle = [await asyncio.open_connection("127.0.0.1", setting.port) for _ in range(2)]
    await setting.until(lambda: len(setting.intake._reading) == 2)
    waiting = asyncio.create_task(setting.talk(setting.head()))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    assert setting.intake.counters["accepted"] == 2
    idle[0][1].write(setting.head())
    assert (await waiting).endswith(b"worker_00")
    for _, writer in idle:
        writer.close()


class Starved:
    """A listening socket whose process has no descriptor left for the first tries."""

    def __init__(self, sock: socket.socket, failures: list[int]) -> None:
        self.sock, self.failures = sock, failures

    def __getattr__(self, name: str) -> object:
        return getattr(self.sock, name)

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            raise OSError(self.failures.pop(0), "out of it")
        return self.sock.accept()


async def test_accept_goes_on_after_errors(short_tmp: Path) -> None:
    failures = [errno.EMFILE, errno.ENFILE, errno.ECONNABORTED, errno.ENOBUFS, errno.ENOMEM]
    starved = Starved(listener.bind(0), failures)
    setting = Setting(short_tmp, starved)  # type: ignore[arg-type]
    setting.port = starved.sock.getsockname()[1]
    assert await setting.status(b"\0") == 400
    assert not failures
    await setting.close()


async def test_pages(setting: Setting) -> None:
    answer = await setting.talk(setting.head("GET /healthz HTTP/1.1", "X: y"))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nok\n")


async def test_closing_tells_those_that_are_here_to_come_again(setting: Setting) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", setting.port)
    writer.write(b"GET /ws")
    await setting.until(lambda: setting.intake._reading)
    await setting.intake.close()
    assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
    writer.close()
    _, late = await asyncio.open_connection("127.0.0.1", setting.port)  # waits in the backlog
    await asyncio.sleep(0.05)
    assert setting.intake.counters["accepted"] == 1
    setting.intake.open()
    await setting.until(lambda: setting.intake.counters["accepted"] == 2)
    late.close()


async def test_no_descriptor_is_lost(setting: Setting) -> None:
    for name in NAMES:
        setting.add(name)
    await setting.until(lambda: all(seat.state == "ready" for seat in setting.roster.seats))

    async def burst(count: int) -> None:
        gate = asyncio.Semaphore(50)

        async def one(data: bytes) -> None:
            async with gate:
                await setting.talk(data)

        await asyncio.gather(*(one(setting.head()) for _ in range(count)))
        await asyncio.gather(*(one(b"\0") for _ in range(count // 10)))
        await setting.until(lambda: not setting.intake._answering)

    await burst(50)
    before = descriptors()
    await burst(2000)
    assert descriptors() <= before
    handed = collections.Counter(setting.intake.counters)["handed_ws"]
    assert handed == sum(len(worker.offers) for worker in setting.workers) == 2050


@pytest.mark.parametrize(("known", "expected"), [(True, 200), (False, 410)])
async def test_a_resume_is_held_while_its_connection_is_rescued(
    setting: Setting, known: bool, expected: int
) -> None:
    worker = setting.add("worker_00")
    await setting.until(lambda: setting.roster.ready)
    free = setting.hold()
    status = asyncio.create_task(setting.status(setting.resume()))
    await setting.until(lambda: setting.intake.counters["held"])
    assert not worker.offers
    assert (await setting.status(setting.head())) == 200  # others are not
    if not known:
        setting.journals.clear()  # it was let go meanwhile
    del setting.holds[CONN]
    free.set_result(None)
    assert await status == expected
    assert len(worker.offers) == (2 if known else 1)


async def test_a_hold_is_bounded(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch, resume_hold=0.05)
    setting.add("worker_00")
    await setting.until(lambda: setting.roster.ready)
    setting.hold()
    assert await setting.status(setting.resume()) == 503


async def test_the_end_does_not_wait_for_what_is_held(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten(monkeypatch, stop_decision=0.05)
    setting.add("worker_00")
    await setting.until(lambda: setting.roster.ready)
    setting.hold()
    answer = asyncio.create_task(setting.talk(setting.resume()))
    await setting.until(lambda: setting.intake.counters["held"])
    await setting.intake.close()
    assert await answer == b""
