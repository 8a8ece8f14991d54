"""The leader's states: a pure state machine, told what happened, answering what to do.

Every state has exactly one *activity* (`Action`), begun when the state is entered and given up when
it is left: that is how starts are single-flight, and why a late word of an activity already given up
(an exit seen twice, a timer that fired after all) finds no row in its state and changes nothing.

======== ====================================================================== ==================
state    meaning                                                                activity
======== ====================================================================== ==================
absent   not wanted yet, or closed                                              none
starting adopting a running leader or starting one, until it answers            `Acquire`
ready    answers; asked again and again                                         `Watch`
lost     ended, hung, or to be replaced: what is left of it is being ended      `End`
backoff  a pause before the next start                                          `Pause`
broken   too many starts in a short time: one trial after a rest                `Pause`
======== ====================================================================== ==================
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable

from gateway.wire.handoff import LeaderState
from gateway.wire.limits import LIMITS, SIZES, Limits

__all__ = [
    "Acquire",
    "Action",
    "Adopted",
    "Answered",
    "Close",
    "End",
    "Event",
    "Exited",
    "Failed",
    "Gone",
    "LeaderMachine",
    "Missed",
    "Pause",
    "Restart",
    "Spawned",
    "Start",
    "TimedOut",
    "TimerFired",
    "Watch",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.  ``reason`` is text for people; "" keeps the reason known so far."""

    reason: str = ""


class Start(Event):
    """The leader is wanted from now on."""


class Adopted(Event):
    """A running leader of this instance was found."""


class Spawned(Event):
    """A new leader process was started."""


class Answered(Event):
    """The leader answered: its first initialize, or a probe."""


class Missed(Event):
    """The leader did not answer a probe."""


class Failed(Event):
    """Acquiring came to nothing."""


class TimedOut(Event):
    """Acquiring took longer than ``leader_start``."""


class Exited(Event):
    """The leader's process ended."""


class Gone(Event):
    """`End` is done: no process of the old leader is left."""


class TimerFired(Event):
    """`Pause` is over."""


class Restart(Event):
    """An operator wants a fresh leader."""


class Close(Event):
    """The leader is no longer this machine's business."""


@dataclasses.dataclass(frozen=True, slots=True)
class Acquire:
    """Find a leader of this instance or start one; report it, then `Answered`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Watch:
    """Probe the leader at intervals: `Answered` or `Missed`."""


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """End what is left of the leader, verify it, report `Gone`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pause:
    """Report `TimerFired` after ``seconds``."""

    seconds: float


Action = Acquire | Watch | End | Pause


class LeaderMachine:
    """Takes events, holds the state.  Times are seconds of any monotonic clock."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self.state: LeaderState = "absent"
        self.reason = ""
        self.adopted = False
        self.starts = 0  #: leader processes started by this front
        self.misses = 0  #: probes missed in a row
        self._attempts = collections.deque[float](maxlen=SIZES.leader_starts)  # when; recent ones
        self._ready_since: float | None = None
        self._failures = 0  # losses and failed starts since a leader was last stable
        self._pauses = 0  # of them, those that were followed by a pause
        self._worked = False  # the leader just lost had been ready
        self._trial = False  # the one start that an open circuit allows
        self._planned = False  # the loss being dealt with was asked for

    def handle(self, event: Event, now: float) -> Action | None:
        """The activity that replaces the present one; None: the present one goes on.

        An event without a row in the present state is late news: nothing changes.
        """
        if isinstance(event, Close):
            self.state, self.reason = "absent", event.reason
            return None
        row = _TRANSITIONS[self.state].get(type(event))
        if row is None:
            return None
        if event.reason:
            self.reason = event.reason
        target = row if isinstance(row, str) else row(self, event, now)
        if target == self.state:
            return None
        return self._enter(target, now)

    def _enter(self, state: LeaderState, now: float) -> Action:
        before, self.state = self.state, state
        if state == "starting":
            self._trial = before == "broken"
            self._attempts.append(now)
            return Acquire()
        if state == "ready":
            self.misses, self.reason, self._ready_since = 0, "", now
            return Watch()
        if state == "lost":
            self._note_loss(now)
            return End()
        if state == "backoff":
            return Pause(self._pause())
        return Pause(self._limits.circuit_rest)

    def _note_loss(self, now: float) -> None:
        since, self._ready_since = self._ready_since, None
        if since is not None and now - since >= self._limits.circuit_window:
            self._forget()  # it had been stable: what went wrong before is history
        self._failures += 1
        self._worked = since is not None

    def _forget(self) -> None:
        self._attempts.clear()
        self._failures, self._pauses, self._trial = 0, 0, False

    def _pause(self) -> float:
        pause = self._limits.backoff_first * 2.0 ** min(self._pauses, 64)
        self._pauses += 1
        return min(pause, self._limits.backoff_last)

    # -- rows that decide ----------------------------------------------------------------------
    def _noted(self, event: Event, now: float) -> LeaderState:
        self.adopted = isinstance(event, Adopted)
        self.starts += isinstance(event, Spawned)
        return "starting"

    def _still_answers(self, event: Event, now: float) -> LeaderState:
        self.misses, self.reason = 0, ""
        return "ready"

    def _one_miss_more(self, event: Event, now: float) -> LeaderState:
        self.misses += 1
        return "lost" if self.misses >= SIZES.probe_misses else "ready"

    def _replaced(self, event: Event, now: float) -> LeaderState:
        self._planned = True
        return "lost"

    def _asked_again(self, event: Event, now: float) -> LeaderState:
        """An operator does not wait for a pause, and is no crash loop."""
        self._forget()
        return "starting"

    def _next_try(self, event: Event, now: float) -> LeaderState:
        if self._planned:
            self._planned = False
            return self._asked_again(event, now)
        window = self._limits.circuit_window
        recent = sum(now - at < window for at in self._attempts)
        if self._trial or recent >= SIZES.leader_starts:
            what = "the trial start failed too" if self._trial else f"{recent} starts within {window:g} s"
            self.reason = (
                f"{self.reason or 'the leader ended'} ({what}; next try in {self._limits.circuit_rest:g} s, "
                "or now: grok-gateway restart leader)"
            )
            return "broken"
        # The first loss of a leader that worked: nothing suggests that a start fails, and clients wait.
        return "starting" if self._worked and self._failures == 1 else "backoff"


_Row = LeaderState | Callable[[LeaderMachine, Event, float], LeaderState]
_Machine = LeaderMachine

#: state: event: the next state, or who decides it.  `Close` leads from every state to absent.
_TRANSITIONS: dict[LeaderState, dict[type[Event], _Row]] = {
    "absent": {Start: "starting", Restart: "starting"},
    "starting": {  # a start under way is as fresh as a restart could make it
        Adopted: _Machine._noted,
        Spawned: _Machine._noted,
        Answered: "ready",
        Failed: "lost",
        TimedOut: "lost",
        Exited: "lost",
    },
    "ready": {
        Answered: _Machine._still_answers,
        Missed: _Machine._one_miss_more,
        Exited: "lost",
        Restart: _Machine._replaced,
    },
    "lost": {Gone: _Machine._next_try, Restart: _Machine._replaced},
    "backoff": {TimerFired: "starting", Restart: _Machine._asked_again},
    "broken": {TimerFired: "starting", Restart: _Machine._asked_again},
}
