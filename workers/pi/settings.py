"""Settings of a Pi user: ``<agentDir>/grok-ws.json``, over it Pi's environment.

Unknown keys are left alone: the file may be shared with other versions.  A bad value is an error that
names file, key and what is allowed; it is never replaced by a default, for some of them forbid tools.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gateway.wire.jsonfile import JsonFileError, read_object, replace_object
from gateway.wire.limits import LIMITS, LimitError, Limits

__all__ = ["MODES", "PiSettingError", "PiSettings", "save_mode", "settings_file"]

#: Permission modes as they are shown, and the other spelling of one.
MODES = ("auto", "read-only", "ask", "yolo")
HEADLESS = ("dialog", "deny", "reads", "allow")
GROK_MODES = ("default", "auto", "yolo")


class PiSettingError(Exception):
    """A setting cannot be used; the text names the place, the value and what is allowed."""


Patterns = tuple[re.Pattern[str], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class PiSettings:
    """What a Pi user has chosen."""

    mode: str = "auto"  #: one of `MODES`
    headless: str = "dialog"
    grok_mode: str = "default"
    deny: Patterns = ()
    allow: Patterns = ()
    mcp_read_only: Patterns = ()
    post_edit_check: str = ""  #: "" the built-in checks
    stop_check: str = ""
    limits: Limits = LIMITS

    @classmethod
    def load(cls, agent_dir: str, environ: Mapping[str, str]) -> PiSettings:
        """Raises PiSettingError."""
        file = settings_file(agent_dir)
        data = _read(file)
        values = dict[str, Any]()
        for name, place, key, variable, check, allowed in _TABLE:
            section = data if place is None else _section(file, data, place)
            shown, value = f"{file}: {key if place is None else f'{place}.{key}'}", section.get(key)
            if variable and environ.get(variable):
                shown, value = variable, environ[variable]
            if value is None:
                continue
            result = check(value)
            if result is None:
                raise PiSettingError(f"{shown} = {value!r}: must be {allowed}.")
            values[name] = result
        guard = {k: v for k, v in _section(file, data, "guard").items() if k in _GUARD}
        guard |= {key: _number(environ[name]) for key, name in _GUARD.items() if environ.get(name)}
        if guard:
            try:
                values["limits"] = LIMITS.with_guard_settings(guard)
            except LimitError as error:
                raise PiSettingError(f"{file}: {error}.") from error
        return cls(**values)


def settings_file(agent_dir: str) -> Path:
    """Where the settings of a Pi agent folder are."""
    return Path(agent_dir) / "grok-ws.json"


def save_mode(agent_dir: str, mode: str) -> None:
    """Keep the permission mode.  Raises PiSettingError."""
    file = settings_file(agent_dir)
    data = {**_read(file), "permissionMode": "readonly" if mode == "read-only" else mode}
    try:
        replace_object(file, data)
    except JsonFileError as error:
        raise PiSettingError(f"{error}.") from error


def _read(file: Path) -> dict[str, Any]:
    try:
        return read_object(file)
    except JsonFileError as error:
        raise PiSettingError(f"{error}.") from error


def _section(file: Path, data: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = data.get(name)
    if section is None:
        return {}
    if not isinstance(section, dict):
        raise PiSettingError(f"{file}: {name} must be an object.")
    return section


# -- checks: the value, or None ----------------------------------------------------------------------


def _one_of(*words: str) -> Callable[[Any], str | None]:
    return lambda value: value if value in words else None


def _mode(value: Any) -> str | None:
    value = "read-only" if value == "readonly" else value
    return value if value in MODES else None


def _command(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _patterns(value: Any) -> Patterns | None:
    """Regular expressions for whole names; one that is no regular expression stands for itself."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return None
    return tuple(map(_pattern, value))


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error:
        return re.compile(re.escape(text))


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


_NAMES = "a list of tool names or regular expressions"

#: field, section, key, variable of Pi's environment, check, what is allowed
_TABLE: tuple[tuple[str, str | None, str, str, Callable[[Any], Any], str], ...] = (
    ("mode", None, "permissionMode", "", _mode, "one of auto, readonly, ask, yolo"),
    (
        "headless",
        None,
        "headlessPermissions",
        "PI_GROK_HEADLESS_PERMISSIONS",
        _one_of(*HEADLESS),
        "one of dialog, deny, reads, allow",
    ),
    ("grok_mode", None, "grokMode", "PI_GROK_GROK_MODE", _one_of(*GROK_MODES), "one of default, auto, yolo"),
    ("deny", "hooks", "denyGrokTools", "PI_GROK_DENY_TOOLS", _patterns, _NAMES),
    ("allow", "hooks", "allowGrokTools", "", _patterns, _NAMES),
    ("mcp_read_only", "hooks", "mcpReadOnlyServers", "", _patterns, "a list of MCP server names"),
    ("post_edit_check", "hooks", "postEditCheck", "PI_GROK_POST_EDIT_CHECK", _command, "a shell command"),
    ("stop_check", "hooks", "stopCheck", "PI_GROK_STOP_CHECK", _command, "a shell command"),
)

#: ``guard.*`` keys in milliseconds and their variables.
_GUARD = {
    "ackMs": "PI_GROK_ACK_MS",
    "policyMs": "PI_GROK_POLICY_MS",
    "checkBudgetMs": "PI_GROK_CHECK_BUDGET_MS",
    "dialogMs": "PI_GROK_DIALOG_MS",
}
