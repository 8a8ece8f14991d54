"""Hooks that were lost with a bridge: found before Grok runs the tool that nobody allowed.

Sans-I/O.  Grok sends a hook to one bridge and never again.  If that bridge ends at the wrong moment, the
turn hangs until the hook's time is up; then a tool runs unasked.  What the real grok (1.0.41) shows of it:

* A pre hook is sent together with its ``tool_call``, one at a time; an update of the call follows within
  milliseconds once the hook is answered.  So a ``tool_call`` that stays alone and whose hook is not open
  here has lost it.  A replay leaves such a call out; ``_x.ai/session/updates`` ends with it.
* A post or stop hook leaves no mark.  The turn is silent, as it is while a model thinks or a tool works;
  but Grok moves a command to the background after 15 s.

So each turn that another bridge has begun is watched to its end:

========= ============================================== ==================================================
state     meaning                                        until
========= ============================================== ==================================================
settling  just attached                                  silent for ``LIMITS.lost_hook``
looking   the tail of its updates is asked for           its answer; then only while nothing streams
watching  every call from now on is seen as it comes     a call is alone for ``LIMITS.lost_hook``, or the
                                                         turn is silent for ``LIMITS.reattach_silence``
lost      to be cancelled
========= ============================================== ==================================================

A tail that is asked for in the middle of a stream would cost text: hence *settling*.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from gateway.wire.limits import LIMITS, Limits

__all__ = ["Finding", "LostHooks", "State"]

_SETTLES = frozenset({"tool_call_update", "pending_interaction"})


class State(enum.Enum):
    SETTLING = "settling"
    LOOKING = "looking"
    WATCHING = "watching"
    LOST = "lost"


class _Event(enum.Enum):
    QUIET = "nothing comes"
    LOOKED = "the tail shows nothing"
    ALONE = "a call has no hook"
    SILENT = "nothing comes for long"


#: (state, event) → state.  What is not here changes nothing.
_MOVES = {
    (State.SETTLING, _Event.QUIET): State.LOOKING,
    (State.SETTLING, _Event.ALONE): State.LOST,
    (State.LOOKING, _Event.LOOKED): State.WATCHING,
    (State.LOOKING, _Event.ALONE): State.LOST,
    (State.WATCHING, _Event.ALONE): State.LOST,
    (State.WATCHING, _Event.SILENT): State.LOST,
}


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """What to do for a session: ``look`` (pass the tail of its updates to `tail`) or ``cancel`` its turn."""

    session_id: str
    action: Literal["look", "cancel"]
    why: str


@dataclasses.dataclass(slots=True)
class _Watch:
    heard: float
    state: State = State.SETTLING
    alone: dict[str, float] = dataclasses.field(default_factory=dict)  #: tool call: since when
    settled: set[str] = dataclasses.field(default_factory=set)  #: calls whose hook is not lost

    def move(self, event: _Event) -> bool:
        before, self.state = self.state, _MOVES.get((self.state, event), self.state)
        return self.state is not before


class LostHooks:
    """The turns that are watched, by session.  Times are monotonic seconds.

    ``waiting(session_id)``: a gate of the session or a lent call of the connection is open, so that
    silence means nothing.
    """

    def __init__(self, waiting: Callable[[str], bool], limits: Limits = LIMITS) -> None:
        self._waiting, self._limits = waiting, limits
        self._watches = dict[str, _Watch]()

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._watches

    def __len__(self) -> int:
        return len(self._watches)

    def state(self, session_id: str) -> State | None:
        watch = self._watches.get(session_id)
        return watch.state if watch else None

    def attached(self, session_id: str, now: float) -> None:
        """A turn runs that another bridge has begun."""
        self._watches[session_id] = _Watch(now)

    def ended(self, session_id: str) -> None:
        """Its turn is over, or its bridge is lost once more."""
        self._watches.pop(session_id, None)

    def clear(self) -> None:
        self._watches.clear()

    def heard(self, session_id: str, update: str, call: str, now: float) -> None:
        """A line of the session or of one of its subagents; ``call``: of a tool, "" if none."""
        watch = self._watches.get(session_id)
        if watch is None:
            return
        watch.heard = now
        if update in _SETTLES:
            self._settle(watch, call)
        elif update == "tool_call" and call not in watch.settled:
            watch.alone.setdefault(call, now)

    def asked(self, session_id: str, call: str, now: float) -> None:
        """A gate of the session has come to this bridge."""
        if watch := self._watches.get(session_id):
            watch.heard = now
            self._settle(watch, call)

    def tail(self, session_id: str, updates: Iterable[Any] | None, now: float) -> Finding | None:
        """The newest updates of the session, oldest first; None when they could not be had."""
        watch = self._watches.get(session_id)
        if watch is None or watch.state is not State.LOOKING:
            return None
        watch.alone |= dict.fromkeys(_alone(updates or ()) - watch.settled, now)
        if watch.alone and not self._waiting(session_id):
            watch.move(_Event.ALONE)
            return Finding(session_id, "cancel", "a tool call's hook was lost with a bridge")
        watch.move(_Event.LOOKED)
        watch.heard = now
        return None

    def due(self, now: float) -> list[Finding]:
        """What is to be done now."""
        found = (self._due(session_id, watch, now) for session_id, watch in self._watches.items())
        return [finding for finding in found if finding is not None]

    def next_deadline(self) -> float:
        """When `due` has something to look at; infinite: never."""
        return min((self._deadline(watch) for watch in self._watches.values()), default=math.inf)

    def _due(self, session_id: str, watch: _Watch, now: float) -> Finding | None:
        if watch.state is State.LOST or now < self._deadline(watch):
            return None
        if self._waiting(session_id):
            watch.heard = now
            watch.alone = dict.fromkeys(watch.alone, now)
            return None
        if watch.alone and min(watch.alone.values()) + self._limits.lost_hook <= now:
            watch.move(_Event.ALONE)
            return Finding(session_id, "cancel", "a tool call came without its hook")
        if watch.move(_Event.QUIET):
            return Finding(session_id, "look", "")
        if watch.move(_Event.SILENT):
            return Finding(session_id, "cancel", "the turn is silent since its bridge was replaced")
        return None

    def _deadline(self, watch: _Watch) -> float:
        alone = min(watch.alone.values(), default=math.inf) + self._limits.lost_hook
        match watch.state:
            case State.SETTLING:
                return min(alone, watch.heard + self._limits.lost_hook)
            case State.WATCHING:
                return min(alone, watch.heard + self._limits.reattach_silence)
            case State.LOOKING:
                return alone
            case State.LOST:
                return math.inf

    @staticmethod
    def _settle(watch: _Watch, call: str) -> None:
        if call:
            watch.alone.pop(call, None)
            watch.settled.add(call)


def _alone(updates: Iterable[Any]) -> set[str]:
    """Tool calls without a later update; what belongs to an earlier turn is over."""
    alone = set[str]()
    for entry in updates:
        params = entry.get("params") if isinstance(entry, Mapping) else None
        update = params.get("update") if isinstance(params, Mapping) else None
        if not isinstance(update, Mapping):
            continue
        kind, call = update.get("sessionUpdate"), str(update.get("toolCallId") or "")
        if kind == "turn_completed":
            alone.clear()
        elif kind == "tool_call":
            alone.add(call)
        elif kind == "tool_call_update":
            alone.discard(call)
    return alone
