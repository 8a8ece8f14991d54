"""What the end of a turn is called: for the client that asked, for those that watch, for the next turn."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from harness.limits import SIZES
from harness.model.errors import Failure, ModelError
from harness.session.conversation import Interruption, reminder
from harness.session.usage import TurnUsage

if TYPE_CHECKING:
    from harness.session.turn import End, Turn

__all__ = [
    "PromptResult",
    "answer",
    "error_fields",
    "hook_event",
    "interruption",
    "meta",
    "mode_notice",
    "removed",
    "retry_state",
    "title",
    "too_many",
]

_INTERNAL_ERROR = -32603
_RATE_LIMITED = -32003


@dataclasses.dataclass(frozen=True, slots=True)
class PromptResult:
    """What a prompt is answered with: a result, or code, message and data of an error."""

    result: Mapping[str, Any] | None = None
    error: tuple[int, str, Any] | None = None


def answer(
    session_id: str,
    prompt_id: str,
    end: End,
    usage: TurnUsage,
    latest: TurnUsage,
    context: int,
    model: str,
    *,
    command: bool = False,
) -> PromptResult:
    """``usage`` is the turn's, ``latest`` holds the session's last model call, ``context`` its tokens.

    ``command``: the model was not in it, and no tokens are told.
    """
    if end.error is not None:
        return PromptResult(error=_error(end.error, usage))
    fields: dict[str, Any] = {
        "sessionId": session_id,
        "requestId": prompt_id,
        "promptId": prompt_id,
        "totalTokens": 0 if command else latest.last.total if latest.last else context,
        "modelId": latest.model or model,
    }
    if latest.last is not None:
        fields |= {
            "inputTokens": latest.last.input,
            "outputTokens": latest.last.output,
            "cachedReadTokens": latest.last.cached,
            "reasoningTokens": latest.last.reasoning,
        }
    if usage.calls:
        fields["usage"] = usage.report()
    return PromptResult({"stopReason": end.reason, "_meta": {**fields, **meta(end)}})


def too_many() -> PromptResult:
    """The answer to a prompt for which the queue has no place."""
    return PromptResult(error=(_INTERNAL_ERROR, "Internal error", "too many prompts wait in this session"))


def removed(session_id: str, prompt_id: str, model: str) -> PromptResult:
    """The answer to a prompt that was taken out of the queue."""
    fields = {
        "sessionId": session_id,
        "requestId": prompt_id,
        "promptId": prompt_id,
        "totalTokens": 0,
        "modelId": model,
        "completionKind": "removedFromQueue",
    }
    return PromptResult({"stopReason": "cancelled", "_meta": fields})


def _error(error: ModelError, usage: TurnUsage) -> tuple[int, str, Any]:
    if error.kind is Failure.RATE_LIMITED:
        return _RATE_LIMITED, "Rate limited", error.message
    if error.kind is Failure.AUTH:
        return _INTERNAL_ERROR, "Internal error", error.message
    data: dict[str, Any] = {"message": error.message}
    if error.status is not None:
        data["http_status"] = error.status
    if error.kind is Failure.TRUNCATED:
        data["error_kind"] = str(error.kind)
    if error.kind is Failure.COMPACTION:
        data["kind"] = str(error.kind)
    if usage.calls:
        data["promptUsage"] = usage.report()
    return _INTERNAL_ERROR, "Internal error", data


def meta(end: End, *, context: bool = True) -> dict[str, Any]:
    """Why a turn was cancelled; nothing for any other end."""
    if not end.category:
        return {}
    found: dict[str, Any] = {"cancelTrigger": end.trigger} if end.trigger else {}
    found["cancellationCategory"] = end.category
    if not context:
        return found
    if end.tool:
        found["cancellationContext"] = {"tool_name": end.tool, "reason": end.detail}
    elif end.trigger:
        found["cancellationContext"] = {"trigger": end.trigger}
    return found


def error_fields(end: End, result: str, kind: str) -> dict[str, str]:
    """What went wrong, under the names that the message at hand uses for it."""
    if end.error is None or end.error.kind is Failure.RATE_LIMITED:
        return {}
    more = {kind: str(end.error.kind)} if end.error.kind is Failure.TRUNCATED else {}
    return {result: end.error.message, **more}


def hook_event(end: End) -> tuple[str, dict[str, Any]] | None:
    """What hooks are told of an end that they cannot change."""
    if end.error is not None:
        return "stop_failure", {"error": str(end.error.kind), "errorDetails": end.error.message}
    if end.reason == "cancelled":
        if end.category == "MidTurnAbort":
            return "stop_cancelled", {"reason": "user_interrupt", "cancelledBy": "user"}
        fields = {"reason": "permission_rejected", "cancelledBy": "user"}
        return "stop_cancelled", {**fields, "reasonDetails": f"{end.tool}: {end.detail}"}
    return None


def retry_state(error: ModelError) -> dict[str, Any]:
    """The last word about tries."""
    if error.transient:
        limited = error.kind is Failure.RATE_LIMITED
        return {
            "type": "exhausted",
            "attempts": error.attempts,
            "reason": error.message,
            "is_rate_limited": limited,
        }
    return {"type": "failed", "error_type": str(error.kind), "message": error.message}


def interruption(end: End, turn: Turn) -> str:
    """How the next prompt is introduced to the model after a turn that was stopped at work."""
    if end.trigger == "send_now":
        return Interruption.WHILE_WORKING
    return Interruption.AFTER_CANCEL if turn.stopped_in_tools else ""


def mode_notice(mode: str, plan_file: str) -> str:
    """What the model is told of a mode that the user chose."""
    if mode != "plan":
        return reminder("The user has left plan mode: you may change things again.")
    return reminder(
        "The user has switched to plan mode: look around and write a plan, change nothing else. "
        f"The plan goes into {plan_file}; show it to the user when it is written."
    )


def title(text: str) -> str:
    """A session's first title: the first words of its first prompt."""
    return " ".join(text.split()[: SIZES.title_words])[: SIZES.title]
