"""What a session is configured to have: tools in order, each with parameters and names of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["ConfigError", "ConfigRejected", "Reason", "ToolConfig", "ToolServerConfig"]


@dataclasses.dataclass(frozen=True)
class ToolConfig:
    """One tool; ``id`` is qualified, ``params_name_overrides`` maps canonical names to the client's."""

    id: str
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    name_override: str | None = None
    params_name_overrides: Mapping[str, str] = dataclasses.field(default_factory=dict)
    description_override: str | None = None
    behavior_version: str | None = None

    @property
    def short_id(self) -> str:
        return self.id.rpartition(":")[2]

    @property
    def client_name(self) -> str:
        return self.name_override or self.short_id


@dataclasses.dataclass(frozen=True)
class ToolServerConfig:
    tools: tuple[ToolConfig, ...] = ()
    behavior_preset: str | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ToolServerConfig:
        """Read the wire's shape; unknown keys are refused with a TypeError that names them."""
        tools = tuple(ToolConfig(**{k: v for k, v in tool.items() if k != "kind"}) for tool in value["tools"])
        return cls(tools, value.get("behavior_preset"))

    def fingerprint(self, *further: str) -> str:
        """Equal for configurations that give equal toolsets: a swap is reused when it has not changed."""
        text = json.dumps([dataclasses.asdict(self), further], sort_keys=True, default=dict)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclasses.dataclass(frozen=True)
class ConfigError:
    """One thing that is wrong with a configuration, for the program that sent it and for a person."""

    tool: str
    message: str
    category: str
    field_path: str | None = None
    expected: str | None = None
    bad_value: Any = None

    def __str__(self) -> str:
        return ": ".join(text for text in (self.tool, self.field_path, self.message) if text)


class ConfigRejected(ValueError):  # noqa: N818 - what happened to it, not an error of ours
    """A configuration that the strict validator refuses, with everything wrong in the stage that failed."""

    def __init__(self, errors: tuple[ConfigError, ...]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why a tool is not in a toolset.

    ``stage``: unregistered, unselected, denied, capability, name_taken or requirements; ``missing`` names
    what would have to be there.
    """

    stage: str
    text: str
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text
