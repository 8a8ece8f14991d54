"""A client of one engine process: requests, notifications, answers, and a record of every line."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.wire.limits import SIZES

__all__ = ["PATIENCE", "Agent", "Handler", "Line", "Message", "RpcError"]

Message = dict[str, Any]
#: Answers a request of the engine: the result, or None to leave it unanswered.
Handler = Callable[[Message], Awaitable[Any]]
#: (seconds since the start, "<" from the engine or ">" to it, message)
Line = tuple[float, str, Message]

#: Seconds after which a wait of a scenario has failed: no wait of a healthy engine takes half of it.
PATIENCE = 45.0


class RpcError(Exception):
    """The engine answered a request with an error; ``error`` is its object."""

    def __init__(self, error: Message) -> None:
        super().__init__(json.dumps(error))
        self.error = error


class Agent:
    """One engine process."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.noise: list[str] = []  # lines on its standard output that are no JSON objects
        self.errors = b""  # its standard error output
        self.exit: int | None = None
        self.handlers: dict[str, Handler] = {}
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._next = 0
        self._news = asyncio.Condition()
        self._started = time.monotonic()
        self._tasks = set[asyncio.Task[None]]()
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self._started = time.monotonic()
        self._process = process = await asyncio.create_subprocess_exec(
            *command,
            env=dict(env),
            cwd=cwd,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=SIZES.engine_line,
            start_new_session=True,
        )
        self._spawn(self._read(process))
        self._spawn(self._read_errors(process))

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "not started"
        return self._process

    # -- to the engine ---------------------------------------------------------------------------
    async def request(self, method: str, params: Message) -> Any:
        return await self.ask(method, params)

    def ask(self, method: str, params: Message) -> asyncio.Future[Any]:
        """Send a request now; its answer comes through the future."""
        number, self._next = self._next, self._next + 1
        future = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait for it
        self._pending[number] = future
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return future

    def notify(self, method: str, params: Message) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def _send(self, message: Message) -> None:
        self.lines.append((time.monotonic() - self._started, ">", message))
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")

    # -- from the engine -------------------------------------------------------------------------
    async def until(
        self, wanted: Callable[[Message], Any], count: int = 1, timeout: float = PATIENCE
    ) -> Message:
        """The ``count``-th message from the engine (of all, also those before now) that fits."""

        def found() -> Message | None:
            fitting = (m for _, way, m in self.lines if way == "<" and wanted(m))
            return next((m for place, m in enumerate(fitting, 1) if place == count), None)

        async with asyncio.timeout(timeout), self._news:
            await self._news.wait_for(lambda: found() is not None or self.exit is not None)
        message = found()
        if message is None:
            raise EOFError(f"the engine ended ({self.exit}): {self.errors[-2000:].decode(errors='replace')}")
        return message

    async def quiet(self, seconds: float, timeout: float = PATIENCE) -> None:
        """Wait until nothing has come from the engine for so long."""
        async with asyncio.timeout(timeout):
            while True:
                last = self.lines[-1][0] if self.lines else 0.0
                rest = seconds - (time.monotonic() - self._started - last)
                if rest <= 0:
                    return
                await asyncio.sleep(rest)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for raw in process.stdout:
            await self._take(raw)
        while process.returncode is None:
            await asyncio.sleep(0.01)
        self.exit = process.returncode
        for future in self._pending.values():
            if not future.done():
                future.set_exception(EOFError(f"the engine ended ({self.exit})"))
        async with self._news:
            self._news.notify_all()

    async def _take(self, raw: bytes) -> None:
        try:
            message = json.loads(raw)
        except ValueError:
            self.noise.append(raw.decode(errors="replace"))
            return
        self.lines.append((time.monotonic() - self._started, "<", message))
        if "method" not in message:
            self._settle(message)
        elif "id" in message:
            self._spawn(self._answer(message))
        async with self._news:
            self._news.notify_all()

    def _settle(self, message: Message) -> None:
        future = self._pending.pop(message.get("id", -1), None)
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(RpcError(message["error"]))
        else:
            future.set_result(message.get("result"))

    async def _answer(self, message: Message) -> None:
        handler = self.handlers.get(message["method"])
        if handler is None:
            error = {"code": -32601, "message": "Method not found"}
            self._send({"jsonrpc": "2.0", "id": message["id"], "error": error})
            return
        result = await handler(message["params"])
        if result is not None:
            self._send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        recent = collections.deque[bytes](maxlen=200)
        async for raw in process.stderr:
            recent.append(raw)
            self.errors = b"".join(recent)

    # -- the end ---------------------------------------------------------------------------------
    async def close(self, grace: float = 10.0) -> int:
        """End its input, wait for its end, kill it when it stays; the exit code.

        `Process.wait` would wait for everybody who holds the other ends of its pipes, too: a command that the
        engine left behind does.
        """
        process = self._process
        if process is None:
            return -1
        if process.stdin is not None:
            with contextlib.suppress(ConnectionError):
                process.stdin.close()
        deadline = time.monotonic() + grace
        while process.returncode is None:
            if time.monotonic() > deadline:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                deadline += grace
            await asyncio.sleep(0.02)
        return process.returncode

    async def forget(self) -> None:
        """After `close`, and after the end of what held its pipes: let the readers finish."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2)
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
