"""The tools over a real terminal: both projections, refusals, and what is told."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from harness.limits import LIMITS, SIZES
from harness.outcome import Completeness, FaultKind, ToolFault, ToolOutput
from harness.registry.contract import CallContext, Names, Resources, Tool, ToolKind
from harness.tools import monitor, tasks, terminal
from harness.tools.terminal_texts import plain, size
from harness.workspace.session import WorkspaceSession
from harness.workspace.terminal import Completed, KillSource, MonitorEvent
from tests.harness.terminal.conftest import OWNER, Bench, until

NAMES = Names(
    {
        ToolKind.BACKGROUND_TASK: "look_at",
        ToolKind.KILL_TASK: "end_it",
        ToolKind.READ: "read_it",
        ToolKind.EXECUTE: "run_it",
    },
    {ToolKind.BACKGROUND_TASK: {"task_ids": "ids"}},
    {"is_background": "behind", "task_ids": "ids", "timeout_ms": "for_ms", "persistent": "always"},
)
RUN = terminal.TOOLS[0]
OUTPUT, OUTPUT_TWIN, WAIT, KILL, KILL_TWIN = tasks.TOOLS
MONITOR = monitor.TOOLS[0]
PRODUCTION = {"auto_background_on_timeout": True, "max_timeout_secs": 36000}


class Caller:
    """Calls tools as a bridge does, for a session that is only a directory and a terminal."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.env = dict(bench.environ)
        self.cancelled = asyncio.Event()
        self.names = NAMES
        self.count = 0

    async def __call__(self, tool: Tool, arguments: Mapping[str, Any], **params: Any) -> ToolOutput:
        self.count += 1
        session = types.SimpleNamespace(
            id=OWNER, cwd=str(self.bench.directory), env=self.env, terminal=self.bench.terminal
        )
        if tool is RUN:
            params = {**PRODUCTION, **params}
        context = CallContext(
            call_id=f"call-{self.count}",
            session=cast(WorkspaceSession, session),
            params={**tool.spec.default_params, **params},
            names=self.names,
            cancelled=self.cancelled,
            notify=lambda _: None,
            client=None,
            resources=Resources(),
        )
        return await tool.run(arguments, context)

    async def run(self, command: str, timeout: int | None = None, **params: Any) -> ToolOutput:
        return await self(RUN, {"command": command, "timeout": timeout, "description": "what for"}, **params)

    async def start(self, command: str, timeout: int | None = None) -> str:
        output = await self(
            RUN, {"command": command, "timeout": timeout, "description": "d", "is_background": True}
        )
        return str(output.fields["task_id"])


@pytest.fixture
def call(bench: Bench) -> Caller:
    return Caller(bench)


# -- run_terminal_cmd ------------------------------------------------------------------------------


async def test_both_projections_of_a_command(call: Caller) -> None:
    output = await call.run("printf '\\033[31mred\\033[0m\\n'; exit 3")
    raw = output.raw()
    assert raw is not None
    log = raw.pop("output_file")
    assert raw == {
        "type": "Bash",
        "output": list(b"\x1b[31mred\x1b[0m\n"),
        "output_for_prompt": "exit: 3\nred\n",
        "exit_code": 3,
        "command": "printf '\\033[31mred\\033[0m\\n'; exit 3",
        "truncated": False,
        "signal": None,
        "timed_out": False,
        "description": "what for",
        "current_dir": str(call.bench.directory),
        "total_bytes": 13,
    }
    assert log.endswith("/logs/call-1.log")
    assert output.prompt == "exit: 3\nred\n"
    assert not output.is_error
    assert output.completeness is Completeness.COMPLETE


async def test_a_signal_is_an_error(call: Caller) -> None:
    output = await call.run("kill -9 $$")
    assert output.is_error
    assert output.prompt == "exit: killed (signal 9)\n"
    assert (output.fields["exit_code"], output.fields["signal"]) == (-1, "signal 9")


async def test_a_long_output(call: Caller) -> None:
    output = await call.run("seq 1 20000")
    head, _, body = output.prompt.partition("\n")
    log = output.fields["output_file"]
    assert head == f"exit: 0 [truncated: showing first/last 19.6 KB of 106.3 KB - full output at: {log}]"
    assert body.startswith("1\n2\n3\n")
    assert body.endswith("19999\n20000\n")
    assert output.completeness is Completeness.TRUNCATED
    assert output.fields["total_bytes"] == 108894
    assert bytes(output.fields["output"]).decode() == body
    short = await call.run("seq 1 100", output_byte_limit=40)
    assert len(bytes(short.fields["output"])) < 80


