"""A worker process with the fault-injecting engine behind it; this test plays the front."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import websockets.asyncio.client
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from gateway.paths import Paths
from gateway.wire import control
from gateway.wire.control import Channel, ControlError, Packet
from gateway.wire.handoff import LeaderInfo, SocketOffer
from gateway.wire.process import Identity
from tests.engines.fake import FakeEngine, do

PATIENCE = 20.0
PROMPT = "session/prompt"


class Front:
    """What a front does: starts a leader, knows the workers, hands sockets over."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = FakeEngine(folder)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "GROK_GATEWAY_HOME": str(folder / "gw"),
            "GROK_GATEWAY_GUARD_SCALE": "0.1",
            "GROK_GATEWAY_TEST_ID": os.environ["GROK_GATEWAY_TEST_ID"],
        }
        self.paths = Paths.from_environment(self.environment)
        self.paths.create()
        self.processes = list[subprocess.Popen[bytes]]()
        self.leader, self.info = self.start_leader()
        self.channels = dict[str, Channel]()
        self.restarts = False  #: a lost worker is started again
        self._words = set[asyncio.Task[None]]()
        self.heard = list[Packet]()

    def start_leader(self) -> tuple[subprocess.Popen[bytes], LeaderInfo]:
        path = str(self.paths.leader_socket)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        leader = self._spawn([str(self.engine.path), "agent", "leader", "--leader-socket", path])
        while not os.path.exists(path):
            assert leader.poll() is None
        identity = Identity.of(leader.pid)
        assert identity is not None
        bridge = [str(self.engine.path), "agent", "--leader", "stdio", "--leader-socket", path]
        self.info = LeaderInfo(
            "ready",
            generation=secrets.token_hex(4),
            pid=identity.pid,
            created=identity.created,
            bridge=bridge,
            env=self.environment,
        )
        self.leader = leader
        return leader, self.info

    def _spawn(self, argv: list[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(argv, env=self.environment, stdin=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    async def start_worker(self, name: str = "worker_00") -> subprocess.Popen[bytes]:
        worker = self._spawn([sys.executable, "-m", "workers", "--name", name])
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(OSError):
                    channel = control.connect(self.paths.worker_socket(name), self._said)
                    break
                await asyncio.sleep(0.01)
        self.channels[name] = channel
        channel.send(Packet("hello", {"role": "front", "pid": os.getpid()}))
        channel.send(Packet("leader", self.info.to_fields()))
        return worker

    def _said(self, channel: Channel, packet: Packet) -> None:
        self.heard.append(packet)
        if packet.op == "handover":
            task = asyncio.create_task(self._pass_on(channel, packet))
            self._words.add(task)
            task.add_done_callback(self._words.discard)

    async def _pass_on(self, channel: Channel, packet: Packet) -> None:
        """A word of a hand-over goes to the one other worker."""
        others = [other for other in self.channels.values() if other is not channel]
        if not others:
            channel.answer(packet, "later" if self.restarts else "nobody")
            return
        fields = {key: value for key, value in packet.fields.items() if key != "id"}
        try:
            answer = await others[0].request(Packet("handover", fields), PATIENCE)
        except ControlError as error:
            answer = Packet("failed", {"reason": str(error)})
        channel.answer(packet, answer.op, **{k: v for k, v in answer.fields.items() if k == "reason"})

    def announce(self) -> None:
        for channel in self.channels.values():
            channel.send(Packet("leader", self.info.to_fields()))

    async def status(self, name: str = "worker_00") -> dict[str, Any]:
        return dict((await self.channels[name].request(Packet("status"))).fields)

    async def connect(self, name: str = "worker_00", before: Client | None = None) -> Client:
        """A client whose socket goes to this worker; ``before``: the one whose connection it resumes."""
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            ours = socket.create_connection(listener.getsockname())
            theirs, _ = listener.accept()
        theirs.setblocking(False)
        opening = asyncio.create_task(
            websockets.asyncio.client.connect(
                "ws://127.0.0.1/ws", sock=ours, proxy=None, compression=None, max_size=None
            ).__aenter__()
        )
        head, loop = b"", asyncio.get_running_loop()
        while b"\r\n\r\n" not in head:
            head += await loop.sock_recv(theirs, 65536)
        offer = SocketOffer("ws", before.connection if before else "", before.read if before else 0)
        assert self.channels[name].send_now(offer.packet(head, theirs.fileno()))
        theirs.close()
        async with asyncio.timeout(PATIENCE):
            return Client(await opening, before)

    async def close(self) -> None:
        for channel in self.channels.values():
            channel.close()
        for process in reversed(self.processes):
            process.kill()
            process.wait()


class Client:
    """A client; resumed, it goes on with what its predecessor had open."""

    def __init__(self, web_socket: ClientConnection, before: Client | None) -> None:
        assert web_socket.response is not None
        headers = web_socket.response.headers
        self.connection, self.accepted = headers["Grok-Gateway-Connection"], headers["Grok-Gateway-Received"]
        self.socket = web_socket
        self.read, self.number = (before.read, before.number) if before else (0, 0)
        self.open = before.open if before else dict[int, asyncio.Future[dict[str, Any]]]()
        self.notes = before.notes if before else list[dict[str, Any]]()
        self.asked = before.asked if before else list[dict[str, Any]]()
        self.reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for frame in self.socket:
                self.read += 1
                message = json.loads(frame)
                if "method" not in message:
                    self.open.pop(message["id"]).set_result(message)
                else:
                    (self.asked if "id" in message else self.notes).append(message)

    async def start(self, method: str, params: Any) -> asyncio.Future[dict[str, Any]]:
        self.number += 1
        answer = self.open[self.number] = asyncio.get_running_loop().create_future()
        await self.send({"id": self.number, "method": method, "params": params})
        return answer

    async def call(self, method: str, params: Any) -> dict[str, Any]:
        return await finished(await self.start(method, params))

    async def send(self, message: dict[str, Any]) -> None:
        await self.socket.send(json.dumps({"jsonrpc": "2.0", **message}))

    async def session(self, cwd: Path, **meta: Any) -> str:
        await self.call("initialize", {"protocolVersion": 1})
        answer = await self.call("session/new", {"cwd": str(cwd), "mcpServers": [], "_meta": meta})
        return str(answer["result"]["sessionId"])

    async def lose_socket(self) -> None:
        self.socket.transport.abort()
        await self.reader

    async def until_asked(self, count: int = 1) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while len(self.asked) < count:
                await asyncio.sleep(0.01)
        return self.asked[count - 1]

    def text(self) -> str:
        updates = (note["params"]["update"] for note in self.notes if note["method"] == "session/update")
        return "".join(u["content"]["text"] for u in updates if u["sessionUpdate"] == "agent_message_chunk")

    def noted(self, method: str) -> list[dict[str, Any]]:
        return [note["params"] for note in self.notes if note["method"] == method]


async def finished(answer: asyncio.Future[dict[str, Any]]) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        return await answer


def prompt(session: str, *actions: dict[str, Any], prompt_id: str = "p1") -> dict[str, Any]:
    text = {"type": "text", "text": do(*actions)}
    return {"sessionId": session, "prompt": [text], "_meta": {"promptId": prompt_id}}


@pytest.fixture
async def front(short_tmp: Path) -> AsyncIterator[Front]:
    front = Front(short_tmp)
    yield front
    await front.close()


@pytest.fixture
async def client(front: Front) -> Client:
    await front.start_worker()
    return await front.connect()


# -- a client ----------------------------------------------------------------------------------


async def test_a_turn(front: Front, client: Client) -> None:
    session = await client.session(front.folder)
    answer = await client.call(PROMPT, prompt(session, {"say": "hello world", "chunks": 3}))
    assert answer["result"]["stopReason"] == "end_turn"
    assert client.text() == "hello world"
    (listed,) = (await front.status())["clients"]
    assert (listed["id"], listed["state"]) == (client.connection, "open")
    assert [s["sessionId"] for s in listed["sessions"]] == [session]


async def test_a_session_belongs_to_one_connection(front: Front, client: Client) -> None:
    session = await client.session(front.folder)
    other = await front.connect()
    own = await other.session(front.folder)
    load = {"sessionId": session, "cwd": str(front.folder), "mcpServers": []}
    for method, params in (("session/load", load), (PROMPT, prompt(session)), ("session/close", load)):
        assert (await other.call(method, params))["error"]["code"] == -32056
    listed = (await other.call("session/list", {}))["result"]["sessions"]
    assert [s["sessionId"] for s in listed] == [own]
    await client.socket.close()
    async with asyncio.timeout(PATIENCE):
        while "error" in await other.call("session/load", load):
            await asyncio.sleep(0.05)


async def test_a_closed_client_leaves_nothing(front: Front, client: Client) -> None:
    session = await client.session(front.folder)
    await client.start(PROMPT, prompt(session, {"sleep": 60}))
    (listed,) = (await front.status())["clients"]
    await client.socket.close()
    async with asyncio.timeout(PATIENCE):
        while (await front.status())["clients"]:
            await asyncio.sleep(0.02)
    assert not psutil.pid_exists(listed["bridge"])
    assert list(front.paths.journals.iterdir()) == []
    assert ("disowns", [client.connection]) in [(p.op, p.fields.get("connections")) for p in front.heard]


async def test_a_bad_handshake_leaves_nothing(front: Front) -> None:
    await front.start_worker()
    ours, theirs = socket.socketpair()
    head = b"GET /ws HTTP/1.1\r\nHost: x\r\n\r\n"
    front.channels["worker_00"].send_now(SocketOffer("ws").packet(head, theirs.fileno()))
    theirs.close()
    ours.setblocking(False)
    async with asyncio.timeout(PATIENCE):
        assert (await asyncio.get_running_loop().sock_recv(ours, 4096)).startswith(b"HTTP/1.1 4")
        while (await front.status())["sockets"]:
            await asyncio.sleep(0.02)
    ours.close()
    assert list(front.paths.journals.iterdir()) == []


# -- resume ------------------------------------------------------------------------------------


async def test_a_client_that_comes_back_misses_nothing(front: Front, client: Client) -> None:
    session = await client.session(front.folder)
    gate = front.folder / "go"
    steps = {"say": "before "}, {"wait": str(gate)}, {"say": "after", "chunks": 5}
    answer = await client.start(PROMPT, prompt(session, *steps))
    while "before" not in client.text():
        await asyncio.sleep(0.01)
    await client.lose_socket()
    gate.touch()
    await asyncio.sleep(0.2)
    back = await front.connect(before=client)
    assert back.connection == client.connection
    assert back.accepted == str(client.number)
    assert (await finished(answer))["result"]["stopReason"] == "end_turn"
    assert back.text() == "before after"


async def test_the_second_socket_of_a_connection_replaces_the_first(front: Front, client: Client) -> None:
    await client.session(front.folder)
    back = await front.connect(before=client)
    await client.reader
    assert client.socket.close_code == 1012
    assert "result" in await back.call("session/list", {})


async def test_a_client_too_far_behind_is_told_its_sessions_and_where_to_count_on(
    front: Front, client: Client
) -> None:
    session = await client.session(front.folder)
    client.read = 10_000
    back = await front.connect(before=client)
    assert "result" in await back.call("session/list", {})
    (told,) = back.noted("gateway/too_far_behind")
    assert told["sessions"] == [session]
    status = (await front.status())["clients"][0]
    assert told["frame"] == status["sent"] - 1  # one answer has followed


async def test_what_is_asked_while_nobody_is_there_is_denied_and_never_shown(
    front: Front, client: Client
) -> None:
    hooks = {"pre_tool_use": [{"hookCallbackIds": ["x"], "timeout": 30}]}
    session = await client.session(front.folder, **{"x.ai/hooks": hooks})
    marker, gate = front.folder / "marker", front.folder / "go"
    tool = {"tool": "x", "marker": str(marker)}
    answer = await client.start(PROMPT, prompt(session, tool, {"wait": str(gate)}, tool))
    first = await client.until_asked()
    await client.lose_socket()
    gate.touch()
    while (await front.status())["clients"][0]["requests"]:
        await asyncio.sleep(0.01)
    back = await front.connect(before=client)
    assert (await finished(answer))["result"]["stopReason"] == "end_turn"
    assert not marker.exists()
    assert back.asked == [first]
    closed = {note["id"] for note in back.noted("gateway/gate_closed")}
    assert first["id"] in closed
    assert len(closed) == 2, "what was asked meanwhile is told of as settled, and never asked again"


# -- losses ------------------------------------------------------------------------------------


async def test_another_worker_takes_over_what_a_killed_one_had(front: Front, client: Client) -> None:
    worker = front.processes[1]
    session = await client.session(front.folder, rules="be kind")
    await front.start_worker("worker_01")
    gate = front.folder / "go"
    answer = await client.start(PROMPT, prompt(session, {"wait": str(gate)}))
    while not (await front.status())["clients"][0]["requests"]:
        await asyncio.sleep(0.01)
    worker.kill()
    await client.reader
    back = await front.connect("worker_01", before=client)
    # The fault-injecting engine does not say which turn runs, so this one counts as lost.
    assert (await finished(answer))["error"]["code"] == -32051
    gate.touch()
    answer = await back.start(PROMPT, prompt(session, {"say": "again"}, prompt_id="p2"))
    assert (await finished(answer))["result"]["stopReason"] == "end_turn"
    assert back.noted("gateway/reattached")[0]["sessionId"] == session
    assert back.text().endswith("again")


async def test_an_unknown_connection_is_gone(front: Front) -> None:
    await front.start_worker()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    offer = SocketOffer("ws", secrets.token_hex(16), 0)
    front.channels["worker_00"].send_now(offer.packet(b"GET /ws HTTP/1.1\r\n\r\n", theirs.fileno()))
    theirs.close()
    ours.setblocking(False)
    async with asyncio.timeout(PATIENCE):
        assert (await asyncio.get_running_loop().sock_recv(ours, 4096)).startswith(b"HTTP/1.1 410")
    ours.close()


async def test_the_leader_is_replaced_under_a_connection(front: Front, client: Client) -> None:
    session = await client.session(front.folder)
    answer = await client.start(PROMPT, prompt(session, {"sleep": 60}))
    front.leader.kill()
    front.leader.wait()
    assert (await finished(answer))["error"]["code"] == -32050
    waiting = await client.start("session/list", {})
    front.start_leader()
    front.announce()
    assert "result" in await finished(waiting)
    (told,) = client.noted("gateway/leader_restarted")
    assert told["sessions"] == [{"sessionId": session, "rulesReapplied": False, "lostPromptId": "p1"}]
    answer = await client.call(PROMPT, prompt(session, {"say": "again"}, prompt_id="p2"))
    assert answer["result"]["stopReason"] == "end_turn"


# -- planned hand-over -------------------------------------------------------------------------


async def come_back(front: Front, client: Client) -> Client:
    async with asyncio.timeout(PATIENCE):
        await client.reader
    assert client.socket.close_code == 1012
    return await front.connect("worker_01", before=client)


async def test_an_idle_connection_goes_to_another_worker(front: Front, client: Client) -> None:
    worker = front.processes[1]
    session = await client.session(front.folder, rules="be kind")
    await client.call(PROMPT, prompt(session, {"say": "before "}))
    await front.start_worker("worker_01")
    worker.send_signal(signal.SIGTERM)
    back = await come_back(front, client)
    assert back.connection == client.connection
    answer = await back.call(PROMPT, prompt(session, {"say": "after"}, prompt_id="p2"))
    assert answer["result"]["stopReason"] == "end_turn"
    assert back.text() == "before after"
    assert not back.noted("gateway/reattached")  # nothing was lost that it would have to know of
    assert await asyncio.to_thread(worker.wait, PATIENCE) == 0
    (listed,) = (await front.status("worker_01"))["clients"]
    assert listed["state"] == "open"
    claims = [p.fields["connections"] for p in front.heard if p.op == "owns" and p.fields.get("connections")]
    assert claims[-1] == [client.connection]


async def test_a_hook_open_at_term_is_answered_over_the_old_bridge(front: Front, client: Client) -> None:
    worker = front.processes[1]
    hooks = {"pre_tool_use": [{"hookCallbackIds": ["x"], "timeout": 600}]}
    session = await client.session(front.folder, **{"x.ai/hooks": hooks})
    await front.start_worker("worker_01")
    marker = front.folder / "marker"
    answer = await client.start(PROMPT, prompt(session, {"tool": "x", "marker": str(marker)}))
    asked = await client.until_asked()
    worker.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.5)
    assert not client.reader.done()
    assert not marker.exists()
    await client.send({"id": asked["id"], "result": {}})
    assert (await finished(answer))["result"]["stopReason"] == "end_turn"
    await come_back(front, client)
    assert marker.exists()
    assert len(client.asked) == 1


async def test_a_successor_that_dies_is_replaced_by_the_journal(front: Front, client: Client) -> None:
    """Whatever becomes of the hand-over, the client comes back to its session."""
    worker = front.processes[1]
    session = await client.session(front.folder)
    front.restarts = True
    successor = await front.start_worker("worker_01")
    successor.send_signal(signal.SIGSTOP)
    worker.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.3)
    successor.kill()
    successor.wait()
    front.channels.pop("worker_01").close()
    await front.start_worker("worker_01")
    back = await come_back(front, client)
    assert back.connection == client.connection
    answer = await back.call(PROMPT, prompt(session, {"say": "here"}))
    assert answer["result"]["stopReason"] == "end_turn"


# -- the process -------------------------------------------------------------------------------


@pytest.mark.parametrize("busy", [False, True])
async def test_term_answers_closes_and_ends(front: Front, client: Client, busy: bool) -> None:
    worker = front.processes[1]
    session = await client.session(front.folder)
    answer = await client.start(PROMPT, prompt(session, {"sleep": 60})) if busy else None
    worker.send_signal(signal.SIGTERM)
    if answer is not None:
        assert (await finished(answer))["error"]["code"] == -32052
    await client.reader
    assert client.socket.close_code == 1001
    assert await asyncio.to_thread(worker.wait, PATIENCE) == 0
    assert list(front.paths.journals.iterdir()) == []
    states = [p.fields["state"] for p in front.heard if p.op == "load"]
    assert states[-1] == "draining"


async def test_ping_hello_and_ignorance(front: Front, client: Client) -> None:
    channel = front.channels["worker_00"]
    assert (await channel.request(Packet("ping"))).fields["state"] == "ready"
    assert (await channel.request(Packet("make_coffee"))).op == "unknown"
    hello = next(packet for packet in front.heard if packet.op == "hello")
    assert hello.fields["name"] == "worker_00"
    front.heard.clear()
    channel.send(Packet("hello", {"role": "front", "pid": 1}))  # a restarted front
    await channel.request(Packet("ping"))
    assert [p.fields["connections"] for p in front.heard if p.op == "owns"] == [[client.connection]]


async def test_a_worker_needs_little_and_leaves_heavy_libraries_alone() -> None:
    code = (
        "import sys, workers.__main__\n"
        "print(*(name for name in ('aiohttp', 'rich', 'psutil', 'supervisor') if name in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
