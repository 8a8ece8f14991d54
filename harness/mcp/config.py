"""The servers that a client names for a session: read, checked, and kept without showing their secrets.

An entry that cannot be used is a value, too: its session begins all the same, and its client is told.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from harness.limits import LIMITS, SIZES
from harness.model.endpoints import Secret

__all__ = ["HttpServer", "Server", "StdioServer", "Times", "Unusable", "read_servers"]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: What a server's process gets of the engine's environment: the rest may hold keys of models.
_INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER")
#: By this one, processes are found whose leader was killed.
_MARK = "GROK_LEADER_SOCKET"
#: Shorter parts of an address are words, not secrets.
_LONG = 16


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds that one server may take; ``calls`` are of single tools."""

    startup: float = LIMITS.mcp_startup
    call: float = LIMITS.mcp_call
    calls: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, wishes: object) -> Times:
        """From a client's ``mcpConfig`` of this server, in milliseconds there."""
        given: Mapping[str, Any] = wishes if isinstance(wishes, dict) else {}
        single = given.get("toolTimeoutsMs")
        named = single.items() if isinstance(single, dict) else ()
        calls = {str(tool): _seconds(value, LIMITS.mcp_call) for tool, value in named}
        startup = _seconds(given.get("startupTimeoutMs"), LIMITS.mcp_startup)
        return cls(startup, _seconds(given.get("toolTimeoutMs"), LIMITS.mcp_call), calls)

    def of_call(self, tool: str) -> float:
        return self.calls.get(tool, self.call)


@dataclasses.dataclass(frozen=True)
class HttpServer:
    name: str
    url: Secret
    headers: tuple[tuple[str, Secret], ...] = ()
    times: Times = Times()

    @property
    def place(self) -> str:
        """The address without what may be secret in it: user, path, query."""
        parts = urlsplit(self.url.reveal())
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}"

    def secrets(self) -> Iterable[str]:
        """What no text may hold."""
        for _, value in self.headers:
            yield from (value.reveal(), value.reveal().rpartition(" ")[2])
        parts = urlsplit(self.url.reveal())
        yield from (parts.password or "", parts.username or "")
        words = re.split(r"[/?&=]", f"{parts.path}?{parts.query}")
        yield from (word for word in words if len(word) >= _LONG)


@dataclasses.dataclass(frozen=True)
class StdioServer:
    name: str
    command: str
    arguments: tuple[Secret, ...] = ()
    env: tuple[tuple[str, Secret], ...] = ()
    times: Times = Times()

    @property
    def place(self) -> str:
        return self.command

    def secrets(self) -> Iterable[str]:
        """What no text may hold; arguments often carry keys, too."""
        yield from (value.reveal() for _, value in self.env)
        yield from (value.reveal() for value in self.arguments if len(value.reveal()) >= _LONG)

    def environment(self, environ: Mapping[str, str], session_id: str) -> dict[str, str]:
        """The whole environment of its process."""
        inherited = {name: environ[name] for name in _INHERITED if name in environ}
        mark = {_MARK: environ[_MARK]} if _MARK in environ else {}
        own = {name: value.reveal() for name, value in self.env}
        return {**inherited, "GROK_SESSION_ID": session_id, **own, **mark}


Server = HttpServer | StdioServer


@dataclasses.dataclass(frozen=True)
class Unusable:
    """An entry that is no server; ``why`` names what is wrong without repeating it."""

    name: str
    why: str


def read_servers(
    entries: Sequence[object], config: Mapping[str, Any], session_id: str
) -> list[Server | Unusable]:
    """The servers of ``mcpServers``, in order; ``config`` is the client's ``mcpConfig``."""
    found = list[Server | Unusable]()
    for entry in entries[: SIZES.mcp_servers]:
        one = _read(entry, config, session_id)
        if any(one.name == other.name for other in found):
            one = Unusable(one.name, "another server of the session has this name")
        found.append(one)
    for entry in entries[SIZES.mcp_servers :]:
        name = str(entry.get("name")) if isinstance(entry, dict) else ""
        found.append(Unusable(name, f"a session has at most {SIZES.mcp_servers} servers"))
    return found


def _read(entry: object, config: Mapping[str, Any], session_id: str) -> Server | Unusable:
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(name, str) or not name:
        return Unusable("", "it is no object with a name")
    times = Times.of(config.get(name))
    if entry.get("type", "stdio") == "stdio":
        return _stdio(name, entry, times)
    if entry["type"] in ("http", "sse"):  # the older transport's addresses are tried with the newer one
        return _http(name, entry, times, session_id)
    return Unusable(name, "its type is none of http, sse and stdio")


def _stdio(name: str, entry: Mapping[str, Any], times: Times) -> Server | Unusable:
    command, arguments = entry.get("command"), entry.get("args", [])
    env = _pairs(entry.get("env", []))
    if not isinstance(command, str) or not command or "\0" in command:
        return Unusable(name, "it has no command")
    if not isinstance(arguments, list) or not all(isinstance(a, str) and "\0" not in a for a in arguments):
        return Unusable(name, "its args are no list of texts")
    if env is None or any("=" in key or "\0" in key or "\0" in value for key, value in env):
        return Unusable(name, "its env is no list of names and values")
    values = tuple((key, Secret(value)) for key, value in env)
    return StdioServer(name, command, tuple(Secret(argument) for argument in arguments), values, times)


def _http(name: str, entry: Mapping[str, Any], times: Times, session_id: str) -> Server | Unusable:
    url, headers = entry.get("url"), _pairs(entry.get("headers", []))
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        return Unusable(name, "its url is no http or https address")
    if headers is None or any(not _TOKEN.fullmatch(k) or _CONTROL.search(v) for k, v in headers):
        return Unusable(name, "its headers are no list of names and values")

    def filled(value: str) -> Secret:
        return Secret(value.replace("{{session_id}}", session_id).replace("${session_id}", session_id))

    return HttpServer(name, Secret(str(url)), tuple((k, filled(v)) for k, v in headers), times)


def _pairs(value: object) -> list[tuple[str, str]] | None:
    """``[{name, value}]``, or an object as older clients send it; None for anything else."""
    if isinstance(value, dict):
        value = [{"name": key, "value": one} for key, one in value.items()]
    if not isinstance(value, list):
        return None
    pairs = list[tuple[str, str]]()
    for one in value:
        key, text = (one.get("name"), one.get("value")) if isinstance(one, dict) else (None, None)
        if not isinstance(key, str) or not key or not isinstance(text, str):
            return None
        pairs.append((key, text))
    return pairs


def _seconds(value: object, default: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        return default
    return min(value / 1000, LIMITS.mcp_longest)
