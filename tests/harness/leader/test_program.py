"""The leader and its bridges as processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness.leader.lock import lock_path, socket_path
from tests.engines.grok import write_offline_config
from tests.engines.scripted_model import ScriptedModel, steps

Message = dict[str, Any]


class Bridge:
    """``agent --leader stdio`` and its lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process, self.messages = process, list[Message]()
        self._changed = asyncio.Condition()
        self._numbers = 0
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout
        async for line in self.process.stdout:
            async with self._changed:
                self.messages.append(json.loads(line))
                self._changed.notify_all()

    def send(self, message: Message) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def until(self, wanted: Any, since: int = 0) -> Message:
        async with asyncio.timeout(60), self._changed:
            while True:
                for message in self.messages[since:]:
                    if wanted(message):
                        return message
                await self._changed.wait()

    def ask(self, method: str, **params: Any) -> int:
        self._numbers += 1
        self.send({"id": self._numbers, "method": method, "params": params})
        return self._numbers

    async def answer(self, number: int) -> Message:
        return await self.until(lambda m: m.get("id") == number and "method" not in m)

    async def call(self, method: str, **params: Any) -> Any:
        answer = await self.answer(self.ask(method, **params))
        assert "error" not in answer, answer
        return answer["result"]

    def text(self, session: str) -> str:
        updates = [m["params"] for m in self.messages if m.get("method") == "session/update"]
        return "".join(
            u["update"]["content"]["text"]
            for u in updates
            if u["sessionId"] == session and u["update"]["sessionUpdate"] == "agent_message_chunk"
        )

    async def end(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        async with asyncio.timeout(30):
            code = await self.process.wait()
        await self._reader
        return code


class House:
    """A leader's home, and the processes that were started in it."""

    def __init__(self, folder: Path, model: ScriptedModel) -> None:
        self.folder, self.socket = folder, folder / "l.sock"
        write_offline_config(folder / "home", model.url)
        self.env = {**os.environ, "GROK_HOME": str(folder / "home"), "HOME": str(folder)}
        self.started = list[asyncio.subprocess.Process]()

    async def run(self, *arguments: str) -> asyncio.subprocess.Process:
        argv = [sys.executable, "-m", "harness", "agent", *arguments, "--leader-socket", str(self.socket)]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *argv, env=self.env, stdin=pipe, stdout=pipe, stderr=pipe, limit=2**26
        )
        self.started.append(process)
        return process

    async def leader(self, *arguments: str) -> asyncio.subprocess.Process:
        process = await self.run("leader", "--no-exit-on-disconnect", *arguments)
        async with asyncio.timeout(60):
            while not self.listening():
                assert process.returncode is None
                await asyncio.sleep(0.02)
        return process

    def listening(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    async def bridge(self) -> Bridge:
        bridge = Bridge(await self.run("--leader", "stdio"))
        await bridge.call("initialize", protocolVersion=1, clientCapabilities={})
        return bridge

    async def session(self, bridge: Bridge, **meta: Any) -> str:
        made = await bridge.call("session/new", cwd=str(self.folder), mcpServers=[], _meta=meta)
        return str(made["sessionId"])

    async def end(self) -> None:
        pids = [process.pid for process in self.started]
        with contextlib.suppress(OSError, ValueError):
            pids.append(int(lock_path(self.socket).read_text()))  # a leader that a bridge started
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self.started:
            await process.wait()


@pytest.fixture
async def house(short_tmp: Path, model: ScriptedModel) -> AsyncIterator[House]:
    made = House(short_tmp, model)
    yield made
    await made.end()


def prompt(*script: Message) -> list[Message]:
    return [{"type": "text", "text": steps(*script)}]


def touch(path: Path) -> Message:
    return {
        "tools": [{"name": "run_terminal_command", "args": {"command": f"touch {path}", "description": "d"}}]
    }


async def test_a_second_leader_is_refused_and_a_killed_one_succeeded(house: House) -> None:
    first = await house.leader()
    assert lock_path(house.socket).read_text() == str(first.pid)
    assert house.socket.stat().st_mode & 0o077 == 0
    second = await house.run("leader")
    _, err = await second.communicate()
    assert second.returncode == 1
    assert f"Another leader already holds the lock at {lock_path(house.socket)}" in err.decode()
    first.kill()
    await first.wait()
    third = await house.leader()
    assert lock_path(house.socket).read_text() == str(third.pid)
    third.terminate()
    assert await third.wait() == 128 + signal.SIGTERM
    assert not house.socket.exists()
    assert not lock_path(house.socket).exists()


async def test_it_ends_with_its_last_client_if_it_may(house: House) -> None:
    leader = await house.run("leader")
    while not house.listening():
        await asyncio.sleep(0.02)
    async with asyncio.timeout(30):
        assert await leader.wait() == 0


async def test_two_bridges_share_a_session_and_a_bridge_starts_the_leader(house: House) -> None:
    first, second = await house.bridge(), await house.bridge()
    session = await house.session(first, yoloMode=True)
    await second.call("session/load", sessionId=session, cwd=str(house.folder), mcpServers=[])
    await first.call("session/prompt", sessionId=session, prompt=prompt({"text": "for both", "chunks": 4}))
    assert first.text(session) == second.text(session) == "for both"
    assert await first.end() == await second.end() == 0
    os.kill(int(lock_path(house.socket).read_text()), signal.SIGTERM)


async def test_what_tools_start_carries_the_mark_of_its_leader(house: House) -> None:
    """Whoever looks after the leader finds them by it when the leader was killed."""
    await house.leader()
    bridge = await house.bridge()
    session = await house.session(bridge, yoloMode=True)
    told = house.folder / "told"
    command = {"command": f"env > {told}", "description": "d"}
    tools = {"tools": [{"name": "run_terminal_command", "args": command}]}
    await bridge.call("session/prompt", sessionId=session, prompt=prompt(tools, {"text": "end"}))
    lines = told.read_text().splitlines()
    assert f"GROK_LEADER_SOCKET={house.socket}" in lines
    assert "GROK_AGENT=1" in lines


async def test_a_hook_of_a_killed_driver_lets_nothing_run(house: House) -> None:
    await house.leader()
    marker = house.folder / secrets.token_hex(4)
    hooks = {"pre_tool_use": [{"matcher": ".*", "hookCallbackIds": ["h"], "timeout": 600}]}
    driver, other = await house.bridge(), await house.bridge()
    session = await house.session(driver, yoloMode=True, **{"x.ai/hooks": hooks})
    driver.ask("session/prompt", sessionId=session, prompt=prompt(touch(marker), {"text": "end"}))
    await driver.until(lambda m: m.get("method") == "_x.ai/hooks/run")
    driver.process.kill()
    async with asyncio.timeout(30):
        while True:
            listed = await other.call("_x.ai/sessions/list")
            rows = listed.get("result", listed)["sessions"]
            if not any(
                r["sessionId"] == session and r["activity"] in ("working", "needs_input") for r in rows
            ):
                break
            await asyncio.sleep(0.05)
    assert not marker.exists()


@pytest.mark.parametrize("method", ["session/new", "session/load"])
async def test_a_session_that_opens_for_a_killed_bridge_does_not_stay(house: House, method: str) -> None:
    leader = await house.leader()
    killed, other = await house.bridge(), await house.bridge()
    session = str(uuid.uuid4())
    params: Message = {"cwd": str(house.folder), "mcpServers": [], "_meta": {"sessionId": session}}
    if method == "session/load":
        await killed.call("session/new", **params)
        await killed.call("session/prompt", sessionId=session, prompt=prompt({"text": "kept"}))
        await killed.call("session/close", sessionId=session)
        params |= {"sessionId": session, "_meta": {}}
    leader.send_signal(signal.SIGSTOP)  # it finds the request and the end of its bridge together
    killed.ask(method, **params)
    assert killed.process.stdin
    await killed.process.stdin.drain()
    killed.process.stdin.close()  # what was written goes out first
    await killed.process.wait()
    leader.send_signal(signal.SIGCONT)
    await other.call("session/new", cwd=str(house.folder), mcpServers=[])  # the one before is open by now
    async with asyncio.timeout(30):
        while True:
            listed = await other.call("_x.ai/sessions/list")
            rows = {row["sessionId"]: row for row in listed.get("result", listed)["sessions"]}
            if session not in rows or not rows[session]["resident"]:
                break
            await asyncio.sleep(0.02)


async def test_a_bridge_goes_on_behind_another_leader_with_the_hooks_of_its_sessions(house: House) -> None:
    leader = await house.leader()
    marker = house.folder / secrets.token_hex(4)
    hooks = {"pre_tool_use": [{"matcher": ".*", "hookCallbackIds": ["h"], "timeout": 600}]}
    bridge = await house.bridge()
    session = await house.session(bridge, yoloMode=True, **{"x.ai/hooks": hooks})
    await bridge.call("session/prompt", sessionId=session, prompt=prompt({"text": "kept"}))
    script = prompt({"text": "x", "hold": 30})
    open_request = bridge.ask("session/prompt", sessionId=session, prompt=script)
    await bridge.until(lambda m: "runningPromptId" in str(m))
    leader.kill()
    error = (await bridge.answer(open_request))["error"]
    assert "leader ended" in error["message"]
    back = await bridge.until(lambda m: m.get("method") == "x.ai/leader_reconnected")
    assert back["params"] == {"sessionId": session}
    number = bridge.ask("session/prompt", sessionId=session, prompt=prompt(touch(marker), {"text": "end"}))
    hook = await bridge.until(lambda m: m.get("method") == "_x.ai/hooks/run")
    bridge.send({"id": hook["id"], "result": {"decision": "deny", "reason": "no"}})
    assert (await bridge.answer(number))["result"]["stopReason"] == "end_turn"
    assert not marker.exists()


async def test_the_end_of_a_client_is_the_end_of_its_bridge(house: House) -> None:
    leader = await house.leader()
    bridge = await house.bridge()
    assert await bridge.end() == 0
    reader = await house.bridge()
    assert reader.process.stdin
    reader.process.stdin.write(b"no json\n[]\n")
    codes = [m["error"]["code"] for m in (await reader.until(lambda m: "error" in m),)]
    assert codes == [-32700]
    assert leader.returncode is None


def test_where_a_leader_listens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GROK_LEADER_SOCKET", raising=False)
    monkeypatch.setenv("GROK_HOME", str(tmp_path))
    assert socket_path(None) == tmp_path / "leader.sock"
    monkeypatch.setenv("GROK_LEADER_SOCKET", str(tmp_path / "x/a"))
    assert socket_path(None) == tmp_path / "x/a"
    assert socket_path("/y/b.sock") == Path("/y/b.sock")
    assert lock_path(Path("/x/a.sock")) == lock_path(Path("/x/a")) == Path("/x/a.lock")
