"""The terminal of a session: runs commands, keeps those that go on, ends what must end.

A command starts in the foreground (`Terminal.run`, the caller waits) or in the background
(`Terminal.start`).  Moving it from the first to the second is a line in the book: the process, its log, its
timers and its id stay what they are, only the caller stops waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from harness.limits import LIMITS, SIZES
from harness.outcome import FaultKind, ToolFault
from harness.workspace.terminal.book import Ending, Snapshot, Task, TaskKind
from harness.workspace.terminal.desk import TaskDesk
from harness.workspace.terminal.environment import command_environment
from harness.workspace.terminal.events import (
    Backgrounded,
    Command,
    CommandResult,
    Completed,
    KillOutcome,
    KillSource,
    LineTap,
    Moved,
    OutputChunk,
)
from harness.workspace.terminal.live import Live, snapshot_of
from harness.workspace.terminal.logfile import LogFile
from harness.workspace.terminal.login import LoginSnapshot
from harness.workspace.terminal.naming import cannot_start, log_path, spellings, time_ordered_id
from harness.workspace.terminal.process import CommandProcess
from harness.workspace.terminal.ring import OutputRing
from harness.workspace.terminal.shell import resolve_shell
from harness.workspace.terminal.waiting import first_done

__all__ = ["Terminal"]

_log = logging.getLogger(__name__)


class Terminal(TaskDesk):
    """All commands of one session, those of its subagents too (each with its ``owner``)."""

    def __init__(
        self,
        *,
        log_directory: str,
        environ: Mapping[str, str],
        session_id: str | None = None,
        wrap: Callable[[Sequence[str], str], Sequence[str]] = lambda argv, _cwd: argv,
    ) -> None:
        """``wrap`` puts a command line into its containment."""
        super().__init__()
        self._wrap = wrap
        self.session_id = session_id
        self._directory = log_directory
        self._environ = dict(environ)
        self._shell = resolve_shell(environ)
        self._login = LoginSnapshot(self._shell, self._environ)
        self._nonce = secrets.token_hex(8)
        self._count = 0
        self._lingering = set[CommandProcess]()
        self._closed = False

    def warm(self) -> None:
        """Take the login shell's word now, so that the first command need not wait for it."""
        self._login.begin()

    # -- running -----------------------------------------------------------------------------------
    async def run(self, command: Command, *, cancelled: asyncio.Event | None = None) -> CommandResult:
        """Run in the foreground; returns when it has ended or was moved to the background.

        ``cancelled`` ends the command and all it started at once, without a time of grace.
        """
        live = await self._begin(command, background=False)
        self._chunk(live)
        if command.deadline.move is not None:
            loop = asyncio.get_running_loop()
            live.move_timer = loop.call_later(command.deadline.move, self._move, live, Moved.BY_CLOCK)
        try:
            if not await first_done([live.settled], seconds=None, cancelled=cancelled):
                await self._end(live, "cancelled", grace=0)
        except asyncio.CancelledError:
            # The caller will not come back: the command must end all the same.
            await asyncio.shield(self._end(live, "cancelled", grace=0))
            raise
        moved = live.settled.result()
        waited = command.deadline.move if moved is Moved.BY_CLOCK else None
        return CommandResult(snapshot_of(live, time.monotonic()), moved, waited)

    async def start(self, command: Command, *, tap: LineTap | None = None) -> Snapshot:
        """Run in the background under an id of its own."""
        live = await self._begin(command, background=True, tap=tap)
        shot = snapshot_of(live, time.monotonic())
        self.emit(Backgrounded(shot))
        return shot

    async def _begin(self, command: Command, *, background: bool, tap: LineTap | None = None) -> Live:
        login = await self._login.get()
        if self._closed:
            raise ToolFault(FaultKind.EXECUTION, "the terminal of this session has been closed")
        # From here to the entry in the book nothing is awaited: two calls must not come to one id.
        loop = asyncio.get_running_loop()
        task = Task(
            id=time_ordered_id() if background else self._own_id(command.call_id),
            call_id=command.call_id,
            command=command.command,
            cwd=command.cwd,
            started=time.time(),
            begun=time.monotonic(),
            kind=command.kind,
            owner=command.owner,
            description=command.description,
            display=command.display,
            backgrounded=background,
        )
        log = LogFile(log_path(self._directory, command, {x.log.path for x in self._live.values()}))
        task.output_file = log.path
        ring = OutputRing(command.output_limit)
        live = Live(task, command, log, ring, loop.create_future(), loop.create_future(), tap=tap)
        self._count += 1
        marker = f"{self._nonce}.{self._count}"
        env = command_environment(
            self._environ,
            login=login.variables,
            session=command.env,
            session_id=command.owner or self.session_id,
            task=marker,
            background=background,
            monitor=command.kind is TaskKind.MONITOR,
        )
        fd = self._login.descriptor
        try:
            live.process = CommandProcess(
                self._wrap(self._shell.argv(command.command, fd), command.cwd),
                cwd=command.cwd,
                env=env,
                task=marker,
                on_output=lambda data: self._output(live, data),
                on_end=lambda code: self._ended(live, code),
                pass_fds=() if fd is None else (fd,),
            )
        except (OSError, ValueError) as error:
            log.close()
            raise ToolFault(FaultKind.EXECUTION, cannot_start(command, error)) from error
        task.pid = live.process.pid
        self._book.add(task)
        self._live[task.id] = live
        if command.deadline.kill is not None:
            capped = command.deadline.kill >= LIMITS.command_longest
            reason = "max_runtime" if capped else "timeout"
            live.timers.append(loop.call_later(command.deadline.kill, self._expire, live, reason))
        return live

    def _own_id(self, call_id: str) -> str:
        """A foreground command has its call's id, unless another task has it already."""
        taken = {*self._live, *self._book.known_ids()}
        return next(i for i in spellings(call_id) if i not in taken)

    # -- output ------------------------------------------------------------------------------------
    def _output(self, live: Live, data: bytes) -> None:
        live.total_bytes += len(data)
        live.log.append(data)
        if live.ring is not None:
            live.ring.feed(data)
        if live.tap is not None:
            live.tap(data)
        if live.total_bytes > SIZES.log_kill and live.reason is None:
            self._expire(live, "output_limit")
        if live.chunk_timer is None:
            wait = live.chunk_at + LIMITS.output_chunk - time.monotonic()
            # The first output is shown at once; a busy command is looked at in intervals.
            if wait <= 0 or live.chunk_bytes == 0:
                self._later_chunk(live, 0.005)
            else:
                self._later_chunk(live, wait)

    def _later_chunk(self, live: Live, seconds: float) -> None:
        live.chunk_timer = asyncio.get_running_loop().call_later(seconds, self._chunk, live)

    def _chunk(self, live: Live) -> None:
        if live.chunk_timer is not None:
            live.chunk_timer.cancel()
            live.chunk_timer = None
        task = live.task
        if live.ring is None or not self._listeners.wanted(task.owner):
            return
        live.chunk_at, live.chunk_bytes = time.monotonic(), live.total_bytes
        self.emit(
            OutputChunk(
                task.id,
                task.call_id,
                task.owner,
                task.command,
                task.cwd,
                live.ring.tail(),
                live.total_bytes,
                live.ring.truncated,
            )
        )

    # -- the end -----------------------------------------------------------------------------------
    def _ended(self, live: Live, code: int | None) -> None:
        """The process has ended, and its output with it."""
        task = live.task
        if live.ring is not None:
            live.ring.feed(b"", final=True)
        if live.total_bytes != live.chunk_bytes:
            self._chunk(live)
        live.cancel_timers()
        live.log.close()
        if live.reason is not None:
            ending = Ending(None, live.reason)
        elif code is None:
            ending = Ending(None, "error: the process could not be ended")
        else:
            ending = Ending(code) if code >= 0 else Ending(None, f"signal {-code}")
        self._book.end(task.id, ending, time.monotonic(), time.time())
        process = live.process
        if process is not None and process.reading:
            self._lingering = {p for p in self._lingering if p.reading} | {process}
        if not live.settled.done():
            live.settled.set_result(None)
        if not live.ended.done():
            live.ended.set_result(None)
        if task.backgrounded:
            if live.tap is not None:
                live.tap(b"")
            self._announce_soon(live)
            asyncio.get_running_loop().call_later(LIMITS.task_kept, self._sweep)
        else:
            del self._live[task.id]

    def _announce_soon(self, live: Live) -> None:
        """Who waited for this end, or asked for it, answers before it is told to everybody."""
        if live.killed_by is KillSource.MODEL:
            self._announce(live)  # its answer says "killed" of a task that everybody knows to have ended
        elif live.killing is not None and not live.killing.done():
            live.killing.add_done_callback(lambda _: self._announce_soon(live))
        else:
            asyncio.get_running_loop().call_later(LIMITS.end_told, self._announce, live)

    def _announce(self, live: Live) -> None:
        if live.announced:
            return
        live.announced = True
        self.emit(Completed(snapshot_of(live, time.monotonic())))
        if live.log.written == live.total_bytes:
            live.ring = None  # the log has it

    def _sweep(self) -> None:
        for task in self._book.due(time.monotonic() + LIMITS.kill_look):
            live = self._live.pop(task.id, None)
            if live is not None:
                self._book.bury(task, snapshot_of(live, time.monotonic()))

    def _expire(self, live: Live, reason: str) -> None:
        """A limit was reached: end it, but nobody waits here for that."""
        if live.task.ending is None and live.killing is None:
            live.reason = reason
            live.killing = asyncio.get_running_loop().create_task(self._kill(live, LIMITS.kill_grace))

    async def _end(self, live: Live, reason: str, grace: float) -> None:
        """End it and wait until that has been seen."""
        if live.task.ending is not None:
            return
        live.reason = live.reason or reason
        if live.killing is None or grace <= 0:
            live.killing = asyncio.get_running_loop().create_task(self._kill(live, grace))
        await asyncio.shield(live.killing)

    async def _kill(self, live: Live, grace: float) -> bool:
        assert live.process is not None
        gone = await live.process.end(grace)
        if not await first_done([live.ended], seconds=LIMITS.kill_reap):
            _log.warning("process %s of task %s does not end", live.task.pid, live.task.id)
            live.process.give_up()
        return gone

    # -- moving ------------------------------------------------------------------------------------
    def background_foreground(self, call_id: str) -> bool:
        """A person sends the running command of a call to the background."""
        live = next((x for x in self._live.values() if x.task.call_id == call_id and _in_front(x)), None)
        return live is not None and self._move(live, Moved.BY_USER)

    def _move(self, live: Live, moved: Moved) -> bool:
        if live.settled.done() or live.reason is not None or not self._book.move(live.task.id):
            return False
        if live.move_timer is not None:
            live.move_timer.cancel()
            live.move_timer = None
        self.emit(Backgrounded(snapshot_of(live, time.monotonic())))
        live.settled.set_result(moved)
        return True

    # -- ending ------------------------------------------------------------------------------------
    async def kill(self, task_id: str, source: KillSource, owner: str | None = None) -> KillOutcome:
        """End a background task and all it started."""
        live = self._live.get(task_id)
        if live is None or not live.task.backgrounded or owner not in (None, live.task.owner):
            known = self.snapshot(task_id, owner)
            return KillOutcome.NOT_FOUND if known is None else KillOutcome.ALREADY_EXITED
        if live.task.ending is not None:
            return KillOutcome.ALREADY_EXITED
        self._book.killed(task_id, delivered=source is not KillSource.USER)
        live.killed_by = source
        await self._end(live, "killed", LIMITS.kill_grace)
        return KillOutcome.KILLED

    async def kill_foreground(self, owner: str | None = None) -> int:
        """End what runs in the foreground, at once; returns how many."""
        lives = [self._live[t.id] for t in self._book.foreground(owner)]
        await asyncio.gather(*(self._end(live, "cancelled", grace=0) for live in lives))
        return len(lives)

    async def kill_all(self, owner: str | None = None, source: KillSource = KillSource.TEARDOWN) -> int:
        """End every background task of an owner; returns how many."""
        ids = [t.id for t in self._book.tasks(owner) if t.ending is None]
        await asyncio.gather(*(self.kill(i, source) for i in ids))
        return len(ids)

    async def close(self) -> None:
        """The session is over: nothing that it started stays, but what made itself a daemon."""
        self._closed = True
        await self._login.close()
        await self.kill_foreground()
        await self.kill_all()
        left = [p for p in self._lingering if p.reading]
        await asyncio.gather(*(_end_left_behind(p) for p in left))
        for live in self._live.values():
            live.cancel_timers()
            if live.task.ending is not None:
                self._announce(live)
        self._lingering.clear()
        self._listeners.clear()


async def _end_left_behind(process: CommandProcess) -> None:
    """Children of a command that has ended; those with a group of their own meant to stay."""
    members = await asyncio.to_thread(lambda: process.family.members(group_only=True))
    for member in members:
        with contextlib.suppress(OSError):
            await asyncio.to_thread(member.end, LIMITS.kill_grace)
    process.release()


def _in_front(live: Live) -> bool:
    return not live.task.backgrounded and live.task.ending is None
