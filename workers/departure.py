"""A connection leaves this worker, which is restarted, for another one: no turn is lost.

`MOVES` is the order of things; each step ends in an event:

========= ====================================================================================
preparing the successor loads the sessions at rest
waiting   something is open that only this bridge can bring to an end: a hook, a lent call,
          an answer to the client.  After ``LIMITS.drain`` it is refused
holding   the successor loads the sessions at work, whose lines are held back here
closing   the bridge is read to its end
giving    the successor takes the connection
given     it has it
left      there is no successor: the journal tells the next worker what it needs
stopping  no other worker is there at all: the gateway stops, and so does the connection
========= ====================================================================================
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from gateway.wire.control import ControlError, Packet
from gateway.wire.handoff import Succession
from gateway.wire.limits import LIMITS, SIZES, Limits
from gateway.wire.questions import GateKind
from workers.proxy import Proxy
from workers.requests import Step as RequestStep

__all__ = ["MOVES", "Departing", "Departure", "Event", "Step", "business"]

log = logging.getLogger(__name__)


class Step(enum.Enum):
    PREPARING = "preparing"
    WAITING = "waiting"
    HOLDING = "holding"
    CLOSING = "closing"
    GIVING = "giving"
    GIVEN = "given"
    LEFT = "left"
    STOPPING = "stopping"


class Event(enum.Enum):
    DONE = "done"
    DISTURBED = "something came that only this bridge can bring to an end"
    FAILED = "this successor cannot do it"
    GIVEN_UP = "no successor can, or the time is over"
    NOBODY = "no other worker is ready"


#: (step, event) → step.
MOVES = {
    (Step.PREPARING, Event.DONE): Step.WAITING,
    (Step.PREPARING, Event.FAILED): Step.PREPARING,
    (Step.PREPARING, Event.GIVEN_UP): Step.CLOSING,
    (Step.PREPARING, Event.NOBODY): Step.STOPPING,
    (Step.WAITING, Event.DONE): Step.HOLDING,
    (Step.HOLDING, Event.DONE): Step.CLOSING,
    (Step.HOLDING, Event.DISTURBED): Step.WAITING,
    (Step.HOLDING, Event.FAILED): Step.PREPARING,
    (Step.HOLDING, Event.GIVEN_UP): Step.CLOSING,
    (Step.HOLDING, Event.NOBODY): Step.STOPPING,
    (Step.CLOSING, Event.DONE): Step.GIVING,
    (Step.GIVING, Event.DONE): Step.GIVEN,
    (Step.GIVING, Event.FAILED): Step.LEFT,
    (Step.GIVING, Event.GIVEN_UP): Step.LEFT,
    (Step.GIVING, Event.NOBODY): Step.LEFT,
}
_ENDS = frozenset({Step.GIVEN, Step.LEFT, Step.STOPPING})


class Departing(Protocol):
    """A connection that leaves."""

    id: str
    proxy: Proxy

    @property
    def lent_waits(self) -> bool:
        """A call of a lent tool waits for the client."""

    def listen(self, on: bool) -> None:
        """Whether the client is read at all."""

    def refuse_what_is_open(self, why: str) -> None:
        """The client had its time."""

    async def close_bridge(self) -> None:
        """Read the bridge to its end."""

    async def left(self) -> None:
        """The client is told to come again."""


def business(connection: Departing) -> str:
    """What only this bridge can bring to an end, for people; "" if there is nothing."""
    ledger = connection.proxy.ledger
    if any(gate.kind in (GateKind.PRE_HOOK, GateKind.HOOK) for gate in ledger.guard):
        return "a hook"
    if connection.lent_waits:
        return "a lent call"
    if not connection.proxy.link.up:
        return "a bridge"
    for request in ledger.requests:
        if request.step is not RequestStep.SENT:
            continue
        session = ledger.sessions.get(request.session_id)
        known = (session.running, *session.queued) if session else ()
        if not request.is_prompt or request.prompt_id not in known:  # a prompt is on its way
            return request.method
    return ""


class Departure:
    """See the module.  ``tell(word)``: to the successor, by way of the front; its answer."""

    def __init__(
        self,
        connection: Departing,
        tell: Callable[[Succession], Awaitable[Packet]],
        limits: Limits = LIMITS,
    ) -> None:
        self._connection, self._tell, self._limits = connection, tell, limits
        self._proxy = connection.proxy
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + limits.drain
        self._tries, self._hopeless = 0, False
        self._loaded = set[str]()
        self._running = set[str]()
        self.step = Step.PREPARING

    async def run(self) -> Step:
        """The end: GIVEN, LEFT, or STOPPING, whose connection is the caller's to end."""
        steps = {
            Step.PREPARING: self._prepare,
            Step.WAITING: self._wait,
            Step.HOLDING: self._hold,
            Step.CLOSING: self._close,
            Step.GIVING: self._give,
        }
        while self.step not in _ENDS:
            event = await steps[self.step]()
            self.step = MOVES[self.step, event]
        if self.step is not Step.STOPPING:
            await self._connection.left()
        return self.step

    # -- steps ---------------------------------------------------------------------------------

    async def _prepare(self) -> Event:
        self._tries += 1
        if self._tries > SIZES.hand_overs or self._loop.time() >= self._deadline:
            self._hopeless = True
            self._connection.refuse_what_is_open("the gateway restarts its worker")
            return Event.GIVEN_UP
        self._loaded.clear()
        return await self._load({s.session_id for s in self._proxy.ledger.sessions if not s.busy})

    async def _wait(self) -> Event:
        while open_business := business(self._connection):
            self._connection.listen(open_business in ("a hook", "a lent call"))
            if self._loop.time() >= self._deadline:
                log.warning("connection %s: %s was open to the end", self._connection.id[:8], open_business)
                self._connection.refuse_what_is_open("the gateway restarts its worker, the time is over")
                break
            await asyncio.sleep(self._limits.drain_look)
        self._connection.listen(False)
        return Event.DONE

    async def _hold(self) -> Event:
        sessions = list(self._proxy.ledger.sessions)
        self._running = {s.session_id for s in sessions if s.busy}
        missing = {s.session_id for s in sessions} - self._loaded
        self._proxy.holding.begin(self._running)
        event = await self._load(self._running | missing)
        if event is Event.DONE and (self._late or not self._disturbed):
            return Event.DONE
        await self._proxy.holding.release()
        return Event.DISTURBED if event is Event.DONE else event

    @property
    def _late(self) -> bool:
        return self._loop.time() >= self._deadline + self._limits.drain_all

    @property
    def _disturbed(self) -> bool:
        busy = {s.session_id for s in self._proxy.ledger.sessions if s.busy}
        return self._proxy.holding.disturbed or busy != self._running or bool(business(self._connection))

    async def _close(self) -> Event:
        await self._connection.close_bridge()
        return Event.DONE

    async def _give(self) -> Event:
        if self._hopeless:
            return Event.GIVEN_UP
        sessions = list(self._proxy.ledger.sessions)
        word = Succession(
            self._connection.id,
            "take",
            running=sorted(self._running),
            queued={s.session_id: s.queued for s in sessions if s.queued},
            rules_due=[s.session_id for s in sessions if s.rules_due],
            background={s.session_id: s.background for s in sessions if s.background},
        )
        return await self._say(word)

    # -- the successor -------------------------------------------------------------------------

    async def _load(self, sessions: set[str]) -> Event:
        event = await self._say(Succession(self._connection.id, "load", sorted(sessions)))
        if event is Event.DONE:
            self._loaded |= sessions
        return event

    async def _say(self, word: Succession) -> Event:
        since = self._loop.time()
        while True:
            answer = await self._answer(word)
            if answer.op == "done":
                return Event.DONE
            if answer.op == "nobody" and self._loop.time() >= since + self._limits.rejoin:
                return Event.NOBODY
            over = self._loop.time() >= min(self._deadline, since + self._limits.restarted)
            if answer.op not in ("nobody", "later") or over:
                if over:
                    self._tries = SIZES.hand_overs  # enough of waiting
                log.warning("connection %s: %s: %s", word.conn[:8], word.step, answer.fields.get("reason"))
                return Event.FAILED
            await asyncio.sleep(self._limits.reconnect)  # a worker that is back joins the front in a moment

    async def _answer(self, word: Succession) -> Packet:
        try:
            async with asyncio.timeout_at(self._deadline + self._limits.drain_all):
                return await self._tell(word)
        except TimeoutError:
            return Packet("failed", {"reason": "it takes too long"})
        except ControlError as error:
            return Packet("failed", {"reason": str(error)})
