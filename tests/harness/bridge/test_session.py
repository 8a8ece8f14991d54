"""The bridge over a real session: real tools, files and commands, the terminal's own book of tasks."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness.outcome import Completeness, Notification
from harness.registry.presets import DEFAULT, preset
from harness.toolbridge import ParsedCall, Result, ToolBridge
from harness.tools import default_registry
from harness.workspace.executor import HostExecutor
from harness.workspace.host_filesystem import HostFileSystem
from harness.workspace.session import WorkspaceSession
from harness.workspace.terminal import Terminal
from harness.workspace.terminal.events import KillOutcome


@pytest.fixture
async def bridge(tmp_path: Path) -> AsyncIterator[ToolBridge]:
    """A session in ``tmp_path/work`` with the default toolset."""
    folder = tmp_path / "work"
    folder.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SHELL": "/bin/sh"}
    terminal = Terminal(log_directory=str(tmp_path / "logs"), environ=environment, session_id="s")
    session = WorkspaceSession(
        "s",
        str(folder),
        fs=HostFileSystem(),
        env=environment,
        executor=HostExecutor(environment),
        terminal=terminal,
    )
    registry = default_registry()
    session.toolset = registry.compose(preset(DEFAULT, registry))
    yield ToolBridge(session.toolset, session)
    await terminal.close()


async def call(over: ToolBridge, name: str, call_id: str = "call", **arguments: Any) -> Result:
    told: list[Notification] = arguments.pop("told", [])
    parsed = over.parse(name, json.dumps(arguments))
    assert isinstance(parsed, ParsedCall), parsed
    return await over.call(parsed, call_id, notify=told.append)


async def start(over: ToolBridge, command: str) -> str:
    """Start a command in the background; its task's id."""
    result = await call(over, "run_terminal_command", command=command, description="it", background=True)
    assert result.output.completeness is Completeness.RUNNING
    (task,) = [task for task in over.list_tasks() if task.command == command]
    assert task.task_id in result.prompt_text
    return task.task_id


async def ended(over: ToolBridge, task_id: str) -> None:
    async with asyncio.timeout(60):
        while not all(task.completed for task in over.list_tasks() if task.task_id == task_id):
            await asyncio.sleep(0.02)


async def listed(over: ToolBridge) -> str:
    return (await call(over, "list_dir", target_directory=".")).prompt_text


async def test_the_end_of_a_background_command_is_told_by_the_next_result_and_once(
    bridge: ToolBridge,
) -> None:
    task_id = await start(bridge, "sleep 0.3; exit 3")
    assert "<system-reminder>" not in await listed(bridge)
    await ended(bridge, task_id)
    first, second = await listed(bridge), await listed(bridge)
    assert re.search(f'"{task_id}" has ended: exit code 3, after [0-9.]+s', first)
    assert f"get_command_or_subagent_output with the id {task_id}" in first
    assert "<system-reminder>" not in second


async def test_whoever_waits_for_the_end_is_told_it_and_hears_nothing_more(bridge: ToolBridge) -> None:
    task_id = await start(bridge, "sleep 0.3; echo done")
    result = await call(bridge, "get_command_or_subagent_output", task_ids=[task_id], timeout_ms=60_000)
    assert task_id in result.output.settles
    assert "done" in result.prompt_text
    assert "<system-reminder>" not in result.prompt_text + await listed(bridge)


async def test_of_several_calls_at_once_one_tells_the_end(bridge: ToolBridge) -> None:
    task_id = await start(bridge, "true")
    await ended(bridge, task_id)
    texts = await asyncio.gather(*(listed(bridge) for _ in range(8)))
    assert sum("has ended" in text for text in texts) == 1


async def test_a_task_that_the_user_ended_is_told_as_such(bridge: ToolBridge) -> None:
    task_id = await start(bridge, "sleep 1000")
    assert await bridge.kill_task(task_id) is KillOutcome.KILLED
    await ended(bridge, task_id)
    assert "The user ended it. Do not start it again" in await listed(bridge)
    assert await bridge.kill_task("nothing") is KillOutcome.NOT_FOUND


async def test_what_was_told_is_not_told_to_a_resumed_session(bridge: ToolBridge) -> None:
    task_id = await start(bridge, "true")
    await ended(bridge, task_id)
    assert "has ended" in await listed(bridge)
    assert json.loads(json.dumps(bridge.state()))["state"]["told"] == [task_id]


async def test_an_edit_tells_the_client_the_contents_and_the_model_the_outcome(
    bridge: ToolBridge, tmp_path: Path
) -> None:
    (tmp_path / "work/x.txt").write_text("before\nkept\n")
    told = list[Notification]()
    arguments = {"file_path": "x.txt", "old_string": "before", "new_string": "after"}
    result = await call(bridge, "search_replace", "call-7", told=told, **arguments)
    assert (tmp_path / "work/x.txt").read_text() == "after\nkept\n"
    (written,) = [one.fields for one in told if one.kind == "file_written"]
    assert written["tool_call_id"] == "call-7"
    assert (written["previous_content"], written["content"]) == ("before\nkept\n", "after\nkept\n")
    raw = result.output.raw()
    assert raw is not None
    assert raw["type"] == "SearchReplace"
    assert result.output.diffs
    assert result.prompt_text != json.dumps(raw)


async def test_both_projections_of_a_long_output_say_that_it_was_cut(bridge: ToolBridge) -> None:
    command = "i=0; while [ $i -lt 9000 ]; do echo 0123456789; i=$((i+1)); done"
    result = await call(bridge, "run_terminal_command", command=command, description="d")
    raw = result.output.raw()
    assert raw is not None
    assert result.output.completeness is Completeness.TRUNCATED
    assert result.prompt_completeness is Completeness.TRUNCATED
    assert (raw["truncated"], raw["total_bytes"]) == (True, 99_000)
    assert len(result.prompt_text) < 25_000


async def test_a_failed_command_is_a_value(bridge: ToolBridge) -> None:
    result = await call(bridge, "run_terminal_command", command="exit 3", description="d")
    assert result.output.fields["exit_code"] == 3
    assert "3" in result.prompt_text
    missing = await call(bridge, "read_file", target_file="nothing.txt")
    assert missing.output.is_error
