"""Session leases: one owner at any moment, whoever dies or stops."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import secrets
import signal
import stat
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from gateway.paths import Paths
from gateway.wire import filelock
from gateway.wire.journal import Journal, forget
from gateway.wire.leases import LeaseError, Leases
from gateway.wire.limits import Limits
from gateway.wire.records import Opened, Owned

A, B = "a" * 32, "b" * 32
ROUNDS = 200


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path / "c", tmp_path / "s", tmp_path / "r")
    paths.create()
    for connection in (A, B):
        Journal.create(paths, Opened(connection), Owned("worker_00", 1, 0.0)).close()
    return paths


def test_a_session_has_one_owner(paths: Paths) -> None:
    leases = Leases(paths)
    assert leases.holder("s") is None
    assert leases.take("s", A) is None
    assert leases.take("s", A) is None
    assert leases.take("s", B) == A
    assert Leases(paths).holder("s") == A
    leases.release("s", B)
    assert leases.holder("s") == A
    leases.release("s", A)
    assert leases.take("s", B) is None
    leases.release("s", A)
    leases.release_all(A)
    assert leases.holder("s") == B
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in paths.leases.iterdir())


@pytest.mark.parametrize("session_id", ["", "/", "../x", "é" * 300, "\ud800", "lock", "s.new"])
def test_any_string_is_a_session(paths: Paths, session_id: str) -> None:
    leases = Leases(paths)
    assert leases.take(session_id, A) is None
    assert leases.take(session_id, B) == A
    assert leases.holder(session_id + "x") is None


def test_without_a_journal_a_lease_is_stale(paths: Paths) -> None:
    leases = Leases(paths)
    leases.take("s", A)
    leases.take("t", A)
    leases.take("u", B)
    (paths.journals / f"{A}.jsonl").unlink()
    assert leases.holder("s") is None
    assert leases.take("s", B) is None
    leases.sweep()
    assert {leases.holder(s) for s in "stu"} == {B, None}
    assert len(list(paths.leases.iterdir())) == 3  # s, u and the lock
    forget(paths, B)
    assert {leases.holder(s) for s in "stu"} == {None}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'"x"', b"{}", b'{"connection":7}', b'{"connection":"../x"}']
)
def test_a_damaged_lease_is_none(paths: Paths, content: bytes) -> None:
    leases = Leases(paths)
    leases.take("s", A)
    (file,) = (file for file in paths.leases.iterdir() if file.name != "lock")
    file.write_bytes(content)
    assert leases.holder("s") is None
    assert leases.take("s", B) is None
    assert leases.holder("s") == B


def compete(paths: Paths, start: Barrier, connection: str, won: str) -> None:
    """Take and give back one session again and again; leave a trace of each time it was ours."""
    leases = Leases(paths)
    start.wait()
    count = 0
    for _ in range(ROUNDS):
        if leases.take("s", connection) is None:
            count += 1
            # O_EXCL fails if any other process believes to own the session too.
            fd = os.open(f"{won}.owner", os.O_CREAT | os.O_EXCL)
            assert leases.holder("s") == connection
            Path(f"{won}.owner").unlink()
            os.close(fd)
            leases.release("s", connection)
        else:
            time.sleep(0)
    Path(f"{won}.{connection}").write_text(str(count))


def test_three_processes_never_share_a_session(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filelock, "LIMITS", Limits(lock=60))  # a busy machine may suspend a holder
    ids = [secrets.token_hex(16) for _ in range(3)]
    for connection in ids:
        Journal.create(paths, Opened(connection), Owned("w", 1, 0.0)).close()
    context = multiprocessing.get_context("fork")
    start, won = context.Barrier(3), str(tmp_path / "won")
    children = [context.Process(target=compete, args=(paths, start, connection, won)) for connection in ids]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    counts = [int(Path(f"{won}.{connection}").read_text()) for connection in ids]
    assert all(counts)
    assert Leases(paths).holder("s") is None


def test_a_stopped_holder_of_the_lock_stops_nobody_else(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = Leases(paths)
    leases.take("s", A)
    monkeypatch.setattr(filelock, "LIMITS", Limits(lock=0.05))
    child = os.fork()
    if child == 0:
        fd = os.open(paths.leases / "lock", os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)
        (paths.leases.parent / "locked").touch()
        signal.pause()
        os._exit(0)
    try:
        while not (paths.leases.parent / "locked").exists():
            time.sleep(0.001)
        with pytest.raises(LeaseError, match="another process"):
            leases.take("s", B)
        assert leases.holder("s") == A  # reading needs no lock
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert leases.take("s", B) == A  # the kernel has freed the lock
    leases.release("s", A)
    assert leases.take("s", B) is None
