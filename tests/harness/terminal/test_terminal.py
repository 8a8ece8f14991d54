"""Commands in real shells, on both event loops."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from pathlib import Path

import pytest

from gateway.wire.process import Identity
from harness.limits import LIMITS, SIZES
from harness.outcome import ToolFault
from harness.workspace.terminal import (
    Backgrounded,
    Completed,
    Deadline,
    KillOutcome,
    KillSource,
    Moved,
    OutputChunk,
    TaskStatus,
    Terminal,
    WaitMode,
    WaitOutcome,
)
from tests.harness.terminal.conftest import OWNER, Bench, until

# -- the foreground --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code", "signal_name", "output"),
    [
        ("true", 0, None, ""),
        ("", 0, None, ""),
        ("echo out; echo err >&2; echo more; exit 3", 3, None, "out\nerr\nmore\n"),
        ("printf 'no end'", 0, None, "no end"),
        ("kill -9 $$", None, "signal 9", ""),
        ("kill -TERM $$", None, "signal 15", ""),
        ("no-such-program", 127, None, "--: line 1: no-such-program: command not found\n"),
        ("cat; tty", 1, None, "not a tty\n"),
        ("printf '\\xff\\xc3\\xa9'", 0, None, "\ufffdé"),
        ("echo $# $0 [$1]", 0, None, "0 -- []\n"),
        ("echo 'a'\\''b' \"$((1 + 1))\"", 0, None, "a'b 2\n"),
        ("! shopt -q extglob || echo +(x|y) !(z)x | wc -l", 0, None, "1\n"),
    ],
)
async def test_outcomes(
    bench: Bench, command: str, code: int | None, signal_name: str | None, output: str
) -> None:
    result = await bench.run(command)
    shot = result.snapshot
    assert (shot.exit_code, shot.signal, shot.output) == (code, signal_name, output)
    assert result.moved is None
    assert shot.total_bytes == Path(shot.output_file).stat().st_size
    assert shot.cwd == str(bench.directory)
    assert bench.terminal.tasks() == []
    assert bench.terminal.known_ids() == []


async def test_every_command_starts_anew(bench: Bench) -> None:
    await bench.run("cd /; X=1; export X; f() { echo f; }")
    shot = (await bench.run('pwd; echo "[$X]"; f')).snapshot
    assert shot.output.startswith(f"{bench.directory}\n[]\n")


async def test_five_megabytes_are_counted_and_kept_at_both_ends(bench: Bench) -> None:
    text = "for i in $(seq 250000); do printf 'é %013d\\n' $i; done"
    shot = (await bench.run(text)).snapshot
    log = Path(shot.output_file).read_bytes()
    assert shot.total_bytes == len(log) == 250_000 * 17
    assert shot.truncated
    assert shot.output.startswith("é 0000000000001\n")
    assert shot.output.endswith("é 0000000250000\n")
    assert SIZES.command_output <= len(shot.output) < SIZES.command_output + 40
    chunks = bench.told(OutputChunk)
    assert all(len(chunk.text) <= SIZES.command_output for chunk in chunks)
    assert chunks[0].total_bytes == 0
    assert [c.total_bytes for c in chunks] == sorted({c.total_bytes for c in chunks})
    assert len(chunks) < 4 + shot.duration / LIMITS.output_chunk


async def test_a_child_that_holds_the_pipe_does_not_hold_the_call(bench: Bench) -> None:
    begun = time.monotonic()
    shot = (await bench.run("(sleep 1; echo late; sleep 60) & echo soon")).snapshot
    assert LIMITS.output_drain - 0.1 <= time.monotonic() - begun < LIMITS.output_drain + 3
    assert (shot.exit_code, shot.output) == (0, "soon\nlate\n")


async def test_a_server_left_behind_does_not_die_of_its_pipe(bench: Bench) -> None:
    mark = bench.directory / "alive"
    await bench.run(f"(sleep 2.3; echo hello; echo more; touch {mark}) & true")
    await until(mark.exists)


async def test_the_time_limit_kills_where_nothing_is_moved(bench: Bench) -> None:
    command = "echo a; sleep 60; echo b; setsid sleep 60; echo c; sleep 60 | cat; echo d"
    shot = (await bench.run(command, deadline=Deadline(0.5))).snapshot
    assert (shot.exit_code, shot.signal, shot.output) == (None, "timeout", "a\n")
    assert shot.status is TaskStatus.TIMED_OUT


async def test_what_ignores_term_is_killed_after_the_grace(bench: Bench) -> None:
    begun = time.monotonic()
    shot = (await bench.run("trap '' TERM; while :; do sleep 0.1; done", deadline=Deadline(1.5))).snapshot
    assert shot.signal == "timeout"
    assert time.monotonic() - begun >= 1.5 + LIMITS.kill_grace


async def test_a_clean_end_at_the_limit_is_a_time_out_all_the_same(bench: Bench) -> None:
    command = "trap 'echo bye; exit 0' TERM; while :; do sleep 0.1; done"
    shot = (await bench.run(command, deadline=Deadline(1.5))).snapshot
    assert (shot.exit_code, shot.signal) == (None, "timeout")
    assert shot.output.removeprefix("Terminated\n") == "bye\n", "bash may speak of the child it lost"


async def test_cancelled(bench: Bench) -> None:
    cancelled = asyncio.Event()
    running = asyncio.ensure_future(
        bench.terminal.run(bench.command("trap '' TERM; echo a; sleep 60"), cancelled=cancelled)
    )
    await until(lambda: any(chunk.text for chunk in bench.told(OutputChunk)))
    begun = time.monotonic()
    cancelled.set()
    shot = (await running).snapshot
    assert (shot.signal, shot.status, shot.output) == ("cancelled", TaskStatus.CANCELLED, "a\n")
    assert time.monotonic() - begun < LIMITS.kill_grace, "without grace"


async def test_a_cancelled_caller_leaves_nothing(bench: Bench) -> None:
    running = asyncio.ensure_future(bench.run("setsid sleep 60 & sleep 60"))
    await until(lambda: len(bench.marked()) == 3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert bench.marked() == []


async def test_commands_run_side_by_side(bench: Bench) -> None:
    begun = time.monotonic()
    results = await asyncio.gather(*(bench.run(f"sleep 0.5; echo {i}", "same") for i in range(8)))
    assert time.monotonic() - begun < 3
    assert [r.snapshot.output for r in results] == [f"{i}\n" for i in range(8)]
    assert len({r.snapshot.output_file for r in results}) == 8
    assert len({r.snapshot.task_id for r in results}) == 8


@pytest.mark.parametrize(
    ("command", "cwd", "why"),
    [("true", "/no/such/place", "/no/such/place does not exist"), ("echo \0", "/", "cannot be passed")],
)
async def test_what_cannot_start(bench: Bench, command: str, cwd: str, why: str) -> None:
    with pytest.raises(ToolFault, match=why):
        await bench.run(command, cwd=cwd)
    assert bench.terminal.known_ids() == []


async def test_a_log_that_cannot_be_written_costs_only_the_log(bench: Bench) -> None:
    (bench.directory / "logs").write_text("in the way")
    shot = (await bench.run("echo a")).snapshot
    assert (shot.exit_code, shot.output) == (0, "a\n")
    started = await bench.start("seq 3; sleep 60", "b")
    await until(lambda: (s := bench.terminal.snapshot(started.task_id)) is not None and s.total_bytes == 6)
    await bench.terminal.kill(started.task_id, KillSource.MODEL)
    ended = bench.terminal.snapshot(started.task_id)
    assert ended is not None
    assert ended.output == "1\n2\n3\n", "memory stands in for it"


async def test_output_without_end_is_ended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SIZES, "log_kill", 5_000_000)
    monkeypatch.setattr(SIZES, "log_retained", 1_000_000)
    shot = (await bench.run("yes")).snapshot
    assert shot.signal == "output_limit"
    assert shot.total_bytes > 5_000_000
    assert Path(shot.output_file).stat().st_size == 1_000_000


# -- the login shell -------------------------------------------------------------------------------


async def test_functions_aliases_and_variables_of_a_login(bench: Bench) -> None:
    (bench.directory / "home" / ".bash_profile").write_text(
        "echo welcome\nexport FROM_LOGIN='a b'\nexport PATH=$HOME/bin:$PATH\n"
        "greet() { echo \"hello $1\"; }\nalias shout='echo LOUD'\n"
    )
    for call in ("first", "second"):
        shot = (await bench.run('greet you; shout it; echo "$FROM_LOGIN"; echo "$PATH"', call)).snapshot
        lines = shot.output.splitlines()
        assert lines[:3] == ["hello you", "LOUD it", "a b"]
        assert lines[3].startswith(f"{bench.directory}/home/bin:")


async def test_a_login_that_hangs_is_left_behind(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "login_shell", 0.3)
    (bench.directory / "home" / ".bash_profile").write_text("sleep 60\n")
    assert (await bench.run("echo a")).snapshot.output == "a\n"


# -- the background --------------------------------------------------------------------------------


async def test_moving_keeps_pid_log_and_id(bench: Bench) -> None:
    result = await bench.run(
        "echo $$; sleep 0.7; echo end; exit 4", "call-7", deadline=Deadline(60, move=0.3)
    )
    moved = result.snapshot
    assert (result.moved, result.waited) == (Moved.BY_CLOCK, 0.3)
    assert (moved.task_id, moved.call_id, moved.status) == ("call-7", "call-7", TaskStatus.RUNNING)
    assert moved.output == f"{moved.pid}\n"
    assert await bench.terminal.wait(["call-7"], mode=WaitMode.ALL, seconds=10) is WaitOutcome.COMPLETED
    ended = bench.terminal.snapshot("call-7")
    assert ended is not None
    assert (ended.pid, ended.output_file) == (moved.pid, moved.output_file)
    assert (ended.exit_code, ended.output) == (4, f"{moved.pid}\nend\n")
    assert Path(ended.output_file).read_text() == ended.output
    await until(lambda: bench.told(Completed))
    kinds = [type(event) for event in bench.events if not isinstance(event, OutputChunk)]
    assert kinds == [Backgrounded, Completed]
    assert bench.told(OutputChunk)[-1].text == ended.output


async def test_a_moved_command_is_not_ended_by_its_time_limit_nor_by_the_turn(bench: Bench) -> None:
    cancelled = asyncio.Event()
    command = bench.command("sleep 0.8; echo end", "c", deadline=Deadline(60, move=0.1))
    await bench.terminal.run(command, cancelled=cancelled)
    cancelled.set()
    assert await bench.terminal.kill_foreground(OWNER) == 0
    await bench.terminal.wait(["c"], mode=WaitMode.ALL, seconds=10)
    ended = bench.terminal.snapshot("c")
    assert ended is not None
    assert ended.output == "end\n"


async def test_a_person_moves_a_command(bench: Bench) -> None:
    running = asyncio.ensure_future(bench.run("sleep 60", "c"))
    await until(lambda: bench.terminal.background_foreground("c"))
    assert (await running).moved is Moved.BY_USER
    assert not bench.terminal.background_foreground("c")
    assert not bench.terminal.background_foreground("other")
    assert [s.task_id for s in bench.terminal.running(OWNER)] == ["c"]


async def test_started_in_the_background(bench: Bench) -> None:
    shot = await bench.start("echo begun; sleep 0.3; echo done", "call")
    assert shot.task_id != "call"
    assert shot.status is TaskStatus.RUNNING
    await until(lambda: bench.told(Completed))
    told = bench.told(Completed)[0].snapshot
    assert (told.task_id, told.exit_code, told.output) == (shot.task_id, 0, "begun\ndone\n")
    assert told.will_wake
    assert [s.task_id for s in bench.terminal.untold(OWNER)] == [shot.task_id]
    assert bench.terminal.tell([shot.task_id]) == [shot.task_id]
    assert bench.terminal.untold(OWNER) == []
    assert len(bench.told(Completed)) == 1


async def test_a_background_time_limit(bench: Bench) -> None:
    shot = await bench.start("sleep 60", deadline=Deadline(0.2))
    await until(lambda: bench.told(Completed))
    ended = bench.terminal.snapshot(shot.task_id)
    assert ended is not None
    assert (ended.signal, ended.status) == ("timeout", TaskStatus.TIMED_OUT)


async def test_the_cap_is_called_by_its_name(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "command_longest", 0.2)
    shot = await bench.start("sleep 60", deadline=Deadline(0.2))
    await until(lambda: bench.told(Completed))
    assert bench.terminal.snapshot(shot.task_id).signal == "max_runtime"  # type: ignore[union-attr]


async def test_forgotten_after_a_while(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMITS, "task_kept", 0.3)
    shot = await bench.start("echo a")
    await until(lambda: bench.told(Completed))
    assert bench.terminal.snapshot(shot.task_id).output == "a\n"  # type: ignore[union-attr]
    await until(lambda: not bench.terminal.tasks())
    left = bench.terminal.snapshot(shot.task_id)
    assert left is not None
    assert (left.output, left.truncated, left.exit_code) == ("", True, 0)
    assert bench.terminal.known_ids(OWNER) == [shot.task_id]
    assert await bench.terminal.kill(shot.task_id, KillSource.MODEL) is KillOutcome.ALREADY_EXITED


# -- waiting ---------------------------------------------------------------------------------------


async def test_wait_for_any_and_for_all(bench: Bench) -> None:
    quick = (await bench.start("sleep 0.3", "a")).task_id
    slow = (await bench.start("sleep 0.9", "b")).task_id
    begun = time.monotonic()
    wait = bench.terminal.wait
    assert await wait([slow, quick], mode=WaitMode.ANY, seconds=10) is WaitOutcome.COMPLETED
    assert time.monotonic() - begun < 0.8
    assert await wait([slow, quick], mode=WaitMode.ANY, seconds=10) is WaitOutcome.COMPLETED
    assert await wait([slow, quick], mode=WaitMode.ALL, seconds=0.1) is WaitOutcome.TIMED_OUT
    assert await wait([slow, quick, slow], mode=WaitMode.ALL, seconds=10) is WaitOutcome.COMPLETED
    assert await wait(["unknown"], mode=WaitMode.ALL, seconds=10) is WaitOutcome.COMPLETED
    assert bench.told(Completed)[0].snapshot.task_id == quick
    await until(lambda: len(bench.told(Completed)) == 2)
    waited = {event.snapshot.task_id: event.snapshot.will_wake for event in bench.told(Completed)}
    assert waited == {quick: False, slow: False}


async def test_a_wait_that_comes_to_nothing_wakes_after_all(bench: Bench) -> None:
    task = (await bench.start("sleep 0.5")).task_id
    cancelled = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, cancelled.set)
    outcome = await bench.terminal.wait([task], mode=WaitMode.ALL, seconds=10, cancelled=cancelled)
    assert outcome is WaitOutcome.CANCELLED
    waiting = asyncio.ensure_future(bench.terminal.wait([task], mode=WaitMode.ALL, seconds=10))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until(lambda: bench.told(Completed))
    assert bench.told(Completed)[0].snapshot.will_wake


# -- killing ---------------------------------------------------------------------------------------

#: Each leaves one more process that a kill of the shell alone would not reach.
FAMILIES = {
    "child": "sleep 60 & sleep 60",
    "pipeline": "(sleep 60; true) | cat; true",
    "own session": "setsid sleep 60 & sleep 60",
    "own session, orphan": "(setsid sleep 60 &); sleep 60",
    "daemon": "(setsid bash -c 'sleep 60 & sleep 60; true' >/dev/null 2>&1 </dev/null &); sleep 60",
    "deaf": "trap '' TERM; setsid sleep 60 & sleep 60; true",
    "cleared environment": "env -i setsid sleep 60 & sleep 60",
}


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_kill_reaches_all_of_the_family(bench: Bench, family: str) -> None:
    shot = await bench.start(FAMILIES[family])
    assert shot.pid is not None
    count = {"daemon": 4, "cleared environment": 2}.get(family, 3)
    await until(lambda: len(bench.marked()) >= count)
    await asyncio.sleep(0.2)
    root = bench.terminal._live[shot.task_id].process
    assert root is not None
    members = root.family.members()
    assert len(members) >= 3 if family != "pipeline" else 2
    assert await bench.terminal.kill(shot.task_id, KillSource.MODEL) is KillOutcome.KILLED
    assert not any(member.alive() for member in members)
    assert bench.marked() == []
    ended = bench.terminal.snapshot(shot.task_id)
    assert ended is not None
    assert (ended.status, ended.signal, ended.exit_code) == (TaskStatus.CANCELLED, "killed", None)
    assert not ended.will_wake
    assert bench.terminal.untold(OWNER) == []
    assert await bench.terminal.kill(shot.task_id, KillSource.MODEL) is KillOutcome.ALREADY_EXITED


async def test_a_kill_spares_others(bench: Bench) -> None:
    first = await bench.start("sleep 60", "a")
    second = await bench.start("setsid sleep 60 & sleep 60", "b")
    await until(lambda: len(bench.marked()) >= 4)
    await bench.terminal.kill(second.task_id, KillSource.MODEL)
    assert [s.task_id for s in bench.terminal.running()] == [first.task_id]
    assert len(bench.marked()) == 2


async def test_a_user_kill_is_news_for_the_model(bench: Bench) -> None:
    shot = await bench.start("sleep 60")
    assert await bench.terminal.kill(shot.task_id, KillSource.USER) is KillOutcome.KILLED
    assert bench.told(Completed) == [], "who asked is answered first"
    await until(lambda: bench.told(Completed))
    assert bench.told(Completed)[0].snapshot.will_wake
    assert [s.task_id for s in bench.terminal.untold(OWNER)] == [shot.task_id]


async def test_owners_are_apart(bench: Bench) -> None:
    mine = await bench.start("sleep 60", "a")
    child = await bench.start("sleep 60", "b", owner="sub")
    kill = bench.terminal.kill
    assert await kill(child.task_id, KillSource.MODEL, owner=OWNER) is KillOutcome.NOT_FOUND
    assert await kill("nobody", KillSource.MODEL) is KillOutcome.NOT_FOUND
    assert bench.terminal.snapshot(child.task_id, OWNER) is None
    heard = list[object]()
    remove = bench.terminal.subscribe(heard.append, "sub")
    bench.terminal.adopt("sub", OWNER)
    assert bench.terminal.snapshot(child.task_id, OWNER) is not None
    assert await bench.terminal.kill_all(OWNER) == 2
    assert heard == [], "what was adopted is no longer the subagent's"
    remove()
    assert {s.task_id for s in bench.terminal.tasks(OWNER)} == {mine.task_id, child.task_id}


async def test_closing_ends_everything_but_daemons(bench: Bench) -> None:
    await bench.run("(sleep 71; true) & true", "left")
    result = await bench.run("setsid sleep 72 >/dev/null 2>&1 & true", "daemon")
    assert result.snapshot.exit_code == 0
    await bench.start("setsid sleep 73 & sleep 73", "background")
    foreground = asyncio.ensure_future(bench.run("sleep 74", "foreground"))
    await until(lambda: len(bench.marked()) >= 7)
    await bench.terminal.close()
    assert (await foreground).snapshot.signal == "cancelled"
    left = bench.marked()
    assert len(left) == 1, "who made a session of its own and outlived its command meant to stay"
    assert b"72" in Path(f"/proc/{left[0]}/cmdline").read_bytes()
    os.kill(left[0], signal.SIGKILL)
    with pytest.raises(ToolFault, match="closed"):
        await bench.run("true")


async def test_a_listener_that_fails_keeps_nobody_from_anything(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("no")

    bench.terminal.subscribe(broken)
    assert (await bench.run("echo a")).snapshot.output == "a\n"
    assert "listener failed" in caplog.text


async def test_a_reused_number_is_not_taken_for_the_root(bench: Bench) -> None:
    shot = await bench.start("sleep 60")
    process = bench.terminal._live[shot.task_id].process
    assert process is not None
    family = process.family
    stranger = type(family)(Identity(family.root.pid, family.root.created - 1), "another.1")
    assert stranger.members() == []


async def test_many_short_commands_leave_no_descriptor(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.run("true")
    before = len(os.listdir("/proc/self/fd"))
    for number in range(30):
        await bench.run("echo a", f"c{number}")
    assert len(os.listdir("/proc/self/fd")) == before
    assert isinstance(bench.terminal, Terminal)
    assert re.fullmatch(r"[0-9a-f]{16}", bench.terminal._nonce)
    await bench.terminal.close()
