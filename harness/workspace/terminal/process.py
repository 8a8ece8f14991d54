"""One running command: its process in a session of its own, its output, its end.

Both outputs come through one pipe.  The end of the process is seen through its pidfd, not through the end
of the pipe: a child left behind may hold the pipe open for hours.  After the process has ended the pipe is
read for a moment longer, and then only so that such a child does not die of a closed pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence

from gateway.wire.process import Identity
from harness.limits import LIMITS, SIZES
from harness.workspace.terminal.family import Family

__all__ = ["CommandProcess"]


class CommandProcess:
    """Starts at once; raises OSError when it cannot.  Both callbacks come on the running loop.

    ``on_output`` takes bytes as they are read, ``on_end`` comes once, after the last of them.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        task: str,
        on_output: Callable[[bytes], None],
        on_end: Callable[[int | None], None],
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_output, self._on_end = on_output, on_end
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        try:
            self._process = subprocess.Popen(
                list(argv),
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                start_new_session=True,
                pass_fds=tuple(pass_fds),
            )
        except BaseException:
            os.close(self._reader)
            raise
        finally:
            os.close(writer)
        self.pid = self._process.pid
        # A zombie still has its number, so this is the right one even if it has ended already.
        identity = Identity.of(self.pid) or Identity(self.pid, 0.0)
        self.family = Family(identity, task)
        self._drain: asyncio.TimerHandle | None = None
        self._exited = self._ended = False
        self._pipe_open = True
        self._exit_fd: int | None = None
        self._loop.add_reader(self._reader, self._readable)
        self._watch_exit()

    @property
    def reading(self) -> bool:
        """Whether the pipe is still open at this end."""
        return self._pipe_open

    # -- output ------------------------------------------------------------------------------------
    def _readable(self) -> None:
        left = SIZES.pipe_turn
        while left > 0 and self._pipe_open:
            try:
                data = os.read(self._reader, SIZES.pipe_read)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                self._close_pipe()
                self._settle()
                return
            left -= len(data)
            if not self._ended:
                self._on_output(data)

    def _close_pipe(self) -> None:
        if self._pipe_open:
            self._pipe_open = False
            self._loop.remove_reader(self._reader)
            os.close(self._reader)

    # -- the end -----------------------------------------------------------------------------------
    def _watch_exit(self) -> None:
        try:
            self._exit_fd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            threading.Thread(target=self._wait_in_thread, name=f"wait-{self.pid}", daemon=True).start()
        else:
            self._loop.add_reader(self._exit_fd, self._exit)

    def _wait_in_thread(self) -> None:
        self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._exit)

    def _exit(self) -> None:
        if self._exited or self._process.poll() is None:
            return
        self._exited = True
        self._close_exit_fd()
        self._readable()  # what it wrote last is in the pipe by now
        if self._pipe_open and not self._ended:
            self._drain = self._loop.call_later(LIMITS.output_drain, self._settle, True)
        self._settle()

    def _close_exit_fd(self) -> None:
        if self._exit_fd is not None:
            self._loop.remove_reader(self._exit_fd)
            os.close(self._exit_fd)
            self._exit_fd = None

    def _settle(self, drained: bool = False) -> None:
        if self._ended or not self._exited or (self._pipe_open and not drained):
            return
        self._finish(self._process.returncode)

    def _finish(self, code: int | None) -> None:
        self._ended = True
        if self._drain is not None:
            self._drain.cancel()
            self._drain = None
        self._on_end(code)

    def give_up(self) -> None:
        """The system does not give the process back: end with what there is."""
        if not self._ended:
            self._finish(self._process.poll())

    async def end(self, grace: float) -> bool:
        """End the command and all it started; see `Family.end`."""
        return await self.family.end(grace, lambda: not self._exited)

    def release(self) -> None:
        """Let go of pipe and watch; the process is no longer ours to look at."""
        self._close_pipe()
        self._close_exit_fd()
        if self._drain is not None:
            self._drain.cancel()
            self._drain = None
        # Ended and not yet reaped: take its number back, or it stays a zombie.
        self._process.poll()
