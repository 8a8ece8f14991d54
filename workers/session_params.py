"""Parameters of session/new, session/load and session/resume as the engine gets them.

Grok skips a hook that it does not understand, without a word: the client would believe in a gate that
is not there, and tools would run unasked.  So hooks are read strictly here, and refused where Grok's
reading could differ; what is accepted was seen to be asked on grok 1.0.41.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import INVALID_PARAMS, BadMessage
from gateway.wire.limits import LIMITS, SIZES, Limits

__all__ = ["hook_timeout", "identified", "registered_timeout", "session_params"]

_HOOKS = "x.ai/hooks"
_HOOK_EVENTS = (
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PermissionDenied",
    "Stop",
    "StopFailure",
    "StopCancelled",
    "Notification",
    "SubagentStart",
    "SubagentStop",
    "SubagentEnd",
    "PreCompact",
    "PostCompact",
    "SessionEnd",
)


def _spellings(event: str) -> tuple[str, str, str]:
    return event, event[0].lower() + event[1:], re.sub(r"(?<!^)(?=[A-Z])", "_", event).lower()


#: Grok takes these three spellings and no other.
_HOOK_NAMES = {name: event for event in _HOOK_EVENTS for name in _spellings(event)}


#: Matchers that Grok's regular expressions and ours read alike.  One that Grok cannot compile
#: (look-around, flags, counted repetition without end) makes the hook vanish without a word.
_MATCHER = re.compile(
    r"(?:[A-Za-z0-9_ :/|^$.*+?)-]|\((?!\?)|\(\?:|\\[dwsDWS.*+?()|^$\\-]|\[\^?(?:[A-Za-z0-9_ ]|-(?!-))+\])*"
)


def hook_timeout(event: str, timeout: Any = None, limits: Limits = LIMITS) -> int:
    """Whole seconds to register a hook with.

    ``pre_tool_use`` gets the table's value whatever the client asked: when it passes, the tool runs.
    Others keep the client's, up to the same bound; without a usable one they get the bound.
    """
    bound = max(1, math.ceil(limits.pre_hook_registered))
    if (
        _HOOK_NAMES.get(event) == "PreToolUse"
        or isinstance(timeout, bool)
        or not isinstance(timeout, (int, float))
    ):
        return bound
    return min(bound, max(1, math.ceil(timeout))) if math.isfinite(timeout) and timeout > 0 else bound


def registered_timeout(meta: Mapping[str, Any], event: Any, callback: Any, limits: Limits = LIMITS) -> float:
    """Seconds after which Grok gives up on a hook: the shortest that its callback was registered with.

    ``meta`` is that of the session as the engine got it.  A hook that is not found there (a subagent's
    under another name, say) counts as registered with what `hook_timeout` gives its event.
    """
    wanted = _HOOK_NAMES.get(str(event))
    hooks = meta.get(_HOOKS)
    found = [
        group["timeout"]
        for name, groups in (hooks.items() if isinstance(hooks, dict) else ())
        if _HOOK_NAMES.get(name) == wanted
        for group in groups
        if callback in group["hookCallbackIds"]
    ]
    return float(min(found, default=hook_timeout(str(event), limits=limits)))


def session_params(raw: bytes, client_identifier: str, limits: Limits = LIMITS) -> bytes:
    """The parameters as the engine gets them: ours set, every other byte as the client wrote it.

    Raises BadMessage (-32602) when ``_meta`` or the hooks in it are malformed.
    """
    meta_raw = b"{}"
    meta = jsonrpc.members(raw).get("_meta")
    if meta is not None and meta.value is not None:
        if not isinstance(meta.value, dict):
            raise BadMessage(INVALID_PARAMS, "_meta must be an object")
        meta_raw = raw[meta.start : meta.end]
    hooks = jsonrpc.members(meta_raw).get(_HOOKS)
    if hooks is not None:
        registered = jsonrpc.dump(_with_timeouts(hooks.value, limits))
        meta_raw = jsonrpc.splice(meta_raw, [(hooks.start, hooks.end, registered)])
    meta_raw = jsonrpc.set_member(meta_raw, "clientIdentifier", jsonrpc.dump(client_identifier))
    return jsonrpc.set_member(raw, "_meta", meta_raw)


def identified(params_raw: bytes, client_identifier: str) -> bytes:
    """Parameters that have a ``_meta``, with our ``clientIdentifier`` in it."""
    meta = jsonrpc.members(params_raw)["_meta"]
    meta_raw = params_raw[meta.start : meta.end]
    meta_raw = jsonrpc.set_member(meta_raw, "clientIdentifier", jsonrpc.dump(client_identifier))
    return jsonrpc.splice(params_raw, [(meta.start, meta.end, meta_raw)])


def _with_timeouts(hooks: Any, limits: Limits) -> dict[str, Any]:
    if not isinstance(hooks, dict):
        raise BadMessage(INVALID_PARAMS, f"{_HOOKS} must be an object")
    result = dict[str, Any]()
    for event, groups in hooks.items():
        if event not in _HOOK_NAMES:
            raise BadMessage(INVALID_PARAMS, f"{_HOOKS}: {jsonrpc.shown(event)} is no hook event")
        if not isinstance(groups, list) or not all(map(_is_group, groups)):
            raise BadMessage(
                INVALID_PARAMS,
                f"{_HOOKS}: {event} must list objects with hookCallbackIds (strings) and perhaps matcher "
                "(names and | or a plain regular expression: no look-around, flags or counts)",
            )
        result[event] = [g | {"timeout": hook_timeout(event, g.get("timeout"), limits)} for g in groups]
    return result


def _is_group(group: Any) -> bool:
    if not isinstance(group, dict) or not _is_matcher(group.get("matcher")):
        return False
    ids = group.get("hookCallbackIds")
    return isinstance(ids, list) and bool(ids) and all(isinstance(one, str) and one for one in ids)


def _is_matcher(matcher: Any) -> bool:
    if matcher in (None, "", "*"):
        return True
    if not isinstance(matcher, str) or len(matcher) > SIZES.matcher or not _MATCHER.fullmatch(matcher):
        return False
    try:
        re.compile(matcher)
    except re.error:
        return False
    return True
