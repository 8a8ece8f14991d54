"""What the agent answers and how it reads what it is asked: shapes, without a state of their own."""

from __future__ import annotations

import datetime
import platform
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway import __version__
from harness.acp import invalid_params

if TYPE_CHECKING:
    from harness.model.endpoints import Endpoint

__all__ = [
    "AUTH_METHOD",
    "initialized",
    "iso_time",
    "model_state",
    "now_ms",
    "opened",
    "options",
    "place_of",
    "session_id_of",
    "table",
    "text",
]

AUTH_METHOD = "xai.api_key"
_EFFORT_NAMES = {"minimal": "Minimal", "low": "Low", "medium": "Medium", "high": "High", "xhigh": "X-High"}


# -- answers ---------------------------------------------------------------------------------------


def initialized(models: Mapping[str, Any], instance: str) -> dict[str, Any]:
    """The answer to ``initialize``; only what this engine really does is offered."""
    described = {"description": "A key in the configuration or XAI_API_KEY"}
    return {
        "protocolVersion": 1,
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": False, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": True},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
            "auth": {},
            "_meta": {
                "x.ai/hooks": {
                    "blockingEvents": ["pre_tool_use", "stop"],
                    "decisions": ["deny", "block"],
                    "stopSignals": ["continue", "stopReason", "additionalContext"],
                }
            },
        },
        "authMethods": [{"id": AUTH_METHOD, "name": AUTH_METHOD, **described}],
        "_meta": {
            "defaultAuthMethodId": AUTH_METHOD if models["currentModelId"] else None,
            "currentWorkingDirectory": str(Path.cwd()),
            "agentVersion": __version__,
            "agentInstanceId": instance,
            "hostname": platform.node(),
            "modelState": dict(models),
            "mcpServers": [],
            "availableCommands": [],
        },
    }


def model_state(endpoints: Iterable[Endpoint], current: Endpoint | None) -> dict[str, Any]:
    """The models that can be chosen, and the one that is."""
    shown = [_model(endpoint) for endpoint in endpoints if not endpoint.hidden]
    return {"currentModelId": current.id if current else None, "availableModels": shown}


def options(endpoints: Iterable[Endpoint], current: Endpoint, effort: str | None) -> list[dict[str, Any]]:
    """The settings of a session that a client can offer."""
    values = [{"value": e.id, "name": e.name} for e in endpoints if not e.hidden]
    found = [_select("model", "Model", "model", current.id, values)]
    if current.efforts:
        efforts = [{"value": e, "name": _EFFORT_NAMES.get(e, e.title())} for e in current.efforts]
        chosen = effort or current.efforts[0]
        found.append(_select("reasoning_effort", "Reasoning Effort", "thought_level", chosen, efforts))
    return found


def opened(
    session_id: str,
    cwd: str,
    root: str | None,
    endpoints: Iterable[Endpoint],
    current: Endpoint,
    effort: str | None,
) -> dict[str, Any]:
    """The answer to a request that opened a session; ``root`` is the repository's."""
    listed = list(endpoints)
    chosen = [
        {"id": e.id, "category": "model", "label": e.name, "selected": e.id == current.id}
        for e in listed
        if not e.hidden
    ]
    detail = {"sessionId": session_id, "kind": "build", "cwd": cwd, "currentModelId": current.id}
    return {
        "sessionId": session_id,
        "models": model_state(listed, current),
        "configOptions": options(listed, current, effort),
        "_meta": {
            "currentWorkingDirectory": cwd,
            "isGitRepo": root is not None,
            "gitRoot": root,
            "x.ai/sessionConfig": {"options": chosen},
            "x.ai/sessionDetail": detail,
        },
    }


def _model(endpoint: Endpoint) -> dict[str, Any]:
    meta: dict[str, Any] = {"totalContextTokens": endpoint.context_window, "agentType": "grok-build-plan"}
    if endpoint.efforts:
        meta |= {"supportsReasoningEffort": True, "reasoningEffort": endpoint.effort}
    described = {"description": endpoint.description} if endpoint.description else {}
    return {"modelId": endpoint.id, "name": endpoint.name, **described, "_meta": meta}


def _select(
    option_id: str, name: str, category: str, current: str, values: list[dict[str, str]]
) -> dict[str, Any]:
    kind = {"id": option_id, "name": name, "category": category, "type": "select"}
    return {**kind, "currentValue": current, "options": values}


# -- what is asked ---------------------------------------------------------------------------------


def text(params: Mapping[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise invalid_params(f"missing field `{name}`")
    return value


def table(params: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = params.get(name)
    return value if isinstance(value, dict) else {}


def place_of(params: Mapping[str, Any]) -> tuple[str, list[Any], dict[str, Any]]:
    """Folder, tool servers and ``_meta`` of a request that opens a session."""
    cwd = text(params, "cwd")
    if not cwd.startswith("/"):
        raise invalid_params(f"Path is not absolute: {cwd}")
    servers = params.get("mcpServers")
    if not isinstance(servers, list):
        raise invalid_params("missing field `mcpServers`")
    return cwd, servers, table(params, "_meta")


def session_id_of(meta: Mapping[str, Any]) -> str:
    """The id that the client chose, else a new one."""
    chosen = meta.get("sessionId")
    if not isinstance(chosen, str) or not chosen:
        from harness.workspace.terminal.naming import time_ordered_id

        return time_ordered_id()
    try:
        return str(uuid.UUID(chosen))
    except ValueError:
        raise invalid_params(f"sessionId must be a UUID: {chosen[:64]}") from None


def now_ms() -> int:
    return int(time.time() * 1000)


def iso_time(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).isoformat()
