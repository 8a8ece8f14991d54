"""The front as a process: start, port, lock, control socket, and every way to end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.front.front import ORPHANED, RELOAD, RESTART, STOP, ending
from gateway.paths import Paths
from gateway.wire.control import Packet, connect
from gateway.wire.journal import Journal, journal_path
from gateway.wire.process import Identity
from gateway.wire.records import Opened, Owned
from tests.conftest import ROOT, find_free_port
from tests.front.stand_ins import StandInEscrow, StandInWorker

CONN = "ab" * 16


class Home:
    """One home with its front process; workers and the escrow live in the test."""

    def __init__(self, folder: Path) -> None:
        self.port = find_free_port()
        self.paths = Paths.from_environment({"GROK_GATEWAY_HOME": str(folder)})
        self.paths.create()
        self.environment = os.environ | {
            "GROK_GATEWAY_HOME": str(folder),
            "GROK_GATEWAY_PORT": str(self.port),
            "GROK_GATEWAY_WORKERS": "2",
        }
        self.log = (folder / "front.log").open("a+b")
        self.fronts = list[subprocess.Popen[bytes]]()
        self.helpers = list[StandInWorker | StandInEscrow]()

    def spawn(self, *prefix: str, **environment: str) -> subprocess.Popen[bytes]:
        command = [*prefix, sys.executable, "-m", "tests.front.front_program"]
        process = subprocess.Popen(command, env=self.environment | environment, cwd=ROOT, stderr=self.log)
        self.fronts.append(process)
        return process

    async def start(self, *prefix: str, **environment: str) -> subprocess.Popen[bytes]:
        """A front that accepts."""
        before = self.text().count(b"listening on")
        process = self.spawn(*prefix, **environment)
        await self.until(lambda: self.text().count(b"listening on") > before)
        return process

    def worker(self, number: int = 0, **options: object) -> StandInWorker:
        name = f"worker_{number:02}"
        worker = StandInWorker(self.paths.worker_socket(name), name, **options)  # type: ignore[arg-type]
        self.helpers.append(worker)
        return worker

    def escrow(self) -> StandInEscrow:
        escrow = StandInEscrow(self.paths.watchdog_socket)
        self.helpers.append(escrow)
        return escrow

    def text(self) -> bytes:
        return Path(self.log.name).read_bytes()

    def keeper_calls(self) -> list[str]:
        """``PID call`` of every keeper of this home so far."""
        with contextlib.suppress(FileNotFoundError):
            return (self.paths.state / "keeper.log").read_text().splitlines()
        return []

    async def until(self, condition: Callable[[], object]) -> None:
        try:
            async with asyncio.timeout(60):
                while not condition():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            pytest.fail(f"did not happen; log of the front:\n{self.text().decode()}")

    async def exit_code(self, process: subprocess.Popen[bytes]) -> int | None:
        await self.until(lambda: process.poll() is not None)
        return process.returncode

    async def ask(self, op: str, **fields: object) -> Packet:
        channel = connect(self.paths.front_socket, lambda channel, packet: None)
        with contextlib.closing(channel):
            return await channel.request(Packet(op, fields))

    def head(self, line: str, *fields: str) -> bytes:
        host, secret = f"Host: 127.0.0.1:{self.port}", self.paths.secret.read_text().strip()
        return "\r\n".join([line, host, f"Authorization: Bearer {secret}", *fields, "", ""]).encode()

    async def get(self, path: str) -> tuple[int, bytes]:
        return await self.talk(self.head(f"GET {path} HTTP/1.1"))

    async def connect(self, *fields: str) -> tuple[int, bytes]:
        upgrade = ("Connection: Upgrade", "Upgrade: websocket")
        return await self.talk(self.head("GET /ws HTTP/1.1", *upgrade, *fields))

    async def talk(self, data: bytes) -> tuple[int, bytes]:
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            with contextlib.closing(writer):
                writer.write(data)
                top, _, body = (await reader.read()).partition(b"\r\n\r\n")
        if not top:
            raise ConnectionResetError("ended without an answer")
        return int(top.split()[1]), body

    async def ready(self) -> None:
        async with asyncio.timeout(60):
            while (await self.get("/readyz"))[0] != 200:
                await asyncio.sleep(0.01)

    def close(self) -> None:
        for helper in self.helpers:
            helper.close()
        for process in self.fronts:
            process.kill()
            process.wait()
        self.log.close()


@pytest.fixture
async def home(short_tmp: Path) -> AsyncIterator[Home]:
    one = Home(short_tmp)
    yield one
    one.close()


@pytest.mark.parametrize(
    ("cause", "leaving", "expected"),
    [
        ("terminate", True, STOP),
        ("terminate", False, RESTART),
        ("reload", True, RELOAD),
        ("reload", False, RELOAD),
        ("supervisor died", True, ORPHANED),
        ("supervisor died", False, ORPHANED),
    ],
)
def test_how_it_ends(cause: str, leaving: bool, expected: object) -> None:
    assert ending(cause, leaving) == expected  # type: ignore[arg-type]


async def test_start_and_what_it_says(home: Home) -> None:
    await home.start()
    assert stat.S_IMODE(home.paths.secret.stat().st_mode) == 0o600
    assert await home.get("/healthz") == (200, b"ok\n")
    assert await home.get("/readyz") == (503, b"not ready\n")
    assert (await home.ask("ping")).fields["state"] == "waiting"
    worker = home.worker()
    await home.ready()
    assert (await home.ask("ping")).fields["state"] == "ready"
    assert (await home.connect())[1] == b"worker_00"

    status, body = await home.get("/status")
    document = json.loads(body)
    assert status == 200
    assert document["endpoint"] == f"ws://127.0.0.1:{home.port}/ws"
    assert document["engine"] == "grok"
    assert document["leader"]["state"] == "ready"
    assert [one["state"] for one in document["workers"]] == ["ready", "gone"]
    assert document["clients"][0]["worker"] == worker.name
    assert document["counters"]["handed_ws"] == 1
    answer = dict((await home.ask("status")).fields)
    assert answer.keys() - {"re"} == document.keys()

    status, body = await home.get("/metrics")
    assert status == 200
    lines = body.decode().splitlines()
    assert "grok_gateway_leader_ready 1.0" in lines
    assert 'grok_gateway_worker_ready{worker="worker_01"} 0.0' in lines
    assert 'grok_gateway_settled_total{outcome="handed_ws"} 1.0' in lines
    assert 'grok_gateway_worker_events_total{event="frames",worker="worker_00"} 3.0' in lines

    answer = await home.ask("nonsense")
    assert answer.op == "failed"


async def test_the_leader_is_told_to_all_workers_and_restarted_on_demand(home: Home) -> None:
    workers = [home.worker(number) for number in range(2)]
    await home.start()
    await home.ready()
    assert (await home.ask("restart", what="leader")).op == "done"
    await home.until(lambda: all(one.leaders[-1].generation == "5ca1ab1e" for one in workers))


async def test_a_leader_that_does_not_come_back_is_reported(home: Home) -> None:
    await home.start(STAND_IN_FAILURE="it is broken")
    answer = await home.ask("restart", what="leader")
    assert (answer.op, answer.fields["reason"]) == ("failed", "it is broken")


async def test_a_second_front_of_the_home_touches_nothing(home: Home) -> None:
    await home.start()
    assert await home.exit_code(home.spawn(GROK_GATEWAY_PORT=str(find_free_port()))) == 1
    assert b"another front of this home runs" in home.text()
    assert len(home.keeper_calls()) == 1
    assert (await home.ask("ping")).op == "pong", "the control socket is still the first one's"


async def test_a_taken_port_is_named_and_no_leader_touched(home: Home) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", home.port))
        holder.listen()
        assert await home.exit_code(home.spawn()) == 1
    assert f"port {home.port} is in use".encode() in home.text()
    assert home.keeper_calls() == []


async def test_a_bad_setting_is_named(home: Home) -> None:
    assert await home.exit_code(home.spawn(GROK_GATEWAY_PORT="80x")) == 1
    assert b"GROK_GATEWAY_PORT = '80x'" in home.text()


async def stream(home: Home, stop: asyncio.Event) -> list[str]:
    """Connect again and again; whatever is not a worker's answer."""
    wrong = list[str]()
    while not stop.is_set():
        try:
            status, body = await home.connect()
        except OSError as error:
            wrong.append(repr(error))
        else:
            if status != 200:
                wrong.append(f"{status} {body!r}")
        await asyncio.sleep(0.002)
    return wrong


