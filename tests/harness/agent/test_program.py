"""The engine as a program: command line, stdio, its end, and what it keeps to itself."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import arguments
from harness.arguments import parse_arguments
from tests.engines.grok import write_offline_config
from tests.engines.scripted_model import ScriptedModel, steps

ROOT = Path(__file__).resolve().parents[3]
Start = Callable[..., Awaitable[asyncio.subprocess.Process]]


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("agent stdio", {"mode": "stdio", "leader": False}),
        ("agent --no-leader stdio", {"leader": False}),
        ("agent --leader stdio --leader-socket /x", {"leader": True, "leader_socket": "/x"}),
        ("--leader-socket /x agent --leader stdio", {"leader": True, "leader_socket": "/x"}),
        ("--permission-mode default agent -m a --effort low --yolo stdio", {"model": "a", "effort": "low"}),
        ("agent --always-approve stdio", {"always_approve": True}),
        ("--permission-mode bypassPermissions agent stdio", {"always_approve": True}),
        (
            "agent leader --no-exit-on-disconnect --relay-on-demand --no-auto-update --leader-socket /x",
            {"mode": "leader", "leader_socket": "/x", "exit_on_disconnect": False},
        ),
        ("agent --plugin-dir a --plugin-dir b --grok-ws-url u stdio --debug", {"mode": "stdio"}),
    ],
)
def test_command_lines(line: str, fields: dict[str, Any]) -> None:
    found = parse_arguments(line.split(), "1")
    assert {name: getattr(found, name) for name in fields} == fields


@pytest.mark.parametrize(
    "line", ["", "agent", "agent --bogus stdio", "agent --leader --no-leader stdio", "other"]
)
def test_wrong_command_lines(line: str) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_arguments(line.split(), "1")
    assert caught.value.code == 2


WORDS = (
    *("agent", "stdio", "leader", "a", "/x", "bypassPermissions", "--leader", "--no-leader", "-m", "--model"),
    *("--effort", "--yolo", "--trust", "--cwd", "--leader-socket", "--debug", "--no-auto-update", "--yol"),
    *("--no-exit-on-disconnect", "--permission-mode", "--plugin-dir", "--sandbox", "--cwd=/x", "--", "-ma"),
)
SOME = st.lists(st.sampled_from(WORDS), max_size=4)


@given(SOME, SOME, SOME)
def test_both_readers_of_a_command_line_agree(program: list[str], agent: list[str], mode: list[str]) -> None:
    line = [*program, "agent", *agent, *mode]
    plain = arguments._plain(line)
    if plain is not None:
        told = arguments._parser("1").parse_args(line)
        assert vars(arguments.Arguments(plain)) == vars(arguments.Arguments(vars(told)))


@pytest.fixture
async def start(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Start]:
    started = list[asyncio.subprocess.Process]()
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    write_offline_config(home, model.url)

    async def run(*words: str) -> asyncio.subprocess.Process:
        names = ("PATH", "LANG", "GROK_GATEWAY_TEST_ID")
        env = {n: os.environ[n] for n in names if n in os.environ}
        env |= {"HOME": str(tmp_path), "GROK_HOME": str(home), "PYTHONPATH": str(ROOT)}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "harness", *(words or ("agent", "stdio")),
            stdin=pipe, stdout=pipe, stderr=pipe, env=env, cwd=work, limit=2**26,
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ask(process: asyncio.subprocess.Process, method: str, **params: Any) -> list[dict[str, Any]]:
    """Send a request; all lines up to its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    message = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
    process.stdin.write(json.dumps(message).encode() + b"\n")
    heard = list[dict[str, Any]]()
    async with asyncio.timeout(60):
        while not heard or heard[-1].get("id") != method:
            heard.append(json.loads(await process.stdout.readline()))
    return heard


async def opened(process: asyncio.subprocess.Process, work: Path) -> str:
    await ask(process, "initialize", protocolVersion=1, clientCapabilities={})
    answer = (await ask(process, "session/new", cwd=str(work), mcpServers=[]))[-1]
    return str(answer["result"]["sessionId"])


def block(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


async def test_a_turn_and_an_orderly_end(start: Start, tmp_path: Path) -> None:
    process = await start()
    session = await opened(process, tmp_path / "work")
    heard = await ask(process, "session/prompt", sessionId=session, prompt=block(steps({"text": "hello"})))
    assert heard[-1]["result"]["stopReason"] == "end_turn"
    assert all(line["jsonrpc"] == "2.0" for line in heard)
    assert process.stdin is not None
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 10) == 0
    assert process.stderr is not None
    assert await process.stderr.read() == b""


async def test_the_end_of_stdin_ends_a_turn_and_its_commands(start: Start, tmp_path: Path) -> None:
    process = await start("agent", "--always-approve", "stdio")
    session = await opened(process, tmp_path / "work")
    call = {"name": "run_terminal_command", "args": {"command": "touch begun; sleep 300", "description": "d"}}
    assert process.stdin is not None
    params = {"sessionId": session, "prompt": block(steps({"tools": [call]}))}
    message = {"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": params}
    process.stdin.write(json.dumps(message).encode() + b"\n")
    while not (tmp_path / "work/begun").exists():
        await asyncio.sleep(0.02)
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 10) == 0  # and the fixture finds no process left


async def test_term_ends_it(start: Start, tmp_path: Path) -> None:
    process = await start()
    await opened(process, tmp_path / "work")
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 10) == 143


async def test_a_large_answer_to_a_slow_reader_arrives_whole(start: Start, tmp_path: Path) -> None:
    process = await start()
    session = await opened(process, tmp_path / "work")
    text = steps({"text": "x" * 1000, "repeat": 3000})
    heard = await ask(process, "session/prompt", sessionId=session, prompt=block(text))
    chunks = [m["params"]["update"] for m in heard if m.get("method") == "session/update"]
    told = [u["content"]["text"] for u in chunks if u["sessionUpdate"] == "agent_message_chunk"]
    assert len("".join(told)) == 3_000_000


async def test_no_word_of_a_key_anywhere(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "home/config.toml"
    config.write_text(config.read_text().replace("none-needed", "sk-top-secret-key"))
    process = await start()
    session = await opened(process, tmp_path / "work")
    refused = steps({"status": 401, "text": "sk-top-secret-key is wrong"})
    heard = await ask(process, "session/prompt", sessionId=session, prompt=block(refused))
    assert "refused the key" in str(heard[-1]["error"])
    told = [m for m in heard if "queue" not in m.get("method", "") and "session_i" not in str(m)]
    assert not [m for m in told if "top-secret" in str(m) and "[[steps" not in str(m)]
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.close()
    assert b"top-secret" not in await process.stderr.read()
    await process.wait()
    kept = [f for f in (tmp_path / "home").rglob("*") if f.is_file() and f != config]
    lines = [line for f in kept for line in f.read_bytes().splitlines()]
    assert not [line for line in lines if b"top-secret" in line and b"[[steps" not in line], "but the prompt"
