"""Which Grok session a session of Pi has, and how it is opened."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Mapping
from typing import Any

from gateway.wire.records import PiBound
from workers.pi.settings import PiSettings

__all__ = ["DENY_HOOKS", "Binding", "hooks", "prompt_id", "session_meta"]

#: Ours: ids of sessions and prompts are made from Pi's below it.
_SPACE = uuid.UUID("6f1f3c1e-7a52-5d0b-9f4e-0d6c1b8a2e77")

PRE, POST, STOP = "pi-pre", "pi-post", "pi-stop"

#: Hooks of a throwaway session: every call of a tool is asked for, and denied.
DENY_HOOKS: Mapping[str, Any] = {"pre_tool_use": [{"hookCallbackIds": [PRE]}]}


@dataclasses.dataclass(slots=True)
class Binding:
    """``delivered`` is the newest entry of Pi's branch that Grok knows; ``made``: the session exists."""

    session: str
    grok: str
    cwd: str
    delivered: str = ""
    made: bool = False

    @classmethod
    def new(cls, session: str, cwd: str) -> Binding:
        """A Grok session that does not exist yet: each has a name of its own, known before it is made."""
        return cls(session, str(uuid.uuid5(_SPACE, f"{session}:{time.time_ns()}")), cwd)

    @classmethod
    def of_entry(cls, data: Mapping[str, Any], session: str, cwd: str) -> Binding | None:
        """From the data of a ``grok-session`` entry; None if it is another session's (a fork's parent)."""
        grok = data.get("grok")
        if data.get("owner") != session or data.get("cwd") != cwd or not isinstance(grok, str):
            return None
        return cls(session, grok, cwd, str(data.get("delivered") or ""), made=True)

    @classmethod
    def of_record(cls, record: PiBound) -> Binding:
        return cls(record.session, record.grok, record.cwd, record.delivered, record.made)

    def record(self) -> PiBound:
        return PiBound(self.session, self.grok, self.cwd, self.delivered, self.made)

    def entry(self) -> dict[str, Any]:
        """Data of the ``grok-session`` entry."""
        return {
            "id": f"{self.grok}:{self.delivered}",
            "owner": self.session,
            "grok": self.grok,
            "cwd": self.cwd,
            "delivered": self.delivered,
        }


def prompt_id(session: str, entry: str) -> str:
    """Grok's name of the prompt that an entry of Pi makes: the same at every try."""
    return str(uuid.uuid5(_SPACE, f"{session}/{entry}"))


def hooks(settings: PiSettings) -> Mapping[str, Any]:
    """Every call passes the gate; edits and ends of turns are checked."""
    registered: dict[str, Any] = {
        "pre_tool_use": [{"hookCallbackIds": [PRE]}],
        "post_tool_use": [{"hookCallbackIds": [POST]}],
    }
    if settings.stop_check:
        registered["stop"] = [{"hookCallbackIds": [STOP]}]
    return registered


def session_meta(settings: PiSettings, rules: str) -> dict[str, Any]:
    """``_meta`` of session/new and session/load."""
    meta: dict[str, Any] = {
        "x.ai/hooks": hooks(settings),
        "yoloMode": settings.grok_mode == "yolo",
    }
    if settings.grok_mode == "auto":
        meta["autoMode"] = True
    if rules:
        meta["rules"] = rules
    return meta
