"""A server that is a process: one JSON object a line on its standard streams.

Its end is a contract with bounded waits, as in the protocol's own libraries: its input is closed, then TERM,
then KILL go to its whole group.  It dies with the engine, too, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from gateway.wire.ndjson import LineSplitter
from gateway.wire.process import end_group, spawn, wait_exit
from harness.limits import LIMITS, SIZES
from harness.mcp.config import StdioServer
from harness.mcp.protocol import Failing, McpError

__all__ = ["StdioTransport"]


class StdioTransport:
    """``receive`` gets each message, ``lost`` why there will be no more."""

    inline = False  #: an answer comes by itself, not with what `send` does

    def __init__(
        self,
        server: StdioServer,
        env: Mapping[str, str],
        cwd: str,
        receive: Callable[[object], None],
        lost: Callable[[McpError], None],
    ) -> None:
        self._server, self._env, self._cwd = server, env, cwd
        self._receive, self._lost = receive, lost
        self._splitter = LineSplitter(SIZES.mcp_message)
        self._complaint = bytearray()
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._pipes: list[asyncio.BaseTransport] = []

    async def open(self) -> None:
        """Start the process.  Raises McpError."""
        command = self._server.command
        if "/" in command:
            command = str(Path(self._cwd, command))
        argv = [command, *(argument.reveal() for argument in self._server.arguments)]
        pipe = subprocess.PIPE
        try:
            self._process = spawn(argv, env=self._env, cwd=self._cwd, stdin=pipe, stdout=pipe, stderr=pipe)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "its arguments cannot be passed"
            raise McpError(Failing.ABSENT, f"{self._server.command} could not be started: {why}") from None
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, process.stdin)
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)
        self._readers = [
            loop.create_task(self._read(await self._reader(process.stdout))),
            loop.create_task(self._drain(await self._reader(process.stderr))),
        ]

    def negotiated(self, version: str) -> None:
        """Nothing of a line tells the version."""

    def listen(self) -> None:
        """The process speaks when it likes."""

    async def send(self, message: Mapping[str, Any]) -> None:
        """Raises McpError."""
        writer = self._writer
        if writer is None or writer.is_closing():
            raise McpError(Failing.ABSENT, "its process has ended")
        if writer.transport.get_write_buffer_size() > SIZES.mcp_unread:
            raise McpError(Failing.BROKEN, "its process does not read what it is sent")
        writer.write(json.dumps(message).encode() + b"\n")
        try:
            await writer.drain()
        except OSError:
            raise McpError(Failing.BROKEN, "its process has ended") from None

    async def close(self) -> None:
        """End the process and its group; takes `mcp_eof` and two `mcp_terminate` at most."""
        process = self._process
        if process is None:
            return
        if self._writer is not None:
            self._writer.close()
        if await wait_exit(process, LIMITS.mcp_eof):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # what it started and did not end
        else:
            await end_group(process, LIMITS.mcp_terminate)
        for task in self._readers:
            task.cancel()
        for pipe in self._pipes:
            pipe.close()
        if self._writer is not None and self._writer.transport.get_write_buffer_size():
            self._writer.transport.abort()  # nobody will read it

    # -- what it says ----------------------------------------------------------------------------
    async def _reader(self, pipe: IO[bytes]) -> asyncio.StreamReader:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._pipes.append(transport)
        return reader

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(SIZES.pipe_read):
            for line in self._splitter.feed(data):
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError):
                    continue  # greetings and prints of a careless server
                self._receive(value)
            if self._splitter.take_overlong():
                text = f"it sent a message of more than {SIZES.mcp_message} bytes"
                self._lost(McpError(Failing.NONSENSE, text))
                return
        self._lost(McpError(Failing.BROKEN, await self._epitaph()))

    async def _drain(self, reader: asyncio.StreamReader) -> None:
        """Keep the end of what it complains about; a full pipe would stop it."""
        while data := await reader.read(SIZES.pipe_read):
            self._complaint += data
            del self._complaint[: -SIZES.mcp_complaint]

    async def _epitaph(self) -> str:
        assert self._process is not None
        ended = await wait_exit(self._process, LIMITS.mcp_notice)
        how = (
            f"its process ended with {self._process.returncode}" if ended else "its process closed its output"
        )
        said = self._complaint.decode(errors="replace").strip()
        return f"{how}: {said}" if said else how
