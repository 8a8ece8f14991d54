"""A connection goes on with a bridge that has heard everything, but has said nothing yet.

What the bridge heard while it was mute (`workers.successor`) is dealt with in order: what the client has
already is left out, text is continued where the client's ends, open questions are this bridge's now.
"""

from __future__ import annotations

import collections
import logging
from collections.abc import Collection, Iterable

from gateway.wire import acp, jsonrpc
from gateway.wire.handoff import Succession
from gateway.wire.jsonrpc import EngineLine
from workers.gatekeeper import Gatekeeper
from workers.hook_watch import HookWatch
from workers.ledger import Ledger
from workers.link import Link
from workers.recovery import Recovery
from workers.seams import Seams
from workers.sessions import Session, TurnEnd
from workers.successor import Heard, Loaded

__all__ = ["take_up"]

log = logging.getLogger(__name__)


class _TakeUp:
    def __init__(
        self, ledger: Ledger, link: Link, gates: Gatekeeper, seams: Seams, watch: HookWatch, word: Succession
    ) -> None:
        self._ledger, self._link, self._gates = ledger, link, gates
        self._seams, self._watch, self._word = seams, watch, word
        self._recovery = Recovery(ledger.sessions, ledger.requests, "bridge", {})

    def session(self, session: Session, loaded: Loaded | None) -> None:
        """The session's replay, and what is known of it besides."""
        ledger, word, session_id = self._ledger, self._word, session.session_id
        if loaded is None:
            for outcome in self._recovery.failed(session, "it was not loaded before the hand-over"):
                ledger.settle(outcome)
            ledger.detach(session_id)
            return
        self._recovery.start(session)
        seam = self._seams.begin(session_id) if session_id in word.running else None
        if seam is not None:
            seam.load_started()
        for line in loaded.replay:
            if line.update == "turn_completed":
                self._recovery.turn_ended(TurnEnd.of(line.params))
            if seam is not None:
                seam.replay(line.data)
        for frame in seam.load_finished() if seam is not None else ():
            ledger.emit(frame)
        outcomes = self._recovery.loaded(session, loaded.result, ledger.now())
        # It was resident all the time: Grok has forgotten nothing and nothing has ended.
        session.rules_due = session_id in word.rules_due
        session.background = word.background.get(session_id, 0)
        session.queued = tuple(word.queued.get(session_id, ()))
        if not session.busy:
            self._seams.end(session_id)
        for outcome in outcomes:
            ledger.settle(outcome)
        self._watch.attached(session)

    def asked(self, line: EngineLine, known: Collection[str], shown: Collection[bytes]) -> str:
        """A question that came to the mute bridge; the id that the client sees."""
        name = f"{self._link.generation}.{line.id_raw.decode()}"
        frame = jsonrpc.replace_id(line.data, jsonrpc.dump(name))
        if name in known:
            self._gates.asked(line, shown=True)
        elif frame not in shown:  # else the client has answered it
            self._gates.asked(line)
        self._watch.heard(line)
        return name


def take_up(
    ledger: Ledger,
    link: Link,
    gates: Gatekeeper,
    seams: Seams,
    watch: HookWatch,
    frames: Iterable[tuple[int, bytes]],
    known: Collection[str],
    heard: Heard,
    word: Succession,
    unasked: Collection[str],
) -> list[EngineLine]:
    """Go on with ``heard``; the lines that are still to be dealt with, in order.

    ``frames``: what the client has been sent; ``known``: ids of the gates that it has open; ``unasked``:
    sessions with a hook that Grok will not ask again.
    """
    shown = collections.Counter(frame for _, frame in frames)
    work = _TakeUp(ledger, link, gates, seams, watch, word)
    for session in ledger.sessions:
        work.session(session, heard.loads.get(session.session_id))
        if session.session_id in unasked:
            log.warning("session %s: its hook came while its bridge was closed", session.session_id)
            link.notify("session/cancel", {"sessionId": session.session_id})
    asked = {work.asked(line, known, shown) for line in heard.asked}
    for name in known:
        if name not in asked:  # nobody waits for its answer any more
            reason = "it was settled while its worker was replaced"
            ledger.emit(jsonrpc.notification_bytes(acp.GATE_CLOSED, {"id": name, "reason": reason}))
    lines = list[EngineLine]()
    for line in heard.lines:
        if shown[line.data] > 0:
            shown[line.data] -= 1
        else:
            lines.append(line)
    return lines
