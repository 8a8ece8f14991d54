"""Hooks that a client registered for a session: what they are, what they are told, what they answer.

A session's ``_meta["x.ai/hooks"]`` names callbacks for events.  Three events are *asked* and waited for
(before a tool, after it, at the end of a turn); the others are only told.  Everything here is pure;
`harness.hook_runner` asks and waits.

The original lets a tool run when its hook does not answer.  Here only an answer lets it run: silence, an
error, nonsense and an unknown decision deny.  For the same reason a registration before tools that cannot
be read fails the request that carries it, where the original skips it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from harness.limits import LIMITS, SIZES

__all__ = [
    "Event",
    "Hook",
    "HookError",
    "Hooks",
    "PostAnswer",
    "PreAnswer",
    "StopAnswer",
    "annotation",
    "cut",
    "execution",
    "parse_hooks",
    "read_post",
    "read_pre",
    "read_stop",
]


class HookError(ValueError):
    """A registration cannot be honoured; the text says which and why."""


class Event(StrEnum):
    SESSION_START = "session_start"
    USER_PROMPT_SUBMIT = "user_prompt_submit"
    PRE_TOOL_USE = "pre_tool_use"
    POST_TOOL_USE = "post_tool_use"
    POST_TOOL_USE_FAILURE = "post_tool_use_failure"
    PERMISSION_DENIED = "permission_denied"
    STOP = "stop"
    STOP_FAILURE = "stop_failure"
    STOP_CANCELLED = "stop_cancelled"
    NOTIFICATION = "notification"
    SUBAGENT_START = "subagent_start"
    SUBAGENT_STOP = "subagent_stop"
    PRE_COMPACT = "pre_compact"
    POST_COMPACT = "post_compact"
    SESSION_END = "session_end"


#: Events whose hooks are matched by the name of a tool.
_BY_TOOL = frozenset(
    {Event.PRE_TOOL_USE, Event.POST_TOOL_USE, Event.POST_TOOL_USE_FAILURE, Event.PERMISSION_DENIED}
)
_TIMES = {
    Event.PRE_TOOL_USE: LIMITS.hook_pre,
    Event.POST_TOOL_USE: LIMITS.hook_post,
    Event.STOP: LIMITS.hook_stop,
    Event.SUBAGENT_STOP: LIMITS.hook_stop,
}
#: Names under which other agents know our tools.
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "Bash": ("run_terminal_command",),
    "Read": ("read_file", "hashline_read"),
    "Edit": ("search_replace", "hashline_edit"),
    "MultiEdit": ("search_replace", "hashline_edit"),
    "Write": ("write",),
    "Grep": ("grep", "hashline_grep"),
    "Glob": ("glob", "list_dir"),
    "LS": ("list_dir",),
    "TodoWrite": ("todo_write",),
    "WebFetch": ("web_fetch",),
    "WebSearch": ("web_search",),
    "Task": ("spawn_subagent", "task"),
    "Agent": ("spawn_subagent", "task"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Hook:
    """One callback.  ``matcher`` is the pattern as given, ``seconds`` how long it may take."""

    callback: str
    matcher: str
    seconds: float

    @property
    def name(self) -> str:
        """How it is called in what a client is shown."""
        return f"client:{self.callback}"

    def matches(self, tool: str) -> bool:
        if self.matcher in ("", "*"):
            return True
        if re.fullmatch(r"[A-Za-z0-9_|]*", self.matcher):
            return any(tool == name or tool in _ALIASES.get(name, ()) for name in self.matcher.split("|"))
        pattern = re.compile(self.matcher)
        return any(pattern.search(name) for name in (tool, *_foreign_names(tool)))


def _foreign_names(tool: str) -> Iterable[str]:
    return (alias for alias, ours in _ALIASES.items() if tool in ours)


@dataclasses.dataclass(frozen=True)
class Hooks:
    """The hooks of a session, by event; ``notes``: what was skipped, for the log."""

    by_event: Mapping[Event, tuple[Hook, ...]] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def for_event(self, event: Event, tool: str = "") -> tuple[Hook, ...]:
        hooks = self.by_event.get(event, ())
        return tuple(h for h in hooks if event not in _BY_TOOL or h.matches(tool))


# -- registration ----------------------------------------------------------------------------------


def parse_hooks(value: object) -> Hooks:
    """The value of ``_meta["x.ai/hooks"]``.  Raises HookError for hooks before tools that are unreadable."""
    if value is None:
        return Hooks()
    if not isinstance(value, Mapping):
        raise HookError("x.ai/hooks must be an object of events")
    found: dict[Event, tuple[Hook, ...]] = {}
    notes: list[str] = []
    for key, groups in value.items():
        event = _event(str(key))
        if event is None:
            notes.append(f"x.ai/hooks: {key} is no event known here")
            continue
        try:
            found[event] = found.get(event, ()) + _groups(event, groups)
        except HookError as error:
            if event is Event.PRE_TOOL_USE:
                raise
            notes.append(str(error))
    return Hooks(found, tuple(notes))


def _event(name: str) -> Event | None:
    """The event of a name in snake, camel or Pascal case."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    snake = {"subagent_end": "subagent_stop"}.get(snake, snake)
    return next((event for event in Event if event.value == snake), None)


