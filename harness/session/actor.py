"""One session: its queue of prompts, the turn that runs, and all that may be asked of it from outside.

The actor knows neither connections nor files.  Commands come in as methods, everything that clients are to
hear goes out through one ``publish(session id, update)``, in order, and questions to clients through one
`ClientRequests`.  Whoever holds actors decides who hears what, keeps what must survive, and puts several
clients on one session.

At most one turn runs.  A cancelled one is over at once for its client; its tools get a moment to clean up
before the next turn begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.limits import LIMITS, SIZES
from harness.model.errors import Failure, ModelError
from harness.model.openai import Answer, CallPart, Piece, Text, request_body
from harness.model.retry import Model, Trying, persist
from harness.registry.contract import ClientRequests, ToolKind
from harness.session import endings
from harness.session.background import Background
from harness.session.calls import Calls
from harness.session.conversation import Conversation, Interruption, user_query
from harness.session.endings import PromptResult
from harness.session.gate import Gate
from harness.session.hooks import TurnHooks
from harness.session.prompt import Prompt
from harness.session.queue import PromptQueue, Queued
from harness.session.turn import AskModel, AskStop, End, Prepare, Run, Step, Turn, Wait
from harness.session.updates import Update, Updates
from harness.session.usage import TurnUsage

if TYPE_CHECKING:
    from harness.model.endpoints import Endpoint
    from harness.toolbridge import ToolBridge
    from harness.workspace.session import WorkspaceSession
    from harness.workspace.terminal.book import Snapshot

__all__ = ["PromptResult", "SessionActor", "SessionParts"]

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
    turn_began: Callable[[str], object] = lambda _: None
    turn_ended: Callable[[], Awaitable[object]] | None = None


class SessionActor:
    """See the module."""

    def __init__(self, parts: SessionParts) -> None:
        self.id = parts.id
        self.title: str | None = None
        self.endpoint = parts.endpoint
        self.effort = parts.endpoint.effort
        self.activity = "idle"
        self.total = TurnUsage()
        self.turns = 0
        self._parts = parts
        self._updates = Updates(parts.id)
        self._conversation = Conversation(parts.head)
        self._counted = (_estimate(parts.head), 0)  # tokens, and how many messages of the body they cover
        self._updates.total_tokens = self._counted[0]
        self._queue = PromptQueue()
        self._active: _Active | None = None
        self._settling: asyncio.Task[None] | None = None
        self._interrupted = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._background = Background(
            parts.id,
            bridge=parts.bridge,
            terminal=parts.workspace.terminal,
            updates=self._updates,
            publish=self._publish,
            wake=self._wake,
            busy=lambda: self._active is not None,
        )

    # -- commands ------------------------------------------------------------------------------------
    async def prompt(
        self, prompt: Prompt, prompt_id: str | None = None, *, at_once: bool = False
    ) -> PromptResult:
        """Queue a prompt and wait for the end of its turn; ``at_once`` ends the turn that runs."""
        answer: asyncio.Future[PromptResult] = asyncio.get_running_loop().create_future()
        queued = Queued(prompt_id or str(uuid.uuid4()), prompt, ticket=answer)
        if len(self._queue) >= SIZES.open_prompts:
            return PromptResult(
                error=(-32603, "Internal error", "too many prompts are waiting in this session")
            )
        self._set_activity("working")
        self._queue.add(queued, first=at_once)
        self._tell_queue()
        if at_once and self._active is not None:
            await self._make_room(self._active)
        self._next()
        return await answer

    def cancel(self, trigger: str = "") -> None:
        """End the turn that runs; prompts that wait then have theirs."""
        if self._active is not None:
            self._finish(self._active, self._active.turn.cancel(trigger))

    def interject(self, text: str, interjection_id: str | None = None) -> None:
        """Say something to the model while it works; when it does not, that makes a turn."""
        self._publish(self._updates.interjection(text, interjection_id))
        if self._active is not None:
            self._active.turn.interject(text)
            self._active.interjected.set()
            return
        self._wake(_said(text))

    def set_model(self, endpoint: Endpoint, effort: str | None = None) -> None:
        """Another model, or another effort of it, from the next call on; `tell_model` tells of it."""
        self.endpoint = endpoint
        self.effort = effort if effort in endpoint.efforts else endpoint.effort

    def tell_model(self, options: Sequence[Mapping[str, Any]]) -> None:
        self._publish(self._updates.model_changed(self.endpoint.id, self.effort))
        self._publish(self._updates.config_options(options))

    def set_mode(self, mode: str) -> None:
        self._publish(self._updates.mode(mode))

    def rename(self, title: str, *, manual: bool = True) -> None:
        self.title = title
        for update in self._updates.title(title, manual=manual):
            self._publish(update)

    def announce(self) -> None:
        """Tell what the session offers."""
        self._publish(self._updates.commands((), self.tool_names))

    # -- commands on the queue -----------------------------------------------------------------------
    def remove_queued(self, prompt_id: str, version: int | None) -> None:
        if (queued := self._queue.remove(prompt_id, version)) is not None:
            self._drop(queued)
            self._tell_queue()

    def edit_queued(self, prompt_id: str, text: str, version: int | None) -> None:
        if self._queue.edit(prompt_id, text, version):
            self._tell_queue()

    def reorder_queue(self, ids: Sequence[str]) -> None:
        self._queue.reorder(ids)
        self._tell_queue()

    def clear_queue(self) -> None:
        for queued in self._queue.clear():
            self._drop(queued)
        self._tell_queue()

    # -- state ---------------------------------------------------------------------------------------
    @property
    def running_prompt(self) -> str | None:
        return self._active.queued.id if self._active else None

    @property
    def context_tokens(self) -> int:
        return self._updates.total_tokens

    @property
    def messages(self) -> int:
        return len(self._conversation.messages)

    @property
    def tool_names(self) -> list[str]:
        return [tool.name for tool in self._parts.bridge.toolset.tools]

    def tasks(self) -> list[Snapshot]:
        """Background tasks, running and ended."""
        return self._parts.bridge.list_tasks()

    async def kill_task(self, task_id: str) -> str:
        return await self._parts.bridge.kill_task(task_id)

    def send_to_background(self, call_id: str) -> bool:
        return self._parts.bridge.background_foreground_command(call_id)

    async def close(self) -> None:
        """End everything; the prompts that run and wait are answered as cancelled."""
        self._closed = True
        self.cancel("session_close")
        self.clear_queue()
        self._background.close()
        if self._settling is not None:
            await asyncio.wait((self._settling,), timeout=LIMITS.cancel_settle)
        for task in tuple(self._tasks):
            task.cancel()
        await self._parts.workspace.terminal.close()

    # -- turns ---------------------------------------------------------------------------------------
    def _wake(self, queued: Queued) -> None:
        if not self._closed:
            self._queue.add(queued)
            self._next()

    def _next(self) -> None:
        """Begin the next turn, if none runs."""
        if self._active is not None or self._closed or (queued := self._queue.take()) is None:
            return
        self._updates.turn_started(queued.id)
        interjected = asyncio.Event()
        calls = Calls(
            prompt_id=queued.id,
            bridge=self._parts.bridge,
            workspace=self._parts.workspace,
            gate=self._parts.gate,
            hooks=self._parts.hooks,
            client=self._parts.client,
            updates=self._updates,
            publish=self._publish,
            interjected=interjected,
        )
        turn = Turn(self._conversation, self._leaves_plan_mode)
        active = _Active(queued, turn, calls, interjected)
        self._active = active
        self._parts.turn_began(queued.prompt.shown)
        self._publish(self._updates.queue(self._queue.entries(), queued.running))
        active.work = self._spawn(self._drive(active))

    async def _drive(self, active: _Active) -> None:
        """Run a turn from its first step to its end; its client is told, whatever goes wrong in it."""
        try:
            if self._settling is not None:
                await asyncio.wait((self._settling,), timeout=LIMITS.cancel_settle)
            self._title_from(active.queued)
            step = active.turn.begin(self._first_message(active.queued))
            while not isinstance(step, End):
                step = await self._take(active, step)
        except Exception as error:
            _LOG.exception("session %s: a turn broke", self.id)
            text = f"the turn broke: {type(error).__name__}: {error}"
            step = active.turn.failed(ModelError(Failure.API, text))
            assert isinstance(step, End)
        except asyncio.CancelledError:
            self._finish(active, active.turn.cancel())
            raise
        self._finish(active, step)

    async def _take(self, active: _Active, step: Step) -> Step:
        match step:
            case AskModel():
                return await self._ask_model(active)
            case Prepare(call):
                return active.turn.prepared(call.id, await active.calls.prepare(call))
            case Run(lanes):
                return await self._run(active, lanes)
            case AskStop(text):
                return active.turn.stop_asked(await self._parts.hooks.stop(active.queued.id, text))
            case _:
                raise AssertionError(step)

    async def _ask_model(self, active: _Active) -> Step:
        active.interjected.clear()
        self._updates.stream_started()
        self._updates.total_tokens = self._tokens()
        endpoint = self.endpoint
        body = request_body(
            endpoint, self._conversation.messages, self._parts.bridge.definitions(), self.effort
        )
        try:
            answer = await persist(
                self._parts.model, endpoint, body, self._show, self._trying, headers=self._headers(active)
            )
        except ModelError as error:
            return active.turn.failed(error)
        return self._answered(active, endpoint, answer)

    def _answered(self, active: _Active, endpoint: Endpoint, answer: Answer) -> Step:
        step = active.turn.answered(answer)
        if isinstance(step, End) and step.error is not None:
            return step  # cut off: not counted as an answer
        active.usage.add(endpoint.model, answer)
        if answer.usage.total:
            self._counted = (answer.usage.total, len(self._conversation.body))
            self._updates.total_tokens = answer.usage.total
        self._publish(self._updates.response_completed(answer.usage))
        return step

    async def _run(self, active: _Active, lanes: Sequence[Sequence[str]]) -> Step:
        last: Step | None = None

        async def lane(ids: Sequence[str]) -> None:
            nonlocal last
            for call_id in ids:
                text, messages = await active.calls.run(call_id)
                step = active.turn.ran(call_id, text, messages)
                last = last if isinstance(step, Wait) else step

        async with asyncio.TaskGroup() as group:
            for ids in lanes:
                group.create_task(lane(ids))
        assert last is not None, "a batch ends with its last result"
        self._monitor_lines()
        return last

    def _monitor_lines(self) -> None:
        """Lines that came while tools ran go to the model with their results."""
        if text := self._background.take_lines():
            self._conversation.add_user(text)

    # -- the end of a turn ---------------------------------------------------------------------------
    def _finish(self, active: _Active, end: End) -> None:
        """Tell the end of a turn and begin the next; also when the turn's own task is still at work."""
        if self._active is not active:
            return
        active.calls.cancel()
        self._active = None
        self.turns += 1
        self.total.merge(active.usage)
        self._interrupted = endings.interruption(end, active.turn)
        if end.category == "MidTurnAbort":
            self._settling = self._spawn(self._settle(active, self._settling))
        if end.error is not None:
            self._publish(self._updates.retry_ended(endings.retry_state(end.error)))
        if end.category != "MidTurnAbort":
            self._tell_queue()
        queued, usage = active.queued, active.usage
        told = endings.error_fields(end, "agent_result", "error_kind")
        self._publish(
            self._updates.turn_completed(
                queued.id, end.reason, usage, endings.meta(end, context=not end.trigger), told
            )
        )
        for text in active.turn.waiting_texts:  # said too late for this turn
            self._queue.add(_said(text))
        self._background.turn_ended()
        self._next()
        if not queued.autonomous:
            told = endings.error_fields(end, "agentResult", "errorKind")
            self._publish(self._updates.prompt_complete(queued.id, end.reason, {**told, **endings.meta(end)}))
            self._set_activity("idle")
            latest = usage if usage.last else self.total
            self._resolve(
                queued,
                endings.answer(
                    self.id, queued.id, end, usage, latest, self.context_tokens, self.endpoint.model
                ),
            )

    async def _settle(self, active: _Active, earlier: asyncio.Task[None] | None) -> None:
        """Let the tools of a cancelled turn end what they do."""
        if earlier is not None:
            await asyncio.wait((earlier,), timeout=LIMITS.cancel_settle)
        if active.work is not None:
            active.work.cancel()
        with contextlib.suppress(Exception):
            await self._parts.bridge.kill_foreground_commands()
        if active.work is not None:
            await asyncio.wait((active.work,), timeout=LIMITS.cancel_settle)

    async def _make_room(self, active: _Active) -> None:
        """End the turn for a prompt that will not wait; commands that run go on in the background."""
        moved = [i for i in active.calls.running if self._parts.bridge.background_foreground_command(i)]
        deadline = asyncio.get_running_loop().time() + LIMITS.cancel_settle
        while self._active is active and any(i in active.calls.running for i in moved):
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0)
        if self._active is active:
            self._finish(active, active.turn.cancel("send_now"))

    # -- small things --------------------------------------------------------------------------------
    def _first_message(self, queued: Queued) -> str:
        if not queued.as_query:
            return queued.prompt.query
        interruption, self._interrupted = queued.interruption or self._interrupted, ""
        query = user_query(queued.prompt.query, interruption)
        return f"{query}\n\n{queued.prompt.attached}" if queued.prompt.attached else query

    def _title_from(self, queued: Queued) -> None:
        if self.title is None and not queued.autonomous and queued.prompt.shown.strip():
            self.rename(endings.title(queued.prompt.shown), manual=False)
        if queued.prompt.dropped:
            notes = {"notes": list(queued.prompt.dropped)}
            self._publish(self._updates.notification("image_dropped", notes, meta=True))

    def _show(self, piece: Piece) -> None:
        if isinstance(piece, CallPart):
            self._publish(self._updates.call_delta(piece))
        elif isinstance(piece, Text):
            self._publish(self._updates.message(piece.text))
        else:
            self._publish(self._updates.thought(piece.text))

    def _trying(self, trying: Trying) -> None:
        self._publish(self._updates.retrying(trying))

    def _headers(self, active: _Active) -> dict[str, str]:
        """Lets a server that caches by conversation know which one this is."""
        return {"x-grok-conv-id": self.id, "x-grok-req-id": active.queued.id}

    def _tokens(self) -> int:
        """Of the conversation: what the model counted last, and an estimate of what came since."""
        counted, messages = self._counted
        return counted + _estimate(self._conversation.body[messages:])

    def _leaves_plan_mode(self, name: str) -> bool:
        tool = self._parts.bridge.toolset.named(name)
        return tool is not None and tool.spec.kind is ToolKind.EXIT_PLAN

    def _tell_queue(self) -> None:
        running = self._active.queued.running if self._active is not None else None
        self._publish(self._updates.queue(self._queue.entries(), running))

    def _set_activity(self, activity: str) -> None:
        self.activity = activity
        self._parts.changed()

    def _drop(self, queued: Queued) -> None:
        self._resolve(queued, endings.removed(self.id, queued.id, self.endpoint.model))

    def _resolve(self, queued: Queued, result: PromptResult) -> None:
        if queued.ticket is not None and not queued.ticket.done():
            queued.ticket.set_result(result)

    def _publish(self, update: Update) -> None:
        self._parts.publish(self.id, update)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


@dataclasses.dataclass
class _Active:
    """The turn that runs."""

    queued: Queued
    turn: Turn
    calls: Calls
    interjected: asyncio.Event
    usage: TurnUsage = dataclasses.field(default_factory=TurnUsage)
    work: asyncio.Task[None] | None = None


def _said(text: str) -> Queued:
    """A turn for what the user said beside one."""
    prompt_id = f"interject-fallback-{uuid.uuid4()}"
    return Queued(prompt_id, Prompt(text, text), True, interruption=Interruption.WHILE_WORKING)


def _estimate(messages: Sequence[Mapping[str, Any]]) -> int:
    """Tokens, roughly: no tokenizer of any model is at hand."""
    return sum(len(str(message.get("content") or "")) for message in messages) // SIZES.bytes_per_token
