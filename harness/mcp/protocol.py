"""The client's half of the Model Context Protocol, without I/O: messages out, messages read.

Everything that a server says is read here and nowhere else, so that one place decides what is believed.  A
list of tools with one bad entry is a list without it; only what leaves nothing to go on with is an error.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from gateway import __version__
from harness.limits import SIZES

__all__ = [
    "Asked",
    "Failing",
    "Hello",
    "McpError",
    "RemoteTool",
    "Reply",
    "Told",
    "cancelled",
    "incoming",
    "initialize",
    "notification",
    "qualified",
    "read_hello",
    "read_reply",
    "read_tools",
    "refusal",
    "request",
    "response",
]

_PROTOCOL = "2025-11-25"
_SPOKEN = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", _PROTOCOL})
#: What the model endpoints take as the name of a function.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_METHOD_NOT_FOUND = -32601


class Failing(StrEnum):
    """How a server failed; what may be tried again goes by it."""

    ABSENT = "absent"  # no connection, no process: nothing was sent
    DROPPED = "dropped"  # closed without a byte of an answer
    EXPIRED = "expired"  # the server does not know our session any more, and has done nothing
    BROKEN = "broken"  # gone in the middle
    REFUSED = "refused"  # an HTTP status that is no answer
    AUTH = "auth"
    TIMEOUT = "timeout"
    NONSENSE = "nonsense"
    ERROR = "error"  # a JSON-RPC error: the server's own word


class McpError(Exception):
    """A server does not do what it should; the text is for people and for the model."""

    def __init__(self, kind: Failing, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclasses.dataclass(frozen=True, slots=True)
class Reply:
    """An answer to a request of ours; ``message`` is all of it."""

    id: Any
    message: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A request of the server's."""

    id: Any
    method: str


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """A notification of the server's."""

    method: str


@dataclasses.dataclass(frozen=True, slots=True)
class Hello:
    """What a server says of itself: the version that both speak, and what is for the model."""

    version: str
    instructions: str


@dataclasses.dataclass(frozen=True)
class RemoteTool:
    """A tool as its server describes it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    meta: Mapping[str, Any]

    @property
    def hidden(self) -> bool:
        """Whether it is for people only."""
        ui = self.meta.get("ui")
        visibility = ui.get("visibility") if isinstance(ui, dict) else None
        return isinstance(visibility, list) and "model" not in visibility


# -- out -------------------------------------------------------------------------------------------


def request(number: int, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params)}


def notification(method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": dict(params)}


def initialize(server: str) -> dict[str, Any]:
    """The parameters of the first request."""
    info = {"name": f"grok-shell-{server}", "version": __version__}
    return {"protocolVersion": _PROTOCOL, "capabilities": {}, "clientInfo": info}


def cancelled(number: int, reason: str) -> dict[str, Any]:
    return notification("notifications/cancelled", {"requestId": number, "reason": reason})


def response(asked: Asked) -> dict[str, Any]:
    """The answer to a server: it may look whether we live, everything else is not offered."""
    if asked.method == "ping":
        return {"jsonrpc": "2.0", "id": asked.id, "result": {}}
    error = {"code": _METHOD_NOT_FOUND, "message": f"Method not found: {asked.method[:100]}"}
    return {"jsonrpc": "2.0", "id": asked.id, "error": error}


# -- in --------------------------------------------------------------------------------------------


def incoming(value: object) -> Iterable[Reply | Asked | Told]:
    """What a value of a server's stream holds; old servers send lists.  What is no message is passed over."""
    for message in value if isinstance(value, list) else (value,):
        if not isinstance(message, dict):
            continue
        number, method = message.get("id"), message.get("method")
        if isinstance(method, str):
            yield Told(method) if number is None else Asked(number, method)
        elif number is not None and ("result" in message or "error" in message):
            yield Reply(number, message)


def read_reply(reply: Reply) -> Mapping[str, Any]:
    """The result in an answer.  Raises McpError."""
    error, result = reply.message.get("error"), reply.message.get("result")
    if error is not None:
        code = error.get("code") if isinstance(error, dict) else None
        text = error.get("message") if isinstance(error, dict) else error
        raise McpError(Failing.ERROR, f"MCP error {code}: {str(text)[: SIZES.mcp_complaint]}")
    if not isinstance(result, dict):
        raise McpError(Failing.NONSENSE, "the answer holds no result")
    return result


def read_hello(result: Mapping[str, Any]) -> Hello:
    """The answer to ``initialize``.  Raises McpError for a version that is not spoken here."""
    version = result.get("protocolVersion")
    if version not in _SPOKEN:
        known = ", ".join(sorted(_SPOKEN))
        text = f"it speaks version {str(version)[:40]!r} of the protocol; known here are {known}"
        raise McpError(Failing.NONSENSE, text)
    instructions = result.get("instructions")
    text = instructions.strip() if isinstance(instructions, str) else ""
    return Hello(str(version), text[: SIZES.mcp_instructions])


def read_tools(result: Mapping[str, Any]) -> tuple[list[RemoteTool], str]:
    """One page of a list of tools, and where the next one begins.  Raises McpError."""
    listed, cursor = result.get("tools"), result.get("nextCursor")
    if not isinstance(listed, list):
        raise McpError(Failing.NONSENSE, "its list of tools is no list")
    named = (one for one in listed if isinstance(one, dict) and isinstance(one.get("name"), str))
    tools = [tool for one in named if (tool := _tool(one)) is not None]
    return tools, cursor if isinstance(cursor, str) else ""


def _tool(one: Mapping[str, Any]) -> RemoteTool | None:
    """A tool, None for one that no model could be told of: its schema fills what it may read."""
    description, given, meta = one.get("description"), one.get("inputSchema"), one.get("_meta")
    schema = {"type": "object", "properties": {}, **(given if isinstance(given, dict) else {})}
    if not isinstance(schema["properties"], dict) or len(json.dumps(schema)) > SIZES.mcp_schema:
        return None
    return RemoteTool(
        name=str(one["name"]),
        description=description if isinstance(description, str) else "",
        schema=schema,
        meta=meta if isinstance(meta, dict) else {},
    )


def qualified(server: str, tool: str) -> str | None:
    """The name under which the model calls a tool; None where it could not be told apart or not be sent."""
    name = f"{server}__{tool}"
    fits = _NAME.fullmatch(name) and len(name) <= SIZES.mcp_name and server and tool
    return name if fits and name.count("__") == 1 and "___" not in name else None


def refusal(status: int, said: str) -> McpError:
    """The error for an HTTP status that is no answer."""
    kind = Failing.AUTH if status in (401, 403) else Failing.REFUSED
    hint = ": it points elsewhere, and redirects are not followed" if 300 <= status < 400 else ""
    return McpError(kind, f"it answered with HTTP status {status}{hint}{f': {said}' if said else ''}")
