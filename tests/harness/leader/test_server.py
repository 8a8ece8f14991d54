"""The leader's socket, with an agent of the test's own: who registers, who reads, who is dropped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.leader import routing, server
from harness.leader.frames import FrameReader, acp, frame
from harness.leader.server import Leader
from harness.limits import EngineLimits, EngineSizes

Message = dict[str, Any]


class Agent:
    """Keeps what it gets."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        self.send, self.got, self.closed = send, list[Message](), False

    def receive(self, message: Message) -> None:
        self.got.append(message)

    async def close(self) -> None:
        self.closed = True


class Client:
    """One connection of a bridge."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer, self._frames = reader, writer, FrameReader()
        self._waiting = list[Message]()

    async def next(self) -> Message:
        async with asyncio.timeout(10):
            while not self._waiting:
                data = await self._reader.read(1 << 16)
                if not data:
                    raise EOFError
                self._waiting += self._frames.feed(data)
        return self._waiting.pop(0)

    async def says(self, line: Message) -> None:
        self.writer.write(acp(json.dumps({"jsonrpc": "2.0", **line})))
        await self.writer.drain()

    async def hears(self) -> Message:
        message = await self.next()
        assert message["type"] == "acp"
        return dict(json.loads(message["payload"]))


class Stage:
    """A leader at a socket, on this loop."""

    def __init__(self, path: Path) -> None:
        self.path, self.agents = path, list[Agent]()

    def core(self, send: Callable[[Message], None]) -> Agent:
        self.agents.append(Agent(send))
        return self.agents[0]

    async def __aenter__(self) -> Stage:
        self.leader = Leader(self.core, "1.0", exit_on_disconnect=True)
        self._server = await asyncio.get_running_loop().create_unix_server(self.leader.protocol, self.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self.leader.close()
        assert self.agents[0].closed

    async def got(self, number: int) -> None:
        """Until the agent has so many messages."""
        async with asyncio.timeout(10):
            while len(self.agents[0].got) < number:
                await asyncio.sleep(0.001)

    async def client(self, *, registers: bool = True) -> Client:
        client = Client(*await asyncio.open_unix_connection(str(self.path)))
        if registers:
            client.writer.write(frame({"type": "register", "client_type": "t", "mode": "stdio"}))
            assert (await client.next())["ready"] is True
        return client


async def test_a_request_and_its_answer(short_tmp: Path) -> None:
    async with Stage(short_tmp / "s") as stage:
        first, second = await stage.client(), await stage.client()
        await first.says({"id": 1, "method": "x"})
        await second.says({"id": 1, "method": "y"})
        await stage.got(2)
        for message in stage.agents[0].got:
            stage.agents[0].send({"jsonrpc": "2.0", "id": message["id"], "result": message["method"]})
        assert (await first.hears())["result"] == "x"
        assert (await second.hears())["result"] == "y"


DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000


@pytest.mark.parametrize(
    ("payload", "number"),
    [
        ("no json", None),
        ("[]", None),
        (5, None),
        ('{"jsonrpc":"2.0","id":12,"method":["x"]}', 12),
        ('{"jsonrpc":"2.0","id":8,"method":5}', 8),
        (f'{{"jsonrpc":"2.0","id":9,"method":"x","params":{DEEP}}}', None),
        (f'{{"jsonrpc":"2.0","id":{"[" * 900}{"]" * 900},"method":"x"}}', None),
    ],
    ids=["text", "list", "number", "unhashable method", "method", "deep", "deep id"],
)
async def test_a_line_that_is_no_message_is_an_error_for_its_client(
    short_tmp: Path, payload: Any, number: int | None
) -> None:
    async with Stage(short_tmp / "s") as stage:
        client = await stage.client()
        await client.says({"id": "open", "method": "x"})
        client.writer.write(frame({"type": "acp", "payload": payload}))
        answer = await client.hears()
        assert (answer["id"], answer["error"]["code"] in (-32700, -32600)) == (number, True)
        (message,) = stage.agents[0].got
        stage.agents[0].send({"jsonrpc": "2.0", "id": message["id"], "result": "still there"})
        assert (await client.hears())["result"] == "still there"


async def test_an_answer_that_cannot_be_written_is_an_error(short_tmp: Path) -> None:
    async with Stage(short_tmp / "s") as stage:
        client = await stage.client()
        await client.says({"id": 1, "method": "x"})
        await stage.got(1)
        result: Any = 1
        for _ in range(5000):
            result = [result]
        stage.agents[0].send({"jsonrpc": "2.0", "id": stage.agents[0].got[0]["id"], "result": result})
        answer = await client.hears()
        assert (answer["id"], answer["error"]["code"]) == (1, -32603)


async def test_what_it_says_of_itself(short_tmp: Path) -> None:
    async with Stage(short_tmp / "s") as stage:
        client = await stage.client()
        for command, key in (("get_leader_info", "Ok"), ("workspace_start", "Err")):
            client.writer.write(frame({"type": "control", "request_id": 7, "command": command}))
            answer = await client.next()
            assert (answer["request_id"], set(answer["result"])) == (7, {key})


@pytest.mark.parametrize(
    "data",
    [b"\xff\xff\xff\xff", frame({"type": "acp", "payload": "{}"}), frame({"type": "disconnect"})],
)
async def test_who_does_not_register_is_dropped(short_tmp: Path, data: bytes) -> None:
    async with Stage(short_tmp / "s") as stage:
        client = await stage.client(registers=False)
        client.writer.write(data)
        with pytest.raises((EOFError, ConnectionResetError)):
            await client.next()
        async with asyncio.timeout(10):
            await stage.leader.ended.wait()  # it was the last one


async def test_who_says_nothing_is_dropped(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Short(EngineLimits):
        leader_register = 0.05

    monkeypatch.setattr(server, "LIMITS", Short())
    async with Stage(short_tmp / "s") as stage:
        client = await stage.client(registers=False)
        with pytest.raises((EOFError, ConnectionResetError)):
            await client.next()


@pytest.mark.parametrize("bound", ["bytes", "seconds"])
async def test_who_takes_nothing_is_dropped_and_the_others_go_on(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    class Small(EngineSizes):
        client_queue = 1 << 20 if bound == "bytes" else EngineSizes.client_queue

    class Short(EngineLimits):
        leader_write = EngineLimits.leader_write if bound == "bytes" else 0.1

    monkeypatch.setattr(server, "SIZES", Small())
    monkeypatch.setattr(server, "LIMITS", Short())
    async with Stage(short_tmp / "s") as stage:
        deaf = await stage.client()
        other = await stage.client()
        other_id = stage.leader.clients[-1]
        for client in (deaf, other):
            await client.says({"method": "hello", "params": {"sessionId": "s"}})
        await stage.got(2)
        chunk = {
            "jsonrpc": "2.0",
            "method": "session/update",
            "params": {"sessionId": "s", "x": "x" * 100_000},
        }
        for _ in range(20):
            stage.agents[0].send(chunk)
            assert (await other.hears())["method"] == "session/update"
        async with asyncio.timeout(10):
            while len(stage.leader.clients) == 2:
                await asyncio.sleep(0.01)
        assert stage.leader.clients == [other_id]


async def test_who_loads_too_slowly_is_dropped_and_the_others_get_everything_once(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small(EngineSizes):
        load_waiting = 3

    monkeypatch.setattr(routing, "SIZES", Small())
    async with Stage(short_tmp / "s") as stage:
        driver, *loaders = [await stage.client() for _ in range(4)]
        first, slow = stage.leader.clients[0], stage.leader.clients[1:]
        await driver.says({"method": "hello", "params": {"sessionId": "s"}})
        await stage.got(1)
        for loader in loaders:
            await loader.says({"id": 1, "method": "session/load", "params": {"sessionId": "s"}})
        await stage.got(4)
        update: Message = {"jsonrpc": "2.0", "method": "session/update"}
        for number in range(5):
            assert set(stage.leader.clients) == ({first, *slow} if number < 4 else {first})
            stage.agents[0].send({**update, "params": {"sessionId": "s", "number": number}})
        for number in range(5):
            assert (await driver.hears())["params"]["number"] == number
        for loader in loaders:
            with pytest.raises((EOFError, ConnectionResetError)):
                await loader.next()
        driver.writer.write(frame({"type": "ping"}))
        assert (await driver.next())["type"] == "pong"


async def test_what_comes_behind_a_goodbye_is_not_read(short_tmp: Path) -> None:
    async with Stage(short_tmp / "s") as stage:
        client, other = await stage.client(), await stage.client()
        late = acp(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "late"}))
        client.writer.write(frame({"type": "disconnect"}) + late)
        with pytest.raises((EOFError, ConnectionResetError)):
            await client.next()
        await other.says({"id": 2, "method": "y"})
        await stage.got(1)
        assert stage.agents[0].got[0]["method"] == "y"
