"""One turn of Grok as one assistant message of Pi.

Sans-I/O.  `Turn.update` takes the engine's updates and gives events for Pi; `Turn.end` says how it ended.
A turn is made only of what the engine has said, so that another worker which reads the same lines has the
same turn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from workers.pi.blocks import Blocks, Event
from workers.pi.tool_activity import ToolActivity
from workers.pi.usage import Usage
from workers.pi.wording import engine_failure

__all__ = ["End", "Turn"]


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """How a turn ended, in Pi's words; ``raw`` in the engine's."""

    stop: str
    raw: str = ""
    error: str = ""


@dataclasses.dataclass(slots=True, eq=False)
class Turn:
    """``prompt_id`` is Grok's name of it."""

    prompt_id: str
    blocks: Blocks = dataclasses.field(default_factory=Blocks)
    tools: ToolActivity = dataclasses.field(default_factory=ToolActivity)
    usage: Usage = dataclasses.field(default_factory=Usage)
    end: End | None = None
    aborted: bool = False  #: Pi has aborted it
    reported: str = ""  #: the stop reason that a notification told
    category: str = ""  #: of a cancelled turn, in the engine's words
    subagents: dict[str, str] = dataclasses.field(default_factory=dict)  #: label by session id

    def update(
        self, session: str, own: str, update: Mapping[str, Any], meta: Mapping[str, Any]
    ) -> list[Event]:
        """An update of ``session``; ``own`` is the turn's own session, any other one a subagent's."""
        if self.end is not None:
            return []
        if session != own:
            return self._of_subagent(session, update)
        self.usage.update(meta)
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                return self.blocks.model("text", _text(update), meta.get("streamStartMs"))
            case "agent_thought_chunk":
                return self.blocks.model("thinking", _text(update), meta.get("streamStartMs"))
            case "tool_call" | "tool_call_update":
                return self._note(self.tools.update(update))
            case "response_completed":
                self.usage.call_ended(update)
            case "retry_state" if update.get("type") == "retrying":
                self.blocks.broken()
            case "turn_completed":
                self.usage.turn_ended(update)
                self.reported = str(update.get("stop_reason"))
                self.category = str(meta.get("cancellationCategory") or "")
            case "subagent_spawned":
                return self._spawned(update)
            case "subagent_finished":
                return self._finished(update)
            case "auto_compact_completed":
                return self._note("[grok] has compacted its history\n")
        return []

    def answered(self, result: Mapping[str, Any]) -> list[Event]:
        """The prompt's answer."""
        meta = result.get("_meta")
        meta = meta if isinstance(meta, dict) else {}
        self.usage.answered(meta)
        category = str(meta.get("cancellationCategory") or self.category)
        return self._finish(ending(str(result.get("stopReason")), self.aborted, category))

    def completed(self) -> list[Event]:
        """It ended as it was reported, and no answer will come."""
        if self.reported in _STOP_REASONS:
            return self._finish(ending(self.reported, self.aborted, self.category))
        return self._finish(End("error", self.reported, "Grok has told only that the turn ended."))

    def failed(self, error: Mapping[str, Any]) -> list[Event]:
        """The prompt was answered with an error."""
        data = error.get("data")
        if isinstance(data, dict) and data.get("error_kind") == "max_tokens_truncation":
            return self._finish(End("length", "max_tokens"))
        return self._finish(End("aborted") if self.aborted else End("error", error=engine_failure(error)))

    def stopped(self, end: End) -> list[Event]:
        """It ends for a reason of ours."""
        return self._finish(end)

    def _finish(self, end: End) -> list[Event]:
        if self.end is not None:
            return []
        self.end = end
        self.blocks.call_ended()
        self.tools.end_all()
        return self.blocks.close()

    def _note(self, text: str) -> list[Event]:
        return self.blocks.note(text) if text else []

    # -- subagents -----------------------------------------------------------------------------

    def _spawned(self, update: Mapping[str, Any]) -> list[Event]:
        child = str(update.get("child_session_id") or "")
        label = str(update.get("description") or update.get("subagent_type") or "subagent")
        self.subagents[child] = label
        return self._note(f"[grok subagent] {label}\n")

    def _finished(self, update: Mapping[str, Any]) -> list[Event]:
        label = self.subagents.pop(str(update.get("child_session_id") or ""), "subagent")
        return self._note(f"[grok subagent {update.get('status') or 'finished'}] {label}\n")

    def _of_subagent(self, session: str, update: Mapping[str, Any]) -> list[Event]:
        label = self.subagents.get(session)
        if label is None or update.get("sessionUpdate") not in ("tool_call", "tool_call_update"):
            return []  # its words are told by its result
        return self._note(self.tools.update(update, subagent=label))


#: Of ACP; Grok also reports "error".
_STOP_REASONS = ("cancelled", "end_turn", "max_tokens", "max_turn_requests", "refusal")


_NOT_BY_PI = (
    "The gateway has ended this turn: the way to Grok was lost while a tool waited to be allowed, so it did "
    "not run. Send a message to go on."
)


def ending(stop_reason: str, aborted: bool, category: str = "") -> End:
    """The end of a turn from the engine's stop reason.

    Grok also says "cancelled" when a person has rejected a permission; only what Pi has aborted is
    aborted.  A turn that was cancelled from outside (``category``), but not by Pi, is an error.
    """
    if aborted:
        return End("aborted", stop_reason)
    if stop_reason == "cancelled" and category == "MidTurnAbort":
        return End("error", stop_reason, _NOT_BY_PI)
    return End("length" if stop_reason == "max_tokens" else "stop", stop_reason)


def _text(update: Mapping[str, Any]) -> str:
    content = update.get("content")
    text = content.get("text") if isinstance(content, dict) and content.get("type") == "text" else None
    return text if isinstance(text, str) else ""
