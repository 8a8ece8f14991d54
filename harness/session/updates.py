"""What clients are told of a session: the notifications of its turns, in their exact shapes.

Every method makes one `Update`; the session's counters (events, chunks of a model call, tokens) and clocks
are kept here, so that whoever drives a turn says only what happened.  Some kinds carry no ``_meta`` or a
shorter one: that is how clients of this protocol know them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from harness.model.openai import CallPart, Usage
from harness.model.retry import Trying
from harness.session.presentation import CallView, ResultView
from harness.session.usage import TurnUsage

__all__ = ["SESSION_NOTIFICATION", "SESSION_UPDATE", "Update", "Updates"]

SESSION_UPDATE = "session/update"
SESSION_NOTIFICATION = "_x.ai/session_notification"


@dataclasses.dataclass(frozen=True, slots=True)
class Update:
    """One notification.  ``event`` numbers those that belong to the session's history, else None."""

    method: str
    params: Mapping[str, Any]
    event: int | None = None


class Updates:
    """Makes the updates of one session."""

    def __init__(self, session_id: str, clock: Callable[[], float] = time.time, *, first: int = 0) -> None:
        """``first`` is the number of the first event."""
        self._id = session_id
        self._clock = clock
        self._events = first
        self._chunks = 0
        self._prompt_id = ""
        self._stream_start = 0
        self._turn_start = 0
        self.total_tokens = 0

    # -- turns ---------------------------------------------------------------------------------------
    def turn_started(self, prompt_id: str) -> None:
        self._prompt_id = prompt_id
        self._turn_start = self._stream_start = self._now()

    def stream_started(self) -> None:
        """A model call begins."""
        self._chunks = 0
        self._stream_start = self._now()

    def elapsed_ms(self) -> int:
        """Of the turn."""
        return self._now() - self._turn_start

    @property
    def next_event(self) -> int:
        return self._events

    # -- the user, whom only the history quotes -------------------------------------------------------
    def user_message(self, text: str, model: str, index: int, *, hidden: bool) -> Update:
        """The text that turn ``index`` begins with; ``hidden``: no user wrote it."""
        meta: dict[str, Any] = {"modelId": model, "promptIndex": index}
        if hidden:
            meta["hideFromScrollback"] = True
        return self._user_message({"type": "text", "text": text}, meta)

    def host_prompt(self, text: str) -> Update:
        """A command to the engine, which the model does not see."""
        return self._user_message({"type": "text", "text": text}, {"hostTurn": True})

    def interjected(self, text: str, shown: str, model: str) -> Update:
        """What the user said meanwhile, as the model got it and as it was typed."""
        content = {"type": "text", "text": text, "_meta": {"displayText": shown}}
        return self._user_message(content, {"modelId": model, "interjection": True})

    def _user_message(self, content: Mapping[str, Any], meta: Mapping[str, Any]) -> Update:
        update = {"sessionUpdate": "user_message_chunk", "content": content, "_meta": meta}
        return self._numbered(SESSION_UPDATE, update)

    # -- the answer ----------------------------------------------------------------------------------
    def message(self, text: str) -> Update:
        return self._chunk("agent_message_chunk", "AgentMessageChunk", text)

    def host_message(self, text: str) -> Update:
        """Text of the engine's own, which belongs to no answer of a model."""
        told = self._chunk("agent_message_chunk", "AgentMessageChunk", text)
        told.params["update"]["_meta"] = {"hostTurn": True}
        del told.params["_meta"]["chunkId"]
        return told

    def thought(self, text: str) -> Update:
        return self._chunk("agent_thought_chunk", "AgentThoughtChunk", text)

    def call_delta(self, part: CallPart) -> Update:
        fields: dict[str, Any] = {"tool_call_id": part.id} if part.id is not None else {}
        fields["tool_index"] = part.index
        if part.name is not None:
            fields["name"] = part.name
        fields["arguments_delta"] = part.arguments
        return self.notification("tool_call_delta_chunk", fields)

    def response_completed(self, usage: Usage) -> Update:
        tokens = {
            "input_tokens": usage.input - usage.cached,
            "output_tokens": usage.output,
            "cache_read_input_tokens": usage.cached,
            "cache_creation_input_tokens": 0,
            "reasoning_tokens": usage.reasoning,
        }
        return self.notification("response_completed", {"usage": tokens})

    def retrying(self, trying: Trying) -> Update:
        fields = {
            "type": "retrying",
            "attempt": trying.attempt,
            "max_retries": trying.most,
            "reason": trying.error.message,
            "error_type": str(trying.error.kind),
        }
        return self.notification("retry_state", fields, meta=True)

    def retry_ended(self, fields: Mapping[str, Any]) -> Update:
        return self.notification("retry_state", fields, meta=True)

    # -- calls ---------------------------------------------------------------------------------------
    def tool_call(self, call_id: str, name: str, raw: Mapping[str, Any] | None, card: Any) -> Update:
        update: dict[str, Any] = {"toolCallId": call_id, "title": name}
        if raw is not None:
            update["rawInput"] = dict(raw)
        if card is not None:
            update["_meta"] = {"x.ai/tool": card}
        params = {"toolCallId": call_id, "title": name, "kind": "Other", "status": "Pending"}
        return self._update("tool_call", update, "ToolCall", params)

    def tool_call_refined(self, call_id: str, view: CallView, raw: Mapping[str, Any], card: Any) -> Update:
        update: dict[str, Any] = {"toolCallId": call_id, "kind": view.kind, "title": view.title}
        if view.content is not None:
            update["content"] = list(view.content)
        update |= {"locations": view.locations, "rawInput": dict(raw), "_meta": {"x.ai/tool": card}}
        return self._call_update(update, None)

    def tool_call_progress(self, call_id: str, content: Any, raw_output: Mapping[str, Any]) -> Update:
        update = {"toolCallId": call_id, "status": "in_progress", "content": content, "rawOutput": raw_output}
        return self.bare("tool_call_update", update)

    def tool_call_ended(
        self, call_id: str, view: ResultView, raw_output: Mapping[str, Any] | None = None
    ) -> Update:
        update: dict[str, Any] = {"toolCallId": call_id, "status": "failed" if view.failed else "completed"}
        if view.title is not None:
            update["title"] = view.title
        if view.content is not None:
            update["content"] = list(view.content)
        if raw_output is not None:
            update["rawOutput"] = dict(raw_output)
        return self._call_update(update, "Failed" if view.failed else "Completed")

    def pending(self, call_id: str, kind: str) -> Update:
        return self.notification("pending_interaction", {"tool_call_id": call_id, "kind": kind})

    def resolved(self, call_id: str) -> Update:
        return self.notification("interaction_resolved", {"tool_call_id": call_id})

    def plan(self, entries: Sequence[Mapping[str, Any]], *, at_end: bool = False) -> Update:
        update = {"entries": [dict(entry) for entry in entries]}
        if at_end:  # a turn that is over leaves no step under way
            return self.bare("plan", update)
        return self._update("plan", update, "Plan", {"planSteps": len(entries)})

    # -- the session ---------------------------------------------------------------------------------
    def commands(self, commands: Sequence[Mapping[str, Any]], tools: Iterable[str]) -> Update:
        update = {"availableCommands": list(commands), "_meta": {"tools": list(tools)}}
        params = {"commandsCount": len(commands)}
        return self._update("available_commands_update", update, "AvailableCommandsUpdate", params)

    def mode(self, mode: str) -> Update:
        update = {"sessionUpdate": "current_mode_update", "currentModeId": mode}
        return self._numbered(SESSION_UPDATE, update)

    def model_changed(self, model_id: str, effort: str | None) -> Update:
        fields: dict[str, Any] = {"model_id": model_id}
        return self.notification("model_changed", fields | ({"reasoning_effort": effort} if effort else {}))

    def config_options(self, options: Sequence[Mapping[str, Any]]) -> Update:
        return self.bare("config_option_update", {"configOptions": list(options)})

    def title(self, title: str, *, manual: bool = False) -> tuple[Update, Update]:
        meta = {"_meta": {"x.ai/titleIsManual": True}} if manual else {}
        told = {"sessionUpdate": "session_summary_generated", "session_summary": title}
        info = {"sessionUpdate": "session_info_update", "title": title}
        return (
            Update(SESSION_NOTIFICATION, {"sessionId": self._id, "update": told, **meta}),
            Update(SESSION_UPDATE, {"sessionId": self._id, "update": info, **meta}),
        )

    def turn_completed(
        self,
        prompt_id: str,
        reason: str,
        usage: TurnUsage,
        end_meta: Mapping[str, Any],
        error: Mapping[str, str],
    ) -> Update:
        update: dict[str, Any] = {
            "sessionUpdate": "turn_completed",
            "prompt_id": prompt_id,
            "stop_reason": reason,
            **error,
        }
        if usage.calls and not error:
            update["usage"] = usage.report()
        update["elapsed_ms"] = self.elapsed_ms()
        return self._numbered(SESSION_NOTIFICATION, update, end_meta)

    def prompt_complete(self, prompt_id: str, reason: str, more: Mapping[str, Any]) -> Update:
        fields = {"sessionId": self._id, "promptId": prompt_id, "stopReason": reason, "agentResult": None}
        return Update("_x.ai/session/prompt_complete", {**fields, **more})

    def queue(self, entries: Sequence[Mapping[str, Any]], running: Mapping[str, Any] | None) -> Update:
        params: dict[str, Any] = {"sessionId": self._id, "entries": list(entries)}
        return Update("_x.ai/queue/changed", params | dict(running or {}))

    def interjection(self, text: str, interjection_id: str | None) -> Update:
        params = {"sessionId": self._id, "text": text}
        if interjection_id is not None:
            params["interjectionId"] = interjection_id
        return Update("_x.ai/session/interjection", params)

    # -- shapes --------------------------------------------------------------------------------------
    def notification(self, kind: str, fields: Mapping[str, Any], *, meta: bool = False) -> Update:
        """A vendor update; with ``meta`` it belongs to the history."""
        update = {"sessionUpdate": kind, **fields}
        if meta:
            return self._numbered(SESSION_NOTIFICATION, update)
        return Update(SESSION_NOTIFICATION, {"sessionId": self._id, "update": update})

    def own_method(self, method: str, kind: str, fields: Mapping[str, Any], *, meta: bool = True) -> Update:
        """A vendor update that has a method of its own (tasks, monitors)."""
        update = {"sessionUpdate": kind, **fields}
        if meta:
            return self._numbered(method, update)
        return Update(method, {"sessionId": self._id, "update": update})

    def bare(self, kind: str, fields: Mapping[str, Any]) -> Update:
        """An update without ``_meta``: it passes and is not kept."""
        return Update(SESSION_UPDATE, {"sessionId": self._id, "update": {"sessionUpdate": kind, **fields}})

    def _now(self) -> int:
        return int(self._clock() * 1000)

    def _numbered(
        self, method: str, update: Mapping[str, Any], more: Mapping[str, Any] | None = None
    ) -> Update:
        number = self._next()
        meta = {"eventId": f"{self._id}-{number}", "agentTimestampMs": self._now(), **(more or {})}
        return Update(method, {"sessionId": self._id, "update": update, "_meta": meta}, number)

    def _next(self) -> int:
        number, self._events = self._events, self._events + 1
        return number

    def _chunk(self, kind: str, update_type: str, text: str) -> Update:
        self._chunks += 1
        content = {"content": {"type": "text", "text": text}}
        return self._update(kind, content, update_type, None, {"chunkId": self._chunks})

    def _call_update(self, update: Mapping[str, Any], status: str | None) -> Update:
        params = {"toolCallId": update["toolCallId"], "status": status}
        return self._update("tool_call_update", update, "ToolCallUpdate", params)

    def _update(
        self,
        kind: str,
        fields: Mapping[str, Any],
        update_type: str,
        params: Mapping[str, Any] | None,
        more: Mapping[str, Any] | None = None,
    ) -> Update:
        number = self._next()
        meta: dict[str, Any] = {
            "totalTokens": self.total_tokens,
            "eventId": f"{self._id}-{number}",
            "agentTimestampMs": self._now(),
        }
        if self._prompt_id:
            meta |= {
                "promptId": self._prompt_id,
                "streamStartMs": self._stream_start,
                "turnStartMs": self._turn_start,
            }
        meta["updateType"] = update_type
        if params is not None:
            meta["updateParams"] = params
        update = {"sessionUpdate": kind, **fields}
        return Update(
            SESSION_UPDATE,
            {"sessionId": self._id, "update": update, "_meta": {**meta, **(more or {})}},
            number,
        )
