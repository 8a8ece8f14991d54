"""The toolsets that sessions start from, with the names that models of this family were trained on."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from harness.registry.config import ToolConfig, ToolServerConfig
from harness.registry.registry import Registry

__all__ = ["DEFAULT", "PRESETS", "PresetError", "preset"]

DEFAULT = "grok-build"


class PresetError(ValueError):
    """A name that is no preset; the text lists those that are."""


#: The client's names in production: what runs may be a command or a subagent, and a task may be both.
_NAMES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "GrokBuild:run_terminal_cmd": ("run_terminal_command", {"is_background": "background"}),
    "GrokBuild:task": ("spawn_subagent", {"run_in_background": "background"}),
    "GrokBuild:get_task_output": ("get_command_or_subagent_output", {}),
    "GrokBuild:wait_tasks": ("wait_commands_or_subagents", {}),
    "GrokBuild:kill_task": ("kill_command_or_subagent", {}),
}

#: Parameters that production sets and a tool by itself does not.
_PARAMS: Mapping[str, Mapping[str, object]] = {
    "GrokBuild:run_terminal_cmd": {"auto_background_on_timeout": True, "max_timeout_secs": 36000},
}


def _grok(*ids: str) -> tuple[str, ...]:
    return tuple(f"GrokBuild:{one}" for one in ids)


_EXPLORE = _grok("read_file", "list_dir", "grep")
_INTERACTIVE = _grok(
    "run_terminal_cmd",
    "read_file",
    "search_replace",
    "list_dir",
    "grep",
    "kill_task",
    "todo_write",
    "get_task_output",
    "task",
    "scheduler_create",
    "scheduler_delete",
    "scheduler_list",
    "monitor",
    "search_tool",
    "use_tool",
    "workflow",
    "memory_search",
    "memory_get",
    "web_search",
    "web_fetch",
    "lsp",
    "enter_plan_mode",
    "exit_plan_mode",
    "ask_user_question",
    "image_gen",
    "image_edit",
    "image_to_video",
    "reference_to_video",
)
_WRITE = "OpenCode:write"
_PLANNING = _grok("enter_plan_mode", "exit_plan_mode", "ask_user_question")

PRESETS: Mapping[str, tuple[str, ...]] = {
    DEFAULT: (*_INTERACTIVE, _WRITE),
    "explore": _EXPLORE,
    "plan": (*_EXPLORE, "GrokBuild:todo_write"),
    "grok-build-plan": (*_EXPLORE, "GrokBuild:todo_write", *_PLANNING),
    "grok-computer": (
        *_grok("run_terminal_cmd", "read_file", "search_replace"),
        _WRITE,
        *_grok("list_dir", "grep", "get_terminal_command_output", "kill_terminal_command"),
    ),
    "opencode": (
        *(
            f"OpenCode:{one}"
            for one in ("bash", "read", "edit", "write", "grep", "glob", "todowrite", "skill")
        ),
        *_grok("get_task_output", "kill_task"),
    ),
}


def preset(name: str, registry: Registry) -> ToolServerConfig:
    """The configuration of a preset, of those tools that are registered.

    A preset lists what a complete engine has; what this one lacks is absent as unregistered, while an
    unknown id in a configuration that somebody wrote is an error.
    """
    normal = re.sub(r"[ _]+", "-", name.strip().lower())
    if normal not in PRESETS:
        raise PresetError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
    return ToolServerConfig(tuple(_entry(key) for key in PRESETS[normal] if registry.get(key) is not None))


def _entry(key: str) -> ToolConfig:
    name, params = _NAMES.get(key, (None, {}))
    return ToolConfig(key, dict(_PARAMS.get(key, {})), name, params)


def with_params(config: ToolServerConfig, key: str, params: Mapping[str, object]) -> ToolServerConfig:
    """The configuration with further parameters of one tool, as a host sets them for its machine."""
    return dataclasses.replace(config, tools=tuple(_overlaid(one, key, params) for one in config.tools))


def _overlaid(one: ToolConfig, key: str, params: Mapping[str, object]) -> ToolConfig:
    return dataclasses.replace(one, params={**one.params, **params}) if one.id == key else one


def wanted(name: str = DEFAULT) -> Sequence[str]:
    """The qualified ids that a preset lists, registered or not."""
    return PRESETS[name]
