"""Programs the workspace runs for itself (git, for instance): short, without a terminal, bounded.

Not for the model's commands: those belong to the terminal, which shows their output while it comes and
moves them to the background.  An `Executor` is injected, so that whatever uses it is tested with one
that answers from a table.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Protocol

from gateway.wire.process import end_group, spawn, wait_exit
from harness.limits import LIMITS, SIZES

__all__ = ["Executed", "Execution", "Executor", "HostExecutor"]


@dataclasses.dataclass(frozen=True, slots=True)
class Execution:
    """A program to run; ``env`` is laid over the executor's own."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    timeout: float = LIMITS.vcs
    output_limit: int = SIZES.vcs_output


@dataclasses.dataclass(frozen=True, slots=True)
class Executed:
    """How it ended; ``exit_code`` is None when it was ended by us, negative for a signal."""

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    truncated: bool = False
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.truncated


class Executor(Protocol):
    async def run(self, execution: Execution) -> Executed:
        """Raises OSError when the program cannot be started."""


class HostExecutor:
    """Runs programs on this machine, each in a process group that ends with it."""

    def __init__(
        self,
        env: Mapping[str, str],
        wrap: Callable[[Sequence[str], str], Sequence[str]] = lambda argv, _cwd: argv,
    ) -> None:
        self._env = dict(env)
        self._wrap = wrap

    async def run(self, execution: Execution) -> Executed:
        process = spawn(
            self._wrap(execution.argv, execution.cwd),
            env={**self._env, **execution.env},
            cwd=execution.cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        full = asyncio.Event()
        streams = [
            _Collector(process.stdout, execution.output_limit, full),
            _Collector(process.stderr, SIZES.vcs_complaint, asyncio.Event()),
        ]
        timed_out = False
        try:
            async with asyncio.timeout(execution.timeout):
                await self._watch(process, streams, full)
        except TimeoutError:
            timed_out = True
        finally:
            # Shielded: a cancelled turn must not leave the program or what it started behind.
            ended_by_us = process.poll() is None
            await asyncio.shield(self._end(process))
            for stream in streams:
                stream.close()
        return Executed(
            exit_code=None if ended_by_us else process.returncode,
            stdout=bytes(streams[0].data),
            stderr=bytes(streams[1].data),
            truncated=streams[0].cut,
            timed_out=timed_out,
        )

    @staticmethod
    async def _watch(
        process: subprocess.Popen[bytes],
        streams: Sequence[_Collector],
        full: asyncio.Event,
    ) -> None:
        """Until both outputs are closed and the program has ended, or enough was read."""

        async def to_the_end() -> None:
            await asyncio.gather(*(stream.closed.wait() for stream in streams))
            await wait_exit(process, LIMITS.vcs)

        tasks = [asyncio.ensure_future(to_the_end()), asyncio.ensure_future(full.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @staticmethod
    async def _end(process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            await end_group(process, LIMITS.vcs_terminate)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


class _Collector:
    """Reads a pipe as it fills; beyond the limit it sets ``full`` and reads on without keeping."""

    def __init__(self, pipe: IO[bytes], limit: int, full: asyncio.Event) -> None:
        self.data = bytearray()
        self.cut = False
        self.closed = asyncio.Event()
        self._pipe = pipe
        self._limit = limit
        self._full = full
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(pipe.fileno(), self._read)

    def _read(self) -> None:
        try:
            part = os.read(self._pipe.fileno(), SIZES.pipe_read)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if not part:
            self.close()
            return
        room = self._limit - len(self.data)
        self.data += part[:room]
        if len(part) > room:
            self.cut = True
            self._full.set()

    def close(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()
        self.closed.set()