async def test_moved_to_the_background(call: Caller) -> None:
    output = await call.run("echo a; sleep 60", 300)
    assert output.raw() == {
        "type": "BackgroundTaskStarted",
        "task_id": "call-1",
        "task_type": "bash",
        "output_file": f"{call.bench.directory}/logs/call-1.log",
        "status": "running",
        "command": "echo a; sleep 60",
        "summary": output.fields["summary"],
        "retrieval_hint": 'Once you need the output, call look_at with ids=["call-1"].',
        "pid": output.fields["pid"],
    }
    assert '"what for"' in output.fields["summary"]
    assert "0.3s" in output.fields["summary"]
    assert output.prompt == (
        "<task-id>call-1</task-id>\n<task-type>bash</task-type>\n"
        f"<output-file>{call.bench.directory}/logs/call-1.log</output-file>\n<status>running</status>\n"
        f"<summary>{output.fields['summary']}</summary>\n{output.fields['retrieval_hint']}"
    )
    assert output.completeness is Completeness.RUNNING
    assert not output.is_error


async def test_moved_by_the_user(call: Caller) -> None:
    running = asyncio.ensure_future(call.run("sleep 60"))
    await until(lambda: call.bench.terminal.background_foreground("call-1"))
    assert "user" in (await running).fields["summary"]


async def test_the_environment_shortens_the_pause(call: Caller) -> None:
    call.env["GROK_FOREGROUND_BLOCK_BUDGET_MS"] = "0"
    output = await call.run("sleep 60", 1500)
    assert "0.001s" in output.fields["summary"]
    call.env["GROK_FOREGROUND_BLOCK_BUDGET_MS"] = "nonsense"
    assert "0.2s" in (await call.run("sleep 60", 200)).fields["summary"]


async def test_without_the_background_the_limit_kills(call: Caller) -> None:
    closed = {"enabled_background": False, "auto_background_on_timeout": False}
    output = await call.run("echo a; sleep 60", 300, **closed)
    assert output.prompt == "exit: killed (timeout)\na\n"
    assert output.fields["timed_out"]
    assert output.is_error


@pytest.mark.parametrize(
    ("arguments", "params", "words"),
    [
        ({"command": "a; pkill -f abc; abc"}, {}, ["self-matching pkill", "`abc`"]),
        ({"command": "sleep 1 & true"}, {"allow_background_operator": False}, ["&", "behind"]),
        (
            {"command": "sleep 1 &"},
            {"enabled_background": False, "auto_background_on_timeout": False},
            ["&", "foreground"],
        ),
        (
            {"command": "true", "is_background": True},
            {"enabled_background": False, "auto_background_on_timeout": False},
            ["background"],
        ),
    ],
)
async def test_refusals(
    call: Caller, arguments: dict[str, Any], params: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ToolFault) as fault:
        await call(RUN, {"description": "d", **arguments}, **params)
    assert fault.value.kind is FaultKind.INVALID_ARGUMENTS
    assert all(word in fault.value.message for word in words)


async def test_an_operator_that_is_allowed(call: Caller) -> None:
    assert (await call.run("true & wait", allow_background_operator=False)).prompt == "exit: 0\n"
    assert (await call.run("true & true")).prompt == "exit: 0\n"


async def test_a_prefix_goes_before_every_command(call: Caller) -> None:
    assert (await call.run('echo "$A"', cmd_prefix="A=1")).prompt == "exit: 0\n1\n"


# -- get_task_output and wait_tasks ----------------------------------------------------------------


async def test_a_running_task(call: Caller) -> None:
    task = await call.start("echo a; sleep 60")
    await until(lambda: call.bench.terminal.running()[0].total_bytes == 2)
    output = await call(OUTPUT, {"task_ids": [f" {task} ", task]})
    result = output.fields["Result"]
    assert (result["status"], result["exit_code"], result["ended"]) == ("running", None, None)
    assert result["output"].startswith("a\n\n\nTo wait for the end, give for_ms.")
    assert result["raw_output_bytes"] == 2
    lines = output.prompt.splitlines()
    assert lines[:3] == [f"=== Task {task} ===", "Command: echo a; sleep 60", "Status: running"]
    assert lines[3].startswith("Duration: ")
    assert lines[4:8] == [f"Output File: {result['output_file']}", "", "=== Output ===", "a"]
    assert output.completeness is Completeness.RUNNING
    assert output.settles == frozenset()


async def test_a_wait_that_is_too_short(call: Caller) -> None:
    task = await call.start("sleep 60")
    output = await call(OUTPUT, {"task_ids": [task], "timeout_ms": 250})
    assert "Waited 250ms, as asked." in output.fields["Result"]["output"]
    call.env["GROK_MAX_WAIT_BLOCK_MS"] = "100"
    output = await call(OUTPUT, {"task_ids": [task], "timeout_ms": 250})
    assert "Waited 100ms, the longest" in output.fields["Result"]["output"]


