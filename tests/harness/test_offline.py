"""The offline model as a program: protocol, bounds, port, life time; and through the real engine."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from gateway.paths import Paths
from gateway.wire.limits import SIZES
from harness.model.offline import MODEL, application, listen
from tests.engines.grok import write_offline_config

RUN = {
    "type": "function",
    "function": {
        "name": "run_terminal_command",
        "parameters": {"required": ["command"], "properties": {"command": {"type": "string"}}},
    },
}


@pytest.fixture
async def client() -> AsyncIterator[TestClient[Any, Any]]:
    async with TestClient(TestServer(application())) as client:
        yield client


def request(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


async def streamed(response: aiohttp.ClientResponse) -> list[dict[str, Any]]:
    """The events of an answer; the last line must be the protocol's own end mark."""
    lines = [line for line in (await response.text()).split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


async def test_whole_answer(client: TestClient[Any, Any]) -> None:
    response = await client.post("/v1/chat/completions", json=request("run ls", tools=[RUN]))
    body = await response.json()
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "run_terminal_command"
    assert json.loads(call["function"]["arguments"]) == {"command": "ls"}
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 2


async def test_streamed_answer_says_the_same_as_the_whole_one(client: TestClient[Any, Any]) -> None:
    asked = request("count to 30")
    whole = await (await client.post("/v1/chat/completions", json=asked)).json()
    response = await client.post("/v1/chat/completions", json={**asked, "stream": True})
    assert response.content_type == "text/event-stream"
    events = await streamed(response)
    deltas = [e["choices"][0]["delta"] for e in events if e["choices"]]
    assert "".join(d.get("content") or "" for d in deltas) == whole["choices"][0]["message"]["content"]
    assert sum("content" in d for d in deltas) > 30
    assert events[-1]["usage"] == whole["usage"]
    assert events[-2]["choices"][0]["finish_reason"] == "stop"


async def test_calls_of_one_conversation_have_ids_of_their_own(client: TestClient[Any, Any]) -> None:
    first = request("run a\nrun b", tools=[RUN])
    ids = []
    for _ in range(2):
        answer = await (await client.post("/v1/chat/completions", json=first)).json()
        message = answer["choices"][0]["message"]
        ids.append(message["tool_calls"][0]["id"])
        first["messages"] += [message, {"role": "tool", "tool_call_id": ids[-1], "content": "x"}]
    assert len(set(ids)) == 2


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"{", "not JSON"),
        (b"[]", "messages"),
        (b"{}", "messages"),
        (b'{"messages": []}', "messages"),
        (b'{"messages": ["x"]}', "messages"),
        (b'{"messages": [{}], "tools": {"a": 1}}', "tools"),
    ],
)
async def test_bad_request_is_told_why(client: TestClient[Any, Any], data: bytes, word: str) -> None:
    response = await client.post("/v1/chat/completions", data=data)
    assert response.status == 400
    assert word in (await response.json())["error"]["message"]


async def test_body_is_bounded(client: TestClient[Any, Any]) -> None:
    data = b" " * (SIZES.model_request + 1)
    response = await client.post("/v1/chat/completions", data=data)
    assert response.status == 413


async def test_what_an_engine_looks_at_when_it_starts(client: TestClient[Any, Any]) -> None:
    assert (await client.get("/")).status == 200
    assert (await (await client.get("/v1/models")).json())["data"][0]["id"] == MODEL
    assert (await client.post("/v1/responses", data=b"{}")).status == 404


async def test_client_that_goes_away_in_a_stream_is_survived(client: TestClient[Any, Any]) -> None:
    response = await client.post("/v1/chat/completions", json=request("count to 100000", stream=True))
    await response.content.read(100)
    response.close()
    assert (await client.get("/v1/models")).status == 200


def test_port_is_asked_for_again(tmp_path: Path) -> None:
    file = tmp_path / "port"
    with listen(file) as first:
        port = first.getsockname()[1]
        assert file.read_text() == str(port)
    with listen(file) as again:
        assert again.getsockname()[1] == port
        with listen(file) as other:  # taken: another one, and it is written
            assert file.read_text() == str(other.getsockname()[1]) != str(port)


@pytest.mark.parametrize("content", ["", "x", "-1", "70000"])
def test_a_bad_port_file_is_replaced(tmp_path: Path, content: str) -> None:
    file = tmp_path / "port"
    file.write_text(content)
    with listen(file) as sock:
        assert file.read_text() == str(sock.getsockname()[1])


# -- the process -----------------------------------------------------------------------------------


def _wait_for(file: Path) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if file.exists():
            return int(file.read_text())
        time.sleep(0.02)
    raise AssertionError(f"{file} did not appear")


