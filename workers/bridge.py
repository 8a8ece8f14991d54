"""One bridge: a child ``agent --leader stdio`` that speaks NDJSON, and everything about its life.

* All three pipes are read and written without waiting; a full stdin and a slow client pause what
  feeds them.
* Its end is seen through a pidfd, never through the end of a pipe: a grandchild that inherited stdout
  would hold that open for ever.  What the bridge itself wrote is in the pipe by then, and is read
  before the end is told.
* A bridge whose connection to the leader broke makes another and says so; what was under way is lost,
  and hooks with it.  It is killed at that word, and counts as lost.
* It leads a process group, and nothing of the group outlives it: the group is killed while the bridge
  is still a zombie, when its number cannot belong to anybody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO, Literal

from gateway.wire import acp
from gateway.wire.handoff import LeaderInfo
from gateway.wire.limits import LIMITS, SIZES, Limits
from gateway.wire.ndjson import LineSplitter, Overlong
from gateway.wire.process import VanishingLink, spawn
from workers.chatter import Chatter
from workers.flow import Reader, Writer

__all__ = ["Bridge", "BridgeExit", "Stage"]

log = logging.getLogger(__name__)

#: start: nothing came from it yet.  run: its first message came.  stop: we asked it to end.
Stage = Literal["start", "run", "stop"]


@dataclasses.dataclass(frozen=True, slots=True)
class BridgeExit:
    """How a bridge ended.  ``str`` is the text for people."""

    stage: Stage
    code: int | None = None  #: None: ended by a signal, or never started
    signal: int | None = None
    stderr_tail: str = ""  #: the last ``SIZES.stderr_tail`` characters, without colours
    reason: str = ""  #: what went wrong here, when it is not the exit itself
    hung_up: bool = False  #: the leader hung up on it

    def __str__(self) -> str:
        parts = [self.reason] if self.reason else []
        if self.signal is not None:
            parts.append(f"ended by {signal.Signals(self.signal).name}")
        elif self.code is not None:
            parts.append(f"exit code {self.code}")
        text = f"bridge, stage {self.stage}: " + ", ".join(parts)
        return f"{text}; last stderr: {self.stderr_tail}" if self.stderr_tail else text


class Bridge:
    """Made once, started once.

    ``on_pause`` / ``on_resume``: the bridge takes its input too slowly / goes on.  ``on_overlong``: a
    line above the limit was dropped.
    """

    def __init__(
        self,
        *,
        on_pause: Callable[[], None] = lambda: None,
        on_resume: Callable[[], None] = lambda: None,
        on_overlong: Callable[[Overlong], None] = lambda overlong: None,
        limits: Limits = LIMITS,
    ) -> None:
        self._on_pause, self._on_resume, self._on_overlong = on_pause, on_resume, on_overlong
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._lines = LineSplitter()
        self._stderr_lines = LineSplitter(SIZES.read)
        self._noise, self._chatter = Chatter(log, logging.WARNING), Chatter(log, logging.INFO)
        self._stage: Stage = "start"
        self._reason = ""
        self._stray = False  # it has made another connection: what it says is not about ours
        self._link: VanishingLink | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()
        self.pid = 0  #: 0: not running
        self.noise = 0  #: lines of stdout that were no JSON objects

    def start(
        self, info: LeaderInfo, on_line: Callable[[bytes], None], on_exit: Callable[[BridgeExit], None]
    ) -> None:
        """Start it.  ``on_line`` gets each JSON object, ``on_exit`` comes once, also when it cannot start."""
        self._on_line, self._on_exit = on_line, on_exit
        argv = list(info.bridge)
        try:
            if info.link:
                self._link = VanishingLink(Path(argv[0]), "bridge")
                argv[0] = str(self._link.path)
            process = spawn(
                argv, env=info.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            self._remove_link()
            self._ended.set()
            reason = f"cannot start {info.bridge[0]}: {error.strerror or error}"
            self._loop.call_soon(on_exit, BridgeExit("start", reason=reason))
            return
        self._process, self.pid = process, process.pid
        if self._link is not None:
            self._link.watch(self.pid)
        stdin, stdout, stderr = self._pipes = _pipes(process)
        self._writer = Writer(
            stdin.fileno(),
            lambda error: None,
            self._on_pause,
            self._on_resume,
            self._stdin_blocked,
            high=SIZES.bridge_input,
        )
        self._stdout = Reader(stdout.fileno(), self._output, lambda error: None)
        self._stderr = Reader(stderr.fileno(), self._errors, lambda error: None)
        self._pidfd = os.pidfd_open(process.pid)
        self._loop.add_reader(self._pidfd, self._exited)

    def write(self, line: bytes) -> None:
        """Send one JSON text; dropped when the bridge does not run (or ends at this moment)."""
        if not self.pid:
            return
        if b"\n" in line:
            line = line.replace(b"\n", b" ")  # in JSON a raw line feed can only be white space
        if len(line) <= SIZES.read:
            self._writer.write(line + b"\n")
        else:
            self._writer.write(line, b"\n")

    def pause_reading(self) -> None:
        """Read no more output for now; lines of the part already read are still delivered."""
        if self.pid and self._stage != "stop":
            self._stdout.pause()

    def resume_reading(self) -> None:
        """Go on reading."""
        if self.pid:
            self._stdout.resume()

    async def close(self) -> None:
        """End it: its input is sent and closed, then TERM, then KILL to the group, each bounded.

        Its output is delivered to the end, paused or not.  Cancelled, it is killed at once.
        """
        if self._process is None:
            return
        if self.pid and self._stage != "stop":
            self._stage = "stop"
            self._stdout.resume()  # a bridge that is blocked on its output does not see the end of its input
            self._writer.when_flushed(self._close_stdin)
        try:
            if await self._ends_within(self._limits.bridge_eof):
                return
            self._signal(signal.SIGTERM)
            if await self._ends_within(self._limits.terminate):
                return
        finally:
            self.kill()
        await self._ends_within(self._limits.terminate)

    def kill(self) -> None:
        """KILL the group.  The end is told as always."""
        self._signal(signal.SIGKILL)

    # -- the process ---------------------------------------------------------------------------

    def _remove_link(self) -> None:
        if self._link is not None:
            self._link.remove()
            self._link = None

    def _signal(self, number: signal.Signals) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    async def _ends_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ended.wait()
        return self._ended.is_set()

    def _exited(self) -> None:
        assert self._process is not None
        self.kill()  # what is left of the group, while the number is still ours
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        status = self._process.wait()
        self.pid = 0
        self._stdout.drain()
        self._stderr.drain()
        self._report_rest()
        self._stdout.close()
        self._stderr.close()
        self._writer.close()
        if self._watch is not None:
            self._watch.cancel()
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.close()
        self._remove_link()
        self._ended.set()
        code, number = (status, None) if status >= 0 else (None, -status)
        self._on_exit(BridgeExit(self._stage, code, number, self._chatter.tail, self._reason, self._stray))

    def _close_stdin(self) -> None:
        self._writer.close()
        self._pipes[0].close()

    def _stdin_blocked(self) -> None:
        """Watch that the bridge goes on reading."""
        if self.pid and self._writer.blocked:
            due = self._writer.progress + self._limits.bridge_write
            if self._loop.time() >= due:
                self._reason = f"it read nothing of its input for {self._limits.bridge_write:g} s"
                self.kill()
            else:
                self._watch = self._loop.call_at(due, self._stdin_blocked)

    # -- its output ----------------------------------------------------------------------------

    def _output(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if line.startswith(acp.RECONNECTED_LINE):
                self._stray = True
                self._reason = self._reason or "its connection to the leader broke"
                self.kill()
            if self._stray:
                return
            if _is_object(line):
                if self._stage == "start":
                    self._stage = "run"
                try:
                    self._on_line(line)
                except Exception:  # the lines after it are as good as ever
                    log.exception("bridge %d: a message could not be handled", self._number)
            else:
                self.noise += 1
                self._noise.add(f"bridge {self._number}, stdout, not a message", [line])
        for overlong in self._lines.take_overlong():
            log.error("bridge %d: a line of %d bytes was dropped", self._number, overlong.size)
            self._on_overlong(overlong)

    def _errors(self, data: bytes) -> None:
        lines = self._stderr_lines.feed(data)
        lines += [overlong.head + b" ..." for overlong in self._stderr_lines.take_overlong()]
        self._chatter.add(self._stderr_label, lines)

    def _report_rest(self) -> None:
        if rest := self._stderr_lines.rest():
            self._chatter.add(self._stderr_label, [rest])
        self._chatter.flush(self._stderr_label)
        if rest := self._lines.rest():
            log.warning("bridge %d ended within a line, %d bytes of it came", self._number, len(rest))

    @property
    def _stderr_label(self) -> str:
        return f"bridge {self._number}, stderr"

    @property
    def _number(self) -> int:
        return self._process.pid if self._process is not None else 0


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    pipes = process.stdin, process.stdout, process.stderr
    for pipe in pipes:
        os.set_blocking(pipe.fileno(), False)
    return pipes


def _is_object(line: bytes) -> bool:
    """Whether a line of stdout is a JSON object in UTF-8, as a text frame must be.

    What begins as a message and ends as an object is believed: parsing costs 17 ms for 1 MiB.
    """
    if not line.isascii():
        try:
            line.decode()
        except UnicodeDecodeError:
            return False
    if line.startswith(b'{"jsonrpc":') and line.endswith(b"}"):
        return True
    if not line.lstrip().startswith(b"{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
