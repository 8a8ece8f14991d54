"""When a socket is asked whether anybody is there, and when it is given up.  Pure: time is passed in.

What happens → what follows (seconds are rows of `Limits`):

======================================= ====================================================
a byte came in                          nobody is suspected; a ping is due after ``ping_interval``
a ping is due                           ``check`` says "ping"
nothing came since the ping             "silent" after ``ping_timeout``, counted from the ping or
                                        from the last progress of blocked data, whichever is later:
                                        a client that reads 60 MiB slowly sees our ping late
data waits and the peer takes nothing   "stalled" after ``write``
reading is paused by ourselves          silence proves nothing; counting starts anew at resume
a phase with a bound began              "overdue" at its end (handshake, last data, closing frame)
======================================= ====================================================
"""

from __future__ import annotations

import math
from typing import Literal

from gateway.wire.limits import LIMITS, Limits

__all__ = ["Liveness", "Verdict"]

Verdict = Literal["fine", "ping", "silent", "stalled", "overdue"]


class Liveness:
    """The clocks of one socket.  All times are seconds of one clock of the caller's choice."""

    def __init__(self, now: float, limits: Limits = LIMITS) -> None:
        self._limits = limits
        self._heard = now
        self._pinged: float | None = None
        self._progress: float | None = None  # of blocked data; None: none waits
        self._last_progress = now
        self._deadline = math.inf
        self._keepalive = False

    def listen(self, now: float) -> None:
        """Reading begins or goes on."""
        self._keepalive = True
        self.heard(now)

    def deafen(self) -> None:
        """Reading is paused, or of no interest any more."""
        self._keepalive = False

    def heard(self, now: float) -> bool:
        """A byte arrived; whether a ping was waiting for one (`next_check` may be earlier then)."""
        self._heard = now
        waiting, self._pinged = self._pinged is not None, None
        return waiting

    def pinged(self, now: float) -> None:
        """A ping was sent."""
        self._pinged = now

    def blocked(self, progress: float | None) -> None:
        """Data waits and last moved at ``progress``; None: nothing waits."""
        if progress is not None:
            self._last_progress = progress
        self._progress = progress

    def bound(self, deadline: float) -> None:
        """The phase that begins now must end before ``deadline``; replaces an earlier bound."""
        self._deadline = deadline

    def check(self, now: float) -> Verdict:
        """What is due."""
        if now >= self._deadline:
            return "overdue"
        if now >= self._stalled_at():
            return "stalled"
        if now < self._keepalive_at():
            return "fine"
        return "ping" if self._pinged is None else "silent"

    def next_check(self) -> float:
        """When `check` will say something else than "fine", as far as known now."""
        return min(self._deadline, self._stalled_at(), self._keepalive_at())

    def _stalled_at(self) -> float:
        return math.inf if self._progress is None else self._progress + self._limits.write

    def _keepalive_at(self) -> float:
        if not self._keepalive:
            return math.inf
        if self._pinged is None:
            return self._heard + self._limits.ping_interval
        return max(self._pinged, self._last_progress) + self._limits.ping_timeout
