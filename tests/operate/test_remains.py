"""Which processes are ours, and how they are ended: on real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gateway.operate import remains
from gateway.paths import Paths
from gateway.wire.process import Identity

SLEEP = "import time; print(flush=True); time.sleep(600)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
#: starts a command in a session of its own, as a tool call does
WITH_COMMAND = (
    "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=-3); " + SLEEP
)


class Cast:
    """Starts processes with chosen arguments; all are ended afterwards."""

    def __init__(self, folder: Path) -> None:
        self.paths = Paths(folder / "c", folder / "s", folder / "r")
        self.made: list[subprocess.Popen[bytes]] = []

    def play(self, code: str, *arguments: str, run: Path | None = None) -> Identity:
        environ = {**os.environ, "GROK_GATEWAY_RUN_DIR": str(run or self.paths.run)}
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments], env=environ, stdout=subprocess.PIPE
        )
        self.made.append(process)
        assert process.stdout
        process.stdout.readline()
        identity = Identity.of(process.pid)
        assert identity
        return identity

    def leader(self, code: str = SLEEP, **options: Any) -> Identity:
        return self.play(code, "agent", "leader", "--leader-socket", str(self.paths.leader_socket), **options)

    def found(self) -> dict[str, Identity]:
        return {one.name: one.identity for one in remains.find(self.paths)}


@pytest.fixture
def cast(short_tmp: Path) -> Iterator[Cast]:
    cast = Cast(short_tmp)
    yield cast
    for process in cast.made:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("gateway.front", "gateway"),
        ("workers", "worker"),
        ("gateway.operate.watchdog", "watchdog"),
        ("harness.model.offline", "offline-model"),
        ("supervisor.supervisord", "supervisord"),
    ],
)
def test_components_are_known_by_module_and_run_folder(cast: Cast, module: str, name: str) -> None:
    ours = cast.play(SLEEP, "-m", module)
    cast.play(SLEEP, "-m", module, run=Path("/somewhere/else"))
    cast.play(SLEEP, f"-m {module}")
    assert cast.found() == {name: ours}


def test_engine_is_known_by_its_exact_socket_argument(cast: Cast) -> None:
    leader = cast.leader()
    bridge = cast.play(SLEEP, "agent", "stdio", "--leader-socket", str(cast.paths.leader_socket))
    cast.play(SLEEP, "agent", "leader", "--leader-socket", f"{cast.paths.leader_socket}x")
    cast.play(SLEEP, "agent", "leader", f"--leader-socket {cast.paths.leader_socket}")
    cast.play(SLEEP, "agent", "leader", str(cast.paths.leader_socket), "--leader-socket")
    assert cast.found() == {"leader": leader, "bridge": bridge}


def test_ended_with_term_or_with_kill(cast: Cast) -> None:
    polite, deaf, stopped = cast.leader(), cast.leader(DEAF), cast.leader()
    stopped.signal(signal.SIGSTOP)
    assert remains.end(remains.find(cast.paths), patience=0.5) == []
    assert not any(one.alive() for one in (polite, deaf, stopped))
    codes = {process.wait() for process in cast.made}
    assert codes == {-signal.SIGTERM, -signal.SIGKILL}


def test_commands_of_the_leader_end_with_it(cast: Cast) -> None:
    leader = cast.leader(WITH_COMMAND)
    (command,) = psutil.Process(leader.pid).children()
    known = Identity.of(command.pid)
    assert known
    assert remains.end(remains.find(cast.paths)) == []
    assert not known.alive()


def test_a_stranger_with_the_same_pid_is_left_alone(cast: Cast) -> None:
    """The pid that was listed belongs to another process when the signal comes."""
    stranger = cast.play(SLEEP)
    listed = remains.Remain("leader", Identity(stranger.pid, stranger.created - 1))
    assert remains.end([listed]) == []
    assert stranger.alive()
