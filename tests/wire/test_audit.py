"""The audit log: every decision once, private, bounded, from several processes."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from gateway.wire import audit, filelock
from gateway.wire.audit import AuditLog, Decision
from gateway.wire.limits import SIZES, Limits, Sizes

ALLOWED = Decision("c" * 32, "s-1", "pre_tool_use", "run_terminal_command", "call_1", "client", "allow", 12)


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_record(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.write(ALLOWED, 1796053226.5)
    log.write(Decision("c", "s", "stop", "", "", "guard", "continue", 5000, "no answer in 5 s"), 0)
    assert read(path) == [
        {
            "time": "2026-11-30T15:40:26.500+00:00",
            "connection": "c" * 32,
            "session_id": "s-1",
            "kind": "pre_tool_use",
            "tool": "run_terminal_command",
            "tool_use_id": "call_1",
            "by": "client",
            "answer": "allow",
            "ms": 12,
            "why": "",
        },
        {
            "time": "1970-01-01T00:00:00.000+00:00",
            "connection": "c",
            "session_id": "s",
            "kind": "stop",
            "tool": "",
            "tool_use_id": "",
            "by": "guard",
            "answer": "continue",
            "ms": 5000,
            "why": "no answer in 5 s",
        },
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["rm -rf / # please", "line\nline", "\ud800", "{}", "é", "x" * 10_000 + " "])
def test_what_is_no_name_is_not_recorded(tmp_path: Path, text: str) -> None:
    path = tmp_path / "audit.jsonl"
    AuditLog(path).write(Decision("c", text, text, text, text, "client", text, 1, "w" * 10_000), 0)
    assert path.stat().st_size < 7 * SIZES.audit_text + 200
    (record,) = read(path)
    assert text not in record.values()


def test_the_log_is_bounded_and_the_newest_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "SIZES", Sizes(log=2000, log_backups=2))
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    for number in range(100):
        log.write(Decision("c", "s", "stop", "", "", "client", "continue", number), 0)
    files = [path.with_name("audit.jsonl.2"), path.with_name("audit.jsonl.1"), path]
    kept = [record["ms"] for file in files for record in read(file)]
    assert kept == list(range(100 - len(kept), 100))
    assert len(kept) > 20
    assert all(file.stat().st_size <= 2000 for file in files)
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert {file.name for file in tmp_path.iterdir()} == {*(file.name for file in files), "audit.lock"}


def write_many(path: Path, name: str, count: int) -> None:
    log = AuditLog(path)
    for number in range(count):
        log.write(Decision(name, "s", "stop", "", "", "client", "continue", number), 0)
    os._exit(1 if log.failed else 0)


def test_several_processes_lose_and_mix_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count, backups = 1500, 60
    monkeypatch.setattr(audit, "SIZES", Sizes(log=20_000, log_backups=backups))
    path = tmp_path / "audit.jsonl"
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=write_many, args=(path, f"w{n}", count)) for n in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    files = [path.with_name(f"audit.jsonl.{n}") for n in range(backups, 0, -1)] + [path]
    records = [record for file in files if file.exists() for record in read(file)]
    assert len([file for file in files if file.exists()]) > 20
    for name in ("w0", "w1", "w2"):
        assert sorted(r["ms"] for r in records if r["connection"] == name) == list(range(count))  # type: ignore[type-var]


def test_a_removed_log_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.write(ALLOWED, 0)
    path.unlink()
    log.write(ALLOWED, 0)
    assert len(read(path)) == 1
    log.close()
    log.write(ALLOWED, 0)
    assert len(read(path)) == 2
    assert not log.failed


def test_a_stopped_holder_of_the_lock_only_delays_rotation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "SIZES", Sizes(log=100))
    monkeypatch.setattr(filelock, "LIMITS", Limits(lock=0.01))
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    fd = os.open(tmp_path / "audit.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    log.write(ALLOWED, 0)
    log.write(ALLOWED, 0)
    assert len(read(path)) == 2
    os.close(fd)
    log.write(ALLOWED, 0)
    assert len(read(path)) == 1
    assert not log.failed


def test_what_cannot_be_written_is_counted_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = AuditLog(tmp_path / "gone" / "audit.jsonl")
    log.write(ALLOWED, 0)
    log.write(ALLOWED, 0)
    assert log.failed == 2
    assert len(caplog.records) == 1
    assert "not recorded" in caplog.text
