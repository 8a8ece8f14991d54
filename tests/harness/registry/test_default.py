"""The tools that there really are: each requirement removed in turn, texts rendered, specs sound."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Iterator

import fastjsonschema
import pytest

from harness.registry.arguments import check_params
from harness.registry.capabilities import CapabilityMode
from harness.registry.config import ToolConfig, ToolServerConfig
from harness.registry.contract import ClientContract, Resource, Tool
from harness.registry.presets import DEFAULT, PRESETS, PresetError, preset, wanted
from harness.registry.requirements import (
    All,
    Any_,
    Expr,
    HasKind,
    HasResource,
    HasTool,
    IfParams,
    Not,
    Situation,
    unmet,
)
from harness.registry.toolset import Toolset
from harness.registry.validate import choose
from harness.tools import default_registry

REGISTRY = default_registry()
TOOLS: list[Tool] = [tool for key in REGISTRY.keys if (tool := REGISTRY.get(key)) is not None]
FULL = preset(DEFAULT, REGISTRY)
EVERYTHING = frozenset(map(str, Resource))


def ids(tool: Tool) -> str:
    return tool.spec.key


def leaves(expression: Expr) -> Iterator[Expr]:
    match expression:
        case All(parts) | Any_(parts):
            for part in parts:
                yield from leaves(part)
        case Not(part):
            yield from leaves(part)
        case IfParams(_, requirement):
            yield from leaves(requirement)
        case _:
            yield expression


def holding(tool: Tool) -> ToolServerConfig:
    """A set in which this tool is: the preset's, or all of its family."""
    if any(one.id == tool.spec.key for one in FULL.tools):
        return FULL
    family = [
        other
        for other in TOOLS
        if other.spec.namespace == tool.spec.namespace and other.spec.id not in _TWINS
    ]
    entries = [ToolConfig(other.spec.key) for other in family if other is not tool]
    return ToolServerConfig((*entries, ToolConfig(tool.spec.key)))


#: Kinds of which a family has two tools under different names.
_TWINS = {"get_terminal_command_output", "kill_terminal_command"}

REMOVALS = [
    (tool, leaf)
    for tool in TOOLS
    for leaf in dict.fromkeys(leaves(tool.spec.requires))
    if isinstance(leaf, HasTool | HasKind | HasResource)
]


@pytest.mark.parametrize(
    ("tool", "leaf"), REMOVALS, ids=lambda one: ids(one) if hasattr(one, "spec") else str(one)
)
def test_what_is_removed_takes_the_tool_along_or_a_part_of_it_and_is_named(tool: Tool, leaf: Expr) -> None:
    config, contract = holding(tool), ClientContract()
    entries = [one for one in config.tools if one.id == tool.spec.key or not _is(leaf, one.id)]
    if isinstance(leaf, HasResource):
        contract = ClientContract(offers=EVERYTHING - {leaf.name})
    reduced = dataclasses.replace(config, tools=tuple(entries))
    chosen = [choose(one, found) for one in entries if (found := REGISTRY.get(one.id)) is not None]
    own = next(one for one in chosen if one.spec is tool.spec)
    missing = unmet(
        tool.spec.requires,
        Situation([one.candidate() for one in chosen], own.params, frozenset(contract.offers)),
    )
    toolset = REGISTRY.compose(reduced, contract=contract)
    if not missing:
        assert toolset.keyed(tool.spec.key) is not None  # something else serves as well
        return
    reason = toolset.why_absent(tool.spec.key) if toolset.keyed(tool.spec.key) is None else None
    reason = reason or toolset.concessions.get(tool.spec.key)
    assert reason is not None
    assert reason.stage == "requirements"
    name = leaf.key if isinstance(leaf, HasTool) else leaf.kind if isinstance(leaf, HasKind) else leaf.name  # type: ignore[attr-defined]
    assert str(name) in reason.text


def _is(leaf: Expr, key: str) -> bool:
    tool = REGISTRY.get(key)
    if isinstance(leaf, HasTool):
        return key == leaf.key
    return isinstance(leaf, HasKind) and tool is not None and tool.spec.kind == leaf.kind


@functools.cache
def composed() -> tuple[Toolset, ...]:
    contracts = [ClientContract(offers=EVERYTHING - {gone}) for gone in ("", *EVERYTHING)]
    every = itertools.product(PRESETS, CapabilityMode, contracts)
    return tuple(REGISTRY.compose(preset(name, REGISTRY), mode, contract) for name, mode, contract in every)


def test_no_marker_and_no_placeholder_reaches_a_model_whatever_is_composed() -> None:
    figures = {name for tool in TOOLS for name in tool.spec.figures}
    for toolset in composed():
        text = json.dumps([tool.definition() for tool in toolset.tools])
        assert "${" not in text
        assert "%}" not in text
        assert not figures & set(re.findall(r"\{([a-z_]+)\}", text))


