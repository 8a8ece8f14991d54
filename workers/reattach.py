"""A bridge or the leader is lost: what its client is told, and how the next bridge gets the sessions back.

`workers.recovery` decides what becomes of each prompt, `workers.seam` closes the gap in the text of a turn
that goes on.  Here are the calls, their order and their bounds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Literal

from gateway.wire import acp, jsonrpc
from gateway.wire.acp import ErrorCode
from gateway.wire.jsonrpc import EngineLine
from gateway.wire.records import ConnectionRecord
from workers.arrivals import Arrivals
from workers.engine_lines import EngineLines
from workers.gatekeeper import Gatekeeper
from workers.hook_watch import HookWatch
from workers.ledger import Ledger
from workers.link import EngineError, Link, Loss
from workers.recovery import Recovery
from workers.requests import Step
from workers.seam import Seam
from workers.seams import Seams
from workers.sessions import Session, TurnEnd

__all__ = ["Reattach"]

log = logging.getLogger(__name__)


class Reattach:
    """Losses of one connection."""

    def __init__(
        self,
        ledger: Ledger,
        link: Link,
        lines: EngineLines,
        gates: Gatekeeper,
        seams: Seams,
        watch: HookWatch,
        arrivals: Arrivals,
    ) -> None:
        self._ledger, self._link, self._lines, self._gates = ledger, link, lines, gates
        self._seams, self._watch, self._arrivals = seams, watch, arrivals
        self._recovery: Recovery | None = None
        self._unasked = set[str]()  # sessions with a hook open that Grok will not ask again
        self._lost_turns = dict[str, str]()

    # -- loss ----------------------------------------------------------------------------------

    def lost(self, loss: Loss) -> None:
        """Answer what cannot be answered any more."""
        ledger, now = self._ledger, self._ledger.now()
        self._seams.clear()
        self._watch.clear()
        if loss.cause == "bridge":
            for request in ledger.requests.lose_bridge(now, hung_up=loss.hung_up):
                ledger.gateway_error(request, ErrorCode.BRIDGE_LOST, loss.reason)
            hooks = ledger.guard.bridge_lost()
            self._gates.void(hooks, loss.reason)
            self._cancel_later(hook.session_id for hook in hooks)
        else:
            self._note_lost_turns()
            for request in ledger.requests.taken():
                ledger.gateway_error(request, ErrorCode.LEADER_LOST, loss.reason)
            self._gates.void(ledger.guard.leader_lost(), loss.reason)
            self._unasked.clear()
        ledger.sessions.bridge_lost(now)
        ledger.loss = loss.reason
        ledger.arm()

    def restore(self, record: ConnectionRecord) -> None:
        """The worker that had the connection is dead: as after the loss of a bridge."""
        self._cancel_later(self._ledger.restore(record))

    def take_unasked(self) -> set[str]:
        """Sessions with a hook that Grok will not ask again: whoever attaches them cancels their turns."""
        unasked, self._unasked = self._unasked, set()
        return unasked

    def _cancel_later(self, session_ids: Iterable[str | None]) -> None:
        sessions = map(self._ledger.sessions.get, session_ids)  # a subagent's hook: its parent's turn
        self._unasked |= {session.session_id for session in sessions if session is not None}

    def _note_lost_turns(self) -> None:
        for session in self._ledger.sessions:
            prompts = self._ledger.requests.prompts(session.session_id)
            named = next((r.prompt_id for r in prompts if r.prompt_id), None)
            if lost := session.running or named:
                self._lost_turns[session.session_id] = lost

    # -- recovery ------------------------------------------------------------------------------

    async def attach_all(self, cause: Literal["bridge", "leader"]) -> None:
        """Load every session on the new bridge and tell the client.  Raises CallError on another loss."""
        ledger = self._ledger
        if cause == "leader":  # perhaps only the bridge was seen to end
            for request in ledger.requests.taken():
                ledger.gateway_error(request, ErrorCode.LEADER_LOST, "the leader was restarted")
        recovery = self._recovery = Recovery(ledger.sessions, ledger.requests, cause, self._lost_turns)
        try:
            await asyncio.gather(*(self._attach(session, recovery) for session in ledger.sessions))
        finally:
            self._recovery = None
        self._unasked.clear()
        self._lost_turns = {}
        if cause == "leader":
            ledger.emit(jsonrpc.notification_bytes(acp.LEADER_RESTARTED, {"sessions": recovery.report}))
        else:
            for entry in recovery.report:
                ledger.emit(jsonrpc.notification_bytes(acp.REATTACHED, entry))
        ledger.arm()

    async def _attach(self, session: Session, recovery: Recovery) -> None:
        ledger, session_id = self._ledger, session.session_id
        params = recovery.start(session)
        self._seams.hide_replays(session_id)
        seam = self._seam(session)
        if session_id in self._unasked:
            # Its tool would run when the hook's time is up.
            self._link.notify("session/cancel", {"sessionId": session_id})
        if seam is not None:
            seam.load_started()
        try:
            await self._arrivals.load(
                session_id,
                params,
                lambda result: self._loaded(session, recovery, seam, result),
                replays=seam is not None,
            )
        except EngineError as error:
            log.warning("session %s cannot be loaded again: %s", session_id, error)
            outcomes = recovery.failed(session, str(error))
            self._lines.forget(session_id)
            self._seams.end(session_id)
            for outcome in outcomes:
                ledger.settle(outcome)
            return
        for method, option in session.option_requests():
            try:
                await self._link.call(method, option, ledger.limits.set_option)
            except EngineError as error:
                log.warning("session %s: %s was not restored: %s", session_id, method, error)

    def _loaded(self, session: Session, recovery: Recovery, seam: Seam | None, result: Any) -> None:
        """The load has answered; the lines behind its answer are live again."""
        ledger = self._ledger
        if seam is not None:
            for frame in seam.load_finished():
                ledger.emit(frame)
        outcomes = recovery.loaded(session, result, ledger.now())
        if ledger.guard.asking(ledger.sessions.family(session.session_id)):
            ledger.asking_changed(session.session_id)
        if not session.busy:
            self._seams.end(session.session_id)
        self._watch.attached(session)
        for outcome in outcomes:
            ledger.settle(outcome)

    def _seam(self, session: Session) -> Seam | None:
        """For a turn that may still run: what it says meanwhile must not be lost."""
        adrift = self._ledger.requests.without_answer(session.session_id, Step.ADRIFT)
        if not adrift and session.running is None:
            return None
        return self._seams.begin(session.session_id)

    # -- lines of the new bridge ---------------------------------------------------------------

    def takes(self, line: EngineLine) -> bool:
        """Whether a notification is dealt with here: part of a replay, or held back at a seam."""
        if self._recovery is None or not self._recovery.hides(line.session):
            return self._seams.takes(line)
        if line.update == "turn_completed":
            self._recovery.turn_ended(TurnEnd.of(line.params))
        if (seam := self._seams.get(line.session)) is not None:
            seam.replay(line.data)
        return True
