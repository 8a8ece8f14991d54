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
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.limits import LIMITS, SIZES
from harness.session import endings
from harness.session.background import Background
from harness.session.commands import COMMANDS, Sheet
from harness.session.conversation import Conversation, Interruption, user_query
from harness.session.driver import SessionParts, SessionState, TurnDriver, estimate
from harness.session.endings import PromptResult
from harness.session.prompt import Prompt
from harness.session.queue import PromptQueue, Queued
from harness.session.turn import End
from harness.session.updates import Update, Updates
from harness.session.usage import TurnUsage

if TYPE_CHECKING:
    from harness.model.endpoints import Endpoint
    from harness.workspace.session import WorkspaceSession
    from harness.workspace.terminal.book import Snapshot

__all__ = ["SessionActor"]


class SessionActor:
    """See the module."""

    def __init__(self, parts: SessionParts) -> None:
        self.id = parts.id
        self.title: str | None = None
        self.activity = "idle"
        self.total = TurnUsage()
        self._parts = parts
        saved = parts.saved
        self.turns = saved.turns if saved else 0
        self._updates = Updates(parts.id, first=saved.first_event if saved else 0)
        head = estimate(parts.head)
        self._updates.total_tokens = head
        conversation = Conversation(
            parts.head, list(saved.messages) if saved else [], parts.keep.message, parts.keep.replaced
        )
        self._state = SessionState(
            conversation, self._updates, parts.endpoint, parts.endpoint.effort, (head, 0)
        )
        self._queue = PromptQueue()
        self._active: TurnDriver | None = None
        self._between: asyncio.Task[None] | None = None
        self._interrupted = ""  # how the next prompt is introduced
        self._notice = ""  # what is said to the model behind it
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
        self._state.take_lines = self._background.take_lines

    # -- commands ------------------------------------------------------------------------------------
    async def prompt(
        self, prompt: Prompt, prompt_id: str | None = None, *, at_once: bool = False
    ) -> PromptResult:
        """Queue a prompt and wait for the end of its turn; ``at_once`` ends the turn that runs."""
        answer: asyncio.Future[PromptResult] = asyncio.get_running_loop().create_future()
        queued = Queued(prompt_id or str(uuid.uuid4()), prompt, ticket=answer)
        if len(self._queue) >= SIZES.open_prompts:
            return endings.too_many()
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
            self._finish(self._active, self._active.cancel(trigger))

    def interject(self, text: str, interjection_id: str | None = None) -> None:
        """Say something to the model while it works; when it does not, that makes a turn."""
        self._publish(self._updates.interjection(text, interjection_id))
        if self._active is not None:
            self._active.interject(text)
        else:
            self._wake(_said(text))

    def set_model(self, endpoint: Endpoint, effort: str | None = None) -> None:
        """Another model, or another effort of it, from the next call on; `tell_model` tells of it."""
        self._state.endpoint = endpoint
        self._state.effort = effort if effort in endpoint.efforts else endpoint.effort
        self._parts.keep.note(model=endpoint.id, model_name=endpoint.model, effort=self._state.effort)

    def tell_model(self, options: Sequence[Mapping[str, Any]]) -> None:
        self._publish(self._updates.model_changed(self.endpoint.id, self.effort))
        if options:
            self._publish(self._updates.config_options(options))

    def set_mode(self, mode: str) -> None:
        """``plan`` or ``default``; the model hears of it with the next prompt."""
        self._parts.set_plan_mode(mode == "plan")
        self._notice = endings.mode_notice(mode, self._plan_file())
        self._parts.keep.note()
        self._publish(self._updates.mode(mode))

    @property
    def workspace(self) -> WorkspaceSession:
        return self._parts.workspace

    def _plan_file(self) -> str:
        plan = self._parts.plan_mode
        return plan.place(self._parts.workspace.cwd) if plan is not None else ""

    def rename(self, title: str, *, manual: bool = True) -> None:
        self.title = title
        self._parts.keep.note(title=title)
        for update in self._updates.title(title, manual=manual):
            self._publish(update)

    def show(self, update: Mapping[str, Any]) -> None:
        """A notification of something beside the turns, hooks for one."""
        fields = {name: value for name, value in update.items() if name != "sessionUpdate"}
        self._publish(self._updates.notification(str(update["sessionUpdate"]), fields, meta=True))

    def announce(self) -> None:
        """Tell what the session offers."""
        self._publish(self._updates.commands(COMMANDS, self.tool_names))

    def tell_tasks(self) -> None:
        """What runs in the background, for a client that has loaded the session."""
        self._background.tell_tasks()

    async def kill_task(self, task_id: str) -> str:
        return await self._parts.bridge.kill_task(task_id)

    def send_to_background(self, call_id: str) -> bool:
        return self._parts.bridge.background_foreground_command(call_id)

    async def close(self) -> None:
        """End everything; the prompts that run and wait are answered as cancelled."""
        self._closed = True
        self.clear_queue()
        self.cancel("session_close")
        self._background.close()
        self._parts.hooks.tell("session_end", {"reason": "shutdown"}, "")
        if self._between is not None:
            await asyncio.wait((self._between,), timeout=LIMITS.cancel_settle)
        for task in tuple(self._tasks):
            task.cancel()

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
        gone = self._queue.clear()
        for queued in gone:
            self._drop(queued)
        if gone:
            self._tell_queue()

    # -- state ---------------------------------------------------------------------------------------
    @property
    def endpoint(self) -> Endpoint:
        return self._state.endpoint

    @property
    def effort(self) -> str | None:
        return self._state.effort

    @property
    def busy(self) -> bool:
        """Whether a turn runs or waits."""
        return self._active is not None or len(self._queue) > 0

    @property
    def running_prompt(self) -> str | None:
        return self._active.queued.id if self._active else None

    @property
    def asked_calls(self) -> frozenset[str]:
        """Calls that wait to be allowed."""
        return self._active.calls.asked if self._active else frozenset()

    @property
    def context_tokens(self) -> int:
        return self._state.tokens()

    @property
    def messages(self) -> int:
        return len(self._state.conversation.messages)

    @property
    def tool_names(self) -> list[str]:
        return [tool.name for tool in self._parts.bridge.toolset.tools]

    def tasks(self) -> list[Snapshot]:
        """Background tasks, running and ended."""
        return self._parts.bridge.list_tasks()

    # -- turns ---------------------------------------------------------------------------------------
    def _wake(self, queued: Queued, *, listed: bool = False) -> None:
        """Queue a turn that no client asked for; ``listed``: clients hear of the queue as for a prompt."""
        if not self._closed:
            self._queue.add(queued)
            if listed:
                self._tell_queue()
            self._next()

    def _next(self) -> None:
        """Begin the next turn, if none runs."""
        if self._active is not None or self._closed or (queued := self._queue.take()) is None:
            return
        self._parts.keep.began(queued.id)
        self._parts.keep.record(self._begun(queued))
        self._updates.turn_started(queued.id)
        active = self._active = TurnDriver(queued, self._parts, self._state)
        self._publish(self._updates.queue(self._queue.entries(), queued.running))
        active.work = self._spawn(self._drive(active))

    def _begun(self, queued: Queued) -> Update:
        """What stands at the beginning of a turn in the history."""
        text = queued.prompt.shown
        if queued.command is not None:
            return self._updates.host_prompt(text)
        return self._updates.user_message(text, self.endpoint.model, self.turns, hidden=not queued.as_query)

    async def _drive(self, active: TurnDriver) -> None:
        try:
            if self._between is not None:
                await asyncio.wait((self._between,), timeout=LIMITS.cancel_settle)
            if (command := active.queued.command) is not None:
                end = await active.obey(command, self._sheet())
            else:
                end = await self._run(active)
        except asyncio.CancelledError:
            self._finish(active, active.cancel())
            raise
        self._finish(active, end)

    async def _run(self, active: TurnDriver) -> End:
        """The turn of a prompt for the model."""
        queued = active.queued
        self._parts.turn_began(queued.prompt.shown)
        self._introduce(queued)
        if not queued.autonomous:
            self._parts.hooks.tell("user_prompt_submit", {"prompt": queued.prompt.shown}, queued.id)
        return await active.run(self._message(queued))

    def _sheet(self) -> Sheet:
        """What a command may ask for."""
        cwd, endpoint = self._parts.workspace.cwd, self.endpoint
        tokens, window = self.context_tokens, endpoint.context_window
        return Sheet(self.id, self.title, cwd, endpoint.model, self.turns, tokens, window)

    def _introduce(self, queued: Queued) -> None:
        """The first prompt names the session; what of a prompt is left out is told."""
        if self.title is None and not queued.autonomous and queued.prompt.shown.strip():
            self.rename(endings.title(queued.prompt.shown), manual=False)
        if queued.prompt.dropped:
            notes = {"notes": list(queued.prompt.dropped)}
            self._publish(self._updates.notification("image_dropped", notes, meta=True))

    def _message(self, queued: Queued) -> str:
        """A prompt as the model gets it."""
        if not queued.as_query:
            return queued.prompt.query
        interruption, self._interrupted = queued.interruption or self._interrupted, ""
        notice, self._notice = self._notice, ""
        query = user_query(queued.prompt.query, interruption)
        return "\n\n".join(part for part in (query, queued.prompt.attached, notice) if part)

    def _finish(self, active: TurnDriver, end: End) -> None:
        """Tell the end of a turn and begin the next; also when the turn's own task is still at work."""
        if self._active is not active:
            return
        active.calls.cancel()
        self._active = None
        self.turns += active.queued.command is None
        self.total.merge(active.usage)
        self._interrupted = endings.interruption(end, active.turn)
        cancelled = end.category == "MidTurnAbort"
        self._between = self._spawn(self._after(active if cancelled else None, self._between))
        queued, usage = active.queued, active.usage
        if end.error is not None:
            self._publish(self._updates.retry_ended(endings.retry_state(end.error)))
        if not cancelled and not queued.autonomous:
            self._tell_queue()
        told = endings.error_fields(end, "agent_result", "error_kind")
        why = endings.meta(end, context=not end.trigger)
        event = endings.hook_event(end)
        if event is not None and cancelled:
            self._parts.hooks.tell(*event, queued.id)
        self._publish(self._updates.turn_completed(queued.id, end.reason, usage, why, told))
        self._parts.keep.ended()
        if event is not None and not cancelled:
            self._parts.hooks.tell(*event, queued.id)
        for text in active.turn.waiting_texts:  # said too late for this turn
            self._queue.add(_said(text))
        self._next()
        if not queued.autonomous:
            self._answer(queued, end, usage)
        self._background.turn_ended()
        self._parts.rests()

    def _answer(self, queued: Queued, end: End, usage: TurnUsage) -> None:
        told = endings.error_fields(end, "agentResult", "errorKind")
        self._publish(self._updates.prompt_complete(queued.id, end.reason, {**told, **endings.meta(end)}))
        self._set_activity("idle")
        latest = usage if usage.last else self.total
        result = endings.answer(
            self.id,
            queued.id,
            end,
            usage,
            latest,
            self.context_tokens,
            self.endpoint.model,
            command=queued.command is not None,
        )
        self._resolve(queued, result)

    async def _after(self, cancelled: TurnDriver | None, earlier: asyncio.Task[None] | None) -> None:
        """Between two turns: tools of a cancelled one end what they do, wishes for other tools are met."""
        if earlier is not None:
            await asyncio.wait((earlier,), timeout=LIMITS.cancel_settle)
        if cancelled is not None and cancelled.work is not None:
            cancelled.work.cancel()
            with contextlib.suppress(Exception):
                await self._parts.bridge.kill_foreground_commands()
            await asyncio.wait((cancelled.work,), timeout=LIMITS.cancel_settle)
        if self._parts.turn_ended is not None:
            await self._parts.turn_ended()

    async def _make_room(self, active: TurnDriver) -> None:
        """End the turn for a prompt that will not wait; commands that run go on in the background."""
        move = self._parts.bridge.background_foreground_command
        moved = [ended for call_id, ended in active.calls.running.items() if move(call_id)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIMITS.cancel_settle):
                for ended in moved:
                    await ended.wait()
                await asyncio.sleep(0)  # the turn takes the results
        if self._active is active:
            self._finish(active, active.cancel("send_now"))

    # -- small things --------------------------------------------------------------------------------
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


def _said(text: str) -> Queued:
    """A turn for what the user said beside one."""
    prompt_id = f"interject-fallback-{uuid.uuid4()}"
    return Queued(prompt_id, Prompt(text, text), True, interruption=Interruption.WHILE_WORKING)
