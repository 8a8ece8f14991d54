"""Turns that another bridge has begun are watched for lost hooks, and cancelled if one is.

`workers.lost_hooks` decides; here are the timer, the look at a session's updates and the cancel.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from gateway.wire.jsonrpc import EngineLine
from gateway.wire.limits import SIZES
from workers.ledger import Ledger
from workers.link import CallError, Link
from workers.lost_hooks import Finding, LostHooks
from workers.sessions import Session

__all__ = ["HookWatch"]

log = logging.getLogger(__name__)

_UPDATES = "_x.ai/session/updates"
#: Updates that speak of a tool call, and under which key.
_CALL_KEYS = {
    "tool_call": "toolCallId",
    "tool_call_update": "toolCallId",
    "pending_interaction": "tool_call_id",
}


class HookWatch:
    """Of one connection.  ``lent_waits()``: a call of a lent tool waits for the client."""

    def __init__(self, ledger: Ledger, link: Link, lent_waits: Callable[[], bool]) -> None:
        self._ledger, self._link, self._lent_waits = ledger, link, lent_waits
        self._lost = LostHooks(self._waits, ledger.limits)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._looks = set[asyncio.Task[None]]()

    def attached(self, session: Session) -> None:
        """The session is loaded on a new bridge.

        With an open prompt it is watched although nothing runs: the turn may begin in a moment, or the
        prompt be sent once more, and Grok was seen to lose the hook of such a turn.
        """
        prompts = self._ledger.requests.prompts(session.session_id)
        if session.has_hooks and (session.busy or prompts):
            self._lost.attached(session.session_id, self._ledger.now())
            self._arm()

    def heard(self, line: EngineLine) -> None:
        """A notification or a reverse request of the new bridge."""
        if not len(self._lost):
            return
        session = self._ledger.sessions.get(line.session)
        if session is None or session.session_id not in self._lost:
            return
        now = self._ledger.now()
        if line.kind == "request":
            params = line.params
            tool = params.get("toolCall")
            name = tool.get("toolCallId") if isinstance(tool, dict) else params.get("toolCallId")
            self._lost.asked(session.session_id, str(params.get("toolUseId") or name or ""), now)
        elif line.update == "turn_completed" and line.session == session.session_id:
            self._lost.ended(session.session_id)
        else:
            key = _CALL_KEYS.get(line.update)
            update = line.params.get("update") if key else None
            call = str(update.get(key) or "") if isinstance(update, dict) else ""
            self._lost.heard(session.session_id, line.update, call, now)
        self._arm()

    def clear(self) -> None:
        """The bridge is lost."""
        self._lost.clear()
        self._arm()
        for task in tuple(self._looks):
            task.cancel()

    def _waits(self, session_id: str) -> bool:
        family = self._ledger.sessions.family(session_id)
        return self._lent_waits() or any(gate.session_id in family for gate in self._ledger.guard)

    def _arm(self) -> None:
        deadline = self._lost.next_deadline()
        if self._timer is not None:
            if self._timer.when() <= deadline < math.inf:
                return  # it comes early enough, and looks again
            self._timer.cancel()
            self._timer = None
        if deadline < math.inf:
            self._timer = self._loop.call_at(deadline, self._due)

    def _due(self) -> None:
        self._timer = None
        for finding in self._lost.due(self._ledger.now()):
            if finding.action == "cancel":
                self._cancel(finding)
            else:
                task = self._loop.create_task(self._look(finding.session_id))
                self._looks.add(task)
                task.add_done_callback(self._looks.discard)
        self._arm()

    async def _look(self, session_id: str) -> None:
        session = self._ledger.sessions.get(session_id)
        if session is None:
            self._lost.ended(session_id)
            return
        params = {
            "sessionId": session_id,
            "cwd": session.params.get("cwd"),
            "offset": -SIZES.hook_tail,
            "limit": SIZES.hook_tail,
        }
        updates = None
        try:
            result = await self._link.call(_UPDATES, params, self._ledger.limits.lost_hook)
            updates = result.get("updates") if isinstance(result, dict) else None
        except CallError as error:
            log.warning("session %s: its updates cannot be looked at: %s", session_id, error)
        updates = updates if isinstance(updates, list) else None
        if finding := self._lost.tail(session_id, updates, self._ledger.now()):
            self._cancel(finding)
        self._arm()

    def _cancel(self, finding: Finding) -> None:
        session = self._ledger.sessions.get(finding.session_id)
        if session is None or not session.busy:
            self._lost.ended(finding.session_id)  # the prompt came to nothing
            return
        log.warning("session %s: its turn is cancelled, %s", finding.session_id, finding.why)
        self._ledger.counters["lost_hooks"] += 1
        self._link.notify("session/cancel", {"sessionId": finding.session_id})
