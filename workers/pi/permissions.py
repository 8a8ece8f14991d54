"""Answers to Grok's own permission prompts, by a rule or through one dialog.

Sans-I/O.  A plain rejection ends the whole turn: that is what a person means who says no.  A rule that says
no rejects with a message instead, and the model goes on.  What would allow for good (``allow_always``)
is only ever chosen by a person.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from workers.pi.capabilities import Kind, Tool, classify

__all__ = [
    "CANCELLED",
    "dialog_of",
    "headless",
    "tool_of",
    "with_kind",
]

#: The dialog was dismissed: the turn ends.
CANCELLED: Mapping[str, Any] = {"outcome": {"outcome": "cancelled"}}

#: Characters of a call's input in a dialog.
INPUT = 4000


def tool_of(params: Mapping[str, Any]) -> Tool:
    """The call that a ``session/request_permission`` is about."""
    call = _mapping(params.get("toolCall"))
    stamp = _mapping(_mapping(call.get("_meta")).get("x.ai/tool"))
    raw = call.get("rawInput")
    return classify(str(stamp.get("name") or call.get("title") or ""), stamp, raw)


def with_kind(params: Mapping[str, Any], kind: str, message: str = "") -> Mapping[str, Any]:
    """Select the option of exactly this kind, with a message for the model; without one: `CANCELLED`."""
    for option in _options(params):
        if option.get("kind") == kind:
            answer: dict[str, Any] = {"outcome": {"outcome": "selected", "optionId": option.get("optionId")}}
            return {**answer, "_meta": {"followup_message": message}} if message else answer
    return CANCELLED


def headless(params: Mapping[str, Any], policy: str) -> Mapping[str, Any]:
    """The answer when nobody can be asked.  ``policy``: the setting ``headlessPermissions``."""
    tool = tool_of(params)
    if policy == "allow" or (policy == "reads" and tool.kind in (Kind.READ, Kind.HARMLESS)):
        return with_kind(params, "allow_once")
    return with_kind(
        params,
        "reject_once",
        f"{tool.name or 'This call'} needs a permission that nobody is here to give. Go on without it.",
    )


def dialog_of(params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Mapping[str, Any]]]:
    """(arguments of a select dialog, answer for each of its options)."""
    call = _mapping(params.get("toolCall"))
    title = f"Grok: {call.get('title') or 'permission'}"
    if call.get("rawInput") is not None:
        text = json.dumps(call["rawInput"], ensure_ascii=False, indent=1)
        title += "\n" + (text if len(text) <= INPUT else text[:INPUT] + "…")
    answers = dict[str, Mapping[str, Any]]()
    for number, option in enumerate(_options(params), 1):
        name, kind = option.get("name"), str(option.get("kind"))
        label = f"{number}. {name} ({kind})" if name else f"{number}. {kind}"
        answers[label] = {"outcome": {"outcome": "selected", "optionId": option.get("optionId")}}
    return {"title": title, "options": list(answers)}, answers


def _options(params: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    options = params.get("options")
    return [o for o in options if isinstance(o, dict)] if isinstance(options, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
