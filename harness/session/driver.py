"""Drives one turn: does what the state machine asks for, and tells clients while it does."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.limits import SIZES
from harness.model.errors import Failure, ModelError
from harness.model.openai import Answer, CallPart, Piece, Text, request_body
from harness.model.retry import Model, Trying, persist
from harness.registry.contract import ClientRequests, ToolKind
from harness.session.calls import Calls
from harness.session.commands import Command, Sheet, approval_wish
from harness.session.compaction import Compaction
from harness.session.conversation import Conversation
from harness.session.gate import Gate
from harness.session.hooks import TurnHooks
from harness.session.keeper import Keeper
from harness.session.queue import Queued
from harness.session.turn import AskModel, AskStop, End, Prepare, Run, Step, Turn, Wait
from harness.session.updates import Update, Updates
from harness.session.usage import TurnUsage

if TYPE_CHECKING:
    from harness.model.endpoints import Endpoint
    from harness.session.journal import Saved
    from harness.toolbridge import ToolBridge
    from harness.tools.plan_mode import PlanMode
    from harness.workspace.session import WorkspaceSession

__all__ = ["SessionParts", "SessionState", "TurnDriver", "estimate"]

_LOG = logging.getLogger("session")


@dataclasses.dataclass
class SessionParts:
    """What a session is made of."""

    id: str
    bridge: ToolBridge
    workspace: WorkspaceSession
    gate: Gate
    hooks: TurnHooks
    client: ClientRequests
    model: Model
    endpoint: Endpoint
    head: list[dict[str, Any]]
    publish: Callable[[str, Update], None]
    changed: Callable[[], None]  #: activity, title or model of the session are others now
    keep: Keeper
    saved: Saved | None = None  #: of a session that an earlier process began
    rests: Callable[[], None] = lambda: None  #: a turn has ended
    set_plan_mode: Callable[[bool], None] = lambda _: None
    plan_mode: PlanMode | None = None
    servers_ready: Callable[[], Awaitable[str]] | None = None  #: what the model has not heard of them
    approves: Callable[[], bool] = lambda: False  #: tools run unasked
    approve: Callable[[bool], bool] = lambda wish: False  #: have it so or not; what holds then
    turn_began: Callable[[str], object] = lambda _: None
    turn_ended: Callable[[], Awaitable[object]] | None = None


@dataclasses.dataclass
class SessionState:
    """What turns of a session hand on to each other."""

    conversation: Conversation
    updates: Updates
    endpoint: Endpoint
    effort: str | None
    counted: tuple[int, int]  #: tokens, and how many messages of the body they cover
    plan: Sequence[Mapping[str, Any]] = ()
    take_lines: Callable[[], str] = lambda: ""  #: of monitors, that the model has not got

    def tokens(self) -> int:
        """Of the conversation: what the model counted last, and an estimate of what came since."""
        counted, messages = self.counted
        return counted + estimate(self.conversation.body[messages:])

    def recount(self) -> None:
        """After other messages than the model has counted."""
        self.counted = (estimate(self.conversation.messages), len(self.conversation.body))
        self.updates.total_tokens = self.tokens()


class TurnDriver:
    """One turn of a session.  `run` gives its end; `cancel` ends it from outside."""

    def __init__(self, queued: Queued, parts: SessionParts, state: SessionState) -> None:
        self.queued = queued
        self.usage = TurnUsage()
        self.work: asyncio.Task[None] | None = None
        self._parts, self._state = parts, state
        self._interjected = asyncio.Event()
        self.turn = Turn(state.conversation, self._leaves_plan_mode, self._interjection_taken)
        self.calls = Calls(
            prompt_id=queued.id,
            bridge=parts.bridge,
            workspace=parts.workspace,
            gate=parts.gate,
            hooks=parts.hooks,
            client=parts.client,
            updates=state.updates,
            publish=self._publish,
            interjected=self._interjected,
            set_plan_mode=parts.set_plan_mode,
            plan_mode=parts.plan_mode,
        )
        self._compaction = Compaction(queued.id, parts, state, self._publish)

    async def obey(self, command: Command, sheet: Sheet) -> End:
        """The turn of a command; ``sheet`` tells of the session."""
        try:
            match command.name:
                case "compact" if not self._state.conversation.body:
                    self._say("There is nothing to summarise yet.")
                case "compact":
                    await self._compaction.by_command(command.argument)
                case "always-approve":
                    self._always_approve(command.argument)
                case "context":
                    self._say(sheet.context())
                case _:
                    self._say(sheet.text())
        except ModelError as error:
            return self.turn.over(End("error", error=error))
        except Exception as error:
            return self.turn.over(End("error", error=self._broke(error)))
        return self.turn.over(End("end_turn"))

    async def run(self, message: str) -> End:
        """From the first message to the end, which a failure of our own is, too."""
        try:
            step = self.turn.begin(message)
            if self._parts.servers_ready is not None and (news := await self._parts.servers_ready()):
                self._state.conversation.add_user(news)
            while not isinstance(step, End):
                step = await self._take(step)
        except Exception as error:
            step = self.turn.failed(self._broke(error))
            assert isinstance(step, End)
        self._close_plan(step)
        return step

    def interject(self, text: str) -> None:
        self.turn.interject(text)
        self._interjected.set()

    def cancel(self, trigger: str = "") -> End:
        return self.turn.cancel(trigger)

    # -- steps ---------------------------------------------------------------------------------------
    async def _take(self, step: Step) -> Step:
        match step:
            case AskModel():
                return await self._ask_model()
            case Prepare(call):
                return self.turn.prepared(call.id, await self.calls.prepare(call))
            case Run(lanes):
                return await self._run(lanes)
            case AskStop(text):
                return self.turn.stop_asked(await self._parts.hooks.stop(self.queued.id, text))
            case _:
                raise AssertionError(step)

    async def _ask_model(self) -> Step:
        self._interjected.clear()
        state, updates = self._state, self._state.updates
        if self._compaction.due:
            await self._compaction.by_itself()
        updates.stream_started()
        updates.total_tokens = state.tokens()
        endpoint = state.endpoint
        body = request_body(
            endpoint, state.conversation.messages, self._parts.bridge.definitions(), state.effort
        )
        # Lets a server that caches by conversation know which one this is.
        headers = {"x-grok-conv-id": self._parts.id, "x-grok-req-id": self.queued.id}
        try:
            answer = await persist(
                self._parts.model, endpoint, body, self._show, self._trying, headers=headers
            )
        except ModelError as error:
            too_long = error.kind is Failure.CONTEXT and self._compaction.possible
            if too_long and await self._compaction.by_itself():
                return AskModel()
            return self.turn.failed(error)
        return self._answered(endpoint, answer)

    def _answered(self, endpoint: Endpoint, answer: Answer) -> Step:
        step = self.turn.answered(answer)
        if isinstance(step, End) and step.error is not None:
            return step  # cut off: not counted as an answer
        self.usage.add(endpoint.model, answer)
        if answer.usage.total:
            self._state.counted = (answer.usage.total, len(self._state.conversation.body))
            self._state.updates.total_tokens = answer.usage.total
        self._publish(self._state.updates.response_completed(answer.usage))
        return step

    async def _run(self, lanes: Sequence[Sequence[str]]) -> Step:
        last: Step | None = None

        async def lane(ids: Sequence[str]) -> None:
            nonlocal last
            for call_id in ids:
                result = await self.calls.run(call_id)
                step = self.turn.ran(call_id, result.text, result.messages, ends=result.ends)
                last = last if isinstance(step, Wait) else step

        async with asyncio.TaskGroup() as group:
            for ids in lanes:
                group.create_task(lane(ids))
        assert last is not None, "a batch ends with its last result"
        self._state.plan = self.calls.plan or self._state.plan
        if not isinstance(last, End) and (text := self._state.take_lines()):
            self._state.conversation.add_user(text)
        return last

    def _close_plan(self, end: End) -> None:
        """A turn that is over leaves no step of the plan under way."""
        if end.reason == "end_turn" and self._state.plan:
            done = [{**e, "status": _closed(str(e.get("status")))} for e in self._state.plan]
            self._publish(self._state.updates.plan(done, at_end=True))

    # -- small things --------------------------------------------------------------------------------
    def _broke(self, error: Exception) -> ModelError:
        """A failure of our own; its prompt is answered all the same."""
        _LOG.error("session %s: a turn broke", self._parts.id, exc_info=error)
        return ModelError(Failure.API, f"the turn broke: {type(error).__name__}: {error}")

    def _always_approve(self, argument: str) -> None:
        wish = approval_wish(argument, self._parts.approves())
        if wish is None:
            self._say(f"/always-approve takes on or off, not `{argument}`. Nothing was changed.")
        elif self._parts.approve(wish) is not wish:
            self._say("The administrator's settings do not let always-approve be changed here.")

    def _say(self, text: str) -> None:
        """Text of the engine's own."""
        self._publish(self._state.updates.host_message(text))

    def _show(self, piece: Piece) -> None:
        updates = self._state.updates
        if isinstance(piece, CallPart):
            self._publish(updates.call_delta(piece))
        elif isinstance(piece, Text):
            self._publish(updates.message(piece.text))
        else:
            self._publish(updates.thought(piece.text))

    def _trying(self, trying: Trying) -> None:
        self._publish(self._state.updates.retrying(trying))

    def _interjection_taken(self, text: str, shown: str) -> None:
        self._parts.keep.record(self._state.updates.interjected(text, shown, self._state.endpoint.model))

    def _leaves_plan_mode(self, name: str) -> bool:
        tool = self._parts.bridge.toolset.named(name)
        return tool is not None and tool.spec.kind is ToolKind.EXIT_PLAN

    def _publish(self, update: Update) -> None:
        """A turn that is over for its client says nothing more."""
        if not self.calls.cancelled.is_set():
            self._parts.publish(self._parts.id, update)


def _closed(status: str) -> str:
    return "completed" if status == "in_progress" else status


def estimate(messages: Sequence[Mapping[str, Any]]) -> int:
    """Tokens, roughly: no tokenizer of any model is at hand."""
    return sum(len(str(message.get("content") or "")) for message in messages) // SIZES.bytes_per_token