async def test_killed_and_started_again_nobody_is_refused(home: Home) -> None:
    """Connections wait in the backlog; only one that the dead front had in its hands may break."""
    escrow = home.escrow()
    home.worker(0, connections=(CONN,))
    home.worker(1)
    front = await home.start()
    await home.ready()
    await home.until(lambda: escrow.keeps == 1)
    stop = asyncio.Event()
    streams = [asyncio.create_task(stream(home, stop)) for _ in range(4)]
    for round_ in range(3):
        await asyncio.sleep(0.1)
        front.kill()
        front.wait()
        await asyncio.sleep(0.05)
        front = await home.start()
        await home.until(lambda count=round_ + 2: escrow.keeps == count)
    stop.set()
    wrong = [one for part in await asyncio.gather(*streams) for one in part]
    # In the hands of the dead front: at most one of each stream at each kill, ended, never refused.
    assert len(wrong) <= 3 * len(streams)
    assert not [one for one in wrong if "Refused" in one or one[0] in "45"], wrong
    resumed = await home.connect(f"Grok-Gateway-Connection: {CONN}", "Grok-Gateway-Received: 0")
    assert resumed == (200, b"worker_00"), "the roster was rebuilt from what the workers say"


async def test_a_connection_of_a_lost_worker_goes_on_at_another_one(home: Home) -> None:
    resume = (f"Grok-Gateway-Connection: {CONN}", "Grok-Gateway-Received: 3")
    first = home.worker(0, connections=(CONN,))
    home.worker(1)
    lost = Identity(2**22 + 1, 1.0)  # above the kernel's largest pid
    Journal.create(home.paths, Opened(CONN), Owned("worker_00", lost.pid, lost.created)).close()
    await home.start()
    await home.ready()
    assert await home.connect(*resume) == (200, b"worker_00")
    first.close()
    await home.until(lambda: b"worker_00 left" in home.text())
    assert await home.connect(*resume) == (200, b"worker_01")
    journal_path(home.paths, CONN).unlink()
    assert (await home.connect(*resume))[0] == 410