async def test_an_ended_task(call: Caller) -> None:
    task = await call.start("echo a; exit 4")
    output = await call(OUTPUT, {"task_ids": [task], "timeout_ms": 9000})
    result = output.fields["Result"]
    assert (result["status"], result["exit_code"], result["output"]) == ("failed", 4, "a\n")
    assert result["started"][-1] == result["ended"][-1] == "Z"
    assert "Status: failed\nDuration: " in output.prompt
    assert "\nExit Code: 4\nOutput File: " in output.prompt
    assert output.prompt.endswith("=== Output ===\na\n")
    assert output.settles == {task}
    assert output.completeness is Completeness.COMPLETE
    silent = await call.start("true")
    assert (await call(OUTPUT, {"task_ids": [silent], "timeout_ms": 9000})).prompt.endswith("\n(no output)")


async def test_a_task_with_much_output(call: Caller) -> None:
    task = await call.start("seq 1 20000")
    output = await call(OUTPUT_TWIN, {"task_ids": [task], "timeout_ms": 9000})
    result = output.fields["Result"]
    assert result["raw_output_bytes"] == 108894
    assert result["truncated"]
    assert result["output"].startswith("1\n2\n3\n")
    assert "108894 bytes" in result["output"]
    assert f"use read_it on {result['output_file']}" in result["output"]
    assert len(result["output"]) < SIZES.task_preview + 300
    assert output.prompt.endswith(result["truncation_hint"])
    assert output.completeness is Completeness.TRUNCATED


async def test_an_unknown_task(call: Caller) -> None:
    output = await call(OUTPUT, {"task_ids": ["nope"]})
    assert output.is_error
    assert output.prompt == output.fields["TaskNotFound"]
    assert output.prompt.startswith("Task nope not found. There are no")
    task = await call.start("true")
    assert (await call(OUTPUT, {"task_ids": ["nope"]})).prompt == (
        f"Task nope not found. Known task IDs: [{task}]"
    )


async def test_several_tasks(call: Caller) -> None:
    ended, running = await call.start("echo a; exit 4"), await call.start("sleep 60")
    await until(lambda: call.bench.told(Completed))
    look = await call(OUTPUT, {"task_ids": [ended, running, "zzz"]})
    result = look.fields["MultiResult"]
    assert (result["mode"], result["summary"]) == ("poll", "1/3 tasks completed (poll)")
    assert [r["status"] for r in result["results"]] == ["failed", "running", "not_found"]
    blocks = look.prompt.split("--- Task ")
    assert blocks[0] == "=== Multi-wait (poll) ===\n"
    assert blocks[1].startswith(f"{ended} [failed] ---\nCommand: echo a; exit 4\nDuration: ")
    assert blocks[1].endswith("\nExit Code: 4\na\n\n")
    assert blocks[3] == (
        "zzz [not_found] ---\nCommand: \nDuration: 0.00s\nTask zzz not found.\n\n1/3 tasks completed (poll)"
    )
    assert look.settles == {ended}
    waited = await call(OUTPUT, {"task_ids": [ended, running], "timeout_ms": 200})
    assert waited.fields["MultiResult"]["summary"] == "1/2 tasks completed (wait_all)"


async def test_wait_for_any(call: Caller) -> None:
    quick, slow = await call.start("sleep 0.2"), await call.start("sleep 60")
    output = await call(WAIT, {"task_ids": [slow, quick], "mode": "wait_any"})
    assert output.fields["MultiResult"]["summary"] == "1/2 tasks completed (wait_any)"
    assert output.settles == {quick}
    single = await call(WAIT, {"task_ids": [slow], "mode": "wait_all", "timeout_ms": 100})
    assert single.fields["MultiResult"]["summary"] == "0/1 tasks completed (wait_all)"


async def test_a_wait_that_is_called_off(call: Caller) -> None:
    task = await call.start("sleep 60")
    asyncio.get_running_loop().call_later(0.2, call.cancelled.set)
    with pytest.raises(ToolFault) as fault:
        await call(OUTPUT, {"task_ids": [task], "timeout_ms": 30_000})
    assert fault.value.kind is FaultKind.CANCELLED
    await call.bench.terminal.kill(task, KillSource.USER)
    await until(lambda: call.bench.told(Completed))
    assert call.bench.told(Completed)[0].snapshot.will_wake


