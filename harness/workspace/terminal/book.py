"""The book of tasks: what ran, what became of it, and who has been told.  Pure; times are handed in.

A task is in one of these states, and only forward: running, ended, forgotten (a tombstone without its
output), gone.  Beside its state stands who knows of its end.  A completion is told exactly once to its
owner: by the result of a call that waited for it, by the kill that ended it, or by a reminder.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from harness.limits import LIMITS, SIZES

__all__ = ["Ending", "Snapshot", "Task", "TaskBook", "TaskKind", "TaskStatus"]


class TaskKind(StrEnum):
    BASH = "bash"
    MONITOR = "monitor"


class TaskStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


@dataclasses.dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended: with an exit code, or with the name of what ended it."""

    exit_code: int | None
    signal: str | None = None

    @property
    def timed_out(self) -> bool:
        return self.signal == "timeout"


@dataclasses.dataclass(slots=True)
class Task:
    """One command.  ``begun`` and ``ended`` are monotonic, ``started`` and ``finished`` the clock's time."""

    id: str
    call_id: str
    command: str
    cwd: str
    started: float
    begun: float
    kind: TaskKind = TaskKind.BASH
    owner: str | None = None
    description: str | None = None
    display: str | None = None
    output_file: str = ""
    pid: int | None = None
    backgrounded: bool = False
    finished: float | None = None
    ended: float | None = None
    ending: Ending | None = None
    waiters: int = 0
    block_waited: bool = False
    explicitly_killed: bool = False
    kill_delivered: bool = False

    @property
    def label(self) -> str:
        """What a person is shown instead of the command."""
        return self.display or self.command

    def duration(self, now: float) -> float:
        return max(0.0, (now if self.ended is None else self.ended) - self.begun)


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """One task at one moment, with its output."""

    task_id: str
    call_id: str
    command: str
    display: str | None
    cwd: str
    kind: TaskKind
    owner: str | None
    description: str | None
    started: float
    finished: float | None
    duration: float
    output: str
    output_file: str
    truncated: bool
    total_bytes: int
    exit_code: int | None
    signal: str | None
    pid: int | None
    block_waited: bool
    explicitly_killed: bool
    kill_delivered: bool
    backgrounded: bool

    @property
    def completed(self) -> bool:
        return self.finished is not None

    @property
    def label(self) -> str:
        return self.display or self.command

    @property
    def status(self) -> TaskStatus:
        if not self.completed:
            return TaskStatus.RUNNING
        if self.explicitly_killed or self.signal == "cancelled":
            return TaskStatus.CANCELLED
        if self.signal in ("timeout", "max_runtime"):
            return TaskStatus.TIMED_OUT
        return TaskStatus.COMPLETED if self.exit_code == 0 else TaskStatus.FAILED

    @property
    def will_wake(self) -> bool:
        """Whether its end is news: nobody waited for it, and who killed it has not been told."""
        return not self.block_waited and not (self.explicitly_killed and self.kill_delivered)

    def wire(self) -> dict[str, Any]:
        """The object that goes to a client with the end of a task."""
        fields = {
            "task_id": self.task_id,
            "command": self.command,
            "display_command": self.display,
            "cwd": self.cwd,
            "start_time": _wire_time(self.started),
            "end_time": None if self.finished is None else _wire_time(self.finished),
            "output": self.output,
            "output_file": self.output_file,
            "truncated": self.truncated,
            "output_total_bytes": self.total_bytes,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "completed": self.completed,
            "kind": str(self.kind),
            "block_waited": self.block_waited,
            "explicitly_killed": self.explicitly_killed,
            "kill_result_delivered": self.kill_delivered,
            "owner_session_id": self.owner,
            "description": self.description,
            "is_backgrounded": self.backgrounded,
        }
        if self.display is None:
            del fields["display_command"]
        return fields

    def listing(self) -> dict[str, Any]:
        """The smaller object in the list of tasks that a client shows."""
        state = self.status if self.status in (TaskStatus.RUNNING, TaskStatus.COMPLETED) else "failed"
        fields: dict[str, Any] = {
            "task_id": self.task_id,
            "command": self.command,
            **({} if self.display is None else {"display_command": self.display}),
            "description": self.description,
            "cwd": self.cwd,
            "kind": str(self.kind),
            "status": str(state),
            "started_at": iso_time(self.started, "microseconds"),
        }
        if self.finished is not None:
            fields["ended_at"] = iso_time(self.finished, "microseconds")
        fields["output_file"] = self.output_file
        if self.exit_code is not None:
            fields["exit_code"] = self.exit_code
        if self.signal is not None:
            fields["signal"] = self.signal
        return fields


