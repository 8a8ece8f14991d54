"""What the lines of the engine mean to one connection.

Most lines are passed on as they came, told apart by their first bytes.  The others settle a request or
change the books.
"""

from __future__ import annotations

import logging
from typing import Any

from gateway.wire import acp, jsonrpc
from gateway.wire.acp import ErrorCode
from gateway.wire.jsonrpc import EngineLine
from gateway.wire.limits import SIZES
from gateway.wire.ndjson import Overlong
from workers.gatekeeper import Gatekeeper
from workers.introductions import Introductions
from workers.ledger import Ledger
from workers.link import Link
from workers.recovery import ended
from workers.requests import Request
from workers.turn_ends import TurnEnds

__all__ = ["EngineLines"]

log = logging.getLogger(__name__)

#: Requests whose results list sessions of everybody.
_LISTS = frozenset({"session/list", "_x.ai/session/list", "_x.ai/sessions/list"})


class EngineLines:
    """The engine's side of a ledger."""

    def __init__(self, ledger: Ledger, link: Link, gates: Gatekeeper) -> None:
        self._ledger, self._link, self._gates = ledger, link, gates
        self._abandoned = dict[bytes, Request]()
        self._turn_ends = TurnEnds(ledger, self._answered)
        self._introductions = Introductions(ledger, link, self.notification)

    # -- notifications -------------------------------------------------------------------------

    def notification(self, line: EngineLine) -> None:
        """Pass on a notification, after learning from it."""
        if self._introductions.takes(line):
            return
        ledger = self._ledger
        end = None
        if ledger.sessions.tells(line.method, line.update):
            end = ledger.sessions.observe(line.method, line.params, ledger.now())
            if line.method == acp.QUEUE_CHANGED and (session := ledger.sessions.get(line.session)):
                known = (session.running, *session.queued)
                ledger.name_prompts(session.session_id, [p for p in known if p])
        if line.method == acp.SESSIONS_CHANGED:
            own = ledger.sessions.own_changes(line.params)
            if own is not None:
                ledger.emit(jsonrpc.notification_bytes(line.method, own))
            return
        ledger.emit(line.data)
        session = ledger.sessions.get(end.session_id) if end else None
        if end is not None and session is not None:
            for outcome in ended(session, ledger.requests, end):
                ledger.settle(outcome)
            self._turn_ends.passed(end)

    # -- responses -----------------------------------------------------------------------------

    def response(self, line: EngineLine) -> None:
        """The answer to a request of the client."""
        request = self._ledger.requests.find(line.id_raw)
        if request is None:
            self._late(line)
        elif not self._turn_ends.holds(request, line):
            self._answered(request, line)

    def _answered(self, request: Request, line: EngineLine) -> None:
        frame = None
        if "error" not in line.body:
            result = line.body.get("result")
            frame = self._succeeded(request, result if isinstance(result, dict) else {})
        elif acp.RULES[request.method].effect in ("new", "load"):
            self._not_opened(request)
        frame = frame or jsonrpc.replace_id(line.data, request.id_raw)
        if not self._introduces(request, line.body, frame):
            self._ledger.answer(request, frame)
        if request.is_prompt and request.session_id is not None:
            left = len(self._ledger.requests.prompts(request.session_id))
            self._ledger.sessions.prompt_answered(request.session_id, left, self._ledger.now())

    def overlong(self, line: Overlong) -> None:
        """A line above the limit was dropped; if it answers a request, that one gets an error."""
        self._ledger.counters["overlong"] += 1
        log.warning("a line of %d bytes of the engine was dropped", line.size)
        request = self._ledger.requests.find(jsonrpc.id_of_line(line.head) or b"")
        if request is not None:
            text = f"the engine's answer has {line.size} bytes, more than can be passed on"
            self._ledger.gateway_error(request, ErrorCode.TOO_LARGE, text)

    def _succeeded(self, request: Request, result: dict[str, Any]) -> bytes | None:
        """The effects of a success; the answer if it is not the engine's own."""
        ledger, effect = self._ledger, acp.RULES[request.method].effect
        if effect in ("new", "load"):
            self._opened(request, result)
        elif effect in ("close", "delete") and request.session_id is not None:
            self.forget(request.session_id)
        elif effect == "option":
            ledger.option_set(request.method, request.params)
        elif request.method in _LISTS:
            return jsonrpc.result_bytes(request.id_raw, jsonrpc.dump(self._visible(result)))
        return None

    def _opened(self, request: Request, result: dict[str, Any]) -> None:
        session_id = result.get("sessionId", request.session_id)
        if not isinstance(session_id, str) or not self._ledger.registry.take_session(session_id):
            return
        meta = result.get("_meta")
        running = meta.get("x.ai/runningPromptId") if isinstance(meta, dict) else None
        self._ledger.attach(session_id, request.params, running if isinstance(running, str) else None)

    def _introduces(self, request: Request, body: dict[str, Any], frame: bytes) -> bool:
        """Whether the answer is that of a session/new, and comes later."""
        result = body.get("result")
        if acp.RULES[request.method].effect != "new" or not isinstance(result, dict):
            return False
        session = self._ledger.sessions.get(str(result.get("sessionId")))
        return self._introductions.holds(request, frame, session)

    def _not_opened(self, request: Request) -> None:
        if request.session_id is not None and request.session_id not in self._ledger.sessions:
            self._ledger.registry.release_session(request.session_id)

    def forget(self, session_id: str) -> None:
        """A session is closed, deleted or cannot be loaded again."""
        if session_id in self._ledger.sessions:
            self._gates.close(self._ledger.guard.cancel(self._ledger.sessions.family(session_id)))
            self._ledger.detach(session_id)

    def _visible(self, result: dict[str, Any]) -> dict[str, Any]:
        """A list of sessions without those that other connections have attached."""
        inner = result.get("result")
        if isinstance(inner, dict):
            return {**result, "result": self._visible(inner)}
        if isinstance(result.get("sessions"), list):
            shown = [entry for entry in result["sessions"] if not self._hidden(entry)]
            return {**result, "sessions": shown}
        return result

    def _hidden(self, entry: Any) -> bool:
        return isinstance(entry, dict) and self._ledger.registry.elsewhere(str(entry.get("sessionId")))

    def bridge_lost(self) -> None:
        """Whatever waits for a line of the bridge waits no more."""
        self._introductions.bridge_lost()
        self._turn_ends.bridge_lost()

    # -- answers that come too late ------------------------------------------------------------

    def repeated(self, request: Request) -> None:
        """The request was sent once more: of two sessions that it makes, one must go."""
        if acp.RULES[request.method].effect == "new" and len(self._abandoned) < SIZES.open_requests:
            self._abandoned[request.key] = request

    def abandon(self, request: Request) -> None:
        """The request gets an error now, as its time is up; a late success must leave nothing behind."""
        if acp.RULES[request.method].effect in ("new", "load"):
            if len(self._abandoned) < SIZES.open_requests:
                self._abandoned[request.key] = request
            self._not_opened(request)

    def _late(self, line: EngineLine) -> None:
        self._ledger.counters["late_answers"] += 1
        request = self._abandoned.pop(line.id_raw, None)
        result = line.body.get("result")
        if request is None or not isinstance(result, dict):
            return
        session_id = result.get("sessionId", request.session_id)
        if isinstance(session_id, str) and session_id not in self._ledger.sessions:
            # The client does not know of it; with nobody to ask, its hooks would fail open.
            params = jsonrpc.dump({"sessionId": session_id})
            key = self._ledger.requests.new_key()
            self._link.send(jsonrpc.request_bytes(key, "session/close", params))
