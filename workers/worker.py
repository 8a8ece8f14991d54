"""The worker process: it takes sockets over from the front and keeps one `Connection` for each client.

It listens at a control socket.  The front connects, hears what the worker owns, tells how the leader is
and hands over sockets; anybody may ask for ``ping`` and ``status``.  The front may come and go: no
connection depends on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import secrets
import signal
import socket
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

import orjson

from gateway.paths import Paths
from gateway.wire import control
from gateway.wire.acp import CloseCode, ErrorCode
from gateway.wire.audit import AuditLog
from gateway.wire.control import Channel, Packet
from gateway.wire.handoff import LeaderInfo, SocketOffer, Succession, WorkerHello, WorkerState
from gateway.wire.journal import JournalError
from gateway.wire.leases import Leases
from gateway.wire.limits import LIMITS, SIZES, Limits
from gateway.wire.process import Exit, Identity
from gateway.wire.records import Owned
from workers.connection import Connection
from workers.connection_state import State
from workers.handovers import HandOvers
from workers.leader import LeaderWatch
from workers.lent_tools import LentTools
from workers.successor import Successor

__all__ = ["Worker"]

log = logging.getLogger(__name__)

_NOT_HERE = b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def _kind(name: str) -> type[Connection]:
    """The class for a kind of socket.  A worker that serves no Pi starts without what Pi needs, 40 ms."""
    if name != "pi":
        return Connection
    from workers.pi.connection import PiConnection

    return PiConnection


class Worker:
    """One worker of an instance.  Lives on the running loop; `run` is all of it."""

    def __init__(self, name: str, paths: Paths, port: int, limits: Limits = LIMITS) -> None:
        self.name, self.paths, self.port, self.limits = name, paths, port, limits
        self.leader = LeaderWatch()
        self.leases = Leases(paths)
        self.audit = AuditLog(paths.audit_log)
        self.state: WorkerState = "starting"
        self._loop = asyncio.get_running_loop()
        self._identity = Identity.of(os.getpid())
        self._connections = dict[str, Connection]()
        self._lenders = dict[str, LentTools]()  # by token
        self._fronts = dict[Channel, None]()  # the newest is the last
        self._hand_overs = HandOvers(self, self._fronts.keys())
        self._tasks = set[asyncio.Task[None]]()
        self._counters = Counter[str]()
        self._stop = asyncio.Event()
        self._orphaned = False

    async def run(self) -> None:
        """Serve until TERM, then hand everything over within ``drain``; if supervisord is gone, or no other
        worker is there, end everything within ``drain_all``."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop.set)
        parent = Identity.of(os.getppid())
        guard = Exit(parent, self._supervisor_gone) if parent is not None else None
        server = control.Server(self.paths.worker_socket(self.name), self._packet, on_closed=self._left)
        self._set_state("ready")
        log.info("ready, pid %d", os.getpid())
        try:
            await self._stop.wait()
            await self._drain()
        finally:
            server.close()
            self.leader.close()
            self.audit.close()
            if guard is not None:
                guard.cancel()

    def _supervisor_gone(self) -> None:
        self._orphaned = True
        self._stop.set()

    async def _drain(self) -> None:
        log.info("draining %d connections", len(self._connections))
        self._set_state("draining")
        await self._hand_overs.drop_all()
        await asyncio.gather(*(self._part_with(each) for each in tuple(self._connections.values())))
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=LIMITS.drain_all)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _part_with(self, connection: Connection) -> None:
        try:
            if not self._orphaned and await self._hand_overs.part_with(connection):
                return
        except Exception:
            log.exception("connection %s cannot be handed over", connection.id[:8])
        connection.end("the gateway stops", CloseCode.GOING_AWAY, ErrorCode.DRAINING)
        try:
            async with asyncio.timeout(LIMITS.drain_all):
                await connection.ended()
        except TimeoutError:
            log.warning("connection %s did not end in time", connection.id[:8])

    # -- for the connections (Host) ------------------------------------------------------------

    def owned(self) -> Owned:
        return Owned(self.name, os.getpid(), self._identity.created if self._identity else 0.0)

    def tokens_changed(self, lender: LentTools, added: list[str], removed: list[str]) -> None:
        for token in removed:
            self._lenders.pop(token, None)
        self._lenders.update(dict.fromkeys(added, lender))
        self._claim("owns", tokens=added)
        self._claim("disowns", tokens=removed)

    def succeed(self, word: Succession, successor: Successor, kind: str) -> None:
        connection = _kind(kind).succeed(self, word, successor)
        self._connections[connection.id] = connection
        self._claim("owns", [connection.id])
        self._tell_load()

    def connection_changed(self, connection: Connection) -> None:
        known = connection.id in self._connections
        if connection.state is State.ENDED and known:
            del self._connections[connection.id]
            self._claim("disowns", connections=[connection.id])
            self._tell_load()

    # -- control channel -----------------------------------------------------------------------

    def _packet(self, channel: Channel, packet: Packet) -> None:
        match packet.op:
            case "hello":
                self._fronts[channel] = None
                self._hand_overs.front_came()
                hello = WorkerHello(self.name, os.getpid(), self.state, len(self._connections), SIZES.sockets)
                channel.answer(packet, "hello", **hello.to_fields())
                self._claim("owns", list(self._connections), list(self._lenders), to=channel)
            case "leader":
                self.leader.said(LeaderInfo.from_fields(packet.fields))
            case "socket":
                offer = SocketOffer.from_fields(packet.fields)
                for fd in packet.fds:
                    self._spawn(self._take(offer, packet.payload, socket.socket(fileno=fd)))
                return  # the descriptors are the sockets' now
            case "handover":
                self._spawn(self._hand_overs.told(channel, packet))
            case "ping":
                channel.answer(packet, "pong", state=self.state)
            case "status":
                channel.answer(packet, "status", **self._status())
            case _:
                channel.answer(packet, "unknown", text=f"a worker does not know {packet.op!r}")
        packet.close_fds()

    def _left(self, channel: Channel) -> None:
        if channel in self._fronts:
            del self._fronts[channel]
            self._spawn(self._hand_overs.drop_all())

    def _claim(
        self,
        op: str,
        connections: Sequence[str] = (),
        tokens: Sequence[str] = (),
        to: Channel | None = None,
    ) -> None:
        """Say what this worker owns (or no longer owns), in packets that fit."""
        for key, ids in (("connections", connections), ("tokens", tokens)):
            for start in range(0, len(ids), SIZES.claims):
                packet = Packet(op, {key: list(ids[start : start + SIZES.claims])})
                for channel in (to,) if to is not None else tuple(self._fronts):
                    channel.send(packet)

    def _set_state(self, state: WorkerState) -> None:
        self.state = state
        self._tell_load()

    def _tell_load(self) -> None:
        for channel in tuple(self._fronts):
            channel.send(Packet("load", {"state": self.state, "sockets": len(self._connections)}))

    def _status(self) -> dict[str, Any]:
        clients, room = list[dict[str, Any]](), SIZES.packet // 2
        for connection in itertools.islice(self._connections.values(), SIZES.status_clients):
            client = connection.to_json()
            room -= len(orjson.dumps(client))
            if room < 0:
                break
            clients.append(client)
        return {
            "name": self.name,
            "pid": os.getpid(),
            "state": self.state,
            "sockets": len(self._connections),
            "clients": clients,
            "counters": dict(self._counters),
        }

    # -- sockets -------------------------------------------------------------------------------

    async def _take(self, offer: SocketOffer, head: bytes, sock: socket.socket) -> None:
        self._counters[f"taken_{offer.kind}"] += 1
        if offer.kind == "mcp":
            from workers import lent_endpoint  # 15 ms of a start

            await lent_endpoint.serve(sock, head, self._lenders.get)
        elif self.state == "ready" or offer.conn in self._connections:
            await self._attach(offer, head, sock)
        else:
            await self._refuse(sock, b"503 Service Unavailable")

    async def _attach(self, offer: SocketOffer, head: bytes, sock: socket.socket) -> None:
        connection = self._connections.get(offer.conn)
        if connection is None:
            await self._hand_overs.drop(offer.conn)
            try:
                kind = _kind(offer.kind)
                if offer.conn:
                    connection = kind.take_over(self, offer.conn)
                else:
                    connection = kind.open(self, secrets.token_hex(16), head)
            except (JournalError, OSError, ValueError) as error:
                log.error("cannot take a client: %s", error)
                await self._refuse(sock, b"410 Gone" if offer.conn else b"503 Service Unavailable")
                return
            self._connections[connection.id] = connection
            self._claim("owns", [connection.id])
        elif offer.kind != connection.KIND:
            await self._refuse(sock, b"410 Gone")
            return
        attached = await connection.adopt(sock, head, offer.received)
        if not attached and connection.state is State.OPENING:
            connection.end("the handshake failed")
        self._tell_load()

    async def _refuse(self, sock: socket.socket, status: bytes) -> None:
        """Answer in place of a handshake.  The request was read by the front: no reset follows."""
        with sock, contextlib.suppress(OSError, TimeoutError):
            sock.setblocking(False)
            async with asyncio.timeout(LIMITS.write):
                await self._loop.sock_sendall(sock, _NOT_HERE % status)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a socket could not be served", exc_info=error)
