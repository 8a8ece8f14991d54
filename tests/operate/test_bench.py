"""The benchmark's instruments: what they read, and that a figure is what it says."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import uvloop
import websockets.asyncio.server
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from gateway.engine import HARNESS
from gateway.engine_home import write_home
from gateway.operate.bench_agents import AgentError, BareBridge, FrameReader, GatewayClient
from gateway.operate.bench_engines import Engine, _compared, _connected, _initialized
from gateway.operate.bench_figures import Figure
from gateway.operate.bench_model import ModelClock
from gateway.operate.bench_pi import PiClient
from tests.engines.scripted_model import ScriptedModel
from tests.operate.fake_gateway import FakeGateway, Message, fake_gateway

SIZES = st.sampled_from([0, 1, 125, 126, 127, 65535, 65536])


@given(
    messages=st.lists(st.lists(SIZES, min_size=1, max_size=3), max_size=4),
    cuts=st.lists(st.integers(1, 200_000), max_size=8),
    ping=st.booleans(),
)
def test_frames_are_read_however_they_are_cut(messages: list[list[int]], cuts: list[int], ping: bool) -> None:
    stream, expected = b"", []
    for parts in messages:
        for i, size in enumerate(parts):
            frame = Frame(Opcode.CONT if i else Opcode.TEXT, b"x" * size, fin=i == len(parts) - 1)
            stream += frame.serialize(mask=False)
            if ping:  # between the fragments, where a control frame may stand
                stream += Frame(Opcode.PING, b"p").serialize(mask=False)
        expected.append(b"x" * sum(parts))
    reader, got, controls = FrameReader(), [], []
    for size in [*cuts, len(stream)]:
        data, stream = stream[:size], stream[size:]
        some, control = reader.feed(data)
        got += some
        controls += control
    assert got == expected
    assert controls == [(9, b"p")] * sum(map(len, messages)) * ping


def test_instruments_work_on_the_loop_of_the_benchmark(short_tmp: Path, tmp_path: Path) -> None:
    uvloop.run(test_client_counts_chunks_and_answers_pings(short_tmp))
    uvloop.run(test_bridge_counts_and_ends(tmp_path))


async def test_client_counts_chunks_and_answers_pings(short_tmp: Path) -> None:
    async def turn(gateway: FakeGateway, message: Message) -> None:
        for part in ("a", "b", "c" * 70_000):
            await gateway.say(part)
        assert gateway.sock is not None
        await asyncio.wait_for(await gateway.sock.ping(), 60)
        await gateway.end(message)

    async with fake_gateway(short_tmp / "gg", turn) as gateway:
        client = GatewayClient(int(gateway.uri.split(":")[2].split("/")[0]), gateway.secret)
        await client.open()
        session = await client.start_session("/tmp")
        await client.prompt(session, "x" * 70_000)
        assert len(client._chunks) == 3
        assert gateway.received[-1]["params"]["prompt"][0]["text"] == "x" * 70_000
        await gateway.break_off()
        await asyncio.wait_for(client.gone.wait(), 60)
        with pytest.raises(AgentError):
            await client.request("x", {})


async def test_client_that_is_refused(short_tmp: Path) -> None:
    async def never(gateway: FakeGateway, message: Message) -> None:
        raise AssertionError

    async with fake_gateway(short_tmp / "gg", never) as gateway:
        gateway.refuse = {1: 401}
        client = GatewayClient(int(gateway.uri.split(":")[2].split("/")[0]), "wrong")
        with pytest.raises(AgentError, match="401"):
            await client.open()


async def test_pi_client_answers_what_the_extension_would(tmp_path: Path) -> None:
    heard = list[dict[str, Any]]()

    async def serve(socket: websockets.asyncio.server.ServerConnection) -> None:
        async def say(**message: Any) -> None:
            await socket.send(json.dumps({"jsonrpc": "2.0", **message}))

        async for frame in socket:
            message = json.loads(frame)
            heard.append(message)
            if message.get("method") == "turn":
                turn = message["params"]["turn"]
                await say(id="e", method="entry", params={"data": {"grok": "g1"}})
                for seq, op in enumerate(("start", "delta", "end"), 1):
                    await say(method="turn/event", params={"turn": turn, "seq": seq, "op": op, "i": 0})
                await say(
                    id="q", method="ui/ask", params={"ask": "a", "args": {"options": ["Allow", "Deny"]}}
                )
            elif message.get("id") == "q":
                await say(method="ui/close", params={"ask": "a"})
                await say(id=turns[-1]["id"], result={"stop": next(ends), "error": "no"})
            elif "method" in message and "id" in message:
                await say(id=message["id"], result={})
            turns[:] = [m for m in heard if m.get("method") == "turn"]

    turns, ends = list[dict[str, Any]](), iter(("stop", "error"))
    async with websockets.asyncio.server.serve(serve, "127.0.0.1", 0) as server:
        client = PiClient(server.sockets[0].getsockname()[1], "5ec", tmp_path / "agent", tmp_path)
        await client.open()
        await client.introduce()
        await client.turn("m", "hello")
        assert (client.grok, len(client.dialogs)) == ("g1", 1)
        assert 0 < client.first < client.answered
        assert {"ui/shown", "hello", "session", "turn"} == {m["method"] for m in heard if "method" in m}
        assert next(m for m in heard if m.get("id") == "q")["result"] == {"value": "Allow"}
        with pytest.raises(AgentError, match="no"):
            await client.turn("m", "again")
        assert len(turns[-1]["params"]["messages"]) == 2
        await client.close()


ECHO = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    print(json.dumps({"method": "session/update", "params": {"update": "agent_message_chunk"}}))
    error = {"error": {"code": 1, "message": "no"}} if message["method"] == "bad" else {"result": {"a": 1}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **error}), flush=True)
"""