def _groups(event: Event, groups: object) -> tuple[Hook, ...]:
    if not isinstance(groups, Sequence) or isinstance(groups, str):
        raise HookError(f"x.ai/hooks: {event} must be a list of groups")
    return tuple(hook for group in groups for hook in _group(event, group))


def _group(event: Event, group: object) -> Iterable[Hook]:
    where = f"x.ai/hooks: a group of {event}"
    if not isinstance(group, Mapping):
        raise HookError(f"{where} must be an object")
    ids, matcher, seconds = group.get("hookCallbackIds"), group.get("matcher"), group.get("timeout")
    if (
        not isinstance(ids, Sequence)
        or isinstance(ids, str)
        or not all(isinstance(i, str) and i for i in ids)
    ):
        raise HookError(f"{where} needs a list of names as hookCallbackIds")
    if matcher is not None and not isinstance(matcher, str):
        raise HookError(f"{where} has a matcher that is no text")
    try:
        re.compile(matcher or "")
    except re.error as error:
        if matcher != "*":
            raise HookError(f"{where} has a matcher that is no pattern: {error}") from error
    return [Hook(callback, matcher or "", _seconds(event, seconds, where)) for callback in ids]


def _seconds(event: Event, value: object, where: str) -> float:
    if value is None:
        return _TIMES.get(event, LIMITS.hook_post)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise HookError(f"{where} has a timeout that is no positive number of seconds")
    return min(float(value), LIMITS.hook_longest)


# -- what a hook is told ---------------------------------------------------------------------------


def cut(value: Any) -> tuple[Any, bool]:
    """A value for a payload: itself, or the beginning of its text when it is too large."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= SIZES.hook_payload:
        return value, False
    return raw[: SIZES.hook_payload].decode("utf-8", "ignore"), True


# -- what a hook answers ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class PreAnswer:
    """``denied`` None lets the tool go on to the permissions; ``failed``: it was no answer at all."""

    denied: str | None = None
    failed: bool = False


_DENYING = ("deny", "block")
#: Words that say "go on" or nothing; any other word is not understood, and so denies.
_PASSING = ("allow", "approve", "continue", "proceed", "ask", "none", "")


def _text(answer: Mapping[str, Any], *keys: str) -> str:
    return next((v for k in keys if isinstance(v := answer.get(k), str) and v.strip()), "")


def read_pre(answer: object) -> PreAnswer:
    """An answer before a tool.  ``{}`` and null are answers: the client has looked and says nothing."""
    if answer is None:
        return PreAnswer()
    if not isinstance(answer, Mapping):
        return PreAnswer("its hook gave no readable answer", failed=True)
    decision = answer.get("decision")
    if decision in _DENYING:
        return PreAnswer(_text(answer, "reason", "systemMessage") or "a hook of the client blocks it")
    if decision is None or (isinstance(decision, str) and decision.lower() in _PASSING):
        return PreAnswer()
    return PreAnswer("its hook gave a decision that is not known", failed=True)


@dataclasses.dataclass(frozen=True, slots=True)
class PostAnswer:
    """``context`` and ``feedback`` are told to the model; ``error``: there was no readable answer."""

    context: str = ""
    feedback: str = ""
    error: str = ""


def read_post(answer: object) -> PostAnswer:
    if answer is None:
        return PostAnswer()
    if not isinstance(answer, Mapping):
        return PostAnswer(error="the answer is no object")
    feedback = _text(answer, "reason", "systemMessage") if answer.get("decision") in _DENYING else ""
    return PostAnswer(_text(answer, "additionalContext"), feedback)


@dataclasses.dataclass(frozen=True, slots=True)
class StopAnswer:
    """``feedback`` or ``context`` keep the turn going, ``halt`` ends it whatever other hooks say."""

    feedback: str = ""
    context: str = ""
    halt: str | None = None
    error: str = ""


def read_stop(answer: object) -> StopAnswer:
    if answer is None:
        return StopAnswer()
    if not isinstance(answer, Mapping):
        return StopAnswer(error="the answer is no object")
    if answer.get("continue") is False:
        return StopAnswer(halt=_text(answer, "stopReason", "reason") or "a hook stopped the agent")
    feedback = ""
    if answer.get("decision") in _DENYING:
        feedback = _text(answer, "reason", "systemMessage") or "a hook wants the work to go on"
    return StopAnswer(feedback, _text(answer, "additionalContext"))


# -- what a client is shown ------------------------------------------------------------------------


def execution(event: Event, runs: Sequence[Mapping[str, Any]], **about: str) -> dict[str, Any]:
    """The update that tells how hooks went; ``about``: ``tool_name`` or ``prompt_id``."""
    return {"sessionUpdate": "hook_execution", "event_name": event.value, **about, "runs": list(runs)}


def annotation(message: str, kind: str = "") -> dict[str, Any]:
    """The update with a line for people."""
    return {"sessionUpdate": "hook_annotation", "message": message, **({"kind": kind} if kind else {})}
