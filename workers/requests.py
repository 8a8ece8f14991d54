"""The open requests of one client: each gets exactly one answer, whatever dies.

Sans-I/O.  A client's id never reaches the engine: the leader reads and writes ids again (``1e2``
comes back as ``100.0``, ``"\\u0061"`` as ``"a"``) and a bridge that replaces another would meet ids of
the lost one.  Towards the engine a request carries ``"gw-<prefix>-<n>"``; its answer gets the client's
own bytes back.

A request moves through `_MOVES` and leaves the book when it is answered.  ``adrift`` is a prompt whose
bridge died: its turn may still run in the leader, and a new bridge can say how it ended.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterator
from typing import Any

from gateway.wire.limits import LIMITS, SIZES, Limits

__all__ = ["DuplicateId", "Request", "RequestBook", "Step", "TooManyRequests"]


class DuplicateId(Exception):  # noqa: N818 (a refusal of the client, as BadMessage is)
    """A request with these id bytes is still open."""


class TooManyRequests(Exception):  # noqa: N818
    """``SIZES.open_requests`` are unanswered."""


class Step(enum.Enum):
    """Where a request is."""

    HELD = "held"  #: received, no bridge could take it yet
    SENT = "sent"  #: written to the bridge
    ADRIFT = "adrift"  #: a prompt that lost its bridge
    REJOINED = "rejoined"  #: its turn goes on behind another bridge, which will tell only of its end
    DONE = "done"  #: answered


class _Event(enum.Enum):
    WRITTEN = "written"
    ANSWERED = "answered"
    BRIDGE_LOST = "bridge lost"
    FOUND = "found"
    TAKEN_BACK = "taken back"


#: (step, event) → step.  A pair that is not here is a defect of the caller.
_MOVES = {
    (Step.HELD, _Event.WRITTEN): Step.SENT,
    (Step.HELD, _Event.ANSWERED): Step.DONE,
    (Step.HELD, _Event.BRIDGE_LOST): Step.HELD,  # never written: the next bridge gets it
    (Step.SENT, _Event.ANSWERED): Step.DONE,
    (Step.SENT, _Event.BRIDGE_LOST): Step.ADRIFT,
    (Step.SENT, _Event.TAKEN_BACK): Step.HELD,
    (Step.ADRIFT, _Event.FOUND): Step.REJOINED,
    (Step.ADRIFT, _Event.TAKEN_BACK): Step.HELD,
    (Step.REJOINED, _Event.TAKEN_BACK): Step.HELD,
    (Step.ADRIFT, _Event.ANSWERED): Step.DONE,
    (Step.ADRIFT, _Event.BRIDGE_LOST): Step.ADRIFT,
    (Step.REJOINED, _Event.ANSWERED): Step.DONE,
    (Step.REJOINED, _Event.BRIDGE_LOST): Step.ADRIFT,
}


@dataclasses.dataclass(slots=True, eq=False, weakref_slot=True)
class Request:
    """One open request of the client."""

    key: bytes  #: raw id towards the engine, quotes included
    id_raw: bytes  #: the client's id, its own bytes
    method: str
    params: Any
    session_id: str | None
    prompt_id: str | None  #: of a prompt, once known
    deadline: float  #: monotonic seconds, infinite: none
    step: Step = Step.HELD
    seen: bool = False  #: the engine has told of this prompt
    resent: bool = False
    again: bool = False  #: may be sent once more; a prompt, when the engine shows that it never got it

    @property
    def is_prompt(self) -> bool:
        return self.method == "session/prompt"

    def _move(self, event: _Event) -> None:
        self.step = _MOVES[self.step, event]


class RequestBook:
    """Open requests by the client's id bytes and by the engine's key."""

    def __init__(self, prefix: str, limits: Limits = LIMITS, capacity: int = SIZES.open_requests) -> None:
        self._prefix = prefix
        self._limits = limits
        self._capacity = capacity
        self._numbers = 0
        self._by_key = dict[bytes, Request]()
        self._ids = set[bytes]()

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[Request]:
        """Open requests, oldest first."""
        return iter(tuple(self._by_key.values()))

    def new_key(self) -> bytes:
        """A raw id towards the engine that no request of this connection has had."""
        self._numbers += 1
        return b'"gw-%s-%d"' % (self._prefix.encode(), self._numbers)

    def open(
        self,
        id_raw: bytes,
        method: str,
        params: Any,
        *,
        session_id: str | None,
        limit: float | None,
        now: float,
        again: bool = False,
    ) -> Request:
        """Take a request in.  ``limit`` in seconds, None for a prompt, which runs as long as its turn.

        Raises DuplicateId or TooManyRequests; the caller refuses the request then.
        """
        if id_raw in self._ids:
            raise DuplicateId
        if len(self) >= self._capacity:
            raise TooManyRequests
        prompt_id = None
        if method == "session/prompt" and isinstance(params, dict):
            prompt_id = _text(_mapping(params.get("_meta")).get("promptId"))
        # Even a prompt is not held for ever when no leader comes.
        held = self._limits.initialize if limit is None else limit
        again = again or prompt_id is not None
        request = Request(
            self.new_key(), id_raw, method, params, session_id, prompt_id, now + held, again=again
        )
        self._by_key[request.key] = request
        self._ids.add(id_raw)
        return request

    def written(self, request: Request) -> None:
        """The bridge has it: a prompt now runs without limit."""
        request._move(_Event.WRITTEN)
        if request.is_prompt:
            request.deadline = math.inf

    def find(self, key: bytes) -> Request | None:
        """The open request that the engine knows by ``key``; None if it is answered or unknown."""
        return self._by_key.get(key)

    def settle(self, request: Request) -> bool:
        """The one answer of a request is given now; False if it was given before."""
        if request.step is Step.DONE:
            return False
        request._move(_Event.ANSWERED)
        del self._by_key[request.key]
        self._ids.discard(request.id_raw)
        return True

    def prompts(self, session_id: str) -> list[Request]:
        """Open prompts of a session, oldest first."""
        return [r for r in self if r.is_prompt and r.session_id == session_id]

    def restore(
        self,
        key: bytes,
        id_raw: bytes,
        method: str,
        *,
        session_id: str | None,
        prompt_id: str | None,
        now: float,
    ) -> Request:
        """A request that a dead worker had: its bridge is lost, whatever it had done."""
        deadline = now + self._limits.session_open
        request = Request(key, id_raw, method, None, session_id, prompt_id, deadline, Step.ADRIFT)
        self._by_key[key] = request
        self._ids.add(id_raw)
        return request

    def name_prompts(self, session_id: str, prompt_ids: list[str]) -> list[Request]:
        """Pair prompt ids that Grok made up with prompts that came without one; both are in order.

        Returns the requests that got one.
        """
        prompts = self.prompts(session_id)
        for request in prompts:
            request.seen |= request.prompt_id in prompt_ids
        known = {r.prompt_id for r in prompts}
        fresh = (p for p in prompt_ids if p not in known)
        nameless = (r for r in prompts if r.prompt_id is None and r.step is not Step.HELD)
        named = list[Request]()
        for request, prompt_id in zip(nameless, fresh, strict=False):
            request.prompt_id, request.seen = prompt_id, True
            named.append(request)
        return named

    def cancelled(self, session_id: str, running: str | None, now: float) -> None:
        """The client cancelled: its running prompt answers soon or is given up."""
        prompts = [r for r in self.prompts(session_id) if r.step is not Step.HELD]
        named = [r for r in prompts if running is not None and r.prompt_id == running]
        for request in (named or prompts)[:1]:
            request.deadline = min(request.deadline, now + self._limits.cancel_settle)

    def lose_bridge(self, now: float, *, hung_up: bool = False) -> list[Request]:
        """The bridge died.  Returns what must be answered now; sent prompts are adrift from now on.

        ``hung_up``: through no fault of a request; what may be sent again is held, once.
        """
        lost = []
        for request in self:
            if hung_up and request.step is Step.SENT and request.again and not request.is_prompt:
                self.take_back(request, request.deadline)
                continue
            if request.is_prompt:
                request.again &= hung_up or request.step is Step.HELD
            if request.step is Step.SENT and not request.is_prompt:
                lost.append(request)
                continue
            if request.step in (Step.SENT, Step.REJOINED):
                request.deadline = now + self._limits.session_open
            request._move(_Event.BRIDGE_LOST)
        return lost

    def doubt(self, request: Request) -> None:
        """Nothing tells of a prompt of a lost bridge: as if its turn went on, until somebody has looked."""
        if request.step is Step.ADRIFT:
            self.found(request)

    def take_back(self, request: Request, deadline: float) -> None:
        """It will be sent once more; ``deadline``: until then, monotonic seconds."""
        request.again, request.resent = False, True
        request._move(_Event.TAKEN_BACK)
        request.deadline = deadline

    def taken(self) -> list[Request]:
        """Requests that the engine has or had, for when it can never answer them (leader lost)."""
        return [r for r in self if r.step is not Step.HELD]

    def found(self, request: Request) -> None:
        """An adrift prompt's turn runs (or waits) on behind the new bridge."""
        request._move(_Event.FOUND)
        request.deadline = math.inf

    def without_answer(self, session_id: str, step: Step) -> list[Request]:
        """Prompts of a session that are ADRIFT or REJOINED: no response of the engine will come."""
        return [r for r in self.prompts(session_id) if r.step is step]

    def expired(self, now: float) -> list[Request]:
        """Requests whose time is up; the caller answers and settles them."""
        return [r for r in self if r.deadline <= now]

    def next_deadline(self) -> float:
        """When `expired` has something next (monotonic seconds; infinite: never)."""
        return min((r.deadline for r in self._by_key.values()), default=math.inf)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
