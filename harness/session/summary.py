"""A session in a list: where it is, what it is called, when it was used last, and with which model."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

__all__ = ["Summary", "iso", "read_summary"]


@dataclasses.dataclass
class Summary:
    """``model`` is the configuration's name of the model, ``model_name`` its server's.

    ``prompt_id`` is the last turn's.
    """

    id: str
    cwd: str
    created_ms: int
    updated_ms: int
    title: str | None = None
    model: str = ""
    model_name: str = ""
    effort: str | None = None
    prompt_id: str = ""
    messages: int = 0

    def wire(self) -> dict[str, Any]:
        """As it stands in ``summary.json``."""
        fields: dict[str, Any] = {
            "info": {"id": self.id, "cwd": self.cwd},
            "session_summary": self.title or "",
            "created_at": iso(self.created_ms),
            "updated_at": iso(self.updated_ms),
            "num_messages": self.messages,
            "current_model_id": self.model_name,
            "model_entry": self.model,
            "chat_format_version": 1,
            "request_id": self.prompt_id,
            "last_active_at": iso(self.updated_ms),
            "agent_name": "grok-build-plan",
        }
        if self.title is not None:
            fields["generated_title"] = self.title
        if self.effort is not None:
            fields["reasoning_effort"] = self.effort
        return fields


def read_summary(found: Any) -> Summary | None:
    """From the content of ``summary.json``; None when it is of no session."""
    if not isinstance(found, Mapping) or not isinstance(found.get("info"), Mapping):
        return None
    info = found["info"]
    session_id, cwd = info.get("id"), info.get("cwd")
    if not isinstance(session_id, str) or not isinstance(cwd, str):
        return None
    title, effort = found.get("generated_title"), found.get("reasoning_effort")
    messages = found.get("num_messages")
    return Summary(
        id=session_id,
        cwd=cwd,
        created_ms=_milliseconds(found.get("created_at")),
        updated_ms=_milliseconds(found.get("updated_at")),
        title=title if isinstance(title, str) else None,
        model=str(found.get("model_entry") or ""),
        model_name=str(found.get("current_model_id") or ""),
        effort=effort if isinstance(effort, str) else None,
        prompt_id=str(found.get("request_id") or ""),
        messages=messages if isinstance(messages, int) else 0,
    )


def iso(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).isoformat()


def _milliseconds(text: Any) -> int:
    try:
        return int(datetime.datetime.fromisoformat(str(text)).timestamp() * 1000)
    except ValueError:
        return 0
