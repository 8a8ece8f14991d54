"""`grok.pi.v1`: messages between the Pi extension and the provider, as docs/pi-protocol.md tells them.

Sans-I/O.  JSON-RPC 2.0, one message a text frame.  What comes from the extension is read leniently about
members that are not known and strictly about those that are: `Fields` raises ProtocolError.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import orjson

from gateway.wire.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    dump,
    error_bytes,
    notification_bytes,
    request_bytes,
    result_bytes,
)
from gateway.wire.jsontext import repaired

__all__ = [
    "COMMANDS",
    "VERSION",
    "Fields",
    "Incoming",
    "ProtocolError",
    "UserError",
    "error_bytes",
    "notification_bytes",
    "parse",
    "reply",
    "request",
]

VERSION = 1

#: An error that a person should read: its text is shown as it is.
USER_ERROR = -32000

#: Of ``/grok``, as Pi completes them; the extension's `shipped.json` has the same.
COMMANDS = [
    {"value": value, "label": value, "description": description}
    for values, description in (
        (("debug",), "Session, model, tools, usage and connection of Grok"),
        (
            ("perms", "perms auto", "perms read-only", "perms ask", "perms yolo"),
            "What Grok's own tools may do",
        ),
    )
    for value in values
]


class ProtocolError(Exception):
    """A message is refused with an error of JSON-RPC."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class UserError(ProtocolError):
    """Something that a person can act on; the text says what happened, where and what to do."""

    def __init__(self, text: str) -> None:
        super().__init__(USER_ERROR, text)


@dataclasses.dataclass(frozen=True, slots=True)
class Incoming:
    """One message of the extension."""

    kind: Literal["request", "notification", "response"]
    id: Any = None
    method: str = ""
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    result: Any = None
    error: Mapping[str, Any] | None = None

    @property
    def fields(self) -> Fields:
        return Fields(self.method, self.params)


def parse(data: bytes) -> Incoming:
    """Read one frame.  Raises ProtocolError for anything that is no message."""
    try:
        # A lone surrogate, which JavaScript may send, is no text for anybody behind us.
        message = orjson.loads(repaired(data, None))
    except orjson.JSONDecodeError as error:
        raise ProtocolError(PARSE_ERROR, f"Parse error: {error}") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ProtocolError(INVALID_REQUEST, "Invalid Request: not a JSON-RPC 2.0 object")
    id_, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if isinstance(method, str):
        if not isinstance(params, dict):
            raise ProtocolError(INVALID_REQUEST, "Invalid Request: params must be an object")
        if id_ is None:
            return Incoming("notification", None, method, params)
        if isinstance(id_, (str, int)) and not isinstance(id_, bool):
            return Incoming("request", id_, method, params)
    elif id_ is not None and ("result" in message or "error" in message):
        return Incoming("response", id_, result=message.get("result"), error=message.get("error"))
    raise ProtocolError(INVALID_REQUEST, "Invalid Request: neither a call nor an answer")


def reply(id_: Any, result: Mapping[str, Any]) -> bytes:
    """The answer to a request of the extension."""
    return result_bytes(dump(id_), dump(dict(result)))


def request(id_: Any, method: str, params: Mapping[str, Any]) -> bytes:
    """A request to the extension."""
    return request_bytes(dump(id_), method, dump(dict(params)))


class Fields:
    """Typed access to the members of an object; ``where`` names it in errors."""

    def __init__(self, where: str, values: Mapping[str, Any]) -> None:
        self._where, self._values = where, values

    def _get(self, name: str, kind: type | tuple[type, ...], what: str) -> Any:
        value = self._values.get(name)
        if value is None or (isinstance(value, kind) and not (isinstance(value, bool) and kind is int)):
            return value
        raise ProtocolError(INVALID_PARAMS, f"{self._where}: {name} must be {what}")

    def text(self, name: str) -> str:
        """A string that must be there and say something."""
        value = self._get(name, str, "a string")
        if not value:
            raise ProtocolError(INVALID_PARAMS, f"{self._where}: {name} is missing")
        return str(value)

    def text_or(self, name: str, default: str = "") -> str:
        value = self._get(name, str, "a string")
        return default if value is None else str(value)

    def number(self, name: str) -> int:
        return int(self._get(name, int, "a whole number") or 0)

    def flag(self, name: str) -> bool:
        return bool(self._get(name, bool, "true or false"))

    def mapping(self, name: str) -> dict[str, Any]:
        return dict(self._get(name, dict, "an object") or {})

    def objects(self, name: str) -> list[dict[str, Any]]:
        """A list of objects; [] when it is absent."""
        values = self._get(name, list, "a list") or []
        if not all(isinstance(value, dict) for value in values):
            raise ProtocolError(INVALID_PARAMS, f"{self._where}: {name} must hold objects")
        return list(values)

    def with_system(self) -> Fields:
        """The fields of a ``turn`` with the system messages apart, as ``system``.

        Pi 1.x has them among the others, Pi 0.73 has one text.
        """
        messages, prompt = self.objects("messages"), self.text_or("system_prompt")
        system = [m for m in messages if m.get("role") == "system"]
        if prompt:
            system = [{"role": "system", "content": prompt}]
        messages = [m for m in messages if m.get("role") != "system"]
        return Fields(self._where, {**self._values, "system": system, "messages": messages})

    def given(self, name: str) -> bool:
        """Whether the member is there."""
        return self._values.get(name) is not None

    def names(self, name: str) -> frozenset[str] | None:
        """A list of strings; None when it is absent."""
        values = self._get(name, list, "a list")
        if values is None:
            return None
        if not all(isinstance(value, str) for value in values):
            raise ProtocolError(INVALID_PARAMS, f"{self._where}: {name} must hold strings")
        return frozenset(values)
