"""Telling leaders, strays and strangers apart, and ending only what is ours."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.engine import leader_arguments
from gateway.front import leader_process
from gateway.front.leader_process import (
    Evidence,
    Leader,
    LeaderError,
    LeaderLog,
    Verdict,
    describe_exit,
    end_leaders,
    judge,
    listener,
    lock_pid,
    look,
    start,
    wait_listening,
)
from gateway.wire.limits import SIZES
from gateway.wire.process import Identity
from tests.engines.fake import FakeEngine

ONE, TWO = Identity(11, 1.0), Identity(12, 2.0)
OURS, STRAY = Leader(ONE, ("grok",), True), Leader(TWO, (), False)


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        (Evidence(), Verdict()),
        (Evidence((OURS,), 11, ONE), Verdict(OURS)),
        (Evidence((OURS,), 11, None), Verdict(OURS)),  # it is about to listen
        (Evidence((OURS,), 0, None), Verdict(None, (OURS,))),  # nobody can find it
        (Evidence((OURS,), 12, ONE), Verdict(None, (OURS,))),  # the lock is another's
        (Evidence((OURS,), 11, TWO), Verdict(None, (OURS,))),  # so is the socket
        (Evidence((STRAY,), 12, TWO), Verdict(None, (STRAY,))),  # works, but not as we want it
        (Evidence((OURS, STRAY), 11, ONE), Verdict(OURS, (STRAY,))),
        (Evidence((OURS, STRAY), 12, TWO), Verdict(None, (OURS, STRAY))),
        (Evidence((), 4711, Identity(4711, 3.0)), Verdict()),  # a stranger is nobody's to end
    ],
)
def test_verdicts(evidence: Evidence, verdict: Verdict) -> None:
    assert judge(evidence) == verdict


@pytest.fixture
def path(short_tmp: Path) -> Iterator[Path]:
    path = short_tmp / "leader.sock"
    yield path
    end_leaders(path)


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes to be killed and reaped."""
    started = list[subprocess.Popen[bytes]]()
    yield started
    for process in started:
        process.kill()
        process.wait()


def sleeper(*arguments: str, **env: str) -> subprocess.Popen[bytes]:
    """A process with these arguments and this environment that does nothing."""
    code = "import time; print(flush=True); time.sleep(120)"
    process = subprocess.Popen(
        [sys.executable, "-SE", "-c", code, *arguments], env=env, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    return process


# -- evidence ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("content", "pid"), [(b"123", 123), (b"", 0), (b"-5", 0), (b"12x", 0), (b"9" * 40, 9999999999999999)]
)
def test_the_lock_file_is_read_with_doubt(path: Path, content: bytes, pid: int) -> None:
    assert lock_pid(path) == 0
    path.with_suffix(".lock").write_bytes(content)
    assert lock_pid(path) == pid


def test_the_listener_is_known_by_its_credentials(path: Path) -> None:
    assert listener(path) is None
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        assert listener(path) is None, "bound is not listening"
        sock.listen()
        assert listener(path) == Identity.of(os.getpid())
    assert listener(path) is None, "the file alone is a leftover"


