"""The engine side of one connection: a bridge, and the next one when it is lost.

A `Link` waits for a leader, starts a bridge, sends the one constant ``initialize`` and lets its owner
attach the sessions; then the link is *up* until the bridge or the leader ends, and all begins anew.
The owner is told of each loss before anything of the next bridge can be heard; when the leader's end
follows that of the bridge, it is told again.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Literal, Protocol

from gateway.wire import acp
from gateway.wire.handoff import LeaderInfo
from gateway.wire.insist import insist
from gateway.wire.jsonrpc import EngineLine, dump, notification_bytes, parse_engine, request_bytes
from gateway.wire.limits import LIMITS, SIZES, Limits
from gateway.wire.ndjson import Overlong
from workers.bridge import Bridge, BridgeExit
from workers.leader import LeaderWatch
from workers.replay_order import ReplayOrder

__all__ = ["CallError", "EngineError", "Link", "LinkOwner", "Loss"]

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Loss:
    """What ended; ``reason`` is for people and names stage, exit code and last stderr of a bridge."""

    cause: Literal["bridge", "leader"]
    reason: str
    started: bool = True  #: the bridge had been up
    hung_up: bool = False  #: the leader hung up on the bridge: what was under way may never have arrived


class CallError(Exception):
    """A request of our own failed: the engine's error, no answer in time, or the bridge is lost."""


class EngineError(CallError):
    """The engine answered with an error."""


class LinkOwner(Protocol):
    """What a link tells its connection."""

    def new_key(self) -> bytes:
        """A fresh raw id for a request of our own."""

    def engine_line(self, line: EngineLine) -> None:
        """A line of the bridge that answers no call of ours."""

    def engine_overlong(self, line: Overlong) -> None:
        """The engine wrote a line above the limit; it is dropped."""

    async def attach_sessions(self, cause: Literal["", "bridge", "leader"]) -> None:
        """The bridge has initialized: load what it must know; "" for the first one.
        CallError ends the bridge."""

    def link_up(self) -> None:
        """Messages can be sent."""

    def link_lost(self, loss: Loss) -> None:
        """The bridge is of no use any more."""

    def link_writable(self, writable: bool) -> None:
        """The bridge takes no more for now / goes on."""


