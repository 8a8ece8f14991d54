"""The control bridge: the front's own ``agent --leader stdio``.

It is the leader's first client, so that the constant ``initialize`` is the one that Grok keeps for
all, and it asks for health: the list of models, which the agent behind the leader answers in 1 ms,
at any load and for any number of sessions.  It never names a session: it would become a subscriber
and could become the driver, to whom hooks go.

Being initialized, it is also the standby for a rescue (`gateway.front.rescue`), which it does not outlive.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from gateway.wire import acp
from gateway.wire.insist import insist
from gateway.wire.jsonrpc import dump, parse_engine, request_bytes
from gateway.wire.limits import LIMITS, SIZES
from gateway.wire.ndjson import LineSplitter
from gateway.wire.process import VanishingLink, end_group, spawn, wait_exit

__all__ = ["BridgeStartError", "ControlBridge", "NoAnswerError"]

log = logging.getLogger(__name__)

PROBE = "_x.ai/models/list"


class BridgeStartError(Exception):
    """The bridge could not be started here: no word about the leader."""


class NoAnswerError(Exception):
    """The leader did not answer, or its bridge ended; the text names the stage."""


class ControlBridge:
    """One bridge, made by `open`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        self._process = process
        self._input = process.stdin
        os.set_blocking(self._input.fileno(), False)
        self._output = bytearray()
        self._errors = bytearray()
        self._waiting = dict[bytes, asyncio.Future[dict[str, Any]]]()
        self._numbers = 0
        self._transports: list[asyncio.ReadTransport] = []
        self._on_line: Callable[[bytes], None] | None = None
        self._on_end: Callable[[], None] = lambda: None
        self.ended = asyncio.Event()  #: it has ended or was taken for something else

    @classmethod
    async def open(
        cls,
        argv: Sequence[str],
        *,
        link: bool,
        env: Mapping[str, str],
        cwd: Path,
        timeout: float = LIMITS.bridge_start,
    ) -> tuple[Self, dict[str, Any]]:
        """Start a bridge and initialize it: (the bridge, the result of ``initialize``).

        ``link``: ``argv[0]`` is the pinned binary; a hard link of it runs and vanishes afterwards.
        ``timeout`` in seconds.  Raises BridgeStartError and NoAnswerError.
        """
        program = Path(argv[0])
        hard_link: VanishingLink | None = None
        try:
            try:
                if link:
                    hard_link = VanishingLink(program, "control")
                    program = hard_link.path
                process = spawn(
                    [str(program), *argv[1:]],
                    env=env,
                    cwd=cwd,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            except OSError as error:
                text = f"the control bridge cannot be started ({program}): {error.strerror}"
                raise BridgeStartError(text) from error
            if hard_link is not None:
                hard_link.watch(process.pid)
            bridge = cls(process)
            try:
                await bridge._read()
                initialize = functools.partial(bridge._request, "initialize", acp.INITIALIZE, timeout)
                return bridge, await insist(initialize, LIMITS.first_request)
            except BaseException:
                await bridge.close()
                raise
        finally:
            if hard_link is not None:
                hard_link.remove()

    async def probe(self, timeout: float = LIMITS.probe_timeout) -> dict[str, Any]:
        """Ask for a sign of life; the answer's result ({} for an error: it is an answer too).

        ``timeout`` in seconds.  Raises NoAnswerError.
        """
        result = await self._request(PROBE, {}, timeout)
        inner = result.get("result")
        return inner if isinstance(inner, dict) else result

    def take(self, on_line: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Use it for something else, until `close`: its lines go to ``on_line``; no `probe` any more."""
        self._on_line, self._on_end = on_line, on_end
        self._give_up()

    def write(self, line: bytes) -> None:
        """Send a line to the engine, once taken; what it does not read at once waits."""
        self._output += line + b"\n"
        self._flush()

    def _flush(self) -> None:
        fd, loop = self._input.fileno(), asyncio.get_running_loop()
        try:
            del self._output[: os.write(fd, self._output)]
        except BlockingIOError:
            pass
        except OSError:  # its end is seen elsewhere
            self._output.clear()
        if self._output:
            loop.add_writer(fd, self._flush)
        else:
            loop.remove_writer(fd)

    async def close(self) -> None:
        """End the bridge: EOF, TERM, KILL, each bounded."""
        if not self._input.closed:
            asyncio.get_running_loop().remove_writer(self._input.fileno())
        with contextlib.suppress(OSError):
            self._input.close()
        if not await wait_exit(self._process, LIMITS.bridge_eof):
            await end_group(self._process)
        for transport in self._transports:
            transport.close()
        self._end()

    async def _read(self) -> None:
        splitter = LineSplitter()

        def output(data: bytes) -> None:
            for line in splitter.feed(data):
                self._received(line)
            splitter.take_overlong()  # a broadcast, of no interest here

        def errors(data: bytes) -> None:
            self._errors += data
            del self._errors[: -SIZES.stderr_tail]

        loop = asyncio.get_running_loop()
        for pipe, received, ended in (
            (self._process.stdout, output, self._end),
            (self._process.stderr, errors, lambda: None),
        ):
            transport, _ = await loop.connect_read_pipe(functools.partial(_Pipe, received, ended), pipe)
            self._transports.append(transport)

    def _received(self, data: bytes) -> None:
        if data.startswith(acp.RECONNECTED_LINE):
            log.warning("the control bridge lost its connection to the leader and made another: it is ended")
            self._process.kill()  # what was under way is lost, and a rescue must not take it for heard
            self._end()
            self._on_line = lambda line: None
            return
        if self._on_line is not None:
            self._on_line(data)
            return
        line = parse_engine(data)
        if line.kind == "response" and (answer := self._waiting.get(line.id_raw)) and not answer.done():
            answer.set_result(line.body)
        elif line.kind == "request":
            # Only subscribers of a session are asked anything; to answer would be a decision.
            log.warning(
                "the control bridge was asked %s, which it leaves to the session's clients", line.method
            )

    def _end(self) -> None:
        self._give_up()
        on_end, self._on_end = self._on_end, lambda: None
        on_end()

    def _give_up(self) -> None:
        self.ended.set()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(NoAnswerError())

    async def _request(self, method: str, params: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        self._numbers += 1
        key = b'"gw-control-%d"' % self._numbers
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[key] = answer
        try:
            if self.ended.is_set():
                raise NoAnswerError
            os.write(self._input.fileno(), request_bytes(key, method, dump(params)) + b"\n")
            async with asyncio.timeout(timeout):
                body = await answer
        except TimeoutError:
            raise NoAnswerError(f"no answer to {method} within {timeout:g} s") from None
        except BlockingIOError:
            raise NoAnswerError(f"{method}: its bridge reads nothing") from None
        except (NoAnswerError, OSError):
            raise NoAnswerError(f"{method}: its bridge ended{await self._how_it_ended()}") from None
        finally:
            del self._waiting[key]
        if method == "initialize" and not isinstance(body.get("result"), dict):
            raise NoAnswerError(f"initialize was refused: {dump(body.get('error')).decode()}")
        result = body.get("result")
        return result if isinstance(result, dict) else {}

    async def _how_it_ended(self) -> str:
        await wait_exit(self._process, LIMITS.bridge_eof)
        code = self._process.poll()
        words = " ".join(self._errors.decode(errors="replace").split())
        how = "" if code is None else f" with exit code {code}"
        return f"{how}, its last words: {words}" if words else how


class _Pipe(asyncio.Protocol):
    def __init__(self, received: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        self._received, self._ended = received, ended

    def data_received(self, data: bytes) -> None:
        self._received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended()
