"""Connections of a lost worker: rescued in time, held meanwhile, kept for their client, then let go."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from gateway.front.orphans import OrphanBook, Orphans, Phase
from gateway.front.rescue import Ward
from gateway.paths import Paths
from gateway.wire.handoff import LeaderInfo
from gateway.wire.journal import Journal, journal_path, read_journal
from gateway.wire.leases import Leases
from gateway.wire.limits import LIMITS, SIZES
from gateway.wire.process import Identity
from gateway.wire.records import Attached, GateOpened, Opened, Owned, Record, RequestOpened

LIVING, DEAD = "a" * 32, "d" * 32
GENERATION = "0badcafe"
HOOK = GateOpened(f"{GENERATION}.7", "_x.ai/hooks/run", "s1", event="pre_tool_use", tool_use_id="call_1")
PERMISSION = GateOpened(f"{GENERATION}.8", "session/request_permission", "s1")
SESSIONS = (Attached("s1", {"cwd": "/"}), Attached("s2", {"cwd": "/"}))
PROMPT = RequestOpened("k1", "1", "session/prompt", "s2")
GRACE, WINDOW = LIMITS.orphan_grace, LIMITS.resume_window


def owned(process: Identity) -> Owned:
    return Owned("worker_00", process.pid, process.created)


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


# -- the decision ----------------------------------------------------------------------------------

WORKER, NEXT = Identity(7, 1.0), Identity(8, 2.0)


def due(book: OrphanBook, now: float) -> list[tuple[Phase, str]]:
    phases = (Phase.HOOK_OPEN, Phase.WAITING, Phase.KEPT)
    return [(phase, conn) for phase in phases for conn in book.due(phase, now)]


def test_an_open_hook_is_due_at_once_and_the_rest_after_the_grace() -> None:
    book = OrphanBook()
    book.see("hook", WORKER, True, 100)
    book.see("turn", WORKER, False, 100)
    assert due(book, 100) == [(Phase.HOOK_OPEN, "hook")]
    assert book.held("hook")
    assert not book.held("turn")
    book.begin("hook")
    assert book.held("hook")
    assert due(book, 100) == []
    book.done("hook", 100.1)
    assert not book.held("hook")  # its client may have it back
    assert due(book, 100 + GRACE) == [(Phase.WAITING, "hook"), (Phase.WAITING, "turn")]
    book.begin("turn")
    assert book.held("turn")
    book.done("turn", 106)
    assert not book.held("turn")
    assert due(book, 106 + WINDOW - 1) == [(Phase.WAITING, "hook")]
    assert (Phase.KEPT, "turn") in due(book, 106 + WINDOW)
    book.begin("turn")
    assert book.held("turn")
    book.gone("turn")
    assert book.phase("turn") is None


def test_one_that_was_taken_over_begins_anew() -> None:
    book = OrphanBook()
    book.see("c", WORKER, False, 100)
    book.see("c", WORKER, True, 101)  # the same death, seen again
    assert due(book, 101) == []
    book.see("c", NEXT, True, 102)
    assert due(book, 102) == [(Phase.HOOK_OPEN, "c")]


def test_a_socket_on_its_way_is_waited_for() -> None:
    book = OrphanBook()
    book.see("c", WORKER, False, 0)
    book.offered("c", GRACE)
    assert due(book, GRACE) == []
    assert due(book, GRACE + LIMITS.offer) == [(Phase.WAITING, "c")]


def test_a_rescue_that_fails_is_tried_again_but_not_for_ever() -> None:
    book = OrphanBook()
    book.see("c", WORKER, True, 0)
    now = 0.0
    for _ in range(SIZES.rescues - 1):
        assert due(book, now) == [(Phase.HOOK_OPEN, "c")]
        book.begin("c")
        assert book.failed("c", now)
        assert book.held("c")
        assert due(book, now) == []
        now = book.next_due(leader_ready=True)
    book.begin("c")
    assert not book.failed("c", now)
    assert not book.held("c")


def test_with_the_leader_every_turn_has_ended() -> None:
    book = OrphanBook()
    book.see("hook", WORKER, True, 0)
    book.see("turn", WORKER, False, 0)
    assert book.next_due(leader_ready=False) == float("inf")
    book.no_leader(1)
    assert not book.held("hook")
    assert due(book, 1 + WINDOW) == [(Phase.KEPT, "hook"), (Phase.KEPT, "turn")]


# -- the shell -------------------------------------------------------------------------------------


class StandInRescuer:
    """Rescues at once, or when ``go`` is set; ``answers`` are what becomes of the next ones."""

    def __init__(self) -> None:
        self.rescues = list[tuple[Ward, str]]()
        self.answers = list[bool]()
        self.go = asyncio.Event()
        self.go.set()

    async def rescue(self, wards: Sequence[Ward], reason: str) -> bool:
        self.rescues += [(ward, reason) for ward in wards]
        await self.go.wait()
        return self.answers.pop(0) if self.answers else True


class Scene:
    def __init__(self, folder: Path) -> None:
        self.paths = Paths.from_environment({"GROK_GATEWAY_HOME": str(folder)})
        self.paths.create()
        self.leader = LeaderInfo("ready", generation=GENERATION)
        self.rescuer = StandInRescuer()
        self.now = 0.0
        self.orphans = Orphans(self.paths, lambda: self.leader, self.rescuer, lambda: self.now)

    def journal(self, conn: str, process: Identity, *records: Record) -> None:
        journal = Journal.create(self.paths, Opened(conn), owned(process))
        journal.append(*records)
        journal.close()

    def exists(self, conn: str) -> bool:
        return journal_path(self.paths, conn).exists()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.orphans.leader_changed()

    def phase(self, conn: str = DEAD) -> Phase | None:
        return self.orphans._book.phase(conn)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
async def scene(short_tmp: Path) -> AsyncIterator[Scene]:
    one = Scene(short_tmp)
    yield one
    await one.orphans.close()


async def test_an_open_hook_is_rescued_at_the_start_and_held(scene: Scene) -> None:
    scene.journal(DEAD, dead_process(), *SESSIONS, HOOK, PROMPT)
    scene.rescuer.go.clear()
    await scene.orphans.start()
    await until(lambda: scene.rescuer.rescues)
    ((ward, _),) = scene.rescuer.rescues
    assert (ward.sessions, ward.suspects, ward.gates) == (("s1",), (), (HOOK,))
    held = scene.orphans.hold(DEAD)
    assert held
    assert not held.done()
    assert scene.orphans.hold(LIVING) is None
    scene.rescuer.go.set()
    await held
    record = read_journal(journal_path(scene.paths, DEAD))
    assert record
    assert record.rescued.keys() == {"s1"}
    assert not record.gates
    assert record.requests  # the next owner answers it
    assert scene.phase() is Phase.WAITING


async def test_nobody_comes_back(scene: Scene) -> None:
    scene.journal(LIVING, myself(), *SESSIONS, HOOK)
    scene.journal(DEAD, dead_process(), *SESSIONS, PERMISSION)
    leases = Leases(scene.paths)
    assert leases.take("s1", DEAD) is None
    await scene.orphans.start()
    assert scene.phase() is Phase.WAITING
    assert scene.orphans.hold(DEAD) is None
    scene.pass_time(GRACE)
    await until(lambda: scene.phase() is Phase.KEPT)
    ((ward, _),) = scene.rescuer.rescues
    assert (ward.sessions, ward.suspects, ward.gates) == (("s1",), ("s1", "s2"), (PERMISSION,))
    assert leases.holder("s1") == DEAD
    scene.pass_time(WINDOW - 1)
    await asyncio.sleep(0.02)
    assert scene.exists(DEAD)
    scene.pass_time(1)
    await until(lambda: not scene.exists(DEAD))
    assert scene.exists(LIVING)
    await until(lambda: leases.take("s1", LIVING) is None)


async def test_one_that_was_taken_over_stays(scene: Scene) -> None:
    scene.journal(DEAD, dead_process(), *SESSIONS, PROMPT)
    await scene.orphans.start()
    Journal.adopt(scene.paths, DEAD, owned(myself())).close()
    scene.pass_time(GRACE)
    await until(lambda: scene.phase() is None)
    assert not scene.rescuer.rescues
    assert scene.exists(DEAD)


async def test_held_until_the_worker_has_ended_and_its_journals_are_read(scene: Scene) -> None:
    await scene.orphans.start()
    child = subprocess.Popen(["sleep", "60"])
    worker = Identity.of(child.pid)
    assert worker
    scene.journal(DEAD, worker, *SESSIONS, HOOK)
    scene.rescuer.go.clear()
    scene.orphans.worker_lost(worker, [DEAD])
    held = scene.orphans.hold(DEAD)
    assert held
    await asyncio.sleep(0.05)
    assert not scene.rescuer.rescues  # it lives: two would drive one session
    child.kill()
    child.wait()
    await until(lambda: scene.rescuer.rescues)
    assert not held.done()
    scene.rescuer.go.set()
    await held


async def test_a_worker_that_only_lost_its_channel_keeps_its_connections(scene: Scene) -> None:
    await scene.orphans.start()
    scene.journal(LIVING, myself(), *SESSIONS, HOOK)
    scene.orphans.worker_lost(myself(), [LIVING])
    held = scene.orphans.hold(LIVING)
    assert held
    scene.orphans.worker_back(myself())
    await held
    assert not scene.rescuer.rescues


async def test_a_connection_whose_worker_nobody_knew_is_found(scene: Scene) -> None:
    await scene.orphans.start()
    scene.journal(DEAD, dead_process(), *SESSIONS, HOOK)
    scene.orphans.worker_lost(None, [])
    await until(lambda: scene.rescuer.rescues)


async def test_hooks_wait_for_a_leader_that_starts_and_die_with_another(scene: Scene) -> None:
    scene.journal(DEAD, dead_process(), *SESSIONS, HOOK)
    scene.leader = LeaderInfo("starting")
    await scene.orphans.start()
    held = scene.orphans.hold(DEAD)
    assert held
    await asyncio.sleep(0.02)
    assert not scene.rescuer.rescues
    scene.leader = LeaderInfo("ready", generation="5ca1ab1e")
    scene.orphans.leader_changed()
    await held
    assert not scene.rescuer.rescues


async def test_a_lost_leader_frees_what_is_held(scene: Scene) -> None:
    scene.journal(DEAD, dead_process(), *SESSIONS, HOOK)
    scene.leader = LeaderInfo("starting")
    await scene.orphans.start()
    held = scene.orphans.hold(DEAD)
    assert held
    scene.leader = LeaderInfo("backoff")
    scene.orphans.leader_changed()
    await held
    assert scene.phase() is Phase.KEPT


async def test_a_failed_rescue_is_tried_again(scene: Scene) -> None:
    scene.journal(DEAD, dead_process(), *SESSIONS, HOOK)
    scene.rescuer.answers = [False, True]
    await scene.orphans.start()
    await until(lambda: scene.rescuer.rescues)
    held = scene.orphans.hold(DEAD)
    assert held
    scene.pass_time(LIMITS.rescue_again)
    await held
    assert len(scene.rescuer.rescues) == 2


async def test_a_subagents_hook_ends_every_session_that_may_have_started_it(scene: Scene) -> None:
    child = GateOpened(f"{GENERATION}.9", "_x.ai/hooks/run", "child", event="PreToolUse")
    scene.journal(DEAD, dead_process(), *SESSIONS, child)
    await scene.orphans.start()
    await until(lambda: scene.rescuer.rescues)
    ((ward, _),) = scene.rescuer.rescues
    assert ward.sessions == ("s1", "s2")


async def test_the_start_clears_away_what_is_no_journal(scene: Scene) -> None:
    scene.journal(DEAD, dead_process())
    torn = journal_path(scene.paths, "e" * 32)
    torn.write_bytes(b'{"half a rec')
    leases = Leases(scene.paths)
    (scene.paths.journals / ("f" * 32 + ".jsonl")).touch()
    with contextlib.suppress(OSError):
        leases.take("session", "f" * 32)
    await scene.orphans.start()
    assert [path.name for path in scene.paths.journals.iterdir()] == [f"{DEAD}.jsonl"]
    assert leases.holder("session") is None