class Link:
    """See the module.  `run` is the life of it; `close` ends it."""

    def __init__(self, owner: LinkOwner, leader: LeaderWatch, limits: Limits = LIMITS) -> None:
        self._owner, self._leader, self._limits = owner, leader, limits
        self._loop = asyncio.get_running_loop()
        self._bridge: Bridge | None = None
        self._loss: asyncio.Future[Loss] = self._loop.create_future()
        self._calls = dict[bytes, tuple[asyncio.Future[Any], Callable[[Any], None] | None]]()
        self._order = ReplayOrder()
        self._paused = False
        self.up = False
        self.generation = ""  #: of the leader that the present or last bridge belongs to
        self.initialize_result: bytes | None = None  #: raw JSON of the newest bridge's answer
        self.losses = 0
        self.pid = 0  #: of the bridge, 0 while there is none

    async def run(self, cause: Literal["", "bridge", "leader"] = "") -> str:
        """Keep a bridge until cancelled.  Returns the reason when too many were lost in a short time.

        ``cause``: what was lost before the first bridge, if the connection is older than this link.
        """
        lost_at = collections.deque[float](maxlen=SIZES.bridge_failures)
        self._leader.on_lost.add(self._leader_lost)
        try:
            while True:
                info = await self._leader.ready()
                if self.generation not in ("", info.generation):
                    cause = "leader"
                loss = await self._one_bridge(info, cause)
                cause = loss.cause if self.initialize_result is not None else cause
                if loss.cause == "bridge":
                    lost_at.append(self._loop.time())
                    window = lost_at[-1] - lost_at[0]
                    if len(lost_at) == lost_at.maxlen and window <= SIZES.bridge_failure_window_s:
                        return loss.reason
                    if not loss.started:  # what made it fail may be over in a moment
                        await asyncio.sleep(self._limits.backoff_first)
        finally:
            self._leader.on_lost.discard(self._leader_lost)
            await self._drop()

    async def _one_bridge(self, info: LeaderInfo, cause: Literal["", "bridge", "leader"]) -> Loss:
        """Start a bridge and wait until it is lost."""
        self._loss = self._loop.create_future()
        self._order = ReplayOrder()
        try:
            await self._start(info)
            self.generation = info.generation
            await self._owner.attach_sessions(cause)
            if not self._loss.done():
                self.up = True
                if self._paused and self._bridge is not None:
                    self._bridge.pause_reading()
                self._owner.link_up()
        except CallError as error:
            self._lose(Loss("bridge", str(error)))
        loss = dataclasses.replace(await asyncio.shield(self._loss), started=self.up)
        self.up = False
        self.losses += 1
        log.warning("%s lost: %s", loss.cause, loss.reason)
        self._owner.link_lost(loss)
        await self._drop()
        return loss

    async def _start(self, info: LeaderInfo) -> None:
        bridge = self._bridge = Bridge(
            on_pause=lambda: self._owner.link_writable(False),
            on_resume=lambda: self._owner.link_writable(True),
            on_overlong=lambda line: self._owner.engine_overlong(line),
        )
        bridge.start(info, self._line, self._exited)
        self.pid = bridge.pid

        def initialize() -> Coroutine[Any, Any, Any]:
            return self.call("initialize", acp.INITIALIZE, self._limits.bridge_start)

        self.initialize_result = dump(await insist(initialize, self._limits.first_request))

    async def last_bridge(self) -> None:
        """After `run` has given up: one more bridge that attaches nothing, to end what may run on.

        Raises CallError.  `close` ends it.
        """
        info = self._leader.info
        if info is None:
            raise CallError("there is no leader")
        self._loss = self._loop.create_future()
        await self._start(info)

    async def close(self) -> None:
        """End the bridge of `last_bridge`."""
        await self._drop()

    # -- for the owner -------------------------------------------------------------------------

    def pass_to(self, owner: LinkOwner) -> None:
        """Another owner from now on; the bridge stays as it is."""
        self._owner = owner

    def send(self, line: bytes) -> None:
        """Write a line to the bridge; dropped when there is none."""
        if self._bridge is not None and not self._loss.done():
            self._bridge.write(line)

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """A notification of our own."""
        self.send(notification_bytes(method, params))

    async def call(
        self,
        method: str,
        params: Any,
        timeout: float,
        then: Callable[[Any], None] | None = None,
        *,
        replays: str = "",
    ) -> Any:
        """A request of our own: its result.  ``timeout`` in seconds.  Raises CallError.

        ``then(result)`` is called at once; whoever awaits goes on only after the lines behind the answer.
        ``replays``: a session whose replay is to come before the answer.
        """
        key = self._owner.new_key()
        if replays:
            self.expect_replay(key, replays)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._calls[key] = future, then
        try:
            if self._bridge is None or self._loss.done():
                raise CallError(f"{method}: there is no bridge")
            self.send(request_bytes(key, method, dump(params)))
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise CallError(f"{method}: no answer within {timeout:g} s") from None
        finally:
            del self._calls[key]
            self.expect_no_more(key)

    def ask(self, method: str, params: Any, then: Callable[[], None]) -> None:
        """A request of our own for whose answer nobody waits; ``then()`` follows, whatever it says."""
        key = self._owner.new_key()
        future: asyncio.Future[Any] = self._loop.create_future()
        self._calls[key] = future, None

        def answered(future: asyncio.Future[Any]) -> None:
            del self._calls[key]
            if (error := future.exception()) is not None:
                log.warning("%s: %s", method, error)
            then()

        future.add_done_callback(answered)
        self.send(request_bytes(key, method, dump(params)))

    def expect_replay(self, key: bytes, session_id: str) -> None:
        """A ``session/load`` is about to be sent: its replay is to come before its answer."""
        self._order.expect(key, session_id)

    def expect_no_more(self, key: bytes) -> None:
        """Its replay is waited for no longer: the answer passes, if it has come, and what came behind it."""
        self._take(self._order.release(key))

    def pause_reading(self) -> None:
        """The client takes no more for now.  A bridge that is being made ready is read all the same."""
        self._paused = True
        if self._bridge is not None and self.up:
            self._bridge.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if self._bridge is not None:
            self._bridge.resume_reading()

    def give_up(self, loss: Loss) -> None:
        """The owner has found the bridge useless."""
        self._lose(loss)

    # -- events --------------------------------------------------------------------------------

    def _line(self, data: bytes) -> None:
        if self._loss.done():
            return  # what the lost bridge still says was settled without it
        line = parse_engine(data)
        self._take(self._order.sort(line))
        if line.kind == "response" and self._order.keeps(line.id_raw):
            self._loop.call_later(self._limits.late_replay, self._replay_due, self._loss, line.id_raw)

    def _replay_due(self, loss: asyncio.Future[Loss], key: bytes) -> None:
        if loss is self._loss:  # else the bridge is another one
            self.expect_no_more(key)

    def _take(self, lines: Iterable[EngineLine]) -> None:
        for line in lines:
            if not self._loss.done():
                self._dispatch(line)

    def _dispatch(self, line: EngineLine) -> None:
        call = self._calls.get(line.id_raw) if line.kind == "response" else None
        if call is None:
            self._owner.engine_line(line)
        elif not call[0].done():
            self._answered(line.body, *call)

    def _answered(
        self, body: dict[str, Any], future: asyncio.Future[Any], then: Callable[[Any], None] | None
    ) -> None:
        error = body.get("error")
        if error is not None:
            text = error.get("message") if isinstance(error, dict) else error
            future.set_exception(EngineError(f"the engine answers: {text}"))
            return
        if then is not None:
            then(body.get("result"))
        future.set_result(body.get("result"))

    def _exited(self, exit_: BridgeExit) -> None:
        self._lose(Loss("bridge", str(exit_), hung_up=exit_.hung_up))

    def _leader_lost(self, reason: str) -> None:
        if self._bridge is None or self._loss.done():
            # The bridge ended a moment earlier: what waits for another one waits in vain.
            self._owner.link_lost(Loss("leader", reason))
        else:
            self._lose(Loss("leader", reason))

    def _lose(self, loss: Loss) -> None:
        if self._loss.done() or self._bridge is None:
            return
        self._loss.set_result(loss)
        if loss.cause == "leader":
            # Left alive even for a moment it finds the next leader and loads its sessions there by itself.
            self._bridge.kill()
        for future, _ in self._calls.values():
            if not future.done():
                future.set_exception(CallError(loss.reason))

    async def _drop(self) -> None:
        bridge, self._bridge, self.pid = self._bridge, None, 0
        self.up = False
        if bridge is not None:
            await bridge.close()
