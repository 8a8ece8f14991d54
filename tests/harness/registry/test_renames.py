"""Names of the client's own: schema, descriptions, arguments; the identity stays."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.registry.config import ToolConfig
from harness.registry.contract import ClientContract
from harness.registry.renames import problems, rename_schema, to_canonical, to_client
from tests.harness.registry.tools import ALL, EDIT, KILL, OUTPUT, READ, RUN, Echo, config, registry

NAME = st.from_regex(r"[a-z][a-zA-Z_]{0,8}", fullmatch=True)


@given(st.dictionaries(NAME, st.integers(), max_size=6), st.data())
def test_arguments_come_back_as_they_were(arguments: dict[str, int], data: st.DataObject) -> None:
    clients = data.draw(st.lists(NAME, min_size=len(arguments), max_size=len(arguments), unique=True))
    renames = dict(zip(arguments, clients, strict=True))
    assert problems(renames, arguments) == []
    assert to_canonical(to_client(arguments, renames), renames) == arguments


@given(st.permutations(["file_path", "old_string", "new_string", "replace_all"]))
def test_a_toolset_round_trips_through_schema_description_and_arguments(names: list[str]) -> None:
    renames = dict(zip(EDIT.spec.input_properties, names, strict=True))
    entry = ToolConfig(EDIT.spec.key, name_override="change", params_name_overrides=renames)
    tool = registry().compose(config(READ, entry)).named("change")
    assert tool is not None
    assert tool.spec.key == "GrokBuild:search_replace"
    assert list(tool.schema["properties"]) == names
    assert tool.schema["required"] == [renames[name] for name in EDIT.spec.input_schema["required"]]
    # The text in the description of new_string names old_string as the client calls it.
    described = tool.schema["properties"][renames["new_string"]]["description"]
    assert described == f"Not {renames['old_string']}."
    given_arguments = {renames[name]: name for name in EDIT.spec.input_properties}
    assert tool.canonical(given_arguments) == {name: name for name in EDIT.spec.input_properties}


def test_texts_of_other_tools_follow_a_rename() -> None:
    run = ToolConfig(
        RUN.spec.key, name_override="shell", params_name_overrides={"is_background": "background"}
    )
    output = ToolConfig(OUTPUT.spec.key, name_override="peek")
    toolset = registry().compose(config(run, output, KILL))
    shell, peek = toolset.named("shell"), toolset.named("peek")
    assert shell is not None
    assert peek is not None
    assert shell.description == "Run a command. With background it runs on; ask peek for it."
    assert peek.description == "Output of a task of shell."


def test_the_clients_contract_renames_as_the_configuration_does_and_wins() -> None:
    contract = ClientContract(renames={"GrokBuild:read_file": ("open", {"target_file": "path"})})
    toolset = registry().compose(
        config(ToolConfig(READ.spec.key, name_override="look"), EDIT), contract=contract
    )
    tool = toolset.named("open")
    assert tool is not None
    assert tool.schema["required"] == ["path"]
    assert toolset.named("look") is None
    edit = toolset.named("search_replace")
    assert edit is not None
    assert "open showed" in edit.description


def test_a_toolset_under_other_names_is_otherwise_the_same() -> None:
    plain = registry().compose(config())
    entries = [ToolConfig(tool.spec.key, name_override=f"x{i}") for i, tool in enumerate(ALL)]
    other = registry().compose(config(*entries))
    assert [tool.spec for tool in plain.tools] == [tool.spec for tool in other.tools]
    assert plain.fingerprint != other.fingerprint


def test_no_marker_ever_reaches_a_model() -> None:
    broken = "Look ${{ tools. ${% if %} well ${{ params.edit.x }} {unknown_figure}"
    odd = Echo(dataclasses.replace(READ.spec, description=broken, id="odd"))
    tools = registry()
    tools.register(odd)
    toolset = tools.compose(config(*(ToolConfig(tool.spec.key) for tool in (*ALL, odd))))
    text = json.dumps([tool.definition() for tool in toolset.tools])
    assert "${" not in text
    assert "%}" not in text


def test_figures_are_filled_in_and_the_longest_wait_is_a_bound() -> None:
    toolset = registry().compose(config())
    read, output = toolset.named("read_file"), toolset.named("get_task_output")
    assert read is not None
    assert output is not None
    assert read.description == "Read a file, at most 1000 lines of it."
    assert output.schema["properties"]["timeout_ms"] == {
        "type": ["integer", "null"],
        "minimum": 0,
        "description": "At most 600000 ms.",
        "maximum": 600_000,
    }
    assert "maximum" not in OUTPUT.spec.input_properties["timeout_ms"]


def test_a_description_of_ones_own_is_a_template_too() -> None:
    entry = ToolConfig(KILL.spec.key, description_override="Stop what ${{ tools.by_kind.execute }} began.")
    toolset = registry().compose(config(RUN, OUTPUT, entry))
    tool = toolset.named("kill_task")
    assert tool is not None
    assert tool.definition()["function"]["description"] == "Stop what run_terminal_cmd began."


def test_alternatives_of_a_schema_are_renamed_too() -> None:
    schema = {
        "properties": {"a": {}},
        "oneOf": [{"required": ["a"]}, {"properties": {"a": {"type": "string"}}}],
    }
    renamed = rename_schema(schema, {"a": "b"})
    assert renamed == {
        "properties": {"b": {}},
        "oneOf": [{"required": ["b"]}, {"properties": {"b": {"type": "string"}}}],
    }


@pytest.mark.parametrize("tool", ALL)
def test_an_object_schema_always_says_properties_and_required(tool: Echo) -> None:
    found = registry().compose(config()).keyed(tool.spec.key)
    assert found is not None
    assert found.schema["type"] == "object"
    assert set(found.schema["required"]) <= set(found.schema["properties"])
