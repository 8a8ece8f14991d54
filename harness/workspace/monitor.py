"""Monitors: a command in the background whose lines wake the owner of the session.

`MonitorLimiter` decides, without clock or loop, which lines become events.  Lines of one tick are one
event; a bucket lets a burst through and then one event at a time; what it holds back is counted and told
with the next event.  A monitor that is held back for too long is of no use to anybody and ends, and its
process with it: left running, it would go on filling a log that nobody is told of.
"""

from __future__ import annotations

import asyncio
import collections
import time

from harness.limits import LIMITS, SIZES
from harness.workspace.terminal.book import Snapshot
from harness.workspace.terminal.events import Command, KillSource, MonitorEvent
from harness.workspace.terminal.terminal import Terminal

__all__ = ["MonitorLimiter", "start_monitor"]


class LineBuffer:
    """Bytes in, the complete lines of a tick out; holds a bounded number of bytes whatever comes."""

    def __init__(self, limit: int = SIZES.monitor_buffer) -> None:
        self._limit = limit
        self._pieces = collections.deque[bytes]()
        self._held = 0
        self._torn = False

    def __len__(self) -> int:
        return self._held

    def feed(self, data: bytes) -> None:
        """Too much drops the oldest; what is left of a line whose beginning is gone goes as well."""
        data = data[-self._limit :]
        self._pieces.append(data)
        self._held += len(data)
        while self._held > self._limit:
            self._held -= len(self._pieces.popleft())
            self._torn = True

    def take(self, *, last: bool = False) -> bytes:
        """Everything up to the last line end, or all of it at the ``last`` time."""
        whole = b"".join(self._pieces)
        self._pieces.clear()
        rest = whole.partition(b"\n")[2]
        if self._torn and rest.strip():
            whole = rest  # half a line, where whole ones follow, would be read as one
        self._torn = False
        end = len(whole) if last else whole.rfind(b"\n") + 1
        self._held = len(whole) - end
        if self._held:
            self._pieces.append(whole[end:])
        return whole[:end]


class MonitorLimiter:
    """Turns output into events; ``stopped`` once the output was too much for too long."""

    def __init__(self, now: float, kill_tool: str = "") -> None:
        self.stopped = False
        self._buffer = LineBuffer()
        self._tokens = float(SIZES.monitor_bucket)
        self._filled = now
        self._suppressed = 0
        self._since: float | None = None
        self._kill_tool = kill_tool

    def feed(self, data: bytes) -> None:
        if not self.stopped:
            self._buffer.feed(data)

    def tick(self, now: float, *, last: bool = False) -> list[str]:
        """The events of this tick, oldest first."""
        if self.stopped:
            return []
        text = _event_text(self._buffer.take(last=last))
        self._fill(now)
        events = list[str]()
        if text:
            if self._tokens >= 1:
                self._tokens -= 1
                events = self._let_through(text)
            else:
                self._suppressed += 1
                self._since = now if self._since is None else self._since
        if self._since is not None and now - self._since >= LIMITS.monitor_stop and not last:
            self.stopped = True
            events.append(self._farewell())
        return events

    def _fill(self, now: float) -> None:
        # Whole tokens only, so that the rate does not depend on when the ticks come.
        earned = int((now - self._filled) / LIMITS.monitor_refill)
        if earned > 0:
            full = self._tokens + earned >= SIZES.monitor_bucket
            self._tokens = min(float(SIZES.monitor_bucket), self._tokens + earned)
            self._filled = now if full else self._filled + earned * LIMITS.monitor_refill

    def _let_through(self, text: str) -> list[str]:
        if not self._suppressed:
            self._since = None  # a whole event later nothing had to be held back
            return [text]
        count, self._suppressed = self._suppressed, 0
        events = "event" if count == 1 else "events"
        advice = f" End it with {self._kill_tool} and start one" if self._kill_tool else " Start one"
        notice = f"[{count} {events} suppressed: the output comes too fast.{advice} that prints less.]"
        return [notice, text]

    def _farewell(self) -> str:
        count = self._suppressed
        events = "event" if count == 1 else "events"
        return (
            f"[Monitor stopped: its command wrote too much for {LIMITS.monitor_stop:g}s"
            f" ({count} {events} suppressed at the end), and has been ended. Start a new one that prints only"
            " the lines you must act on, for example through grep --line-buffered or awk.]"
        )


def _event_text(data: bytes) -> str:
    """The lines of a tick as one event: empty ones left out, each one and the whole cut to size."""
    lines = list[bytes]()
    size = 0
    start = 0
    while start < len(data) and size < SIZES.monitor_event:
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        line = data[start : min(end, start + 2 * SIZES.monitor_line)].strip()[: SIZES.monitor_line]
        start = end + 1
        if line:
            lines.append(line)
            size += len(line) + 1
    # A character that the cut has split is left out.
    cut = [line.decode("utf-8", "ignore") for line in lines]
    return "\n".join(cut).encode()[: SIZES.monitor_event].decode("utf-8", "ignore")


async def start_monitor(terminal: Terminal, command: Command, kill_tool: str = "") -> Snapshot:
    """Start a command as a monitor; its events go to those who listen to the terminal."""
    return await _Monitor(terminal, command, kill_tool).start()


class _Monitor:
    """The loop's side of a monitor: bytes into the limiter, a tick while there is something to say."""

    def __init__(self, terminal: Terminal, command: Command, kill_tool: str) -> None:
        self._terminal, self._command = terminal, command
        self._limiter = MonitorLimiter(time.monotonic(), kill_tool)
        self._timer: asyncio.TimerHandle | None = None
        self._task_id = ""
        self._ending: asyncio.Task[object] | None = None

    async def start(self) -> Snapshot:
        shot = await self._terminal.start(self._command, tap=self._take)
        self._task_id = shot.task_id
        return shot

    def _take(self, data: bytes) -> None:
        # Never before `start` has gone on: between the start of a process and it nothing is awaited.
        if not data:
            self._over()
        else:
            self._limiter.feed(data)
            if self._timer is None and not self._limiter.stopped:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(LIMITS.monitor_tick, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._tell(self._limiter.tick(time.monotonic()))
        if self._limiter.stopped:
            # The last event has said it: nobody need be told of the end again.
            ending = self._terminal.kill(self._task_id, KillSource.TEARDOWN)
            self._ending = asyncio.get_running_loop().create_task(ending)

    def _over(self) -> None:
        """The command has ended: what is left is told now, before its end is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._tell(self._limiter.tick(time.monotonic(), last=True))

    def _tell(self, events: list[str]) -> None:
        command = self._command
        for text in events:
            description = command.description or ""
            self._terminal.emit(MonitorEvent(self._task_id, description, command.owner, text))
