"""Checks after edits and at the end of a turn, with real programs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.engines.processes import state
from workers.pi import checks


async def gone(pid: int) -> None:
    """A killed process needs a moment to die."""
    async with asyncio.timeout(10):
        while state(pid) not in ("", "Z", "X"):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("name", "text", "fails"),
    [
        ("a.py", "x = 1\n", False),
        ("a.py", "def (\n", True),
        ("a.json", '{"a": 1}', False),
        ("a.json", "{", True),
        ("a.txt", "anything (", False),
    ],
)
async def test_built_in_checks(tmp_path: Path, name: str, text: str, fails: bool) -> None:
    file = tmp_path / name
    file.write_text(text)
    said = await checks.post_edit("", file, str(tmp_path), 30)
    assert bool(said) is fails
    assert not fails or str(file) in said


@pytest.mark.parametrize("place", ["{file}", '"{file}"', "'{file}'"])
async def test_a_file_name_is_one_argument_and_never_shell_text(tmp_path: Path, place: str) -> None:
    file = tmp_path / "$(touch gotcha) 'x\" `id`.txt"
    file.write_text("")
    said = await checks.post_edit(f"printf '<%s>' {place}; false", file, str(tmp_path), 30)
    assert f"<{file}>" in said
    assert not (tmp_path / "gotcha").exists()


async def test_a_check_that_takes_too_long_ends_with_all_that_it_started(tmp_path: Path) -> None:
    command = "sleep 300 & echo $! > pid; echo started; wait"
    said = await checks.stop(command, str(tmp_path), 6.0)
    assert "no end after 6 s" in said
    assert "started" in said
    await gone(int((tmp_path / "pid").read_text()))


async def test_a_cancelled_check_leaves_nothing(tmp_path: Path) -> None:
    task = asyncio.create_task(checks.stop("echo $$ > pid; sleep 300", str(tmp_path), 60))
    async with asyncio.timeout(20):
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gone(int((tmp_path / "pid").read_text()))


async def test_output_is_bounded(tmp_path: Path) -> None:
    said = await checks.stop("head -c 3000000 /dev/zero | tr '\\0' x; exit 1", str(tmp_path), 30)
    assert "exit code 1" in said
    assert len(said) < 9000


async def test_a_program_that_is_not_there_fails(tmp_path: Path) -> None:
    finding = await checks.run(["/no/such/program"], str(tmp_path), 5)
    assert finding.failed
    assert "/no/such/program" in finding.output


def test_the_edited_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    assert checks.edited_file({"file_path": "a"}, str(tmp_path)) == tmp_path / "a"
    assert checks.edited_file({"path": str(tmp_path / "a")}, "/") == tmp_path / "a"
    assert checks.edited_file({"file_path": "gone"}, str(tmp_path)) is None
    assert checks.edited_file("cut off", str(tmp_path)) is None
