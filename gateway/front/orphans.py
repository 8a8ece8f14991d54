"""Orphans: connections whose worker is gone and whose client may come back, to any worker.

`OrphanBook` is the decision, one row a step in its table; `Orphans` reads the journals and carries it out:

============ =================================================== ======================================
phase        meaning                                             until
============ =================================================== ======================================
hook open    a tool waits for a word that cannot come            the leader is ready: rescued at once
ending hooks the turns with an open hook are being ended         they have, by a bridge that has exited
waiting      its client may come to any worker, and goes on      ``LIMITS.orphan_grace`` has passed
ending all   whatever of it is at work is being ended            it has, by a bridge that has exited
kept         nothing of it runs                                  ``LIMITS.resume_window`` has passed
letting go   its files and its sessions are being let go         they are: it can never be resumed
============ =================================================== ======================================

A worker takes a connection over while it is waiting or kept.  In the other phases its resume is *held*: the
bridge of a rescue must be gone before anybody attaches the sessions, or that bridge would be asked before
their tools run.  It is held, too, until a lost worker's journals have been read: while its process lives,
two workers would drive one session.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import enum
import logging
import math
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from typing import Any, Protocol

from gateway.front.rescue import Ward, everything_of, open_hooks, turns_with_a_hook
from gateway.paths import Paths
from gateway.wire.handoff import LeaderInfo
from gateway.wire.journal import (
    Journal,
    JournalError,
    forget,
    journal_path,
    read_journal,
    read_journals,
    sweep,
)
from gateway.wire.leases import LeaseError
from gateway.wire.limits import LIMITS, SIZES, Limits
from gateway.wire.process import Exit, Identity
from gateway.wire.records import ConnectionRecord, GateClosed, Owned, Rescued

__all__ = ["OrphanBook", "Orphans", "Phase"]

log = logging.getLogger("front.orphans")


class Phase(enum.Enum):
    HOOK_OPEN = "hook open"
    ENDING_HOOKS = "ending hooks"
    WAITING = "waiting"
    ENDING_ALL = "ending all"
    KEPT = "kept"
    LETTING_GO = "letting go"


class _Event(enum.Enum):
    DUE = "its time has come"
    DONE = "the rescue is over"
    FAILED = "the rescue could not be carried out"
    NO_LEADER = "the leader has ended, and every turn with it"


#: (phase, event) → phase.  What is not here changes nothing.
_MOVES = {
    (Phase.HOOK_OPEN, _Event.DUE): Phase.ENDING_HOOKS,
    (Phase.HOOK_OPEN, _Event.NO_LEADER): Phase.KEPT,
    (Phase.ENDING_HOOKS, _Event.DONE): Phase.WAITING,
    (Phase.ENDING_HOOKS, _Event.FAILED): Phase.HOOK_OPEN,
    (Phase.WAITING, _Event.DUE): Phase.ENDING_ALL,
    (Phase.WAITING, _Event.NO_LEADER): Phase.KEPT,
    (Phase.ENDING_ALL, _Event.DONE): Phase.KEPT,
    (Phase.ENDING_ALL, _Event.FAILED): Phase.WAITING,
    (Phase.KEPT, _Event.DUE): Phase.LETTING_GO,
}
_FREE = frozenset({Phase.WAITING, Phase.KEPT})


@dataclasses.dataclass(slots=True)
class _Orphan:
    owner: Identity  #: the dead worker: another one's death is another story
    since: float
    phase: Phase
    due: float
    failures: int = 0


class OrphanBook:
    """What is due for which connection.  Times are seconds of any monotonic clock."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self._orphans = dict[str, _Orphan]()

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._orphans))

    def phase(self, conn: str) -> Phase | None:
        orphan = self._orphans.get(conn)
        return orphan.phase if orphan else None

    def held(self, conn: str) -> bool:
        """Whether nobody may take the connection over now."""
        phase = self.phase(conn)
        return phase is not None and phase not in _FREE

    def see(self, conn: str, owner: Identity, hook_open: bool, now: float) -> None:
        """The connection's worker is dead."""
        known = self._orphans.get(conn)
        if known is None or known.owner != owner:
            phase = Phase.HOOK_OPEN if hook_open else Phase.WAITING
            due = now if hook_open else now + self._limits.orphan_grace
            self._orphans[conn] = _Orphan(owner, now, phase, due)

    def gone(self, conn: str) -> None:
        """A worker has taken it over, or its journal is gone."""
        self._orphans.pop(conn, None)

    def offered(self, conn: str, now: float) -> None:
        """Its client's socket is on the way to a worker, whose word takes a moment."""
        if orphan := self._orphans.get(conn):
            orphan.due = max(orphan.due, now + self._limits.offer)

    def due(self, phase: Phase, now: float) -> list[str]:
        """Those in a phase whose time has come."""
        return [c for c, o in self._orphans.items() if o.phase is phase and o.due <= now]

    def next_due(self, leader_ready: bool) -> float:
        """When to look again; infinity if nothing is due by itself."""
        able = {Phase.HOOK_OPEN, Phase.WAITING, Phase.KEPT} if leader_ready else {Phase.KEPT}
        return min((o.due for o in self._orphans.values() if o.phase in able), default=math.inf)

    def begin(self, conn: str) -> None:
        """What is due for it begins."""
        self._move(self._orphans[conn], _Event.DUE)

    def done(self, conn: str, now: float) -> None:
        """Its rescue has ended what it should."""
        if orphan := self._orphans.get(conn):
            orphan.failures = 0
            self._move(orphan, _Event.DONE)
            self._set_due(orphan, now)

    def failed(self, conn: str, now: float) -> bool:
        """Its rescue has not: tried again after a pause, ``SIZES.rescues`` times; False: given up."""
        orphan = self._orphans.get(conn)
        if orphan is None:
            return True
        orphan.failures += 1
        if orphan.failures >= SIZES.rescues:
            self.done(conn, now)
            return False
        self._move(orphan, _Event.FAILED)
        orphan.due = now + self._limits.rescue_again
        return True

    def no_leader(self, now: float) -> None:
        """The leader has ended, and every turn with it."""
        for orphan in self._orphans.values():
            if orphan.phase in (Phase.HOOK_OPEN, Phase.WAITING):
                self._move(orphan, _Event.NO_LEADER)
                self._set_due(orphan, now)

    def _set_due(self, orphan: _Orphan, now: float) -> None:
        if orphan.phase is Phase.WAITING:
            orphan.due = max(now, orphan.since + self._limits.orphan_grace)
        elif orphan.phase is Phase.KEPT:
            orphan.due = now + self._limits.resume_window

    @staticmethod
    def _move(orphan: _Orphan, event: _Event) -> None:
        orphan.phase = _MOVES.get((orphan.phase, event), orphan.phase)


