"""What the terminal holds of one command while it runs, and its output afterwards."""

from __future__ import annotations

import asyncio
import dataclasses

from harness.limits import SIZES
from harness.workspace.terminal.book import Snapshot, Task
from harness.workspace.terminal.events import Command, KillSource, LineTap, Moved
from harness.workspace.terminal.logfile import LogFile, read_prefix
from harness.workspace.terminal.process import CommandProcess
from harness.workspace.terminal.ring import OutputRing

__all__ = ["Live", "snapshot_of"]


@dataclasses.dataclass(slots=True)
class Live:
    """One command.  ``settled`` is done when its call may return: ended, or moved to the background."""

    task: Task
    command: Command
    log: LogFile
    ring: OutputRing | None
    settled: asyncio.Future[Moved | None]
    ended: asyncio.Future[None]
    total_bytes: int = 0
    process: CommandProcess | None = None
    tap: LineTap | None = None
    reason: str | None = None
    timers: list[asyncio.TimerHandle] = dataclasses.field(default_factory=list)
    move_timer: asyncio.TimerHandle | None = None
    chunk_timer: asyncio.TimerHandle | None = None
    chunk_at: float = float("-inf")
    chunk_bytes: int = 0
    killing: asyncio.Task[bool] | None = None
    killed_by: KillSource | None = None
    announced: bool = False

    def cancel_timers(self) -> None:
        for timer in (*self.timers, self.move_timer, self.chunk_timer):
            if timer is not None:
                timer.cancel()
        self.timers.clear()
        self.move_timer = self.chunk_timer = None


def snapshot_of(live: Live, now: float, *, with_output: bool = True) -> Snapshot:
    """The task as it is now; without output where only its state is wanted."""
    task, ending = live.task, live.task.ending
    output, truncated = _output_of(live) if with_output else ("", live.total_bytes > 0)
    return Snapshot(
        task_id=task.id,
        call_id=task.call_id,
        command=task.command,
        display=task.display,
        cwd=task.cwd,
        kind=task.kind,
        owner=task.owner,
        description=task.description,
        started=task.started,
        finished=task.finished,
        duration=task.duration(now),
        output=output,
        output_file=task.output_file,
        truncated=truncated,
        total_bytes=live.total_bytes,
        exit_code=ending.exit_code if ending else None,
        signal=ending.signal if ending else None,
        pid=task.pid,
        block_waited=task.block_waited,
        explicitly_killed=task.explicitly_killed,
        kill_delivered=task.kill_delivered,
        backgrounded=task.backgrounded,
    )


def _output_of(live: Live) -> tuple[str, bool]:
    """Of an ended background task the beginning of its log, else what memory holds.  A log that could not
    be kept is replaced by memory too."""
    task, ring = live.task, live.ring
    if task.backgrounded and task.ending is not None and live.log.written == live.total_bytes:
        data = read_prefix(live.log.path)
        if data is not None:
            return data.decode("utf-8", "replace"), live.total_bytes > SIZES.log_prefix
    return (ring.render(), ring.truncated) if ring is not None else ("", live.total_bytes > 0)