@pytest.mark.parametrize("ids", [[], ["", "  "], [str(i) for i in range(SIZES.wait_ids + 1)]])
async def test_ids_that_cannot_be_asked(call: Caller, ids: list[str]) -> None:
    for tool, more in ((OUTPUT, {}), (WAIT, {"mode": "wait_any"})):
        with pytest.raises(ToolFault, match="ids"):
            await call(tool, {"task_ids": ids, **more})


# -- kill_task -------------------------------------------------------------------------------------


async def test_killing(call: Caller) -> None:
    task = await call.start("setsid sleep 60 & sleep 60")
    await until(lambda: len(call.bench.marked()) == 3)
    output = await call(KILL, {"task_id": task})
    assert output.fields["Result"]["outcome"] == "killed"
    assert output.prompt.startswith("killed: ")
    assert output.settles == {task}
    assert call.bench.marked() == []
    again = await call(KILL_TWIN, {"task_id": task})
    assert again.prompt.startswith("already_exited: ")
    assert not again.is_error
    unknown = await call(KILL, {"task_id": "nope"})
    assert unknown.is_error
    assert unknown.prompt == f"Task or subagent nope not found. Known bash task IDs: [{task}]"


async def test_a_kill_of_what_had_ended_tells_nothing_of_its_end(call: Caller) -> None:
    task = await call.start("exit 9")
    await until(lambda: call.bench.told(Completed))
    assert (await call(KILL, {"task_id": task})).settles == frozenset()
    assert [s.exit_code for s in call.bench.terminal.untold(OWNER)] == [9]


# -- monitor ---------------------------------------------------------------------------------------


async def test_a_monitor(call: Caller) -> None:
    output = await call(
        MONITOR, {"command": "echo a; echo b >&2; sleep 0.6; printf c; exit 5", "description": "watch it"}
    )
    task = output.fields["taskId"]
    assert output.raw() == {"type": "Monitor", "taskId": task, "timeoutMs": 36_000_000, "persistent": False}
    assert task in output.prompt
    assert "36000000ms" in output.prompt
    await until(lambda: call.bench.told(Completed))
    assert [e.text for e in call.bench.told(MonitorEvent)] == ["a\nb", "c"]
    assert {(e.task_id, e.description, e.owner) for e in call.bench.told(MonitorEvent)} == {
        (task, "watch it", OWNER)
    }
    kinds = [type(e) for e in call.bench.events if isinstance(e, (MonitorEvent, Completed))]
    assert kinds == [MonitorEvent, MonitorEvent, Completed], "the last lines before the end"
    look = await call(OUTPUT, {"task_ids": [task]})
    assert "\nCommand: [monitor] watch it\nStatus: failed\n" in look.prompt
    assert Path(look.fields["Result"]["output_file"]).name == "monitor-call-1.log"


async def test_limits_of_a_monitor(call: Caller) -> None:
    arguments = {"command": "sleep 60", "description": "d", "timeout_ms": 36_000_001}
    with pytest.raises(ToolFault, match="always"):
        await call(MONITOR, arguments)
    output = await call(MONITOR, {**arguments, "persistent": True})
    assert (output.fields["timeoutMs"], output.fields["persistent"]) == (0, True)
    assert "end_it" in output.prompt
    await call(MONITOR, {"command": "sleep 60", "description": "d", "timeout_ms": 200})
    await until(lambda: call.bench.told(Completed))
    assert call.bench.told(Completed)[0].snapshot.signal == "timeout"


async def test_a_monitor_that_floods_is_ended_with_its_family(
    call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "monitor_stop", 1.0)
    command = "setsid sleep 60 & while :; do echo flood; done"
    output = await call(MONITOR, {"command": command, "description": "d"})
    await until(lambda: call.bench.told(Completed), 30)
    ended = call.bench.told(Completed)[0].snapshot
    assert ended.task_id == output.fields["taskId"]
    assert not ended.will_wake, "its last event has said it"
    texts = [event.text for event in call.bench.told(MonitorEvent)]
    assert texts[-1].startswith("[Monitor stopped")
    assert len(texts) <= SIZES.monitor_bucket + 4
    assert all(len(text) <= SIZES.monitor_event for text in texts)
    assert call.bench.marked() == []


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x\x1b]8;;http://a\x1b\\link", "xlink"),
        ("\x1b(Bx\x1b=y\x1b[?25l", "xy"),
        ("plain", "plain"),
        ("a" * 5000, "\n".join(["a" * 2000, "a" * 2000, "a" * 1000])),
        ("a" * 2000 + "\n" + "b" * 2000, "a" * 2000 + "\n" + "b" * 2000),
    ],
)
def test_plain(text: str, expected: str) -> None:
    assert plain(text) == expected


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (20030, "19.6 KB"), (108894, "106.3 KB"), (6_000_000, "5.7 MB")],
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text
