"""The planned hand-overs of one worker: connections that it is about to get, and those that it gives.

Both sides speak `gateway.wire.handoff.Succession` to each other, by way of the front.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Protocol

from gateway.wire.control import Channel, ControlError, Packet
from gateway.wire.handoff import Succession, WorkerState
from gateway.wire.journal import JournalError, journal_path, read_journal
from gateway.wire.limits import LIMITS
from gateway.wire.records import ConnectionRecord
from workers.connection import Connection, Host
from workers.connection_state import State
from workers.departure import Departure, Step
from workers.link import CallError
from workers.successor import Successor

__all__ = ["HandOvers"]

log = logging.getLogger(__name__)


class HandOverHost(Host, Protocol):
    """What they need of their worker."""

    state: WorkerState

    def succeed(self, word: Succession, successor: Successor, kind: str) -> None:
        """Go on with a connection.  Raises JournalError or OSError."""


class HandOvers:
    """See the module.  ``fronts``: channels to the front, the newest of which counts."""

    def __init__(self, host: HandOverHost, fronts: Collection[Channel]) -> None:
        self._host, self._fronts = host, fronts
        self._successors = dict[str, Successor]()
        self._front_came = asyncio.Event()

    # -- to get --------------------------------------------------------------------------------

    async def told(self, channel: Channel, packet: Packet) -> None:
        """A word of another worker about a connection of its own; answered, but for a ``drop``."""
        word = Succession.from_fields(packet.fields)
        try:
            if word.step == "load":
                await self._load(word)
            elif word.step == "take":
                await self._take(word)
        except (CallError, JournalError, OSError, ValueError) as error:
            log.warning("connection %s cannot be taken over: %s", word.conn[:8], error)
            await self.drop(word.conn)
            channel.answer(packet, "failed", reason=str(error))
            return
        if word.step == "drop":
            await self.drop(word.conn)
        else:
            channel.answer(packet, "done")

    async def drop(self, conn: str) -> None:
        """The connection goes elsewhere."""
        if successor := self._successors.pop(conn, None):
            await successor.drop()

    async def drop_all(self) -> None:
        """This worker is restarted itself, or nobody is left to say what becomes of them."""
        await asyncio.gather(*(self.drop(conn) for conn in tuple(self._successors)))

    async def _load(self, word: Succession) -> None:
        if self._host.state != "ready":
            raise CallError("this worker is restarted, too")
        record = self._record(word.conn)
        successor = self._successors.get(word.conn)
        if successor is None:
            successor = self._successors[word.conn] = Successor(self._host.leader, self._host.limits)
        await successor.load(record, word.sessions)

    async def _take(self, word: Succession) -> None:
        successor = self._successors.get(word.conn)
        if successor is None:
            raise CallError("nothing was prepared")
        successor.check()
        self._host.succeed(word, successor, self._record(word.conn).kind)
        del self._successors[word.conn]

    def _record(self, conn: str) -> ConnectionRecord:
        record = read_journal(journal_path(self._host.paths, conn))
        if record is None:
            raise CallError("its journal cannot be read")
        return record

    # -- to give -------------------------------------------------------------------------------

    async def part_with(self, connection: Connection) -> bool:
        """Hand a connection over; False: it ends, or there is no other worker and the caller ends it."""
        if connection.state in (State.ENDING, State.ENDED):
            return False
        departure = Departure(connection, self._tell, self._host.limits)
        step = await departure.run()
        log.info("connection %s: %s", connection.id[:8], step.value)
        return step is not Step.STOPPING

    def front_came(self) -> None:
        """There is a channel to a front."""
        self._front_came.set()

    async def _tell(self, word: Succession) -> Packet:
        if not self._fronts:
            self._front_came.clear()
            try:
                async with asyncio.timeout(LIMITS.drain_all):
                    await self._front_came.wait()
            except TimeoutError:
                raise ControlError("there is no front") from None
        front = tuple(self._fronts)[-1]
        return await front.request(Packet("handover", word.to_fields()), LIMITS.drain)
