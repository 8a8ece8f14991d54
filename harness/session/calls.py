"""One tool call's way: announced, understood, admitted, run, told.

The order of what a client hears of a call is fixed; clients draw their cards from it.  A call of a turn
that has been cancelled is told nothing more: its client has the end of the turn already.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.outcome import FaultKind, Notification, ToolFault, ToolOutput
from harness.registry.contract import ClientRequests, ToolKind
from harness.session.gate import Gate, GateCall
from harness.session.hooks import TurnHooks
from harness.session.presentation import CallView, ResultView, text_content, view_call, view_result
from harness.session.turn import Fate, Prepared
from harness.session.updates import Update, Updates

if TYPE_CHECKING:
    from harness.model.openai import ModelCall
    from harness.toolbridge import ParsedCall, ToolBridge
    from harness.tools.plan_mode import PlanMode
    from harness.workspace.session import WorkspaceSession

__all__ = ["CallResult", "Calls"]

#: What a call asks the client itself, and how a client names that wait.
_ASKING = {"_x.ai/ask_user_question": "question", "_x.ai/exit_plan_mode": "plan_approval"}
_WAITING = frozenset({ToolKind.BACKGROUND_TASK, ToolKind.WAIT_TASKS})
_CHANGING = frozenset({ToolKind.EDIT, ToolKind.WRITE, ToolKind.DELETE, ToolKind.MOVE})
_FATES: Mapping[str, Fate] = {"reject": "rejected", "cancel": "cancelled", "followup": "followup"}


@dataclasses.dataclass(frozen=True, slots=True)
class CallResult:
    """What a call came to for the turn: see `Turn.ran`."""

    text: str
    messages: tuple[str, ...] = ()
    ends: bool = False


class Calls:
    """The calls of one turn."""

    def __init__(
        self,
        *,
        prompt_id: str,
        bridge: ToolBridge,
        workspace: WorkspaceSession,
        gate: Gate,
        hooks: TurnHooks,
        client: ClientRequests,
        updates: Updates,
        publish: Callable[[Update], None],
        interjected: asyncio.Event,
        set_plan_mode: Callable[[bool], None] = lambda _: None,
        plan_mode: PlanMode | None = None,
    ) -> None:
        self._prompt_id = prompt_id
        self._bridge, self._workspace = bridge, workspace
        self._gate, self._hooks, self._client = gate, hooks, client
        self._updates, self._publish_now = updates, publish
        self._interjected = interjected
        self._set_plan_mode, self._plan_mode = set_plan_mode, plan_mode
        self._parsed: dict[str, ParsedCall] = {}
        self._waiting_for_client: dict[str, str] = {}  # what for, by call
        self.running: dict[str, asyncio.Event] = {}  #: set when the call has its result
        self.plan: Sequence[Mapping[str, Any]] = ()  #: the newest list of steps
        self.cancelled = asyncio.Event()

    @property
    def asked(self) -> frozenset[str]:
        """Calls that wait to be allowed."""
        return frozenset(call for call, kind in self._waiting_for_client.items() if kind == "permission")

    def cancel(self) -> None:
        """The turn has ended: waits of the client's are over, nothing more is told."""
        for call_id in tuple(self._waiting_for_client):
            self._resolved(call_id)
        self.cancelled.set()

    def _publish(self, update: Update) -> None:
        if not self.cancelled.is_set():
            self._publish_now(update)

    # -- before --------------------------------------------------------------------------------------
    async def prepare(self, call: ModelCall) -> Prepared:
        """Announce, parse and admit a call."""
        parsed = self._bridge.parse(call.name, call.arguments)
        tool = self._bridge.toolset.named(call.name)
        card = tool.card() if tool else None
        announced = self._updates.tool_call
        if isinstance(parsed, ToolOutput):
            self._publish(announced(call.id, call.name, _object(call.arguments), card))
            title = None if tool else f"The model called a tool that is not there: {call.name}"
            self._publish(
                self._updates.tool_call_ended(call.id, ResultView(True, text_content(parsed.prompt), title))
            )
            return Prepared("failed", parsed.prompt)
        self._parsed[call.id] = parsed
        # Hooks hear of a call before anybody is shown it; each is asked in a task of its own.
        asking = asyncio.ensure_future(
            self._hooks.before(call.id, parsed.effective_name, parsed.arguments, self._prompt_id)
        )
        try:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self._publish(announced(call.id, call.name, _object(call.arguments), card))
            denied = await asking
        finally:
            asking.cancel()
        if denied is None:
            denied = await self._breaks_plan_mode(parsed)
        if denied is not None:
            return self._refused(call, "failed", denied)
        view = await self._previewed(view_call(parsed.tool.spec.kind, parsed.name, parsed.arguments))
        self._pending(call.id, "permission")
        self._publish(self._updates.tool_call_refined(call.id, view, parsed.raw_input, parsed.card()))
        decision = await self._gate.decide(self._gate_call(call, parsed, view))
        self._resolved(call.id)
        if str(decision.verdict) == "allow":
            path, changes = await self._works_on(parsed, view)
            return Prepared("run", path=path, changes=changes)
        fate = _FATES.get(str(decision.verdict), "failed")
        if fate in ("rejected", "failed"):
            self._hooks.denied(call.id, parsed.effective_name, parsed.arguments)
        return self._refused(call, fate, decision.text, decision.reason, decision.followup)

    async def _breaks_plan_mode(self, parsed: ParsedCall) -> str | None:
        """Why an edit may not be made while a plan is made; nobody is asked about it."""
        if self._plan_mode is None or not self._plan_mode.active or parsed.tool.spec.kind not in _CHANGING:
            return None
        plan = self._plan_mode.place(self._workspace.cwd)
        wanted = view_call(parsed.tool.spec.kind, parsed.name, parsed.arguments).path
        with contextlib.suppress(ToolFault, OSError):
            both = [await self._workspace.resolve(path) for path in (plan, wanted)]
            if both[0].real == both[1].real:
                return None
        return f"Plan mode is on: until it is left, only the plan may be edited ({plan})."

    def _refused(
        self, call: ModelCall, fate: Fate, text: str, detail: str = "", followup: str = ""
    ) -> Prepared:
        self._publish(self._updates.tool_call_ended(call.id, ResultView(True, text_content(text))))
        return Prepared(fate, text, detail=detail, followup=followup)

    def _gate_call(self, call: ModelCall, parsed: ParsedCall, view: CallView) -> GateCall:
        shown = {
            "toolCallId": call.id,
            "kind": view.kind,
            "title": view.title,
            "rawInput": parsed.raw_input,
            "_meta": {"x.ai/tool": parsed.card()},
        }
        return GateCall(
            call_id=call.id,
            kind=parsed.tool.spec.kind,
            name=parsed.name,
            arguments=parsed.arguments,
            tool_call=shown,
            cwd=self._workspace.cwd,
            read_only=parsed.tool.spec.is_read_only,
        )

    async def _works_on(self, parsed: ParsedCall, view: CallView) -> tuple[str, bool]:
        """The path that the call must not share with a change of another, and whether it changes it."""
        if not view.path or parsed.tool.spec.kind in (ToolKind.LIST, ToolKind.LIST_DIR):
            return "", False
        changes = parsed.tool.spec.kind in _CHANGING
        try:
            return (await self._workspace.resolve(view.path)).real, changes
        except (ToolFault, OSError):  # the tool itself will say what is wrong with it
            return view.path, changes

    async def _previewed(self, view: CallView) -> CallView:
        """The card with absolute paths and line numbers in its diff."""
        if not view.content or view.content[0].get("type") != "diff":
            return view
        diff = dict(view.content[0])
        try:
            resolved = await self._workspace.resolve(view.path)
            diff["path"] = resolved.shown
            if diff["oldText"]:
                text = (await self._workspace.read_bytes(resolved)).decode(errors="replace")
                if (at := text.find(diff["oldText"])) >= 0:
                    line = text.count("\n", 0, at) + 1
                    diff["_meta"] = {"old_line": line, "new_line": line}
        except (ToolFault, OSError):
            pass
        return CallView(view.kind, view.title, view.path, view.line, (diff,))

    # -- the work ------------------------------------------------------------------------------------
    async def run(self, call_id: str) -> CallResult:
        """Run an admitted call."""
        parsed = self._parsed[call_id]
        ended = self.running[call_id] = asyncio.Event()
        started = time.monotonic()
        try:
            output, text = await self._output(parsed, call_id)
        finally:
            del self.running[call_id]
            ended.set()
        told: Sequence[str] = ()
        if not self.cancelled.is_set():
            told = await self._hooks.after(
                call_id,
                parsed.effective_name,
                parsed.arguments,
                output.raw(),
                time.monotonic() - started,
                output.type == "BackgroundTaskStarted",
            )
        self._publish(self._updates.tool_call_ended(call_id, view_result(output), output.raw()))
        self._plan_update(output)
        # A plan that nobody approved or refused: going on would mean to carry it out.
        ends = output.is_error and not output.type and parsed.tool.spec.kind is ToolKind.EXIT_PLAN
        return CallResult(text, tuple(told), ends)

    async def _output(self, parsed: ParsedCall, call_id: str) -> tuple[ToolOutput, str]:
        work = asyncio.ensure_future(
            self._bridge.call(
                parsed,
                call_id,
                cancelled=self.cancelled,
                notify=self._notified,
                client=_CallClient(self, call_id),
            )
        )
        try:
            if self._may_be_interrupted(parsed) and await self._interrupted(work):
                text = "The wait was given up because the user wrote something. What was waited for goes on."
                return ToolOutput("Text", {"text": text}, text), text
            result = await work
        except ToolFault as fault:
            text = f"{parsed.name}: {fault.message}"
            cancelled = fault.kind is FaultKind.CANCELLED
            fields = {} if cancelled else {"error": "tool_execution_failed", "message": fault.message}
            return ToolOutput("", fields, text, is_error=True), text
        except asyncio.CancelledError:
            work.cancel()
            raise
        return result.output, result.prompt_text

    @staticmethod
    def _may_be_interrupted(parsed: ParsedCall) -> bool:
        return parsed.tool.spec.kind in _WAITING and bool(parsed.arguments.get("timeout_ms"))

    async def _interrupted(self, work: asyncio.Future[Any]) -> bool:
        """Whether the user said something before the wait was over; then the wait is given up."""
        said = asyncio.ensure_future(self._interjected.wait())
        try:
            await asyncio.wait((work, said), return_when=asyncio.FIRST_COMPLETED)
        finally:
            said.cancel()
        if work.done():
            return False
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError, ToolFault):
            await work
        return True

    def _plan_update(self, output: ToolOutput) -> None:
        updated = output.fields.get("TodosUpdated") if output.type == "Todo" else None
        if isinstance(updated, Mapping):
            self.plan = updated.get("todos", ())
            self._publish(self._updates.plan(self.plan))

    def _notified(self, notification: Notification) -> None:
        """A tool tells something between two results."""
        mode = {"plan_mode_entered": "plan", "plan_mode_exited": "default"}.get(notification.kind)
        if mode is not None:
            self._set_plan_mode(mode == "plan")
            self._publish(self._updates.mode(mode))

    # -- the client ----------------------------------------------------------------------------------
    def _pending(self, call_id: str, kind: str) -> None:
        self._waiting_for_client[call_id] = kind
        self._publish(self._updates.pending(call_id, kind))

    def _resolved(self, call_id: str) -> None:
        if call_id in self._waiting_for_client:
            del self._waiting_for_client[call_id]
            self._publish(self._updates.resolved(call_id))

    async def ask(self, call_id: str, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """A question of the call itself, shown as a wait."""
        self._pending(call_id, _ASKING.get(method, "question"))
        try:
            named = {"sessionId": self._workspace.id, "toolCallId": call_id}
            return await self._client.request(method, {**named, **params})
        finally:
            self._resolved(call_id)


class _CallClient:
    """The client as one call knows it."""

    def __init__(self, calls: Calls, call_id: str) -> None:
        self._calls, self._call_id = calls, call_id

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self._calls.ask(self._call_id, method, params)


def _object(text: str) -> dict[str, Any] | None:
    """The arguments as the model wrote them, if they are one JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
