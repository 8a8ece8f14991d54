"""Programs that are short, and those that ought to be."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from harness.workspace.executor import Execution, HostExecutor

ENV = {"PATH": os.environ["PATH"], "A": "1"}


def sh(script: str, cwd: Path, **options: object) -> Execution:
    return Execution(("sh", "-c", script), str(cwd), **options)  # type: ignore[arg-type]


async def test_what_comes_back(tmp_path: Path) -> None:
    done = await HostExecutor(ENV).run(sh("pwd; echo $A$B; echo oops >&2; exit 3", tmp_path, env={"B": "2"}))
    assert done.stdout == f"{tmp_path}\n12\n".encode()
    assert (done.stderr, done.exit_code, done.ok) == (b"oops\n", 3, False)


async def test_nothing_to_read_and_a_signal(tmp_path: Path) -> None:
    executor = HostExecutor(ENV)
    assert (await executor.run(sh("cat", tmp_path))).ok
    assert (await executor.run(sh("kill -9 $$", tmp_path))).exit_code == -9


@pytest.mark.parametrize(("limit", "cut"), [(999_999, True), (1_000_000, False)])
async def test_the_limit_is_exact(tmp_path: Path, limit: int, cut: bool) -> None:
    done = await HostExecutor(ENV).run(sh("head -c 1000000 /dev/zero", tmp_path, output_limit=limit))
    assert (len(done.stdout), done.truncated) == (limit, cut)
    assert done.ok is not cut


async def test_enough_is_enough(tmp_path: Path) -> None:
    begun = time.monotonic()
    done = await HostExecutor(ENV).run(sh("yes", tmp_path, output_limit=1000, timeout=20))
    assert (len(done.stdout), done.exit_code, done.truncated) == (1000, None, True)
    assert time.monotonic() - begun < 10


async def test_complaints_without_end_do_not_block(tmp_path: Path) -> None:
    done = await HostExecutor(ENV).run(sh("head -c 1000000 /dev/zero >&2; echo done", tmp_path))
    assert done.ok
    assert done.stdout == b"done\n"
    assert len(done.stderr) < 1_000_000


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


async def gone(pid: int) -> bool:
    for _ in range(100):
        if not alive(pid):
            return True
        await asyncio.sleep(0.02)
    return False


GRANDCHILD = "sleep 300 & echo $! > pid; "


async def test_the_time_limit_ends_the_group(tmp_path: Path) -> None:
    done = await HostExecutor(ENV).run(sh(GRANDCHILD + "echo half; wait", tmp_path, timeout=0.5))
    assert (done.timed_out, done.exit_code, done.stdout) == (True, None, b"half\n")
    assert await gone(int((tmp_path / "pid").read_text()))


async def test_cancelling_ends_the_group(tmp_path: Path) -> None:
    task = asyncio.create_task(HostExecutor(ENV).run(sh(GRANDCHILD + "trap '' TERM; wait", tmp_path)))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(int((tmp_path / "pid").read_text()))


async def test_what_stays_behind_with_the_pipe_is_ended(tmp_path: Path) -> None:
    begun = time.monotonic()
    done = await HostExecutor(ENV).run(sh(GRANDCHILD + "exit 0", tmp_path, timeout=1))
    assert time.monotonic() - begun < 10
    assert done.exit_code == 0
    assert await gone(int((tmp_path / "pid").read_text()))


async def test_no_such_program_and_no_such_directory(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await HostExecutor(ENV).run(Execution(("no-such-program",), str(tmp_path)))
    with pytest.raises(OSError, match="missing"):
        await HostExecutor(ENV).run(sh("true", tmp_path / "missing"))


async def test_descriptors_are_given_back(tmp_path: Path) -> None:
    executor = HostExecutor(ENV)
    await executor.run(sh("true", tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for script in ("true", "yes", "exit 1"):
        await executor.run(sh(script, tmp_path, output_limit=10))
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_command_line_can_be_wrapped(tmp_path: Path) -> None:
    seen: list[str] = []

    def wrap(argv: object, cwd: str) -> list[str]:
        seen.append(cwd)
        return ["echo", "wrapped", *argv]  # type: ignore[misc]

    done = await HostExecutor(ENV, wrap).run(Execution(("a", "b"), str(tmp_path)))
    assert (done.stdout, seen) == (b"wrapped a b\n", [str(tmp_path)])
