"""What a person's ``config.toml`` says about tools, as parameters of a toolset.

Only what several tools share or a person may want to change has a place there; everything else is a
parameter in a toolset's own configuration.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.limits import SIZES
from harness.registry.config import ToolServerConfig

__all__ = ["configured", "load"]

_FILES = ("GrokBuild:read_file", "GrokBuild:search_replace", "GrokBuild:list_dir")


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


#: Where it stands in the file, what it must be, and the parameter of which tools it is.
_SETTINGS: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str, tuple[str, ...]], ...] = (
    (("tools", "respect_gitignore"), _truth, "respect_gitignore", _FILES),
    (
        ("toolset", "ask_user_question", "timeout_secs"),
        _seconds,
        "timeout_secs",
        ("GrokBuild:ask_user_question",),
    ),
)


def load(home: Path) -> Mapping[str, Any]:
    """The person's file; one that is missing or cannot be read says nothing."""
    try:
        with (home / "config.toml").open("rb") as file:
            return tomllib.loads(file.read(SIZES.config_file).decode())
    except (OSError, ValueError):
        return {}


def configured(config: ToolServerConfig, settings: Mapping[str, Any]) -> ToolServerConfig:
    """The toolset with a person's settings under its own: a toolset that says something itself keeps it."""
    wanted = dict[str, dict[str, Any]]()
    for place, fits, param, tools in _SETTINGS:
        value = _at(settings, place)
        if fits(value):
            for tool in tools:
                wanted.setdefault(tool, {})[param] = value
    merged = tuple(
        dataclasses.replace(tool, params={**wanted[tool.id], **tool.params}) if tool.id in wanted else tool
        for tool in config.tools
    )
    return dataclasses.replace(config, tools=merged)


def _at(settings: Any, place: tuple[str, ...]) -> Any:
    for name in place:
        settings = settings.get(name) if isinstance(settings, Mapping) else None
    return settings
