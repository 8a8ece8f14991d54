"""The front process: owns the port and the leader, admits, and is out of the way afterwards.

Order of the start: the port first, then the leader, so that a launch that loses the port has touched
nothing.  Order of the end, by cause (`ending`): accept no more, settle what is here, let go of the
leader or end it, then the control socket, which is how others see that this front is gone.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Literal, Protocol

import orjson

from gateway.front import web
from gateway.front.admission import Gate, Page
from gateway.front.intake import Intake
from gateway.front.listener import HOST, Escrow
from gateway.front.orphans import Orphans
from gateway.front.rescue import Bridge, Rescuer
from gateway.front.roster import Roster, Workers
from gateway.paths import Paths
from gateway.secret import SecretError, read_secret
from gateway.settings import SettingError, Settings
from gateway.wire.audit import AuditLog
from gateway.wire.control import Channel, Packet, Server
from gateway.wire.handoff import LeaderInfo
from gateway.wire.limits import LIMITS, SIZES
from gateway.wire.process import Exit, Identity

__all__ = ["Cause", "Ending", "Front", "Keeper", "ending"]

log = logging.getLogger("front")

Cause = Literal["terminate", "reload", "supervisor died"]


@dataclasses.dataclass(frozen=True, slots=True)
class Ending:
    """How this front ends.  ``wait`` (seconds): for workers that go too; the leader is the last."""

    end_leader: bool
    release_port: bool
    reload: bool = False
    wait: float = 0


STOP = Ending(end_leader=True, release_port=True, wait=LIMITS.drain_all)
RESTART = Ending(end_leader=False, release_port=False)
RELOAD = Ending(end_leader=False, release_port=False, reload=True)
ORPHANED = Ending(end_leader=True, release_port=True, wait=LIMITS.supervisor_gone)


def ending(cause: Cause, workers_leaving: bool) -> Ending:
    """A TERM alone does not say whether the service stops or the front restarts; the workers do."""
    match cause:
        case "terminate":
            return STOP if workers_leaving else RESTART
        case "reload":
            return RELOAD
        case "supervisor died":
            return ORPHANED


class Keeper(Protocol):
    """What keeps the leader (`gateway.front.leader_keeper`)."""

    @property
    def info(self) -> LeaderInfo: ...
    def start(self) -> None: ...
    async def restart(self) -> str | None: ...
    async def throwaway_bridge(
        self, on_line: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> Bridge: ...
    async def close(self, end_leader: bool) -> None: ...
    def status(self) -> dict[str, Any]: ...


class Front:
    """One front on a running loop; ``listener`` is its own from now on."""

    def __init__(
        self,
        paths: Paths,
        settings: Settings,
        listener: socket.socket,
        make_keeper: Callable[[Callable[[LeaderInfo], None]], Keeper],
        journaled: Callable[[str], bool],
    ) -> None:
        self._paths = paths
        self._settings = settings
        self._cause: asyncio.Future[Cause] = asyncio.get_running_loop().create_future()
        self._tasks = set[asyncio.Task[None]]()
        self._roster = Roster([f"worker_{number:02}" for number in range(settings.workers)], journaled)
        self._keeper = make_keeper(self._leader_changed)
        self._audit = AuditLog(paths.audit_log)
        self._rescuer = Rescuer(self._keeper.throwaway_bridge, self._audit)
        self._orphans = Orphans(paths, lambda: self._keeper.info, self._rescuer)
        self._workers = Workers(self._roster, paths.worker_socket, lambda: self._keeper.info, self._orphans)
        gate = Gate(
            port=settings.port,
            secret=self._secret,
            known=self._roster.known,
            owned=self._roster.owned,
            ready=lambda conn: bool(self._roster.candidates(conn)),
        )
        self._intake = Intake(listener, gate, self._workers.offer, self._page, self._orphans.hold)
        self._escrow = Escrow(paths.watchdog_socket, settings.port, listener)

    @property
    def ready(self) -> bool:
        """Whether a client that connects now gets to a leader."""
        return self._roster.ready and self._keeper.info.state == "ready"

    async def run(self) -> Ending:
        """Serve until told to end; then everything is closed but the listening socket."""
        supervisor = Identity.of(os.getppid())
        watch = Exit(supervisor, lambda: self._end("supervisor died")) if supervisor else None
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._end, "terminate")
        loop.add_signal_handler(signal.SIGINT, self._end, "terminate")
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        self._escrow.start()
        server = Server(self._paths.front_socket, self._on_packet)
        self._workers.start()
        self._keeper.start()
        await self._workers.settled()
        await self._orphans.start()
        self._intake.open()
        log.info("listening on %s:%d", HOST, self._settings.port)
        how = await self._decide(await self._cause)
        if watch:
            watch.cancel()
        await self._wind_down(how)
        server.close()
        return how

    # -- the end ---------------------------------------------------------------------------------
    def _end(self, cause: Cause) -> None:
        if not self._cause.done():
            self._cause.set_result(cause)

    def _reload(self) -> None:
        try:
            Settings.load(self._paths)
        except SettingError as error:  # the new program would refuse to start, and nobody would serve
            log.error("not reloaded: %s", error)
            return
        self._end("reload")

    async def _decide(self, cause: Cause) -> Ending:
        """Connections wait meanwhile; those that are here go on to a worker that stays."""
        self._intake.stop()
        if cause == "terminate":
            await asyncio.sleep(LIMITS.stop_decision)
        how = ending(cause, self._roster.leaving)
        log.info("%s: the leader %s", cause, "ends" if how.end_leader else "stays")
        return how

    async def _wind_down(self, how: Ending) -> None:
        await self._intake.close()
        if how.wait:
            await self._workers.all_gone(how.wait)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._orphans.close()
        self._audit.close()
        await self._workers.close()  # first: a keeper that lets go of its leader must not alarm them
        await self._keeper.close(how.end_leader)
        await self._escrow.close(release=how.release_port)

    # -- the leader ------------------------------------------------------------------------------
    def _leader_changed(self, info: LeaderInfo) -> None:
        self._workers.announce(info)
        self._orphans.leader_changed()

    # -- pages and admission ---------------------------------------------------------------------
    def _secret(self) -> str:
        try:
            return read_secret(self._paths.secret)
        except SecretError as error:
            log.error("nobody can be admitted: %s", error)
            return ""

    async def _page(self, page: Page) -> web.Response:
        match page:
            case "healthz":
                return web.health()
            case "readyz":
                return web.readiness(self.ready)
        workers = await self._workers.statuses()
        status = self._status(workers)
        return web.status_page(status) if page == "status" else web.metrics(status, workers)

    def _status(self, workers: dict[str, dict[str, Any]]) -> dict[str, Any]:
        clients = [
            {"worker": name, **client}
            for name, answer in workers.items()
            for client in answer.get("clients", ())
        ]
        return {
            "state": self._state,
            "engine": self._keeper.info.engine,
            "endpoint": f"ws://{HOST}:{self._settings.port}/ws",
            "leader": self._keeper.status(),
            "workers": [
                {"name": seat.name, "pid": seat.pid, "state": seat.state, "sockets": seat.sockets}
                for seat in self._roster.seats
            ],
            "clients": clients[: SIZES.status_clients],
            "counters": dict(self._intake.counters + self._rescuer.counters),
        }

    @property
    def _state(self) -> str:
        if self._cause.done():
            return "stopping"
        return "ready" if self.ready else "waiting"

    # -- control socket --------------------------------------------------------------------------
    def _on_packet(self, channel: Channel, packet: Packet) -> None:
        packet.close_fds()
        match packet.op:
            case "ping":
                channel.answer(packet, "pong", state=self._state)
            case "status":
                self._later(self._answer_status(channel, packet))
            case "restart" if packet.fields.get("what") == "leader":
                self._later(self._answer_restart(channel, packet))
            case _:
                channel.answer(packet, "failed", reason=f"the front does not know {packet.op!r}")

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_status(self, channel: Channel, packet: Packet) -> None:
        status = self._status(await self._workers.statuses())
        clients = status["clients"]
        while clients and len(orjson.dumps(status)) > SIZES.packet * 3 // 4:  # rather fewer than none
            status["clients"] = clients = clients[: len(clients) // 2]
        channel.answer(packet, "status", **status)

    async def _answer_restart(self, channel: Channel, packet: Packet) -> None:
        reason = await self._keeper.restart()
        if reason is None:
            channel.answer(packet, "done")
        else:
            channel.answer(packet, "failed", reason=reason)
