"""The roster: which workers there are, what each owns, and who gets the next socket.

`Roster` is pure: told what the workers say, asked where a socket belongs.  `Workers` is the shell: one
channel to each worker, opened again and again, since workers come and go on their own.  The front
holds nothing that it could not ask for: after its restart the workers say anew what they own.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from gateway.front import handovers
from gateway.front.admission import HandOver
from gateway.wire import control
from gateway.wire.control import Channel, ControlError, Packet
from gateway.wire.handoff import LeaderInfo, SocketOffer, WorkerHello, WorkerState
from gateway.wire.limits import LIMITS
from gateway.wire.process import Identity

__all__ = ["Bereft", "Roster", "Seat", "Workers"]

log = logging.getLogger("front.roster")


@dataclasses.dataclass(slots=True)
class Seat:
    """One worker as the front knows it; ``gone`` while there is no channel to it."""

    name: str
    pid: int = 0
    state: WorkerState | Literal["gone"] = "gone"
    sockets: int = 0  #: as the worker said last
    capacity: int = 0
    drained: bool = False  #: it is gone because it was told to
    offered: collections.deque[float] = dataclasses.field(default_factory=collections.deque)
    #: when each socket offered since then stops counting

    @property
    def load(self) -> int:
        return self.sockets + len(self.offered)

    @property
    def free(self) -> bool:
        return self.state == "ready" and self.load < self.capacity


class Roster:
    """Seats of a fixed set of workers.  ``journaled(conn)``: is there a journal of this connection?

    An id or a token belongs to the worker that claimed it last.  What a lost worker owned stays its
    own until it is back (it then starts with nothing) or another one claims it: a lent call that
    comes meanwhile is told to try again, not that its token is unknown.
    """

    def __init__(
        self,
        names: Iterable[str],
        journaled: Callable[[str], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._seats = {name: Seat(name) for name in names}
        self._journaled = journaled
        self._connections = dict[str, str]()  # connection id: worker
        self._tokens = dict[str, str]()  # MCP token: worker

    @property
    def seats(self) -> Sequence[Seat]:
        return tuple(self._seats.values())

    @property
    def ready(self) -> bool:
        """Whether a worker takes new connections."""
        return bool(self.candidates())

    @property
    def leaving(self) -> bool:
        """Whether every worker is gone or about to go: then the service stops as a whole."""
        return all(seat.state in ("draining", "gone") for seat in self._seats.values())

    @property
    def stopping(self) -> bool:
        """Whether every worker was told to go, rather than lost one of them and starts it again."""
        return all(seat.state == "draining" or seat.drained for seat in self._seats.values())

    # -- what the workers say --

    def joining(self, name: str) -> None:
        """A channel is open: what the worker owned under an earlier one no longer counts."""
        for owners in (self._connections, self._tokens):
            for key in [key for key, owner in owners.items() if owner == name]:
                del owners[key]
        self._seats[name] = Seat(name, state="starting")

    def joined(self, name: str, hello: WorkerHello) -> None:
        self._seats[name] = Seat(name, hello.pid, hello.state, hello.sockets, hello.capacity)

    def left(self, name: str) -> None:
        self._seats[name] = Seat(name, drained=self._seats[name].state == "draining")

    def load(self, name: str, state: WorkerState, sockets: int) -> None:
        seat = self._seats[name]
        seat.state, seat.sockets = state, sockets
        seat.offered.clear()

    def owns(self, name: str, connections: Iterable[str], tokens: Iterable[str]) -> None:
        self._connections.update(dict.fromkeys(connections, name))
        self._tokens.update(dict.fromkeys(tokens, name))

    def disowns(self, name: str, connections: Iterable[str], tokens: Iterable[str]) -> None:
        for owners, keys in ((self._connections, connections), (self._tokens, tokens)):
            for key in keys:
                if owners.get(key) == name:
                    del owners[key]

    # -- where a socket belongs --

    def known(self, conn: str) -> bool:
        """Whether a connection can be resumed: its owner lives, or its journal can be taken over."""
        return self._owner(conn) is not None or self._journaled(conn)

    def owned(self, token: str) -> bool:
        return token in self._tokens

    def connections_of(self, name: str) -> list[str]:
        """What a worker has, or had when it was lost."""
        return [conn for conn, owner in self._connections.items() if owner == name]

    def candidates(self, conn: str = "", token: str = "") -> list[str]:
        """Workers to offer a socket to, the best one first; empty: nobody takes it now.

        A resumed connection goes to its living owner even if that one is full (it holds the place of
        the socket that is replaced) and to nobody else: two workers would drive one session.
        """
        if token:
            owner = self._tokens.get(token)
            return [owner] if owner and self._seats[owner].state != "gone" else []
        if owner := self._owner(conn):
            return [owner]
        self._forget_old_offers()
        free = [seat for seat in self._seats.values() if seat.free]
        return [seat.name for seat in sorted(free, key=lambda seat: seat.load)]

    def offered(self, name: str) -> None:
        """A socket is on its way: counted at once, or a burst would go to one worker.

        Only for ``LIMITS.offer``: the worker may refuse the handshake, and its count never changes.
        """
        self._seats[name].offered.append(self._clock() + LIMITS.offer)

    def _forget_old_offers(self) -> None:
        now = self._clock()
        for seat in self._seats.values():
            while seat.offered and seat.offered[0] <= now:
                seat.offered.popleft()

    def _owner(self, conn: str) -> str | None:
        """The living owner of this connection; one that drains has it until it is handed over."""
        owner = self._connections.get(conn)
        return owner if owner and self._seats[owner].state != "gone" else None


class Bereft(Protocol):
    """Who looks after the connections of a lost worker."""

    def worker_lost(self, worker: Identity | None, connections: Collection[str]) -> None:
        """The channel to a worker has broken; it had these connections."""

    def worker_back(self, worker: Identity) -> None:
        """There is a new channel to it."""

    def offered(self, conn: str) -> None:
        """A socket that resumes this connection is on its way to a worker."""


class Workers:
    """The channels to the workers, and the hand-off over them."""

    def __init__(
        self,
        roster: Roster,
        socket_of: Callable[[str], Path],
        leader: Callable[[], LeaderInfo],
        bereft: Bereft,
    ) -> None:
        self._roster = roster
        self._socket_of = socket_of
        self._leader = leader
        self._bereft = bereft
        self._processes = dict[str, Identity]()
        self._channels = dict[str, Channel]()
        self._hand_overs = handovers.HandOvers(self._successor, lambda: roster.stopping, self._channels)
        self._requests = set[asyncio.Task[None]]()
        self._unsettled = {seat.name for seat in roster.seats}
        self._settled = asyncio.Event()
        self._empty = asyncio.Event()
        self._tasks = list[asyncio.Task[None]]()

    def start(self) -> None:
        """Begin to connect, and to connect again."""
        self._tasks = [asyncio.create_task(self._attend(seat.name)) for seat in self._roster.seats]

    async def settled(self) -> None:
        """Return when every worker that runs has said what it owns, at most ``LIMITS.roster_settle``.

        Before that a connection to be resumed would be given to a stranger while its owner lives.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIMITS.roster_settle):
                await self._settled.wait()

    async def all_gone(self, seconds: float) -> None:
        """Return when no worker is left, at most after ``seconds``."""
        if self._channels:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._empty.wait()

    def offer(self, decision: HandOver, consumed: bytes, fd: int) -> bool:
        """Send a socket to the best worker that takes it; the caller closes its own ``fd``."""
        packet = SocketOffer(decision.kind, decision.conn, decision.received).packet(consumed, fd)
        for name in self._roster.candidates(decision.conn, decision.token):
            channel = self._channels.get(name)
            if channel is not None and channel.send_now(packet):
                if decision.kind != "mcp":  # a lent call takes no seat
                    self._roster.offered(name)
                if decision.conn:
                    self._bereft.offered(decision.conn)
                return True
            log.warning("%s does not take a socket, its queue is full or it is gone", name)
        return False

    def announce(self, info: LeaderInfo) -> None:
        """Tell every worker about a change of the leader."""
        for channel in tuple(self._channels.values()):
            channel.send(Packet("leader", info.to_fields()))

    async def statuses(self) -> dict[str, dict[str, Any]]:
        """What each worker answers to ``status`` within ``LIMITS.gather``; silent ones are left out."""
        channels = dict(self._channels)
        answers = await asyncio.gather(
            *(channel.request(Packet("status"), LIMITS.gather) for channel in channels.values()),
            return_exceptions=True,
        )
        found = dict[str, dict[str, Any]]()
        for name, answer in zip(channels, answers, strict=True):
            if isinstance(answer, Packet):
                found[name] = dict(answer.fields)
            elif not isinstance(answer, ControlError):
                raise answer
        return found

    async def close(self) -> None:
        tasks = [*self._tasks, *self._requests]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in tuple(self._channels.values()):
            channel.close()

    async def _attend(self, name: str) -> None:
        """Be connected to one worker for good."""
        while True:
            lost = asyncio.Event()

            def on_packet(channel: Channel, packet: Packet) -> None:
                self._received(name, channel, packet)

            def on_closed(channel: Channel, lost: asyncio.Event = lost) -> None:
                self._left(name)
                lost.set()

            try:
                channel = control.connect(self._socket_of(name), on_packet, on_closed)
            except OSError:  # not there (yet), so it owns nothing
                self._settle(name)
            else:
                self._channels[name] = channel
                self._empty.clear()
                self._roster.joining(name)
                # A plain packet, not a request: the answer and the claims behind it must be taken
                # in their order, and a request's answer would reach its waiter one turn later.
                channel.send(Packet("hello", {"role": "front", "pid": os.getpid()}))
                channel.send(Packet("leader", self._leader().to_fields()))
                with contextlib.suppress(ControlError):
                    await channel.request(Packet("ping"))  # answered after hello and all claims
                self._settle(name)
                await lost.wait()
            await asyncio.sleep(LIMITS.reconnect)

    def _received(self, name: str, channel: Channel, packet: Packet) -> None:
        fields = packet.fields
        match packet.op:
            case "hello":
                hello = WorkerHello.from_fields(fields)
                if process := Identity.of(hello.pid):
                    self._processes[name] = process
                    self._bereft.worker_back(process)
                self._roster.joined(name, hello)
                log.info("%s joined: pid %d, %s, %d sockets", name, hello.pid, hello.state, hello.sockets)
            case "load":
                self._roster.load(name, fields["state"], fields["sockets"])
            case "owns":
                self._roster.owns(name, fields.get("connections", ()), fields.get("tokens", ()))
            case "disowns":
                self._roster.disowns(name, fields.get("connections", ()), fields.get("tokens", ()))
            case "handover":
                self._later(self._hand_overs.pass_on(name, channel, packet))
        packet.close_fds()

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    def _successor(self) -> str | None:
        """Who gets a connection that is handed over."""
        name = next(iter(self._roster.candidates()), None)
        if name is not None:
            self._roster.offered(name)
        return name

    def _left(self, name: str) -> None:
        self._channels.pop(name, None)
        self._roster.left(name)
        self._hand_overs.left(name)
        if not self._channels:
            self._empty.set()
        log.info("%s left", name)
        self._bereft.worker_lost(self._processes.pop(name, None), self._roster.connections_of(name))

    def _settle(self, name: str) -> None:
        self._unsettled.discard(name)
        if not self._unsettled:
            self._settled.set()
