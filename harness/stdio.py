"""The agent over stdin and stdout: one client, one JSON object a line.

Reading and writing use the loop's pipes where stdin and stdout are pipes, and threads where they are files.
The end of stdin is the end of the client: what runs is ended, and the program exits with code 0.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections import deque
from typing import NoReturn

from gateway.wire.ndjson import LineSplitter
from harness.acp import Connection
from harness.agent import Agent, Defaults
from harness.arguments import Arguments
from harness.limits import LIMITS, SIZES
from harness.model.endpoints import engine_home

__all__ = ["run"]

_LOG = logging.getLogger("stdio")


def run(arguments: Arguments) -> NoReturn:
    """Serve one client until it goes, and end the program."""
    # Nothing but messages may be on stdout, whatever a library prints there.
    out = os.dup(1)
    os.dup2(2, 1)
    loop = asyncio.new_event_loop()
    code = loop.run_until_complete(_serve(arguments, out))
    logging.shutdown()
    # All sessions have ended.  A thread that still imports something must not hold up the exit.
    os._exit(code)


async def _serve(arguments: Arguments, out: int) -> int:
    """Returns the exit code: 0 when the client went, 128 and the number of the signal that ended it."""
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    signals = list[int]()

    def signalled(number: int) -> None:
        signals.append(number)
        gone.set()

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        loop.add_signal_handler(number, signalled, number)
    writer = _Writer(out, gone)
    agents = list[Agent]()
    connection = Connection(
        writer.write, lambda method, params, request: agents[0].handle(method, params, request)
    )
    agents.append(Agent(engine_home(os.environ), os.environ, connection, Defaults.of(arguments)))
    reading = loop.create_task(_read(connection, gone))
    try:
        await gone.wait()
    finally:
        reading.cancel()
        connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIMITS.agent_close):
                await agents[0].close()
        writer.close()
    return 128 + signals[0] if signals else 0


async def _read(connection: Connection, gone: asyncio.Event) -> None:
    """Hand over lines until the client has no more."""
    loop = asyncio.get_running_loop()
    splitter = LineSplitter(SIZES.client_line)
    try:
        while data := await _chunk(loop):
            for line in splitter.feed(data):
                connection.line(line)
            for overlong in splitter.take_overlong():
                _LOG.error("a line of %d bytes was dropped", overlong.size)
    except OSError as error:
        _LOG.error("stdin: %s", error.strerror)
    gone.set()


async def _chunk(loop: asyncio.AbstractEventLoop) -> bytes:
    """What stdin has; nothing at its end.  A thread waits where the loop cannot."""
    ready = asyncio.Event()
    try:
        loop.add_reader(0, ready.set)
    except PermissionError:  # a regular file is always ready, which epoll refuses to say
        return await loop.run_in_executor(None, os.read, 0, SIZES.pipe_read)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(0)
    return os.read(0, SIZES.pipe_read)


class _Writer:
    """Writes lines in order; what a slow client does not read waits here and holds nobody up."""

    def __init__(self, fd: int, gone: asyncio.Event) -> None:
        self._fd = fd
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._waiting = deque[bytes]()
        self._unread = 0
        self._watching = False
        with contextlib.suppress(OSError):
            os.set_blocking(fd, False)

    def write(self, line: bytes) -> None:
        self._waiting.append(line + b"\n")
        self._unread += len(line) + 1
        if not self._watching:
            self._flush()
        if self._unread > SIZES.client_unread and not self._gone.is_set():
            _LOG.error("the client has not read %d bytes: it is given up", self._unread)
            self._gone.set()

    def close(self) -> None:
        """Write what is left, as far as the client takes it."""
        self._unwatch()
        self._flush(watch=False)
        os.close(self._fd)

    def _flush(self, *, watch: bool = True) -> None:
        try:
            while self._waiting:
                written = os.write(self._fd, self._waiting[0])
                self._unread -= written
                if written < len(self._waiting[0]):
                    self._waiting[0] = self._waiting[0][written:]
                else:
                    self._waiting.popleft()
        except BlockingIOError:
            if watch and not self._watching:
                self._loop.add_writer(self._fd, self._flush)
                self._watching = True
            return
        except OSError:  # nobody reads any more
            self._waiting.clear()
            self._gone.set()
        self._unwatch()

    def _unwatch(self) -> None:
        if self._watching:
            self._loop.remove_writer(self._fd)
            self._watching = False