async def test_term_while_workers_stay_is_a_restart(home: Home) -> None:
    escrow = home.escrow()
    home.worker()
    front = await home.start()
    await home.ready()
    await home.until(lambda: escrow.keeps == 1)
    front.terminate()
    assert await home.exit_code(front) == 0
    late = asyncio.create_task(home.connect())
    assert home.keeper_calls()[-1] == f"{front.pid} close end_leader=False"
    assert escrow.fd is not None
    assert not home.paths.front_socket.exists()
    await asyncio.sleep(0.05)
    assert not late.done()
    await home.start()
    assert (await late)[0] == 200


@pytest.mark.parametrize("how", ["draining", "gone"])
async def test_term_while_all_workers_go_is_a_stop(home: Home, how: str) -> None:
    escrow = home.escrow()
    workers = [home.worker(number) for number in range(2)]
    front = await home.start()
    await home.ready()
    await home.until(lambda: escrow.keeps == 1)
    front.terminate()
    for worker in workers:
        worker.load("draining", 0) if how == "draining" else worker.close()
    if how == "draining":
        await home.until(lambda: b"the leader ends" in home.text())
        assert home.keeper_calls()[-1].endswith("start"), "the leader is the last"
        for worker in workers:
            worker.close()
    assert await home.exit_code(front) == 0
    assert home.keeper_calls()[-1] == f"{front.pid} close end_leader=True"
    assert escrow.fd is None
    with pytest.raises(ConnectionRefusedError):
        await home.connect()


