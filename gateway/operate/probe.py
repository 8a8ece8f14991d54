"""Which component hangs: the watchdog's decisions, without I/O.

A component is *probed* (asked ``ping``) at intervals.  It hangs when it has given no sign of life
for ``patience`` seconds, counted from its last answer or its start, over at least two probes:

=========== ================== =========== ======================================================
state       event              next        why
=========== ================== =========== ======================================================
(any)       new process        unproven    a new pid starts with a clean sheet
(any)       not alive          (absent)    stopped, starting again: supervisord's business
unproven    answered           answering
unproven    missed             silent
answering   missed             silent
silent      answered           answering
silent      missed, patience   hung        to be killed; reported until the process is another one
hung        answered           answering   it came back before the kill
=========== ================== =========== ======================================================

Silence is the sum of what was really waited for, each step capped: after the watchdog itself was
stopped (or the machine slept) one look at the clock would call everything hung.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from gateway.wire.limits import LIMITS
from gateway.wire.process import Identity

__all__ = ["ProbeBook", "Probed"]

State = Literal["unproven", "answering", "silent", "hung"]


@dataclasses.dataclass(slots=True)
class Probed:
    """One component's process as the probes see it."""

    identity: Identity
    state: State = "unproven"
    misses: int = 0
    silence: float = 0.0  #: seconds
    since: float = 0.0  #: monotonic time of the last result, or of the first sight


class ProbeBook:
    """What is known of every component; times are monotonic seconds handed in by the caller."""

    def __init__(
        self,
        patience: float = LIMITS.worker_hang,
        longest_step: float = LIMITS.probe_interval + LIMITS.probe_timeout,
    ) -> None:
        self._patience, self._longest_step = patience, longest_step
        self._book: dict[str, Probed] = {}

    def present(self, now: float, alive: dict[str, Identity]) -> None:
        """These components have a process that is meant to serve; all others have none."""
        for name in self._book.keys() - alive.keys():
            del self._book[name]
        for name, identity in alive.items():
            known = self._book.get(name)
            if known is None or known.identity != identity:
                self._book[name] = Probed(identity, since=now)

    def answered(self, now: float, name: str, identity: Identity) -> None:
        """A probe of that process was answered."""
        if (probed := self._current(name, identity)) is not None:
            probed.state, probed.misses, probed.silence, probed.since = "answering", 0, 0.0, now

    def missed(self, now: float, name: str, identity: Identity) -> bool:
        """A probe of that process was not answered in time; True when it hangs and must be killed."""
        probed = self._current(name, identity)
        if probed is None:
            return False
        probed.misses += 1
        probed.silence += min(now - probed.since, self._longest_step)
        probed.since = now
        # Probes come at intervals: the one nearest to the limit decides.
        overdue = probed.misses >= 2 and probed.silence > self._patience - LIMITS.probe_interval / 2
        probed.state = "hung" if overdue else "silent"
        return overdue

    def hung(self) -> dict[str, str]:
        """Components that hang, and the reason for people."""
        return {
            name: f"no answer for {probed.silence:.0f} s"
            for name, probed in self._book.items()
            if probed.state == "hung"
        }

    def state(self, name: str) -> State | None:
        """What is known of one component."""
        probed = self._book.get(name)
        return probed.state if probed else None

    def _current(self, name: str, identity: Identity) -> Probed | None:
        probed = self._book.get(name)
        return probed if probed is not None and probed.identity == identity else None
