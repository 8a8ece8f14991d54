"""What the engine asks, and the answers that allow nothing.

Grok fails open: it runs the tool of a hook that nobody answers, or that is answered with anything it does
not understand, and waits for ever on a permission.  So whoever stands in for a client that is gone answers
with these.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from gateway.wire.acp import HOOK, PERMISSION, PLAN_APPROVAL, QUESTION
from gateway.wire.jsonrpc import METHOD_NOT_FOUND, dump, error_bytes, result_bytes

__all__ = ["GateKind", "closed_answer", "gate_kind", "is_pre_hook"]


class GateKind(enum.Enum):
    PRE_HOOK = "pre_hook"  #: lets a tool run
    HOOK = "hook"  #: any other hook: its answer only adds to what has happened
    PERMISSION = "permission"
    QUESTION = "question"
    PLAN = "plan"
    OTHER = "other"  #: a request that we know nothing about: the client's to answer


_METHODS = {
    HOOK: GateKind.HOOK,
    PERMISSION: GateKind.PERMISSION,
    QUESTION: GateKind.QUESTION,
    PLAN_APPROVAL: GateKind.PLAN,
}


def is_pre_hook(event: str) -> bool:
    """Whether a hook event (in any of Grok's spellings) lets a tool run."""
    return event.replace("_", "").lower() == "pretooluse"


def gate_kind(method: str, params: Mapping[str, Any]) -> GateKind:
    """What kind of gate a reverse request opens."""
    kind = _METHODS.get(method, GateKind.OTHER)
    if kind is GateKind.HOOK and is_pre_hook(str(params.get("hookEventName"))):
        return GateKind.PRE_HOOK
    return kind


def closed_answer(
    id_raw: bytes, kind: GateKind, params: Mapping[str, Any], why: str, *, cancelled: bool = False
) -> bytes:
    """The engine's line that settles a gate without the client."""
    if kind is GateKind.OTHER:
        return error_bytes(id_raw, METHOD_NOT_FOUND, f"Method not found: {why}")
    return result_bytes(id_raw, dump(_closed_result(kind, params, why, cancelled=cancelled)))


def _closed_result(kind: GateKind, params: Mapping[str, Any], why: str, *, cancelled: bool = False) -> Any:
    """The result that allows nothing (not of OTHER).  ``cancelled``: the turn is being cancelled anyway.

    A permission is rejected once, never for good: what the person would have said is not known.
    """
    if kind is GateKind.PRE_HOOK:
        return {"decision": "deny", "reason": f"Denied by the gateway: {why}."}
    if kind is GateKind.HOOK:
        return {"decision": "continue"}
    if kind is GateKind.PERMISSION and not cancelled:
        options = params.get("options")
        for option in options if isinstance(options, list) else ():
            if isinstance(option, dict) and option.get("kind") == "reject_once":
                return {"outcome": {"outcome": "selected", "optionId": option.get("optionId")}}
    if kind is GateKind.PERMISSION:
        return {"outcome": {"outcome": "cancelled"}}
    return {"outcome": "cancelled"}
