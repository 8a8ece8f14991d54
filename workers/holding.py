"""The last moments of a bridge whose connection is handed over.

A ``session/load`` costs every subscriber a chunk or two of text.  So while the successor loads the
sessions at work, their lines are *held*; the successor has their text from its own load.  Two ways on:

* *release*: something came that only this bridge can deal with (a hook, an answer).  The sessions are
  loaded here, too, which closes the gap, and all that was held is passed on.
* *close*: the bridge ends.  What it said meanwhile the successor has heard as well, except answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from gateway.wire import acp
from gateway.wire.jsonrpc import EngineLine
from gateway.wire.questions import GateKind, gate_kind
from workers.engine_lines import EngineLines
from workers.gatekeeper import Gatekeeper
from workers.ledger import Ledger
from workers.seams import Seams

__all__ = ["Holding"]

_HOOKS = frozenset({GateKind.PRE_HOOK, GateKind.HOOK})
#: They tell a state, not a part of a text: passed on at once.
_STATES = frozenset({acp.QUEUE_CHANGED, acp.SESSIONS_CHANGED})


class Holding:
    """Of one connection.  ``deliver(line)``: deal with a line as ever."""

    def __init__(
        self,
        ledger: Ledger,
        lines: EngineLines,
        gates: Gatekeeper,
        seams: Seams,
        deliver: Callable[[EngineLine], None],
    ) -> None:
        self._ledger, self._lines, self._gates, self._seams = ledger, lines, gates, seams
        self._deliver = deliver
        self._active = self._closing = False
        self._kept = list[EngineLine]()
        self.sessions = frozenset[str]()
        self.disturbed = False  #: something came that only this bridge can deal with, or it is lost

    def begin(self, session_ids: Collection[str]) -> None:
        """From now on the lines of these sessions, and whatever needs an answer, are held."""
        self.sessions, self.disturbed, self._active = frozenset(session_ids), False, True
        for session_id in self.sessions:
            self._seams.begin(session_id, stands=True)

    def takes(self, line: EngineLine) -> bool:
        """Whether a line of the engine is dealt with here."""
        if not self._active:
            return False
        if line.kind == "notification" and line.method in _STATES:
            self._lines.notification(line)
        elif line.kind == "request" and self._closing:
            if _is_hook(line):  # it comes too late to be answered; anything else Grok asks again
                self._gates.missed(line)
        elif line.kind == "response" and self._closing:
            self._last_answer(line)
        elif line.kind in ("request", "response"):
            self._kept.append(line)
            self.disturbed |= line.kind == "response" or _is_hook(line)
        elif self._closing:
            pass  # its successor has it
        elif not self._seams.takes(line):
            self._lines.notification(line)
        return True

    async def release(self) -> None:
        """The bridge stays: nothing of what was held is missing or out of order."""
        await self._seams.mend(self.sessions)
        self._active = False
        kept, self._kept = self._kept, []
        for line in kept:
            self._deliver(line)

    def close(self) -> None:
        """The bridge ends now."""
        self._closing = True
        for session_id in self.sessions:
            self._seams.end(session_id)
        kept, self._kept = self._kept, []
        for line in kept:
            self.takes(line)

    def clear(self) -> None:
        """The bridge is lost, and what was held with it."""
        self._active, self.disturbed = False, True
        self._kept.clear()

    def _last_answer(self, line: EngineLine) -> None:
        request = self._ledger.requests.find(line.id_raw)
        if request is None or not request.is_prompt:  # of a prompt the successor tells, after its text
            self._lines.response(line)


def _is_hook(line: EngineLine) -> bool:
    return gate_kind(line.method, line.params) in _HOOKS
