"""What one connection knows, and the one way in which its client's requests are answered.

`Ledger` ties the books together: an answer settles its request, is sent to the client and noted in the
journal, always in this order.
"""

from __future__ import annotations

import asyncio
import collections
import math
from collections.abc import Callable
from typing import Any, Protocol

from gateway.wire import acp, jsonrpc
from gateway.wire.acp import ErrorCode, gateway_error
from gateway.wire.audit import Decision
from gateway.wire.jsonrpc import Message
from gateway.wire.limits import LIMITS, Limits
from gateway.wire.records import (
    Attached,
    ConnectionRecord,
    Detached,
    GateClosed,
    OptionSet,
    Record,
    RequestClosed,
    RequestOpened,
)
from workers.guard import Guard, Settled
from workers.recovery import Outcome, result_of
from workers.requests import DuplicateId, Request, RequestBook, TooManyRequests
from workers.sessions import Event, SessionBook

__all__ = ["Ledger", "Registry"]


class Registry(Protocol):
    """What a connection shares with all others of the instance, and where it writes."""

    id: str  #: of the connection

    def take_session(self, session_id: str) -> bool:
        """Attach a session to this connection; False: another living connection has it."""

    def release_session(self, session_id: str) -> None:
        """This connection has the session no longer."""

    def elsewhere(self, session_id: str) -> bool:
        """Another living connection has the session."""

    def directory(self, path: str) -> bool:
        """There is a folder with this path."""

    def record(self, *records: Record) -> bool:
        """Write to the journal; False when that failed."""

    def audit(self, decision: Decision) -> None:
        """Write the end of a gate down."""


