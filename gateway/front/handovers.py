"""Hand-overs: what a draining worker says to the worker that succeeds it goes through the front.

The front chooses the successor of each connection and knows when one of the two is lost; the words
themselves are `gateway.wire.handoff.Succession`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

from gateway.wire.control import Channel, ControlError, Packet
from gateway.wire.handoff import Succession
from gateway.wire.limits import LIMITS

__all__ = ["HandOvers"]

log = logging.getLogger("front.handovers")


@dataclasses.dataclass(frozen=True, slots=True)
class _Pair:
    giver: str
    successor: str


class HandOvers:
    """The connections that are being handed over.

    ``choose()``: the worker that should have one more connection, None if none is ready; ``stopping()``:
    none will be.
    """

    def __init__(
        self,
        choose: Callable[[], str | None],
        stopping: Callable[[], bool],
        channels: Mapping[str, Channel],
    ) -> None:
        self._choose, self._stopping, self._channels = choose, stopping, channels
        self._pairs = dict[str, _Pair]()

    async def pass_on(self, giver: str, channel: Channel, packet: Packet) -> None:
        """A word of a draining worker; answered."""
        word = Succession.from_fields(packet.fields)
        pair = self._pairs.get(word.conn)
        if pair is None or pair.giver != giver:
            successor = self._choose()
            if successor is None:
                channel.answer(packet, "nobody" if self._stopping() else "later")
                return
            pair = self._pairs[word.conn] = _Pair(giver, successor)
        answer = await self._ask(pair, word)
        if answer.op != "done" or word.step == "take":
            self._forget(word.conn)
        channel.answer(packet, answer.op, **_reason(answer))

    def left(self, name: str) -> None:
        """A worker is lost: what it was about to give stays as its journal tells."""
        for conn, pair in tuple(self._pairs.items()):
            if pair.giver == name:
                self._forget(conn)
            elif pair.successor == name:
                del self._pairs[conn]  # the request that waits for its answer fails

    async def _ask(self, pair: _Pair, word: Succession) -> Packet:
        successor = self._channels.get(pair.successor)
        try:
            if successor is None:
                raise ControlError(f"{pair.successor} is gone")
            return await successor.request(Packet("handover", word.to_fields()), LIMITS.drain)
        except ControlError as error:
            return Packet("failed", {"reason": str(error)})

    def _forget(self, conn: str) -> None:
        """The successor drops what it still holds for the connection; after a take it holds nothing."""
        pair = self._pairs.pop(conn, None)
        successor = self._channels.get(pair.successor) if pair else None
        if successor is not None:
            successor.send(Packet("handover", Succession(conn, "drop").to_fields()))


def _reason(answer: Packet) -> dict[str, Any]:
    reason = answer.fields.get("reason")
    return {"reason": reason} if isinstance(reason, str) else {}
