"""The strict validator: a configuration is right as a whole, or everything that is wrong is told.

It runs in stages and stops at the first that finds something, because errors of a later stage would only
follow from those.  It never repairs: leaving out what cannot work is the composer's part.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from harness.registry.arguments import ArgumentError, check_params
from harness.registry.config import ConfigError, ToolConfig, ToolServerConfig
from harness.registry.contract import Tool, ToolSpec
from harness.registry.renames import problems
from harness.registry.requirements import Situation, unmet
from harness.registry.toolset import Chosen

__all__ = ["choose", "requirement_errors", "validate"]

#: The only behaviour that exists here; older ones are the original's own past.
CURRENT = "current"

_FILE_TOOLS = frozenset({"GrokBuild:read_file", "GrokBuild:search_replace", "GrokBuild:grep"})
_HASHLINE = "GrokBuildHashline"

Tools = Mapping[str, Tool]


def validate(config: ToolServerConfig, tools: Tools, resources: frozenset[str]) -> tuple[ConfigError, ...]:
    """Everything wrong in the first stage that finds something; nothing when the configuration is right."""
    stages: tuple[Callable[[], Iterable[ConfigError]], ...] = (
        lambda: _preset_errors(config),
        lambda: (error for one in config.tools for error in _tool_errors(one, tools)),
        lambda: _name_errors(config.tools),
        lambda: _conflict_errors(config.tools),
        lambda: requirement_errors([choose(one, tools[one.id]) for one in config.tools], resources),
    )
    return next((errors for stage in stages if (errors := tuple(stage()))), ())


def choose(config: ToolConfig, tool: Tool) -> Chosen:
    """A tool under its configuration; given parameters lie flat over the defaults."""
    return Chosen(
        tool,
        config.client_name,
        {**tool.spec.default_params, **config.params},
        config.params_name_overrides,
        config.description_override,
    )


def requirement_errors(chosen: Sequence[Chosen], resources: frozenset[str]) -> Iterator[ConfigError]:
    """The tools whose requirements the set does not meet, and what they lack."""
    for one, missing in unsupported(chosen, resources):
        text = f"needs {'; '.join(missing)}"
        yield ConfigError(one.spec.key, text, "requirements", expected="; ".join(missing))


def unsupported(
    chosen: Sequence[Chosen], resources: frozenset[str]
) -> Iterator[tuple[Chosen, tuple[str, ...]]]:
    candidates = [one.candidate() for one in chosen]
    for one in chosen:
        if missing := unmet(one.spec.requires, Situation(candidates, one.params, resources)):
            yield one, missing


def _preset_errors(config: ToolServerConfig) -> Iterator[ConfigError]:
    if config.behavior_preset not in (None, CURRENT):
        yield ConfigError(
            "", "unknown preset", "behavior_preset", "behavior_preset", CURRENT, config.behavior_preset
        )


def _tool_errors(config: ToolConfig, tools: Tools) -> Iterator[ConfigError]:
    tool = tools.get(config.id)
    if tool is None:
        yield ConfigError(config.id, "no such tool is registered", "tool_not_found", "id", None, config.id)
        return
    spec = tool.spec
    yield from _version_errors(config, spec)
    for text in problems(config.params_name_overrides, spec.input_properties):
        yield ConfigError(config.id, text, "params_name_overrides", "params_name_overrides")
    params = {**spec.default_params, **config.params}
    try:
        check_params(spec, params)
    except ArgumentError as error:
        yield ConfigError(config.id, str(error), "params", "params", None, dict(config.params))
        return
    own = Situation((), params, frozenset())
    for rule, wrong in spec.params_rules:
        if unmet(rule, own):
            yield ConfigError(config.id, wrong, "params", "params", None, dict(config.params))


def _version_errors(config: ToolConfig, spec: ToolSpec) -> Iterator[ConfigError]:
    if config.behavior_version is None:
        return
    wrong = "has no versions" if not spec.managed else "has no such version"
    if not spec.managed or config.behavior_version != CURRENT:
        yield ConfigError(
            config.id, wrong, "behavior_version", "behavior_version", CURRENT, config.behavior_version
        )


def _name_errors(tools: Sequence[ToolConfig]) -> Iterator[ConfigError]:
    taken = dict[str, str]()
    for one in tools:
        if (other := taken.setdefault(one.client_name, one.id)) != one.id or _twice(one, tools):
            text = f"{other} is called {one.client_name}, too"
            yield ConfigError(one.id, text, "duplicate_client_name", "name_override", None, one.client_name)


def _twice(one: ToolConfig, tools: Sequence[ToolConfig]) -> bool:
    """Whether this entry is a repetition of an earlier one (the entries are compared by identity)."""
    return next(other for other in tools if other.id == one.id) is not one


def _conflict_errors(tools: Sequence[ToolConfig]) -> Iterator[ConfigError]:
    """Two ways of numbering lines in one session would mislead the model."""
    if not any(one.id.startswith(f"{_HASHLINE}:") for one in tools):
        return
    for one in tools:
        if one.id in _FILE_TOOLS:
            text = "cannot stand beside tools that address lines by hash"
            yield ConfigError(one.id, text, "file_toolset_conflict")


def with_params(one: Chosen, overlay: Mapping[str, object]) -> Chosen:
    return dataclasses.replace(one, params={**one.params, **overlay})