def _listening(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def offline(short_tmp: Path) -> Iterator[int]:
    """The program itself in a home of its own; its port."""
    environ = {**os.environ, "GROK_GATEWAY_HOME": str(short_tmp / "gg")}
    process = subprocess.Popen([sys.executable, "-m", "harness.model.offline"], env=environ)
    try:
        yield _wait_for(Paths.from_environment(environ).offline_port)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_it_ends_with_the_process_that_started_it(short_tmp: Path) -> None:
    environ = {**os.environ, "GROK_GATEWAY_HOME": str(short_tmp / "gg")}
    starter = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-m', 'harness.model.offline'])\n"
        "time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", starter], env=environ)
    try:
        port = _wait_for(Paths.from_environment(environ).offline_port)
    finally:
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 10
    while _listening(port):
        assert time.monotonic() < deadline
        time.sleep(0.02)


# -- through the real engine -----------------------------------------------------------------------


class Agent:
    """A real engine without a leader, spoken to over its standard streams."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.updates = list[dict[str, Any]]()
        self.asked = list[dict[str, Any]]()
        self._numbers = 0

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        self._numbers += 1
        number = self._numbers
        self._send({"id": number, "method": method, "params": params})
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            message = json.loads(line)
            if "method" in message and "id" in message:
                self._answer(message)
            elif message.get("method") == "session/update":
                self.updates.append(message["params"]["update"])
            elif message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
        raise AssertionError("the engine ended")

    def _answer(self, message: dict[str, Any]) -> None:
        self.asked.append(message)
        if message["method"] == "session/request_permission":
            result: dict[str, Any] = {"outcome": {"outcome": "selected", "optionId": "allow-once"}}
        else:
            (question,) = message["params"]["questions"]
            chosen = question["options"][-1]["label"]
            result = {"outcome": "accepted", "answers": {question["question"]: [chosen]}}
        self._send({"id": message["id"], "result": result})

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def text(self) -> str:
        chunks = [u["content"]["text"] for u in self.updates if u["sessionUpdate"] == "agent_message_chunk"]
        self.updates.clear()
        return "".join(chunks)


@pytest.fixture
async def agent(offline: int, grok_binary: Path, short_tmp: Path) -> AsyncIterator[Agent]:
    home = short_tmp / "home"
    write_offline_config(home, f"http://127.0.0.1:{offline}/v1")
    process = await asyncio.create_subprocess_exec(
        *(str(grok_binary), "--permission-mode", "default", "agent", "--no-leader", "stdio"),
        env={"PATH": os.environ["PATH"], "HOME": str(short_tmp), "GROK_HOME": str(home)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=SIZES.engine_line,
    )
    assert process.stdin is not None
    try:
        yield Agent(process)
    finally:
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 60)


@pytest.mark.grok
async def test_real_engine_carries_the_instructions_out(agent: Agent, tmp_path: Path) -> None:
    names = {secrets.token_hex(8) for _ in range(3)}
    for name in names:
        (tmp_path / name).write_text(f"content of {name}\n")
    await agent.request("initialize", protocolVersion=1, clientCapabilities={})
    session = (await agent.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]

    async def prompt(text: str) -> str:
        blocks = [{"type": "text", "text": text}]
        answer = await agent.request("session/prompt", sessionId=session, prompt=blocks)
        assert answer["stopReason"] == "end_turn"
        assert answer["_meta"]["usage"]["totalTokens"] > 0
        return agent.text()

    listing = await prompt("run ls")
    assert all(name in listing for name in names)

    some = names.pop()
    assert f"content of {some}" in await prompt(f"read {some}")

    edits = (
        "write one two to new.txt",
        "replace two with three in new.txt",
        f"replace content with x in {some}",
    )
    await prompt("\n".join(edits))
    assert (tmp_path / "new.txt").read_text() == "one three"
    assert (tmp_path / some).read_text() == f"x of {some}\n"

    assert "Blue" in await prompt("ask Which colour? Red | Blue")
    assert agent.asked[-1]["method"] == "_x.ai/ask_user_question"

    assert "run CMD" in await prompt("please refactor everything")
    assert "stdout-of-it" in await prompt("run echo stdout-of-it; exit 3")


@pytest.mark.grok
async def test_real_engine_compacts_and_goes_on(agent: Agent, tmp_path: Path) -> None:
    await agent.request("initialize", protocolVersion=1, clientCapabilities={})
    session = (await agent.request("session/new", cwd=str(tmp_path), mcpServers=[]))["sessionId"]
    for text in ("run echo first", "/compact", "run echo second"):
        blocks = [{"type": "text", "text": text}]
        answer = await agent.request("session/prompt", sessionId=session, prompt=blocks)
        assert answer["stopReason"] == "end_turn"
    assert "second" in agent.text()