async def test_reload_is_the_same_process_with_the_same_socket(home: Home) -> None:
    home.worker()
    front = await home.start()
    await home.ready()
    stop = asyncio.Event()
    streams = [asyncio.create_task(stream(home, stop)) for _ in range(4)]
    for count in (2, 3):
        front.send_signal(signal.SIGHUP)
        await home.until(lambda count=count: home.text().count(b"listening on") == count)
        assert await home.exit_code(home.spawn()) == 1, "the lock is kept"
    stop.set()
    assert not any(await asyncio.gather(*streams)), "no watchdog, and yet nobody was refused"
    assert front.poll() is None
    assert [call.split(" ", 1)[1] for call in home.keeper_calls()] == [
        "start",
        "close end_leader=False",
        "start",
        "close end_leader=False",
        "start",
    ]
    names = [os.readlink(f"/proc/{front.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{front.pid}/fd")]
    assert len([name for name in names if name.endswith("front.lock")]) == 1


async def test_a_reload_with_a_bad_setting_is_refused(home: Home) -> None:
    home.worker()
    front = await home.start()
    await home.ready()
    home.paths.config_file.write_text("workers = 1\n")
    front.send_signal(signal.SIGHUP)
    await home.until(lambda: b"not reloaded: " in home.text())
    assert str(home.paths.config_file).encode() in home.text()
    assert (await home.connect())[0] == 200
    assert len(home.keeper_calls()) == 1


async def test_a_new_secret_is_in_force_at_once(home: Home) -> None:
    await home.start()
    old = home.head("GET /status HTTP/1.1")
    assert (await home.talk(old))[0] == 200
    home.paths.secret.write_text("0" * 64 + "\n")
    assert (await home.talk(old))[0] == 401
    assert (await home.get("/status"))[0] == 200
    home.paths.secret.unlink()
    assert (await home.talk(old))[0] == 401
    assert b"nobody can be admitted" in home.text()


async def test_without_its_supervisor_it_ends_and_the_leader_with_it(home: Home) -> None:
    worker = home.worker()
    supervisor = await home.start("sh", "-c", '"$@" & wait', "sh")
    await home.ready()
    pid = home.keeper_calls()[0].split()[0]
    supervisor.kill()
    await home.until(lambda: b"supervisor died: the leader ends" in home.text())
    assert len(home.keeper_calls()) == 1, "the workers go first"
    worker.close()
    await home.until(lambda: home.keeper_calls()[-1] == f"{pid} close end_leader=True")
    await home.until(lambda: not Path(f"/proc/{pid}").exists())


async def test_the_log_holds_neither_secret_nor_token(home: Home) -> None:
    token = "t0ken" * 8
    home.worker(0, tokens=(token,))
    await home.start()
    await home.ready()
    await home.connect()
    await home.talk(home.head(f"POST /mcp/{token} HTTP/1.1", "Content-Length: 0"))
    await home.talk(home.head(f"POST /mcp/{token}x HTTP/1.1", "Content-Length: 0"))
    await home.talk(home.head(f"GET /ws?secret={token} HTTP/1.1"))
    await home.talk(home.head("GET /nowhere HTTP/1.1"))
    assert b"refused: 404" in home.text()
    assert token.encode() not in home.text()
    assert home.paths.secret.read_bytes().strip() not in home.text()
