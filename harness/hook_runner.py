"""Asks a client's hooks and waits for them; the hooks of one session.

All hooks of one event are asked at once and each has its own time.  Their answers count in the order of
registration, so that which one denied does not depend on which was faster.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.hooks import Event, Hook, Hooks, annotation, cut, execution, read_post, read_pre, read_stop
from harness.limits import SIZES
from harness.registry.contract import ClientRequests

__all__ = ["ClientHooks"]

RUN, EVENT = "_x.ai/hooks/run", "_x.ai/hooks/event"


@dataclasses.dataclass(frozen=True, slots=True)
class _NoAnswer:
    why: str


class ClientHooks:
    """``about()`` gives the fields that every payload carries: transcriptPath, permissionMode and the like.

    ``notify(method, params)`` sends a notification, ``show(update)`` a session notification's update.
    ``hooks`` may be replaced at any time (a load with new ones); calls under way keep the old.
    """

    def __init__(
        self,
        session_id: str,
        cwd: str,
        workspace_root: str,
        hooks: Hooks,
        client: ClientRequests,
        notify: Callable[[str, dict[str, Any]], None],
        show: Callable[[dict[str, Any]], None],
        *,
        about: Callable[[], Mapping[str, Any]] = dict,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self.hooks = hooks
        self._session_id, self._cwd, self._root = session_id, cwd, workspace_root
        self._client, self._notify, self._show = client, notify, show
        self._about, self._now = about, now
        self._stops = dict[str, int]()

    # -- before and after a tool -----------------------------------------------------------------
    async def before(
        self, call_id: str, name: str, arguments: Mapping[str, Any], prompt_id: str, /
    ) -> str | None:
        """The text of the denial, or None when every hook lets the tool go on."""
        hooks = self.hooks.for_event(Event.PRE_TOOL_USE, name)
        if not hooks:
            return None
        answers = await self._ask(hooks, Event.PRE_TOOL_USE, self._tool(call_id, name, arguments))
        for hook, answer, _ in answers:
            if isinstance(answer, _NoAnswer):
                denied: str | None = f"its hook did not answer: {answer.why}"
            else:
                denied = read_pre(answer).denied
            if denied is not None:
                self._show(annotation(f"`{name}` blocked by {hook.name}: {denied}", "tool_outcome"))
                return f"Hook denied: {denied}"
        return None

    async def after(
        self,
        call_id: str,
        name: str,
        arguments: Mapping[str, Any],
        result: Mapping[str, Any] | None,
        seconds: float,
        backgrounded: bool,
        /,
    ) -> Sequence[str]:
        """What hooks want the model to hear of a result."""
        hooks = self.hooks.for_event(Event.POST_TOOL_USE, name)
        if not hooks:
            return ()
        shown, short = cut(dict(result) if result is not None else None)
        payload = {
            **self._tool(call_id, name, arguments),
            "toolResult": shown,
            "toolResultTruncated": short,
            "durationMs": int(seconds * 1000),
            "isBackgrounded": backgrounded,
        }
        told: list[str] = []
        runs: list[dict[str, Any]] = []
        for hook, answer, elapsed in await self._ask(hooks, Event.POST_TOOL_USE, payload):
            if isinstance(answer, _NoAnswer):
                runs.append(_run(hook, elapsed, error=answer.why))
                continue
            read = read_post(answer)
            runs.append(_run(hook, elapsed, error=read.error))
            if read.context:
                told.append(_reminder(f"From hook '{hook.name}' after the tool:\n{read.context}"))
            if read.feedback:
                told.append(
                    _reminder(f"Objection of hook '{hook.name}' to what the tool did:\n{read.feedback}")
                )
        self._show(execution(Event.POST_TOOL_USE, runs, tool_name=name))
        return told

    def _tool(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        shown, short = cut(dict(arguments))
        return {"toolName": name, "toolUseId": call_id, "toolInput": shown, "toolInputTruncated": short}

    def denied(self, call_id: str, name: str, arguments: Mapping[str, Any], /) -> None:
        """Tell that a call was not permitted."""
        self.tell(Event.PERMISSION_DENIED, self._tool(call_id, name, arguments), "")

    # -- the end of a turn -----------------------------------------------------------------------
    async def stop(self, prompt_id: str, text: str, /) -> Sequence[str]:
        """What keeps the turn going; nothing lets it end."""
        hooks = self.hooks.for_event(Event.STOP)
        rounds = self._stops.get(prompt_id, 0)
        if not hooks or rounds >= SIZES.stop_rounds:
            self._stops.pop(prompt_id, None)
            if hooks:
                line = f"Stop hooks have kept this turn going {rounds} times, which is the limit: it ends now"
                self._show(annotation(line))
            return ()
        payload = {
            "promptId": prompt_id,
            "reason": "end_turn",
            "stopHookActive": rounds > 0,
            "lastAssistantMessage": text,
            "backgroundTasks": [],
            "sessionCrons": [],
        }
        answers = await self._ask(hooks, Event.STOP, payload)
        texts = self._stop_texts(answers, prompt_id)
        if texts:
            self._stops = {prompt_id: rounds + 1}  # one turn at a time: what an earlier one left is over
        else:
            self._stops.pop(prompt_id, None)
        return texts

    def _stop_texts(self, answers: Sequence[tuple[Hook, Any, int]], prompt_id: str) -> list[str]:
        runs: list[dict[str, Any]] = []
        lines: list[str] = []
        feedback: list[str] = []
        context: list[str] = []
        halted = False
        for hook, answer, elapsed in answers:
            if isinstance(answer, _NoAnswer):
                runs.append(_run(hook, elapsed, error=answer.why))
                continue
            read = read_stop(answer)
            if read.halt is not None:
                halted = True
                runs.append(_run(hook, elapsed, error=f"ended the turn: {read.halt}", blocked=True))
                lines.append(f"⚠ Hook `{hook.name}` ended the turn: {read.halt}")
                continue
            if read.feedback:
                feedback.append(read.feedback)
                runs.append(_run(hook, elapsed, error=f"kept the turn going: {read.feedback}", blocked=True))
                lines.append(f"↩ Hook `{hook.name}` keeps the turn going: {read.feedback}")
            else:
                runs.append(_run(hook, elapsed, error=read.error))
            if read.context:
                context.append(read.context)
                lines.append(f"↩ A stop hook has more to say: {read.context}")
        self._show(execution(Event.STOP, runs, prompt_id=prompt_id))
        for line in lines:
            self._show(annotation(line))
        if halted:
            return []
        joined = (
            ["The turn cannot end yet; hooks say:\n" + "".join(f"- {f}\n" for f in feedback)]
            if feedback
            else []
        )
        return joined + context

    # -- only told -------------------------------------------------------------------------------
    def tell(self, event: str, fields: Mapping[str, Any], prompt_id: str, /) -> None:
        """Send an event to the hooks that want it; an event that nobody knows goes to nobody."""
        known = next((e for e in Event if e.value == event), None)
        if known is None:
            return
        hooks = self.hooks.for_event(known, str(fields.get("toolName", "")))
        for hook in hooks:
            more = {"promptId": prompt_id} if prompt_id and "toolName" not in fields else {}
            self._notify(EVENT, self._payload(hook, known, {**more, **fields}))

    # -- asking ----------------------------------------------------------------------------------
    def _payload(self, hook: Hook, event: Event, fields: Mapping[str, Any], at: str = "") -> dict[str, Any]:
        return {
            "hookCallbackId": hook.callback,
            "hookEventName": event.value,
            "sessionId": self._session_id,
            "cwd": self._cwd,
            "workspaceRoot": self._root,
            "timestamp": at or self._now().isoformat(),
            **self._about(),
            **fields,
        }

    async def _ask(
        self, hooks: Sequence[Hook], event: Event, fields: Mapping[str, Any]
    ) -> list[tuple[Hook, Any, int]]:
        """(hook, its answer or a `_NoAnswer`, milliseconds) of each, in the order of registration."""
        at = self._now().isoformat()
        asked = [self._ask_one(hook, self._payload(hook, event, fields, at)) for hook in hooks]
        return list(await asyncio.gather(*asked))

    async def _ask_one(self, hook: Hook, payload: dict[str, Any]) -> tuple[Hook, Any, int]:
        started = time.monotonic()
        answer: Any
        try:
            async with asyncio.timeout(hook.seconds):
                answer = await self._client.request(RUN, payload)
        except TimeoutError:
            answer = _NoAnswer(f"nothing came within {hook.seconds:g} s")
        except Exception as error:
            answer = _NoAnswer(str(error) or type(error).__name__)
        return hook, answer, int((time.monotonic() - started) * 1000)


def _run(hook: Hook, elapsed: int, *, error: str = "", blocked: bool = False) -> dict[str, Any]:
    status: dict[str, Any] = {"status": "failed" if error else "success"}
    if error:
        status["error"] = error
    status["elapsed_ms"] = elapsed
    if blocked:
        status["blocked"] = True
    return {"name": hook.name, "status": status}


def _reminder(text: str) -> str:
    return f"<system-reminder>\n{text}\n</system-reminder>"
