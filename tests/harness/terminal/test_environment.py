"""The layers of a command's environment; which shell runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.workspace.terminal.book import TaskKind
from harness.workspace.terminal.environment import command_environment, merge_paths
from harness.workspace.terminal.events import Command
from harness.workspace.terminal.naming import log_path, spellings, time_ordered_id
from harness.workspace.terminal.shell import Shell, _parse, resolve_shell
from harness.workspace.terminal.timing import Deadline


def layered(**changes: object) -> dict[str, str]:
    fields: dict[str, object] = {
        "base": {"PATH": "/usr/bin:/opt", "HOME": "/h", "TERM": "vt100", "PYTHONHOME": "/engine"},
        "login": {"PATH": "/login:/usr/bin", "HOME": "/other", "EDITOR": "vi"},
        "session": {},
        "session_id": "s",
        "task": "n.1",
    }
    return command_environment(**{**fields, **changes})  # type: ignore[arg-type]


def test_layers() -> None:
    env = layered()
    assert env["PATH"] == "/login:/usr/bin:/opt"
    assert env["HOME"] == "/h", "the login shell only adds"
    assert env["EDITOR"] == "vi"
    assert (env["TERM"], env["NO_COLOR"]) == ("xterm-256color", "1")
    assert (env["PAGER"], env["GIT_TERMINAL_PROMPT"], env["GPG_TTY"]) == ("cat", "0", "")
    assert (env["GROK_AGENT"], env["GROK_SESSION_ID"], env["GROK_TASK"]) == ("1", "s", "n.1")
    assert "PYTHONHOME" not in env
    assert "PYTHONUNBUFFERED" not in env


def test_session_wins_but_for_what_would_wait() -> None:
    env = layered(session={"TERM": "screen", "PAGER": "less", "PYTHONHOME": "/mine", "PATH": "/s"})
    assert env["TERM"] == "screen"
    assert env["PAGER"] == "cat"
    assert env["PYTHONHOME"] == "/mine"
    assert env["PATH"] == "/login:/usr/bin:/s"


def test_background_and_monitor_print_line_by_line() -> None:
    assert layered(background=True)["PYTHONUNBUFFERED"] == "1"
    assert layered(background=True, base={"PYTHONUNBUFFERED": "0"})["PYTHONUNBUFFERED"] == "0"
    monitor = layered(monitor=True)
    assert (monitor["TERM"], monitor["FORCE_COLOR"]) == ("dumb", "0")
    assert "COLORTERM" not in monitor


@pytest.mark.parametrize(
    ("first", "second", "merged"),
    [("", "", ""), ("a", "", "a"), ("", "b", "b"), ("a:b", "b:c:a", "a:b:c"), ("a::b", ":c:", "a:b:c")],
)
def test_paths(first: str, second: str, merged: str) -> None:
    assert merge_paths(first, second) == merged


def test_shells(tmp_path: Path) -> None:
    for name in ("zsh", "fish", "bash"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    path = {"PATH": str(tmp_path)}
    assert resolve_shell({"SHELL": f"{tmp_path}/zsh", **path}) == Shell(f"{tmp_path}/zsh", "zsh")
    assert resolve_shell({"SHELL": "zsh", **path}) == Shell(f"{tmp_path}/zsh", "zsh")
    assert resolve_shell({"SHELL": f"{tmp_path}/fish", **path}) == Shell(f"{tmp_path}/bash", "bash")
    assert resolve_shell(path) == Shell(f"{tmp_path}/bash", "bash")
    (tmp_path / "bash").chmod(0o644)
    assert resolve_shell({"SHELL": f"{tmp_path}/fish", "PATH": ""}).kind in ("bash", "sh")


def test_login_output_is_read_behind_its_marks() -> None:
    login = _parse(b"Welcome!\nM\0A=1\0B=x=y\nz\0bad-name=1\0PWD=/x\0M\0f () { :; }\n", "M")
    assert login.variables == {"A": "1", "B": "x=y\nz"}
    assert login.script == b"f () { :; }\n"
    assert _parse(b"it failed", "M").variables == {}


def test_a_models_ids_lead_nowhere() -> None:
    def path(call_id: str, kind: TaskKind = TaskKind.BASH, used: tuple[str, ...] = ()) -> str:
        return log_path("/logs", Command("c", call_id, "/", Deadline(1), kind=kind), used)

    assert path("call_1") == "/logs/call_1.log"
    assert path("m", TaskKind.MONITOR) == "/logs/monitor-m.log"
    assert path("a", used=("/logs/a.log", "/logs/a-2.log")) == "/logs/a-3.log"
    for wild in ("../../etc/x", "", ".hidden", "a/b", "x" * 500, "nul\0"):
        assert Path(path(wild)).parent == Path("/logs")
        assert Path(path(wild)).name.startswith("call-")


def test_ids_sort_by_time() -> None:
    first, second = time_ordered_id(), time_ordered_id()
    assert first[14] == "7"
    assert first[:13] <= second[:13]
    spelled = spellings("x")
    assert [next(spelled) for _ in range(3)] == ["x", "x-2", "x-3"]
