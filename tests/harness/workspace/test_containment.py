"""Said to be contained only when it is."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.workspace.containment import PROFILES, Containment, Profile, ProfileName, contain, profile_named
from harness.workspace.executor import Execution, HostExecutor
from harness.workspace.terminal import Command, Deadline, Terminal

WORKSPACE = PROFILES[ProfileName.WORKSPACE]


def test_no_profile() -> None:
    made = contain(PROFILES[ProfileName.OFF], "/w")
    assert made.report() == {"contained": "no", "reason": "no profile is chosen"}
    assert made.wrap(["a", "b"], "/w") == ["a", "b"]


def test_a_name_that_is_no_profile() -> None:
    assert profile_named("") is None
    assert profile_named("workspace") is WORKSPACE
    with pytest.raises(ValueError, match="strict"):
        profile_named("stric")


def test_no_program() -> None:
    made = contain(WORKSPACE, "/w", find=lambda _name: None)
    assert made.report() == {"contained": "no", "reason": "bwrap is not installed"}
    assert made.wrap(["a"], "/w") == ["a"]


def test_a_kernel_that_refuses() -> None:
    tried: list[Sequence[str]] = []

    def probe(argv: Sequence[str]) -> bool:
        tried.append(argv)
        return False

    made = contain(WORKSPACE, "/w", find=lambda _name: "/bin/bwrap", probe=probe)
    assert made.report()["contained"] == "no"
    assert "namespaces" in made.report()["reason"]
    assert made.wrap(["a"], "/w") == ["a"]
    assert tried[0][0] == "/bin/bwrap"  # with the very view it would build


def test_a_program_that_cannot_be_run(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("no program")
    assert not contain(WORKSPACE, "/w", find=lambda _name: str(broken)).contained


def test_the_command_line() -> None:
    made = contain(Profile(network=False), "/w", find=lambda _name: "/bin/bwrap", probe=lambda _argv: True)
    line = made.wrap(["make", "all"], "/w/sub")
    assert line[0] == "/bin/bwrap"
    assert line[-5:] == ["--chdir", "/w/sub", "--", "make", "all"]
    assert "--unshare-net" in line
    assert made.report() == {"contained": "bwrap", "writable": ["/w"], "network": False}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    if shutil.which("bwrap") is None:
        pytest.skip("needs bwrap")
    path = tmp_path / "work"
    path.mkdir()
    return path


def run(made: Containment, workspace: Path, script: str) -> subprocess.CompletedProcess[str]:
    if not made.contained:
        pytest.skip(made.reason)
    argv = made.wrap(["sh", "-c", script], str(workspace))
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)


def test_only_the_workspace_can_be_written(workspace: Path) -> None:
    made = contain(Profile(), str(workspace))
    outside = workspace.parent / "outside"
    done = run(made, workspace, f"pwd; echo in > file; echo out > {outside}; cat {__file__} | wc -l")
    assert done.stdout.split()[0] == str(workspace)
    assert (workspace / "file").read_text() == "in\n"
    assert not outside.exists()
    assert int(done.stdout.split()[1]) > 50  # everything can be read


def test_read_only(workspace: Path) -> None:
    made = contain(PROFILES[ProfileName.READ_ONLY], str(workspace))
    assert run(made, workspace, "echo x > file").returncode != 0
    assert list(workspace.iterdir()) == []


def test_strict(workspace: Path) -> None:
    made = contain(PROFILES[ProfileName.STRICT], str(workspace))
    (workspace.parent / "secret").write_text("s")
    done = run(made, workspace, f"echo in > file; cat {workspace.parent}/secret; ls /sys/class/net || true")
    assert (workspace / "file").read_text() == "in\n"
    assert "s" not in done.stdout.split()
    done = run(made, workspace, "cat /proc/net/dev | grep -v lo: | wc -l")
    assert done.stdout.strip() == "2"  # the table's head


def test_denied_paths_are_empty(workspace: Path) -> None:
    (workspace / ".env").write_text("KEY=1")
    (workspace / "keys").mkdir()
    (workspace / "keys/one").write_text("1")
    denied = (f"{workspace}/.env", f"{workspace}/keys", f"{workspace}/missing")
    done = run(contain(Profile(denied=denied), str(workspace)), workspace, "cat .env; ls keys; echo x > .env")
    assert done.stdout == ""
    assert (workspace / ".env").read_text() == "KEY=1"


async def test_through_the_executor(workspace: Path) -> None:
    made = contain(PROFILES[ProfileName.READ_ONLY], str(workspace))
    if not made.contained:
        pytest.skip(made.reason)
    executor = HostExecutor({"PATH": "/usr/bin:/bin"}, made.wrap)
    done = await executor.run(Execution(("touch", "x"), str(workspace)))
    assert not done.ok
    assert b"Read-only" in done.stderr


async def test_commands_of_the_terminal(workspace: Path) -> None:
    made = contain(PROFILES[ProfileName.READ_ONLY], str(workspace))
    if not made.contained:
        pytest.skip(made.reason)
    environ = {"PATH": os.environ["PATH"], "HOME": str(workspace.parent), "SHELL": "/bin/bash"}
    terminal = Terminal(log_directory=str(workspace.parent / "log"), environ=environ, wrap=made.wrap)
    try:
        deadline = Deadline(kill=20, move=None)
        command = Command(
            "echo x > file; sleep 300 & echo $!", call_id="c", cwd=str(workspace), deadline=deadline
        )
        result = await terminal.run(command)
    finally:
        await terminal.close()
    assert "Read-only file system" in result.snapshot.output
    assert list(workspace.iterdir()) == []
    pid = int(result.snapshot.output.split()[-1])
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text()