def test_leaders_are_known_by_exact_arguments(
    path: Path, processes: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    ours = sleeper(*leader_arguments(path))
    stray = sleeper("agent", "leader", "--relay-on-demand", GROK_LEADER_SOCKET=str(path))
    strangers = [
        sleeper(*leader_arguments(f"{path}2")),
        sleeper(" ".join(leader_arguments(path))),  # one argument that only looks like it
        sleeper("agent", "leader", f"--leader-socket={path}"),
        sleeper("agent", "--leader", "stdio", "--leader-socket", str(path)),
        sleeper("--leader-socket", str(path)),
        sleeper("agent", "leader", GROK_LEADER_SOCKET=f"{path}2"),
        sleeper(GROK_LEADER_SOCKET=str(path)),
    ]
    processes += [ours, stray, *strangers]
    found = {leader.identity.pid: leader for leader in look(path).leaders}
    assert set(found) == {ours.pid, stray.pid}
    assert (found[ours.pid].ours, found[stray.pid].ours) == (True, False)
    assert found[ours.pid].command[0] == sys.executable
    assert end_leaders(path) == ()
    assert ours.wait(5) == stray.wait(5) == -signal.SIGTERM
    assert [s.poll() for s in strangers] == [None] * len(strangers)


def test_a_pid_that_was_reused_is_not_signalled(
    path: Path, processes: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pid now belongs to another process than the one that was looked at."""
    stranger = sleeper(*leader_arguments(path))
    processes.append(stranger)
    true = Identity.of(stranger.pid)
    assert true is not None
    former = Identity(true.pid, true.created - 1)
    monkeypatch.setattr(leader_process, "_leaders", lambda path: [Leader(former, (), True)])
    end_leaders(path, patience=0.2)
    assert stranger.poll() is None


# -- ending -----------------------------------------------------------------------------------------
def test_one_is_spared_with_its_tools(path: Path, processes: list[subprocess.Popen[bytes]]) -> None:
    ours, stray = sleeper(*leader_arguments(path)), sleeper("agent", "leader", GROK_LEADER_SOCKET=str(path))
    tool = sleeper(GROK_LEADER_SOCKET=str(path), GROK_AGENT="1")
    processes += [ours, stray, tool]
    assert end_leaders(path, spare=Identity.of(ours.pid)) == ()
    assert stray.wait(5) == -signal.SIGTERM
    assert ours.poll() is tool.poll() is None


def test_what_tools_left_goes_with_the_leader_and_nothing_else(
    path: Path, processes: list[subprocess.Popen[bytes]]
) -> None:
    mark = {"GROK_LEADER_SOCKET": str(path), "GROK_AGENT": "1"}
    tool = sleeper(**mark)
    others = [
        sleeper(GROK_LEADER_SOCKET=f"{path}2", GROK_AGENT="1"),  # of another instance
        sleeper(**mark, GROK_GATEWAY_HOME="/x"),  # a gateway that a tool started
        sleeper(NOTE=f"GROK_LEADER_SOCKET={path}", GROK_AGENT="1"),
    ]
    processes += [tool, *others]
    assert end_leaders(path) == ()
    assert tool.wait(5) == -signal.SIGTERM
    assert [o.poll() for o in others] == [None] * len(others)


@pytest.mark.parametrize("stopped", [False, True])
def test_one_that_ignores_term_or_is_stopped_is_killed(
    path: Path, processes: list[subprocess.Popen[bytes]], stopped: bool
) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(120)"
    process = subprocess.Popen(
        [sys.executable, "-SE", "-c", code, *leader_arguments(path)], stdout=subprocess.PIPE
    )
    processes.append(process)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    if stopped:
        process.send_signal(signal.SIGSTOP)
    assert end_leaders(path, patience=0.2) == ()
    assert process.wait(5) == -signal.SIGKILL


# -- starting ---------------------------------------------------------------------------------------
async def test_started_apart_from_us_with_its_output_in_the_log(path: Path, short_tmp: Path) -> None:
    engine = FakeEngine(short_tmp, leader={"stderr": "\x1b[31mhello\x1b[0m from it\n"})
    log = LeaderLog(short_tmp / "leader.log")
    process = start([str(engine.path)], path, {"PATH": os.environ["PATH"]}, short_tmp, log)
    identity = Identity.of(process.pid)
    assert identity is not None
    await wait_listening(identity, path, lambda: None)
    assert os.getsid(process.pid) == process.pid
    evidence = look(path)
    assert judge(evidence).adopt == evidence.leaders[0]
    assert log.last_words() == "hello from it"
    assert end_leaders(path) == ()
    assert process.wait() == -signal.SIGTERM


async def test_a_second_leader_ends_with_code_1_and_the_first_stays(path: Path, short_tmp: Path) -> None:
    engine = FakeEngine(short_tmp)
    log = LeaderLog(short_tmp / "leader.log")
    first, second = (start([str(engine.path)], path, {}, short_tmp, log) for _ in range(2))
    async with asyncio.timeout(60):
        while first.poll() is None and second.poll() is None:  # either may win
            await asyncio.sleep(0.01)
    winner, loser = (first, second) if first.poll() is None else (second, first)
    assert loser.returncode == 1
    assert "Another leader already holds the lock" in describe_exit(1, log.last_words())
    identity = Identity.of(winner.pid)
    assert identity is not None
    await wait_listening(identity, path, lambda: None)
    end_leaders(path)
    winner.wait()


async def test_waiting_ends_with_the_process(path: Path) -> None:
    with pytest.raises(LeaderError, match="ended with exit code 3, its last words: no luck"):
        await wait_listening(ONE, path, lambda: describe_exit(3, "no luck"))


def test_a_program_that_cannot_be_executed(path: Path, short_tmp: Path) -> None:
    log = LeaderLog(short_tmp / "leader.log")
    with pytest.raises(LeaderError, match=r"cannot be started \(/nothing/here\): No such file"):
        start(["/nothing/here"], path, {}, short_tmp, log)
    with pytest.raises(LeaderError, match="cannot be started"):
        start(["/bin/true"], path, {}, short_tmp, LeaderLog(short_tmp / "missing" / "leader.log"))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (None, "ended"),
        (0, "ended with exit code 0"),
        (143, "ended with exit code 143"),
        (-9, "ended by signal SIGKILL"),
    ],
)
def test_exits_in_words(code: int | None, text: str) -> None:
    assert describe_exit(code, "") == text
    assert describe_exit(code, "bye") == f"{text}, its last words: bye"


def test_the_log_is_bounded_while_the_leader_keeps_writing(tmp_path: Path) -> None:
    log = LeaderLog(tmp_path / "leader.log")
    fd = log.open()
    try:
        os.write(fd, b"old line\n" * (SIZES.log // 9 + 1))
        log.trim()
        assert (tmp_path / "leader.log").stat().st_size == 0
        assert (tmp_path / "leader.log.1").stat().st_size > SIZES.log
        os.write(fd, b"new line\n")
        assert (tmp_path / "leader.log").read_bytes() == b"new line\n"
        assert log.last_words() == "new line"
    finally:
        os.close(fd)
