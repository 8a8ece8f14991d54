"""A connection to a server that is a process: its answers, its death, and its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness.limits import LIMITS, SIZES
from harness.mcp.protocol import Failing, McpError
from harness.mcp.results import result_text
from tests.harness.mcp.conftest import Connect
from tests.harness.mcp.sessions import gone
from tests.harness.mcp.support import logged, process_entry


async def test_a_call_in_an_environment_of_its_own(connect: Connect, tmp_path: Path) -> None:
    log = tmp_path / "log"
    environ = {"PATH": "/usr/bin:/bin", "HOME": "/home/x", "XAI_API_KEY": "secret"}
    connection = connect(process_entry(log, KEY="given"), environ)
    assert [tool.name for tool in await connection.tools()] == ["echo", "die"]
    assert result_text(await connection.call("echo", {"text": "é"})) == "echo é"
    begun, *messages = logged(log)
    marks = {"GROK_GATEWAY_TEST_ID", "LC_CTYPE"}
    assert set(begun["env"]) - marks == {"PATH", "HOME", "GROK_SESSION_ID", "KEY"}
    assert begun["cwd"] == str(tmp_path)
    methods = [message["method"] for message in messages]
    assert methods == ["initialize", "notifications/initialized", "tools/list", "tools/call"]
    await connection.close()
    await gone(begun["pid"])


async def test_prints_and_complaints_do_no_harm(connect: Connect, tmp_path: Path) -> None:
    connection = connect(process_entry(tmp_path / "log", "noisy"))
    assert result_text(await connection.call("echo", {"text": 1})) == "echo 1"


async def test_one_that_dies_in_a_call_says_so_and_lives_again_at_the_next(
    connect: Connect, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    connection = connect(process_entry(log, KEY="key-of-the-server"))
    await connection.tools()
    with pytest.raises(McpError, match="its process ended with 3: fell over, …") as caught:
        await connection.call("die", {})
    assert caught.value.kind is Failing.BROKEN
    # It may have done its work: it is not asked again by itself.
    assert [message.get("method") for message in logged(log)].count("tools/call") == 1
    assert result_text(await connection.call("echo", {"text": "again"})) == "echo again"
    pids = [message["pid"] for message in logged(log) if "pid" in message]
    assert len(set(pids)) == 2


async def test_one_that_does_not_start(connect: Connect, tmp_path: Path) -> None:
    entry = process_entry(tmp_path / "log", "dead")
    with pytest.raises(McpError, match="its process ended with 1: no licence"):
        await connect(entry).tools()
    with pytest.raises(McpError, match="/no/such could not be started: No such file"):
        await connect({**entry, "command": "/no/such"}).tools()
    with pytest.raises(McpError, match="could not be started"):
        await connect({**entry, "command": str(tmp_path)}).tools()


async def test_a_line_without_end_ends_it(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SIZES, "mcp_message", 1_000_000)
    connection = connect(process_entry(tmp_path / "log", "endless"))
    with pytest.raises(McpError, match="more than 1000000 bytes"):
        await connection.call("echo", {})


async def test_one_that_is_deaf_is_ended_with_all_it_started(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "mcp_eof", 0.1)
    monkeypatch.setattr(LIMITS, "mcp_terminate", 0.1)
    log = tmp_path / "log"
    connection = connect(process_entry(log, "deaf"))
    await connection.tools()
    begun = logged(log)[0]
    await connection.close()
    await gone(begun["pid"])
    await gone(begun["child"])


async def test_a_cancelled_start_leaves_no_process(connect: Connect, tmp_path: Path) -> None:
    log = tmp_path / "log"
    connection = connect(process_entry(log))
    starting = asyncio.ensure_future(connection.tools())
    async with asyncio.timeout(60):
        while not logged(log):
            await asyncio.sleep(0.005)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await connection.close()
    await gone(logged(log)[0]["pid"])


async def test_a_command_beside_the_session_is_found_there(connect: Connect, tmp_path: Path) -> None:
    entry = process_entry(tmp_path / "log")
    (tmp_path / "run").symlink_to(entry["command"])
    connection = connect({**entry, "command": "./run"})
    assert len(await connection.tools()) == 2
