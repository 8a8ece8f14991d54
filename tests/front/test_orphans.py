"""Connections of a lost worker: kept for their client, then forgotten."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.front import orphans
from gateway.front.orphans import OrphanBook, Orphans
from gateway.paths import Paths
from gateway.wire.journal import Journal, journal_path
from gateway.wire.leases import Leases
from gateway.wire.process import Identity
from gateway.wire.records import Opened, Owned

LIVING, DEAD = "a" * 32, "d" * 32


@pytest.fixture
def paths(short_tmp: Path) -> Paths:
    one = Paths.from_environment({"GROK_GATEWAY_HOME": str(short_tmp)})
    one.create()
    return one


def owned(process: Identity) -> Owned:
    return Owned("worker_00", process.pid, process.created)


def journal(paths: Paths, conn: str, process: Identity) -> None:
    Journal.create(paths, Opened(conn), owned(process)).close()


def dead_process() -> Identity:
    child = subprocess.Popen(["sleep", "60"])
    identity = Identity.of(child.pid)
    child.kill()
    child.wait()
    assert identity
    return identity


def myself() -> Identity:
    identity = Identity.of(os.getpid())
    assert identity
    return identity


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


def test_an_orphan_expires_once_after_its_window() -> None:
    book = OrphanBook(window=60)
    book.see(["c1"], 100)
    book.see(["c1", "c2"], 130)
    assert book.next_expiry == 160
    assert book.take_expired(159) == []
    assert book.take_expired(160) == ["c1"]
    assert book.take_expired(160) == []
    assert book.next_expiry == 190


def test_a_window_begins_anew_after_a_take_over() -> None:
    book = OrphanBook(window=60)
    book.see(["c1"], 100)
    book.see([], 120)
    assert book.next_expiry is None
    book.see(["c1"], 150)
    assert book.next_expiry == 210


async def test_forgotten_when_nobody_comes_back(paths: Paths) -> None:
    journal(paths, LIVING, myself())
    journal(paths, DEAD, dead_process())
    leases = Leases(paths)
    assert leases.take("session", DEAD) is None
    now = [0.0]
    one = Orphans(paths, clock=lambda: now[0])
    await one.start()
    await until(lambda: one._book.next_expiry is not None)
    assert leases.holder("session") == DEAD
    now[0] += orphans.LIMITS.resume_window - 1
    one.worker_lost()
    await until(lambda: not one._look.is_set())
    assert journal_path(paths, DEAD).exists()
    now[0] += 1
    one.worker_lost()
    await until(lambda: not journal_path(paths, DEAD).exists())
    assert journal_path(paths, LIVING).exists()
    await until(lambda: leases.take("session", LIVING) is None)
    await one.close()


async def test_one_that_was_taken_over_stays(paths: Paths) -> None:
    journal(paths, DEAD, dead_process())
    now = [0.0]
    one = Orphans(paths, clock=lambda: now[0])
    await one.start()
    await until(lambda: one._book.next_expiry is not None)
    Journal.adopt(paths, DEAD, owned(myself())).close()
    now[0] += orphans.LIMITS.resume_window
    one.worker_lost()
    await until(lambda: one._book.next_expiry is None)
    assert journal_path(paths, DEAD).exists()
    await one.close()


async def test_the_start_clears_away_what_is_no_journal(paths: Paths) -> None:
    journal(paths, DEAD, dead_process())
    torn = journal_path(paths, "e" * 32)
    torn.write_bytes(b'{"half a rec')
    leases = Leases(paths)
    (paths.journals / ("f" * 32 + ".jsonl")).touch()
    leases.take("session", "f" * 32)
    one = Orphans(paths)
    await one.start()
    assert [path.name for path in paths.journals.iterdir()] == [f"{DEAD}.jsonl"]
    assert leases.holder("session") is None
    await one.close()
