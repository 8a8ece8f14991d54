"""Between one client and the engine: screened messages one way, the engine's lines the other.

`Proxy` lives longer than any socket and any bridge: it speaks to its client by ``emit``, which keeps what
nobody reads, and holds messages back while there is no bridge.  What it knows is in `Ledger`; lines of the
engine go to `EngineLines`, losses to `Reattach`.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import secrets
from collections.abc import Callable, Collection, Iterable
from typing import Any, Literal

from gateway.wire import jsonrpc
from gateway.wire.acp import ErrorCode, Rule
from gateway.wire.handoff import Succession
from gateway.wire.jsonrpc import EngineLine, Message
from gateway.wire.limits import LIMITS, SIZES, Limits
from gateway.wire.ndjson import Overlong
from gateway.wire.records import ConnectionRecord
from workers.arrivals import Arrivals
from workers.engine_lines import EngineLines
from workers.gatekeeper import Gatekeeper
from workers.guard import Settled
from workers.holding import Holding
from workers.hook_watch import HookWatch
from workers.leader import LeaderWatch
from workers.ledger import Ledger, Registry
from workers.link import CallError, Link, Loss
from workers.reattach import Reattach
from workers.recovery import prompt_with_rules
from workers.replay_order import wants_no_replay
from workers.requests import Request, Step
from workers.screening import Verdict
from workers.seams import Seams
from workers.sessions import State, TooManySessions
from workers.succession import take_up
from workers.successor import Heard, Successor

__all__ = ["Proxy"]

log = logging.getLogger(__name__)


class Proxy:
    """See the module.

    ``emit(frame)`` sends to the client, ``frames`` are what it has been sent, ``throttle(on)`` stops
    reading from it, ``take_tools(mcp_servers)`` registers lent tools and returns "" or why not,
    ``lent_waits()``: a call of one waits for the client.  ``successor``: goes on with its bridge (`succeed`).
    """

    def __init__(
        self,
        registry: Registry,
        leader: LeaderWatch,
        emit: Callable[[bytes], None],
        frames: Iterable[tuple[int, bytes]],
        throttle: Callable[[bool], None],
        take_tools: Callable[[Any], str],
        *,
        acks: bool,
        limits: Limits = LIMITS,
        lent_waits: Callable[[], bool] = lambda: False,
        successor: Successor | None = None,
    ) -> None:
        self._registry, self._leader, self._limits = registry, leader, limits
        self._throttle, self._take_tools = throttle, take_tools
        # Another worker may go on with this connection: its keys must be others.
        self.ledger = Ledger(
            secrets.token_hex(8),
            registry,
            emit,
            self._time_up,
            self._gates_expired,
            lambda request: self._arrivals.doubted(request),
            acks=acks,
            limits=limits,
        )
        self.link = successor.link if successor else Link(self, leader, limits)
        self._arrivals = Arrivals(self.ledger, self.link, self._resend)
        self.gates = Gatekeeper(self.ledger, self.link, self._arrivals)
        self._lines = EngineLines(self.ledger, self.link, self.gates)
        self._frames = frames
        self._seams = Seams(self.ledger, self.link, self._lines, frames)
        self._watch = HookWatch(self.ledger, self.link, lent_waits)
        self._reattach = Reattach(
            self.ledger, self.link, self._lines, self.gates, self._seams, self._watch, self._arrivals
        )
        self.holding = Holding(self.ledger, self._lines, self.gates, self._seams, self._deliver)
        self._held = collections.deque[tuple[Verdict, Request | None]]()
        self._again = dict[Request, bytes]()  # lines that may have to be sent once more
        self._up = asyncio.Event()
        leader.on_broken.add(self._leader_broken)

    # -- from the client -----------------------------------------------------------------------

    def receive(self, verdict: Verdict) -> None:
        """A message that passed the screen."""
        message, request = verdict.message, None
        assert message is not None
        if message.kind == "request":
            request = self.ledger.open(message, verdict.session_id)
            if request is None:
                return
        if self.link.up:
            self._forward(verdict, request)
        else:
            self._held.append((verdict, request))
            self._throttle(True)

    def initialize(self, verdict: Verdict) -> None:
        """The client's own initialize: the engine has had the constant one."""
        message = verdict.message
        assert message is not None
        if self.link.initialize_result is None:
            self.receive(verdict)
        else:
            self.ledger.emit(jsonrpc.result_bytes(message.id_raw, self.link.initialize_result))

    def _forward(self, verdict: Verdict, request: Request | None) -> None:
        message, rule = verdict.message, verdict.rule
        assert message is not None
        if rule is None:
            self.gates.answered(message)
        elif request is None:
            self.link.send(message.data)
            if rule.effect == "cancel":
                self._cancelled(verdict.session_id)
        elif request.step is Step.HELD:  # else its time was up before a bridge came
            self._forward_request(message, rule, request)

    def _forward_request(self, message: Message, rule: Rule, request: Request) -> None:
        if rule.effect == "initialize":
            result = self.link.initialize_result
            assert result is not None
            self.ledger.answer(request, jsonrpc.result_bytes(request.id_raw, result))
            return
        if rule.effect in ("new", "load"):
            if not self._may_open(message, request):
                return
            self._seams.show_replays(request.session_id or "")
            if message.method == "session/load" and not wants_no_replay(message.params):
                self.link.expect_replay(request.key, request.session_id or "")
        if rule.effect == "prompt":
            message = self._with_rules(message, request)
        line = message.with_id(request.key)
        if len(line) > SIZES.resend:
            request.again = False
        elif request.again or request.is_prompt:
            kept = {r: text for r, text in self._again.items() if r.step is not Step.DONE}
            self._again = {**kept, request: line}
        self._write(request, line)

    def _write(self, request: Request, line: bytes) -> None:
        self.ledger.requests.written(request)
        if request.is_prompt and request.session_id is not None:
            self._seams.hide_replays(request.session_id)
            self.ledger.sessions.prompt_sent(request.session_id, self.ledger.now())
            self._arrivals.prompted(request)
        elif request in self._again:
            self._arrivals.requested(request, lambda: self._repeat(request, line))
        self.link.send(line)
        self.ledger.arm()

    def _repeat(self, request: Request, line: bytes) -> None:
        self._lines.repeated(request)
        self.link.send(line)

    def _resend(self, request: Request) -> None:
        """A prompt of this bridge that the engine never got."""
        if request in self._again:
            self.ledger.requests.take_back(request, self.ledger.now() + self._limits.initialize)
            self._send_again()

    def _send_again(self) -> None:
        """What the leader has never got from a bridge that it hung up on."""
        if self.link.up:
            for request in [r for r in self._again if r.step is Step.HELD]:
                self._write(request, self._again[request])

    def _may_open(self, message: Message, request: Request) -> bool:
        """Whether a session may be attached; answered if not."""
        session_id = request.session_id
        try:
            if session_id not in self.ledger.sessions:
                self.ledger.sessions.check_room()
        except TooManySessions:
            text = "too many sessions are attached, close one first"
            self.ledger.error(request, jsonrpc.INVALID_PARAMS, text)
            return False
        if refusal := self._take_tools((message.params or {}).get("mcpServers")):
            self.ledger.error(request, jsonrpc.INVALID_PARAMS, refusal)
            return False
        if session_id is not None and not self._registry.take_session(session_id):
            text = f"session {session_id} is attached to another connection; close it there first"
            self.ledger.gateway_error(request, ErrorCode.ATTACHED_ELSEWHERE, text)
            return False
        return True

    def _with_rules(self, message: Message, request: Request) -> Message:
        session = self.ledger.sessions.get(request.session_id)
        if session is None or not session.rules_due:
            return message
        params = prompt_with_rules(message.params, session.rules)
        if params is None:
            return message
        session.rules_due = False
        return message.changed(params=jsonrpc.dump(params))

    def _cancelled(self, session_id: str | None) -> None:
        session = self.ledger.sessions.get(session_id)
        if session is None:
            return
        self._arrivals.cancelled(session)
        self.ledger.requests.cancelled(session.session_id, session.running, self.ledger.now())
        self.gates.close(self.ledger.guard.cancel(self.ledger.sessions.family(session_id)))
        self.ledger.arm()

    # -- the link (LinkOwner) ------------------------------------------------------------------

    def new_key(self) -> bytes:
        return self.ledger.requests.new_key()

    def engine_line(self, line: EngineLine) -> None:
        if not self.holding.takes(line):
            self._deliver(line)

    def _deliver(self, line: EngineLine) -> None:
        self._watch.heard(line)
        self._arrivals.heard(line.session)
        if line.kind == "notification":
            if not self._reattach.takes(line):
                self._lines.notification(line)
        elif line.kind == "response":
            self._lines.response(line)
        elif line.kind == "request":
            self.gates.asked(line)
        else:
            self.ledger.counters["noise"] += 1

    def engine_overlong(self, line: Overlong) -> None:
        self._lines.overlong(line)

    async def attach_sessions(self, cause: Literal["", "bridge", "leader"]) -> None:
        if cause:
            await self._reattach.attach_all(cause)

    def link_up(self) -> None:
        self._up.set()
        self._send_again()
        held, self._held = self._held, collections.deque()
        for verdict, request in held:
            self._forward(verdict, request)
        self._throttle(False)

    def link_lost(self, loss: Loss) -> None:
        self._up.clear()
        self.holding.clear()
        self._lines.bridge_lost()
        self._reattach.lost(loss)
        if loss.cause == "bridge" and not loss.started and not loss.hung_up:
            for request in self.ledger.requests:
                if request.step is Step.HELD:  # the next bridge would most likely fail as well
                    self.ledger.gateway_error(request, ErrorCode.BRIDGE_LOST, loss.reason)

    def link_writable(self, writable: bool) -> None:
        self._throttle(not writable)

    def _leader_broken(self, reason: str) -> None:
        self.ledger.refuse_all(ErrorCode.LEADER_LOST, reason)

    def _time_up(self, request: Request) -> str:
        if request.step is Step.HELD:
            return f"{request.method}: no engine to take it: {self._leader.reason}"
        if request.step is Step.SENT:
            self.link.expect_no_more(request.key)
            self._lines.abandon(request)
        return f"{request.method}: the engine gave no answer in time"

    # -- the client comes, goes and ends -------------------------------------------------------

    def client_lost(self) -> None:
        """The socket is gone: gates wait for another one as long as for an acknowledgement."""
        self.ledger.guard.client_lost(self.ledger.now())
        self.ledger.arm()

    def client_back(self) -> None:
        """A socket is there."""
        self.ledger.expire_gates()
        self.ledger.guard.client_back(self.ledger.now())
        self.ledger.arm()

    def client_gone(self, why: str) -> None:
        """The client is gone for good: what is asked, now or later, is answered so that nothing runs."""
        self.gates.close(self.ledger.guard.leave(why))

    def _gates_expired(self, settled: list[Settled]) -> None:
        self.gates.expired(settled)

    def restore(self, record: ConnectionRecord) -> None:
        """Take over the connection of a dead worker."""
        self._reattach.restore(record)

    def succeed(self, known: Collection[str], heard: Heard, word: Succession) -> None:
        """Go on with the successor's bridge, after `restore`; ``known``: gates that the client has open."""
        self.link.pass_to(self)
        lines = take_up(
            self.ledger,
            self.link,
            self.gates,
            self._seams,
            self._watch,
            self._frames,
            known,
            heard,
            word,
            self._reattach.take_unasked(),
        )
        for session in self.ledger.sessions:
            self._seams.hide_replays(session.session_id)
        for line in lines:
            self.engine_line(line)
        self.link_up()
        self.ledger.arm()

    def refuse_what_is_open(self, why: str) -> None:
        """Hooks are answered so that nothing runs, requests but prompts with an error."""
        self.gates.close(self.ledger.guard.close_hooks(why))
        for request in self.ledger.requests:
            if not request.is_prompt or request.step is Step.HELD:
                self.ledger.gateway_error(request, ErrorCode.DRAINING, why)

    def leave(self) -> None:
        """Another worker goes on: nothing is written or sent here any more."""
        self._leader.on_broken.discard(self._leader_broken)
        self._watch.clear()
        self._arrivals.close()
        self._seams.clear()
        self.ledger.stop()

    async def finish(self, *, given_up: bool) -> None:
        """End the turns of all sessions, within bounds: nothing may run on without a bridge.

        ``given_up``: the link has ended by itself.
        """
        sessions = [s for s in self.ledger.sessions if s.busy or s.state is State.LOST]
        if self._leader.info is None or not sessions:
            return  # with the leader every turn has ended
        try:
            async with asyncio.timeout(self._limits.cancel_settle):
                if given_up:
                    await self.link.last_bridge()
                elif any(s.state is State.LOST for s in sessions):
                    await self._up.wait()
                # Closing cancels the turn and all that waits behind it; a cancel would start the next.
                await asyncio.gather(
                    *(
                        self.link.call(
                            "session/close", {"sessionId": s.session_id}, self._limits.cancel_settle
                        )
                        for s in sessions
                    )
                )
        except (CallError, TimeoutError) as error:
            log.warning("sessions could not be closed at the end of their client: %s", error)

    async def close(self) -> None:
        """`run` of the link has ended: forget everything."""
        self._seams.clear()
        await self.link.close()
        self._watch.clear()
        self._arrivals.close()
        self._leader.on_broken.discard(self._leader_broken)
        self.ledger.close()