def test_every_schema_that_is_offered_is_one() -> None:
    schemas = {json.dumps(tool.schema) for toolset in composed() for tool in toolset.tools}
    for schema in map(json.loads, schemas):
        fastjsonschema.compile(schema)
        assert set(schema["required"]) <= set(schema["properties"])
    assert all(tool.description for toolset in composed() for tool in toolset.tools)


def test_the_preset_is_complete_and_goes_without_nothing() -> None:
    toolset = REGISTRY.compose(FULL)
    assert [tool.spec.key for tool in toolset.tools] == [key for key in wanted() if REGISTRY.get(key)]
    assert not toolset.concessions
    assert REGISTRY.validate(FULL) == ()


@pytest.mark.parametrize("tool", TOOLS, ids=ids)
def test_a_spec_is_sound(tool: Tool) -> None:
    spec, inputs = tool.spec, set(tool.spec.input_properties)
    assert set(spec.reads) <= {
        "path",
        "offset",
        "limit",
        "command",
        "description",
        "cwd",
        "directory",
        "pattern",
    }
    for names in (
        spec.reads.values(),
        spec.shown_defaults,
        spec.aliases.values(),
        spec.scalar_lists,
        spec.input_when,
    ):
        assert set(names) <= inputs
    assert set(spec.input_schema.get("required", ())) <= inputs
    assert spec.unadvertised <= inputs
    check_params(spec, spec.default_params)
    for overlay in spec.concessions:
        check_params(spec, {**spec.default_params, **overlay})
    assert "title" not in spec.input_schema


@pytest.mark.parametrize("name", ["grok-build", "Grok Build", "GROK_BUILD", " explore "])
def test_a_preset_is_found_however_it_is_written(name: str) -> None:
    assert preset(name, REGISTRY).tools


def test_an_unknown_preset_says_which_there_are() -> None:
    with pytest.raises(PresetError, match=r"no preset 'nothing'; there are grok-build,"):
        preset("nothing", REGISTRY)


def test_the_names_of_production() -> None:
    toolset = REGISTRY.compose(FULL)
    terminal = toolset.keyed("GrokBuild:run_terminal_cmd")
    assert terminal is not None
    assert terminal.name == "run_terminal_command"
    assert "background" in terminal.schema["properties"]
    assert toolset.named("get_command_or_subagent_output") is not None
    assert toolset.named("kill_command_or_subagent") is not None


def test_no_text_names_a_tool_that_the_session_does_not_have() -> None:
    known = {tool.spec.id for tool in TOOLS} | {tool.name for tool in REGISTRY.compose(FULL).tools}
    names = {name for name in known if "_" in name}  # the others are plain words, too
    for toolset in composed():
        text = json.dumps([tool.definition() for tool in toolset.tools])
        absent = names - {tool.name for tool in toolset.tools}
        assert not {name for name in absent if re.search(rf"\b{name}\b", text)}


@pytest.mark.parametrize("family", ["GrokBuild", "OpenCode"])
def test_each_family_speaks_the_clients_language_under_any_names(family: str) -> None:
    """With everything renamed, schema, required list, texts and arguments follow, and the identity stays."""
    tools = [one for one in TOOLS if one.spec.namespace == family and one.spec.id not in _TWINS]
    if family == "OpenCode":
        tools += [one for one in TOOLS if one.spec.id in ("get_task_output", "kill_task")]
    entries = tuple(
        ToolConfig(
            one.spec.key,
            name_override=f"Qx{i}",
            params_name_overrides={name: f"qx{i}{j}" for j, name in enumerate(one.spec.input_properties)},
        )
        for i, one in enumerate(tools)
    )
    toolset = REGISTRY.compose(ToolServerConfig(entries))
    assert [tool.spec for tool in toolset.tools] == [one.spec for one in tools]
    plain = REGISTRY.compose(ToolServerConfig(tuple(ToolConfig(one.spec.key) for one in tools)))
    ids_in_use = {one.spec.id for one in tools if "_" in one.spec.id}
    for tool, usual in zip(toolset.tools, plain.tools, strict=True):
        offered = {tool.renames[name] for name in usual.schema["properties"]}
        assert set(tool.schema["properties"]) == offered
        assert set(tool.schema["required"]) == {tool.renames[name] for name in usual.schema["required"]}
        assert tool.canonical({tool.renames[name]: name for name in tool.spec.input_properties}) == {
            name: name for name in tool.spec.input_properties
        }
        text = json.dumps(tool.definition())
        assert not {name for name in ids_in_use if re.search(rf"\b{name}\b", text)}
        long_inputs = {
            name for one in tools for name in one.spec.input_properties if re.search(r"_|[a-z][A-Z]", name)
        }
        assert not {name for name in long_inputs if re.search(rf"\b{name}\b", text)}
