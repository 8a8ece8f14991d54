"""Settings: file ``config.toml`` < environment < flag, each checked with the place it came from.

The file::

    port = 2419
    workers = 4
    engine = "auto"            # auto | grok | harness
    grok = "/path/to/grok"
    [guard]                    # milliseconds, see gateway.wire.limits
    dialogMs = 300000
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gateway.paths import Paths
from gateway.wire.limits import LimitError, Limits, limits_from_environment

__all__ = ["ENGINES", "SettingError", "Settings"]

ENGINES = ("auto", "grok", "harness")


class SettingError(Exception):
    """A setting has a bad value; the text names the place, the key and what is allowed."""


def _default_workers() -> int:
    """CPU cores, at least 2 (one could not hand over to anybody), at most 4."""
    return max(2, min(4, os.cpu_count() or 2))


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """What an instance runs with."""

    port: int = 2419
    workers: int = dataclasses.field(default_factory=_default_workers)
    engine: str = "auto"
    grok: str | None = None  #: path or name of the grok command; None: look for it
    guard: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def load(
        cls, paths: Paths, environ: Mapping[str, str] = os.environ, flags: Mapping[str, Any] | None = None
    ) -> Settings:
        """Read file, environment and flags (a flag that is None was not given).

        Raises SettingError.
        """
        values = _from_file(paths.config_file) | _from_environment(environ)
        for key, value in (flags or {}).items():
            if value is not None:
                values[key] = _checked(f"--{key}", key, value)
        settings = cls(**values)
        settings.limits(environ)
        return settings

    def limits(self, environ: Mapping[str, str] = os.environ) -> Limits:
        """The table of limits with the guard settings applied and the test scale on top."""
        try:
            limits_from_environment(environ)
            factor = float(environ.get("GROK_GATEWAY_GUARD_SCALE", "1"))
            return Limits().with_guard_settings(self.guard).scaled(factor)
        except LimitError as error:
            raise SettingError(str(error)) from error


def _integer(low: int, high: int) -> Callable[[Any], int | None]:
    def check(value: Any) -> int | None:
        try:
            number = int(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else None
        except ValueError:
            return None
        return number if number is not None and low <= number <= high else None

    return check


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _engine(value: Any) -> str | None:
    return value if value in ENGINES else None


def _mapping(value: Any) -> Mapping[str, float] | None:
    return value if isinstance(value, dict) else None


#: key: (check, what is allowed)
_RULES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "port": (_integer(1, 65535), "a number from 1 to 65535"),
    "workers": (_integer(2, 64), "a number from 2 to 64 (with one worker nobody could take over)"),
    "engine": (_engine, "one of auto, grok, harness"),
    "grok": (_text, "the path of the grok command"),
    "guard": (_mapping, "a table [guard] of milliseconds"),
}

#: variable: key; a later one wins
_VARIABLES = {
    "GROK_GATEWAY_PORT": "port",
    "GROK_GATEWAY_WORKERS": "workers",
    "GROK_GATEWAY_ENGINE": "engine",
    "PI_GROK_BINARY": "grok",
    "GROK_GATEWAY_GROK": "grok",
}


def _checked(place: str, key: str, value: Any) -> Any:
    check, allowed = _RULES[key]
    result = check(value)
    if result is None:
        raise SettingError(f"{place} = {value!r}: must be {allowed}")
    return result


def _from_file(file: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{file}: not valid TOML: {error}") from error
    except OSError as error:
        raise SettingError(f"{file}: cannot be read: {error.strerror}") from error
    unknown = sorted(set(data) - set(_RULES))
    if unknown:
        raise SettingError(f"{file}: unknown key {unknown[0]!r}; allowed are {', '.join(_RULES)}")
    return {key: _checked(f"{file}: {key}", key, value) for key, value in data.items()}


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    return {key: _checked(name, key, environ[name]) for name, key in _VARIABLES.items() if environ.get(name)}