class _Rescuer(Protocol):
    async def rescue(self, wards: Sequence[Ward], reason: str) -> bool: ...


#: States of the leader in which its process, and with it every turn, has ended or is being ended.
_NO_LEADER = frozenset({"lost", "backoff", "broken"})

_Make = Callable[[ConnectionRecord, str], Ward]
#: What is due in a phase: whose turns are ended, and why.
_RESCUES: dict[Phase, tuple[_Make, str]] = {
    Phase.HOOK_OPEN: (turns_with_a_hook, "its worker ended while a hook was open"),
    Phase.WAITING: (lambda record, generation: everything_of(record), "its client has not come back"),
}


class Orphans:
    """Rescues and forgets.  ``leader()`` tells how the leader is."""

    def __init__(
        self,
        paths: Paths,
        leader: Callable[[], LeaderInfo],
        rescuer: _Rescuer,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths, self._leader, self._rescuer, self._clock = paths, leader, rescuer, clock
        self._book = OrphanBook()
        self._records = dict[str, ConnectionRecord]()
        self._unread = collections.Counter[str]()  # connections of lost workers, not looked at yet
        self._bereaved = dict[Identity, asyncio.Task[None]]()
        self._holds = dict[str, list[asyncio.Future[None]]]()
        self._news = asyncio.Event()
        self._looking = asyncio.Lock()
        self._tasks = set[asyncio.Task[None]]()

    async def start(self) -> None:
        """Clear away what is no journal (before new connections write theirs), then begin to watch."""
        await asyncio.to_thread(self._sweep)
        await self._look(None)
        self._spawn(self._watch())

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- what the front tells and asks -----------------------------------------------------------

    def worker_lost(self, worker: Identity | None, connections: Collection[str]) -> None:
        """The channel to a worker has broken; it had these ``connections``."""
        known = tuple(connections)
        self._unread.update(known)
        task = self._spawn(self._mourn(worker, known))
        task.add_done_callback(lambda done: self._mourned(worker, known, done.cancelled()))
        if worker is not None:
            self._bereaved[worker] = task

    def worker_back(self, worker: Identity) -> None:
        """It lives: only its channel was lost."""
        if task := self._bereaved.get(worker):
            task.cancel()

    def leader_changed(self) -> None:
        self._news.set()

    def hold(self, conn: str) -> asyncio.Future[None] | None:
        """None: a worker may take the connection over.  Else done when that is so."""
        if not self._is_held(conn):
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._holds.setdefault(conn, []).append(future)
        return future

    def offered(self, conn: str) -> None:
        """Its client's socket is on the way to a worker."""
        self._book.offered(conn, self._clock())

    def _is_held(self, conn: str) -> bool:
        return self._unread[conn] > 0 or self._book.held(conn)

    def _release(self) -> None:
        for conn in [conn for conn in self._holds if not self._is_held(conn)]:
            for future in self._holds.pop(conn):
                if not future.done():
                    future.set_result(None)

    # -- who is an orphan ------------------------------------------------------------------------

    async def _mourn(self, worker: Identity | None, connections: Sequence[str]) -> None:
        """Look at what a worker leaves once it has ended: its channel breaks a moment before that."""
        if worker is not None:
            await _end_of(worker)
        await self._look(connections)  # those first: a tool may be waiting

    def _mourned(self, worker: Identity | None, connections: Sequence[str], is_back: bool) -> None:
        if worker is not None:
            self._bereaved.pop(worker, None)
        self._unread.subtract(connections)
        self._unread = +self._unread
        self._release()
        if not is_back:
            self._spawn(self._look(None))  # it may have had more than it had told

    async def _look(self, connections: Sequence[str] | None) -> None:
        """Read journals (None: all of them) and note whose worker is dead."""
        async with self._looking:
            found = await asyncio.to_thread(self._read, connections)
            leader, now = self._leader(), self._clock()
            for conn in found.keys() | set(self._book if connections is None else connections):
                record = found.get(conn)
                owner = Identity(record.pid, record.created) if record else None
                if record is None or owner is None or owner.alive():
                    self._book.gone(conn)
                    self._records.pop(conn, None)
                else:
                    self._records[conn] = record
                    self._book.see(conn, owner, bool(open_hooks(record, leader.generation)), now)
        self._release()
        self._news.set()

    def _read(self, connections: Sequence[str] | None) -> dict[str, ConnectionRecord]:
        if connections is None:
            records = read_journals(self._paths)
        else:
            found = (read_journal(journal_path(self._paths, conn)) for conn in connections)
            records = [record for record in found if record is not None]
        return {record.connection: record for record in records}

    def _sweep(self) -> None:
        try:
            sweep(self._paths, lambda state: True)
        except (OSError, LeaseError) as error:
            log.error("journals cannot be swept: %s", error)

    # -- what is due -----------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await self._until_news()
            state, now = self._leader().state, self._clock()
            if state in _NO_LEADER:
                self._book.no_leader(now)
                self._release()
            for phase in (Phase.HOOK_OPEN, Phase.WAITING, Phase.KEPT):
                if phase is not Phase.KEPT and state != "ready":
                    continue
                if conns := self._book.due(phase, now):
                    await self._look(conns)  # a worker may have taken one over
                    self._begin(phase, self._book.due(phase, now))

    async def _until_news(self) -> None:
        due = self._book.next_due(self._leader().state == "ready")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if due == math.inf else max(0.0, due - self._clock())):
                await self._news.wait()
        self._news.clear()

    def _begin(self, phase: Phase, conns: Sequence[str]) -> None:
        for conn in conns:
            self._book.begin(conn)
        if not conns:
            return
        if phase is Phase.KEPT:
            self._spawn(self._let_go(conns))
            return
        make, reason = _RESCUES[phase]
        wards = [make(self._records[conn], self._leader().generation) for conn in conns]
        self._spawn(self._rescue(wards, reason))

    async def _rescue(self, wards: Sequence[Ward], reason: str) -> None:
        needed = [ward for ward in wards if ward.sessions or ward.suspects]
        try:
            over = not needed or await self._rescuer.rescue(needed, reason)
        except Exception:
            log.exception("a defect in a rescue")
            over = False
        if over:
            await asyncio.to_thread(self._note, needed, reason)
        now = self._clock()
        for ward in wards:
            if over:
                self._book.done(ward.connection, now)
            elif not self._book.failed(ward.connection, now):
                log.error("connection %s: its turns could not be ended", ward.connection[:8])
        self._release()
        self._news.set()

    def _note(self, wards: Sequence[Ward], reason: str) -> None:
        """Tell the next owner: these turns and gates are over."""
        for ward in wards:
            if (record := self._records.get(ward.connection)) is None:
                continue
            closed = (GateClosed(gate.id) for gate in ward.gates)
            try:
                owned = Owned(record.worker, record.pid, record.created)  # still nobody's
                journal = Journal.adopt(self._paths, ward.connection, owned)
                with contextlib.closing(journal):
                    journal.append(Rescued(list(ward.sessions), reason), *closed)
            except JournalError as error:
                log.error("%s", error)

    async def _let_go(self, conns: Sequence[str]) -> None:
        for conn in conns:
            log.info("connection %s: its worker is gone and its client has not come back", conn[:8])
            try:
                await asyncio.to_thread(forget, self._paths, conn)
            except (OSError, LeaseError) as error:
                log.error("connection %s cannot be forgotten: %s", conn[:8], error)
            self._book.gone(conn)
            self._records.pop(conn, None)
        self._release()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("orphans are not looked after", exc_info=error)


async def _end_of(process: Identity) -> None:
    ended = asyncio.Event()
    watch = Exit(process, ended.set)
    try:
        await ended.wait()
    finally:
        watch.cancel()
