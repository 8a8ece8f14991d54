"""The question to the user: which answers are offered, and what an answer means.

Ids and kinds of the options are the original's; a client chooses by them.  No answer that is not exactly
one of those offered lets anything run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from harness.permissions.access import AccessKind

__all__ = ["Answer", "Choice", "options", "read_answer"]


class Choice(StrEnum):
    ALLOW = "allow"
    ALLOW_ALWAYS = "allow always"
    ALLOW_EDITS = "allow edits"
    REJECT = "reject"
    REJECT_ALWAYS = "reject always"
    FOLLOWUP = "followup"
    CANCEL = "cancel"
    BROKEN = "broken"


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """``message``: the user's words with a rejection, or what is wrong with a broken answer."""

    choice: Choice
    message: str = ""


#: (id, kind, label, what it means).  "lasting" rows go when nothing may be remembered.
_Row = tuple[str, str, str, Choice]
_ALLOW: _Row = ("allow-once", "allow_once", "Yes, this time", Choice.ALLOW)
_REJECT: _Row = ("reject-once", "reject_once", "No, I will say what to do instead", Choice.REJECT)

_ROWS: Mapping[AccessKind, tuple[_Row, ...]] = {
    AccessKind.BASH: (
        ("always-allow", "allow_always", "Yes, always for this command in this project", Choice.ALLOW_ALWAYS),
        _ALLOW,
        _REJECT,
        ("reject-always", "reject_always", "No, never this command in this project", Choice.REJECT_ALWAYS),
    ),
    AccessKind.EDIT: (
        ("allow-edits-session", "allow_always", "Yes, and all edits of this session", Choice.ALLOW_EDITS),
        _ALLOW,
        _REJECT,
    ),
    AccessKind.MCP: (
        ("always-allow", "allow_always", "Yes, always for this tool in this project", Choice.ALLOW_ALWAYS),
        _ALLOW,
        _REJECT,
    ),
    AccessKind.WEB_FETCH: (
        ("allow-always-domain", "allow_always", "Yes, always for this host", Choice.ALLOW_ALWAYS),
        _ALLOW,
        _REJECT,
        ("reject-always-domain", "reject_always", "No, never this host", Choice.REJECT_ALWAYS),
    ),
}


def _rows(kind: AccessKind, *, remember: bool) -> tuple[_Row, ...]:
    rows = _ROWS.get(kind, (_ALLOW, _REJECT))
    return rows if remember else tuple(r for r in rows if r[1] in ("allow_once", "reject_once"))


def options(kind: AccessKind, *, remember: bool = True) -> list[dict[str, str]]:
    """The ``options`` of a ``session/request_permission``."""
    return [
        {"optionId": id_, "name": name, "kind": option_kind}
        for id_, option_kind, name, _ in _rows(kind, remember=remember)
    ]


def read_answer(answer: Any, kind: AccessKind, *, remember: bool = True) -> Answer:
    """What the client's result says."""
    outcome = answer.get("outcome") if isinstance(answer, Mapping) else None
    if not isinstance(outcome, Mapping):
        return Answer(Choice.BROKEN, "the client gave no outcome")
    if outcome.get("outcome") == "cancelled":
        return Answer(Choice.CANCEL)
    if outcome.get("outcome") != "selected":
        return Answer(Choice.BROKEN, "the client gave an unknown outcome")
    chosen = outcome.get("optionId")
    for id_, _, _, choice in _rows(kind, remember=remember):
        if id_ == chosen:
            meta = answer.get("_meta")
            message = meta.get("followup_message") if isinstance(meta, Mapping) else None
            if choice is Choice.REJECT and isinstance(message, str) and message.strip():
                return Answer(Choice.FOLLOWUP, message)
            return Answer(choice)
    return Answer(Choice.BROKEN, "the client chose an option that was not offered")