def iso_time(seconds: float, precision: str = "seconds") -> str:
    """RFC 3339 in UTC; whole seconds end in Z, finer ones in the offset, as on the original's wire."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec=precision)
    return text.replace("+00:00", "Z") if precision == "seconds" else text


def _wire_time(seconds: float) -> Mapping[str, int]:
    whole = int(seconds // 1)
    return {"secs_since_epoch": whole, "nanos_since_epoch": int((seconds - whole) * 1e9)}


class TaskBook:
    """All tasks of one terminal, oldest first."""

    def __init__(self) -> None:
        self._tasks = dict[str, Task]()
        self._tombstones = collections.OrderedDict[str, Snapshot]()
        self._told = set[str]()
        self._reserved = set[str]()

    # -- entries -----------------------------------------------------------------------------------
    def add(self, task: Task) -> None:
        if task.id in self._tasks or task.id in self._tombstones:
            raise ValueError(f"task {task.id} is in the book already")
        self._tasks[task.id] = task

    def get(self, task_id: str) -> Task | None:
        return self._tasks.get(task_id)

    def tombstone(self, task_id: str) -> Snapshot | None:
        return self._tombstones.get(task_id)

    def tasks(self, owner: str | None = None) -> list[Task]:
        """Background tasks, of one owner (those without one belong to everybody) or of all."""
        return [t for t in self._tasks.values() if t.backgrounded and _owned(t.owner, owner)]

    def foreground(self, owner: str | None = None) -> list[Task]:
        found = (t for t in self._tasks.values() if not t.backgrounded and t.ending is None)
        return [t for t in found if _owned(t.owner, owner)]

    def known_ids(self, owner: str | None = None) -> list[str]:
        kept = [s.task_id for s in self._tombstones.values() if _owned(s.owner, owner)]
        return kept + [t.id for t in self.tasks(owner)]

    # -- transitions -------------------------------------------------------------------------------
    def move(self, task_id: str) -> bool:
        """To the background: it keeps its id, which is that of its call."""
        task = self._tasks.get(task_id)
        if task is None or task.backgrounded or task.ending is not None:
            return False
        task.backgrounded = True
        return True

    def end(self, task_id: str, ending: Ending, now: float, clock: float) -> Task | None:
        """The end of a task; a second one changes nothing.  A foreground task leaves the book at once."""
        task = self._tasks.get(task_id)
        if task is None or task.ending is not None:
            return None
        task.ending, task.ended, task.finished = ending, now, max(clock, task.started)
        if task.waiters:
            task.block_waited = True
        if not task.backgrounded:
            del self._tasks[task_id]
        return task

    def killed(self, task_id: str, *, delivered: bool) -> None:
        """Somebody asked for its end; ``delivered``: who asked is who would be told."""
        if (task := self._tasks.get(task_id)) is not None and task.ending is None:
            task.explicitly_killed = True
            task.kill_delivered = task.kill_delivered or delivered or task.waiters > 0

    # -- waiting -----------------------------------------------------------------------------------
    def wait(self, ids: Iterable[str]) -> None:
        for task in self._running(ids):
            task.waiters += 1
            task.block_waited = True

    def stop_waiting(self, ids: Iterable[str]) -> None:
        """The waiter has gone: a task that still runs will wake its owner again."""
        for task in (self._tasks.get(i) for i in ids):
            if task is not None and task.waiters:
                task.waiters -= 1
                if task.ending is None and not task.waiters:
                    task.block_waited = False

    def unanswered(self, ids: Iterable[str]) -> None:
        """Who waited was cancelled before it could tell: these ends are news after all."""
        for task in (self._tasks.get(i) for i in ids):
            if task is not None and not task.waiters:
                task.block_waited = False

    def _running(self, ids: Iterable[str]) -> list[Task]:
        return [t for i in ids if (t := self._tasks.get(i)) is not None and t.ending is None]

    # -- telling -----------------------------------------------------------------------------------
    def untold(self, owner: str | None = None) -> list[Task]:
        """Ended background tasks that their owner has not heard of and nobody is about to tell."""
        return [
            t
            for t in self.tasks(owner)
            if t.ending is not None
            and t.id not in self._told
            and t.id not in self._reserved
            and not (t.explicitly_killed and t.kill_delivered)
        ]

    def tell(self, ids: Iterable[str]) -> list[str]:
        """Mark ends as told; returns those that were not told before."""
        fresh = [i for i in dict.fromkeys(ids) if i not in self._told]
        self._told.update(fresh)
        self._reserved.difference_update(fresh)
        return fresh

    def told(self) -> frozenset[str]:
        """For the session's record: after a reload nothing is told again."""
        return frozenset(self._told)

    def reserve(self, ids: Iterable[str]) -> None:
        """A wake that is on its way will tell these."""
        self._reserved.update(i for i in ids if i not in self._told)

    def release(self, ids: Iterable[str]) -> None:
        self._reserved.difference_update(ids)

    # -- forgetting --------------------------------------------------------------------------------
    def due(self, now: float) -> list[Task]:
        """Ended tasks whose output is no longer kept."""
        kept = LIMITS.task_kept
        return [t for t in self._tasks.values() if t.ended is not None and now - t.ended >= kept]

    def bury(self, task: Task, last: Snapshot) -> None:
        """Forget a task's output; at most so many are remembered at all."""
        self._tasks.pop(task.id, None)
        lost = last.total_bytes > 0
        self._tombstones[task.id] = dataclasses.replace(last, output="", truncated=lost)
        while len(self._tombstones) > SIZES.tombstones:
            gone, _ = self._tombstones.popitem(last=False)
            self._told.discard(gone)
            self._reserved.discard(gone)

    def adopt(self, old: str | None, new: str | None) -> list[Task]:
        """The tasks of an owner that goes become another's."""
        moved = [t for t in self.tasks() if t.owner == old and t.ending is None]
        for task in moved:
            task.owner = new
        return moved


def _owned(owner: str | None, by: str | None) -> bool:
    return by is None or owner is None or owner == by