class Ledger:
    """Books, journal and answers.  ``emit(frame)`` sends to the client; ``name`` makes ids unique.

    ``time_up(request)`` is called when a request gets no answer in time, before its error is sent; it
    returns the error's text.  ``gates_expired(settled)`` passes on the guard's own answers.
    ``doubtful(request)``: a prompt may never have arrived, or its turn starts just now.
    """

    def __init__(
        self,
        name: str,
        registry: Registry,
        emit: Callable[[bytes], None],
        time_up: Callable[[Request], str],
        gates_expired: Callable[[list[Settled]], None],
        doubtful: Callable[[Request], None],
        *,
        acks: bool,
        limits: Limits = LIMITS,
    ) -> None:
        self.requests = RequestBook(name, limits)
        self.sessions = SessionBook()
        self.guard = Guard(acks=acks, limits=limits)
        self.registry, self.emit, self.limits = registry, emit, limits
        self.counters = collections.Counter[str]()
        self.loss = ""  #: how the last bridge was lost, for people
        self._time_up, self._gates_expired, self._doubtful = time_up, gates_expired, doubtful
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def now(self) -> float:
        """Monotonic seconds of the books."""
        return self._loop.time()

    # -- requests of the client ----------------------------------------------------------------

    def open(self, message: Message, session_id: str | None) -> Request | None:
        """Take a request in; None: it was refused."""
        rule = acp.RULES[message.method]
        try:
            request = self.requests.open(
                message.id_raw,
                message.method,
                message.params,
                session_id=session_id,
                limit=rule.seconds(self.limits),
                now=self.now(),
                again=rule.again,
            )
        except DuplicateId:
            self._refuse(message, "a request with this id is still open")
            return None
        except TooManyRequests:
            self._refuse(message, "too many requests are open, wait for answers")
            return None
        self._record_request(request)
        self.arm()
        return request

    def _refuse(self, message: Message, text: str) -> None:
        self.counters["invalid_request"] += 1
        self.emit(jsonrpc.error_bytes(message.id_raw, jsonrpc.INVALID_REQUEST, f"Invalid Request: {text}"))

    def _record_request(self, request: Request) -> None:
        self.registry.record(
            RequestOpened(
                request.key.decode(),
                request.id_raw.decode(),
                request.method,
                request.session_id or "",
                request.prompt_id or "",
            )
        )

    def name_prompts(self, session_id: str, prompt_ids: list[str]) -> None:
        """The engine tells the ids of a session's prompts, in order."""
        for request in self.requests.name_prompts(session_id, prompt_ids):
            self._record_request(request)

    def answer(self, request: Request, frame: bytes) -> None:
        """The one answer of a request; nothing happens when it had one."""
        if not self.requests.settle(request):
            return
        self.emit(frame)
        self.registry.record(RequestClosed(request.key.decode()))

    def error(self, request: Request, code: int, text: str) -> None:
        """Answer with an error of JSON-RPC."""
        self.answer(request, jsonrpc.error_bytes(request.id_raw, code, text))

    def gateway_error(self, request: Request, code: ErrorCode, text: str) -> None:
        """Answer with an error of the gateway."""
        self.counters[code.name.lower()] += 1
        self.answer(request, gateway_error(request.id_raw, code, text, request.session_id))

    def refuse_all(self, code: ErrorCode, text: str) -> None:
        """Answer every open request with an error."""
        for request in self.requests:
            self.gateway_error(request, code, text)

    def settle(self, outcome: Outcome) -> None:
        """Answer a prompt whose response can never come."""
        request, end = outcome.request, outcome.end
        if end is None and request.again:
            self.requests.doubt(request)
            self._doubtful(request)
        elif end is None:
            text = f"the turn was lost with its bridge: {self.loss}" if self.loss else "the turn was lost"
            self.gateway_error(request, ErrorCode.BRIDGE_LOST, text)
        elif (result := result_of(end)) is not None:
            self.answer(request, jsonrpc.result_bytes(request.id_raw, jsonrpc.dump(result)))
        else:
            text = f"the turn ended ({end.stop_reason}) while its bridge was being replaced"
            self.gateway_error(request, ErrorCode.BRIDGE_LOST, text)

    # -- for the screen ------------------------------------------------------------------------

    def attached(self, session_id: str) -> bool:
        """This connection has the session, or it is a subagent's of such a session."""
        return session_id in self.sessions

    def elsewhere(self, session_id: str) -> bool:
        """Another living connection has the session."""
        return self.registry.elsewhere(session_id)

    def directory(self, path: str) -> bool:
        """There is a folder with this path."""
        return self.registry.directory(path)

    # -- sessions ------------------------------------------------------------------------------

    def attach(self, session_id: str, params: dict[str, Any], running: str | None) -> None:
        """A session is attached, or attached again with other parameters."""
        session = self.sessions.attach(session_id, params, self.now(), running=running)
        self.registry.record(Attached(session_id, session.params))

    def detach(self, session_id: str) -> None:
        """A session is closed, deleted or lost."""
        self.sessions.detach(session_id)
        self.registry.release_session(session_id)
        self.registry.record(Detached(session_id))

    def option_set(self, method: str, params: dict[str, Any]) -> None:
        """The engine accepted a session/set_* request."""
        self.sessions.option_set(method, params)
        self.registry.record(OptionSet(str(params.get("sessionId")), method, params))

    def asking_changed(self, session_id: str | None) -> None:
        """A gate of the session opened or was settled."""
        still_open = self.guard.asking(self.sessions.family(session_id))
        self.sessions.asked(session_id, still_open, self.now())

    # -- life ----------------------------------------------------------------------------------

    def restore(self, record: ConnectionRecord) -> set[str]:
        """Take over what a dead worker's journal tells.  Returns the sessions with a hook open.

        Nothing of it has a bridge: prompts are adrift, other requests are answered now.
        """
        for session_id, kept in record.sessions.items():
            session = self.sessions.attach(session_id, kept.params, self.now())
            for option in kept.options.values():
                self.sessions.option_set(option.method, option.params)
            session.move(Event.BRIDGE_LOST, self.now())
        for opened in record.requests.values():
            request = self.requests.restore(
                opened.key.encode(),
                opened.id_raw.encode(),
                opened.method,
                session_id=opened.session_id or None,
                prompt_id=opened.prompt_id or None,
                now=self.now(),
            )
            if not request.is_prompt:
                self.gateway_error(request, ErrorCode.BRIDGE_LOST, "its worker and its bridge have ended")
        hooks = {gate.session_id for gate in record.gates.values() if gate.method == acp.HOOK}
        self.registry.record(*(GateClosed(gate_id) for gate_id in tuple(record.gates)))
        self.arm()
        return hooks

    def arm(self) -> None:
        """Be woken at the next deadline of a request or a gate."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = min(self.requests.next_deadline(), self.guard.next_deadline())
        if deadline < math.inf:
            self._timer = self._loop.call_at(deadline, self._expire)

    def stop(self) -> None:
        """Wake no more; the sessions stay this connection's, wherever it goes on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Wake no more; give the sessions back."""
        self.stop()
        for session in self.sessions:
            self.registry.release_session(session.session_id)

    def expire_gates(self) -> None:
        """Let the guard answer what is due; always before an answer of the client is looked at."""
        if settled := self.guard.expired(self.now()):
            self._gates_expired(settled)

    def _expire(self) -> None:
        self._timer = None
        self.expire_gates()
        for request in self.requests.expired(self.now()):
            self.gateway_error(request, ErrorCode.TIMED_OUT, self._time_up(request))
        self.arm()
