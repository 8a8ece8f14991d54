"""What can be asked of a terminal's tasks without touching a process: states, waits, who was told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from harness.workspace.terminal.book import Snapshot, Task, TaskBook
from harness.workspace.terminal.events import Backgrounded, Event, Listener, WaitMode, WaitOutcome
from harness.workspace.terminal.listeners import Listeners
from harness.workspace.terminal.live import Live, snapshot_of
from harness.workspace.terminal.waiting import first_done

__all__ = ["TaskDesk"]


class TaskDesk:
    """The book of a terminal with the outputs of its tasks, and the listeners."""

    def __init__(self) -> None:
        self._book = TaskBook()
        self._live = dict[str, Live]()
        self._listeners = Listeners()

    # -- listening ---------------------------------------------------------------------------------
    def subscribe(self, listener: Listener, owner: str | None = None) -> Listeners.Remove:
        """Tell ``listener`` of every event of an owner (None: of all); call the result to stop."""
        return self._listeners.add(listener, owner)

    def emit(self, event: Event) -> None:
        """Tell an event; for what watches a task from outside, as a monitor does."""
        self._listeners.tell(event)

    # -- asking ------------------------------------------------------------------------------------
    def snapshot(self, task_id: str, owner: str | None = None) -> Snapshot | None:
        """A background task as it is now; of a forgotten one without its output."""
        live = self._live.get(task_id)
        if live is not None and live.task.backgrounded and owner in (None, live.task.owner):
            return snapshot_of(live, time.monotonic())
        buried = self._book.tombstone(task_id)
        return buried if buried is not None and owner in (None, buried.owner) else None

    def tasks(self, owner: str | None = None, *, with_output: bool = True) -> list[Snapshot]:
        """All background tasks that are not forgotten, oldest first; each output is read from its log."""
        return self._shots(self._book.tasks(owner), with_output)

    def running(self, owner: str | None = None) -> list[Snapshot]:
        return self._shots(t for t in self._book.tasks(owner) if t.ending is None)

    def known_ids(self, owner: str | None = None) -> list[str]:
        return self._book.known_ids(owner)

    def _shots(self, tasks: Iterable[Task], with_output: bool = True) -> list[Snapshot]:
        lives = [self._live[t.id] for t in tasks if t.id in self._live]
        now = time.monotonic()
        return [snapshot_of(live, now, with_output=with_output) for live in lives]

    # -- waiting -----------------------------------------------------------------------------------
    async def wait(
        self, ids: Iterable[str], *, mode: WaitMode, seconds: float, cancelled: asyncio.Event | None = None
    ) -> WaitOutcome:
        """Wait for background tasks; those that have ended or are unknown count as done.

        Who waits will tell the end, so it wakes nobody; when the wait comes to nothing it does again.
        """
        names = list(dict.fromkeys(ids))
        running = [x for i in names if (x := self._live.get(i)) is not None and x.task.ending is None]
        if not running or (mode is WaitMode.ANY and len(running) < len(names)):
            return WaitOutcome.COMPLETED
        waited = [live.task.id for live in running]
        self._book.wait(waited)
        told = False
        try:
            futures = [live.ended for live in running]
            done = await first_done(futures, seconds=seconds, cancelled=cancelled, every=mode is WaitMode.ALL)
            told = not (cancelled is not None and cancelled.is_set())
        finally:
            self._book.stop_waiting(waited)
            if not told:
                self._book.unanswered(waited)
        if not told:
            return WaitOutcome.CANCELLED
        return WaitOutcome.COMPLETED if done else WaitOutcome.TIMED_OUT

    # -- telling: see `TaskBook` -------------------------------------------------------------------
    def untold(self, owner: str | None = None) -> list[Snapshot]:
        """Ended tasks that their owner has still to hear of."""
        return self._shots(self._book.untold(owner))

    def tell(self, ids: Iterable[str]) -> list[str]:
        return self._book.tell(ids)

    def told(self) -> frozenset[str]:
        return self._book.told()

    def reserve(self, ids: Iterable[str]) -> None:
        self._book.reserve(ids)

    def release(self, ids: Iterable[str]) -> None:
        self._book.release(ids)

    def adopt(self, old: str | None, new: str | None) -> None:
        """The running tasks of an owner that goes (a subagent) become another's."""
        for task in self._book.adopt(old, new):
            self.emit(Backgrounded(snapshot_of(self._live[task.id], time.monotonic())))