async def test_bridge_counts_and_ends(tmp_path: Path) -> None:
    script = tmp_path / "bridge"
    script.write_text(f"#!{sys.executable}\n{ECHO}")
    script.chmod(0o700)
    bridge = BareBridge([str(script)], {})
    await bridge.open()
    assert len(list(tmp_path.iterdir())) == 2
    assert await bridge.request("good", {}) == {"a": 1}
    with pytest.raises(AgentError, match="no"):
        await bridge.request("bad", {})
    assert len(bridge._chunks) == 2
    assert list(tmp_path.iterdir()) == [script]  # it could not start itself again
    await bridge.close()
    assert bridge.gone.is_set()


@pytest.mark.parametrize(("value", "good"), [(1.0, True), (2.0, True), (2.01, False)])
def test_a_figure_is_good_up_to_its_limit(value: float, good: bool) -> None:
    figure = Figure("x", value, 2, "s")
    assert figure.good is good


def test_a_figure_without_a_limit_is_good() -> None:
    assert Figure("x", 1e9, None, "s").good


def test_engines_are_compared_where_there_are_two() -> None:
    both = _compared("turn", [(1.0, 2.0), (3.0, 2.0), (2.0, 2.0)], 1.0)
    assert (both.value, both.limit, both.unit, both.good) == (1.0, 1.0, "×", True)
    alone = _compared("turn", [(1.0,), (3.0,), (2.0,)], 1.0)
    assert (alone.value, alone.limit, alone.unit) == (2000.0, None, "ms")


async def test_model_clock_counts_what_turns_wait_for() -> None:
    query = {"role": "user", "content": "<user_query>\nhello\n</user_query>"}
    counted: list[dict[str, Any]] = [
        {"messages": [query]},
        {"messages": [query, {"role": "assistant", "content": ""}, {"role": "tool", "content": "x"}]},
    ]
    beside: list[dict[str, Any]] = [
        {"messages": [query], "tool_choice": {"type": "function", "function": {"name": "session_title"}}},
        {"messages": [query, {"role": "user", "content": "<system-reminder>a line</system-reminder>"}]},
    ]
    scripted = ScriptedModel().start()
    try:
        async with ModelClock(scripted.port) as model, aiohttp.ClientSession() as session:
            for body in (*counted, *beside):
                url = f"http://127.0.0.1:{model.port}/v1/chat/completions"
                async with session.post(url, json={**body, "stream": True}) as answer:
                    assert (await answer.read()).endswith(b"data: [DONE]\n\n")
            seconds, answers = model.taken()
            assert (answers, seconds > 0) == (len(counted), True)
            assert model.taken() == (0.0, 0)
            async with session.get(f"http://127.0.0.1:{model.port}/v1/models") as answer:
                assert "data" in await answer.json()
    finally:
        scripted.stop()


async def test_engine_in_a_home_of_its_own(short_tmp: Path) -> None:
    home = short_tmp / "home"
    write_home(home, 1)
    engine = Engine("harness", HARNESS, home, {**os.environ, "HOME": str(short_tmp)})
    async with engine.leader() as pid:
        assert await _connected(engine) > 0
        assert await _initialized(engine) > 0
        assert (home / "leader.lock").read_text() == str(pid)
    assert not engine.socket.exists()
    agent = engine.agent()
    await agent.open()
    assert await agent.request("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    await agent.close()
    assert agent.gone.is_set()
