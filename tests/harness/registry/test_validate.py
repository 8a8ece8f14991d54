"""The strict validator: stages, categories, and that it never repairs."""

from __future__ import annotations

import dataclasses

import pytest

from harness.registry.config import ConfigRejected, ToolConfig, ToolServerConfig
from harness.registry.contract import ClientContract
from harness.registry.registry import Registry
from tests.harness.registry.tools import ALL, EDIT, KILL, OUTPUT, READ, RUN, TODO, Echo, config, registry


def errors(*tools: Echo | ToolConfig, preset: str | None = None) -> list[tuple[str, str]]:
    given = dataclasses.replace(config(*tools), behavior_preset=preset)
    return [(error.tool.rpartition(":")[2], error.category) for error in registry().validate(given)]


@pytest.mark.parametrize(
    ("tools", "wrong"),
    [
        ((ToolConfig("GrokBuild:nothing"),), [("nothing", "tool_not_found")]),
        ((ToolConfig(READ.spec.key, {"depth": 1}),), [("read_file", "params")]),
        ((ToolConfig(EDIT.spec.key, {"skip_read_before_edit": "yes"}),), [("search_replace", "params")]),
        (
            (ToolConfig(RUN.spec.key, {"auto_background_on_timeout": True, "enabled_background": False}),),
            [("run_terminal_cmd", "params")],
        ),
        ((ToolConfig(TODO.spec.key, behavior_version="current"),), [("todo_write", "behavior_version")]),
        ((ToolConfig(READ.spec.key, behavior_version="stone-age"),), [("read_file", "behavior_version")]),
        (
            (READ, ToolConfig(TODO.spec.key, name_override="read_file")),
            [("todo_write", "duplicate_client_name")],
        ),
        ((READ, READ), [("read_file", "duplicate_client_name")]),
        (
            (ToolConfig(READ.spec.key, params_name_overrides={"nothing": "x"}),),
            [("read_file", "params_name_overrides")],
        ),
        (
            (ToolConfig(READ.spec.key, params_name_overrides={"offset": "target_file"}),),
            [("read_file", "params_name_overrides")],
        ),
        ((EDIT,), [("search_replace", "requirements")]),
        ((RUN,), [("run_terminal_cmd", "requirements")]),
        ((RUN, OUTPUT), [("run_terminal_cmd", "requirements")]),
        ((OUTPUT, KILL), [("get_task_output", "requirements"), ("kill_task", "requirements")]),
    ],
)
def test_what_is_wrong_is_told_by_tool_and_category(
    tools: tuple[Echo | ToolConfig, ...], wrong: list[tuple[str, str]]
) -> None:
    assert errors(*tools) == wrong


@pytest.mark.parametrize(
    "tools",
    [
        ALL,
        (READ, EDIT),
        (RUN, OUTPUT, KILL),
        (ToolConfig(RUN.spec.key, {"enabled_background": False}),),
        (ToolConfig(RUN.spec.key, {"unknown_is_let_through": 1}), OUTPUT, KILL),
        (ToolConfig(READ.spec.key, behavior_version="current"),),
    ],
)
def test_what_is_right_is_finalised_as_it_stands(tools: tuple[Echo | ToolConfig, ...]) -> None:
    assert errors(*tools) == []
    given = config(*tools)
    assert [t.spec.key for t in registry().finalise(given).tools] == [one.id for one in given.tools]


def test_an_unknown_preset_hides_what_would_only_follow_from_it() -> None:
    assert errors(ToolConfig("GrokBuild:nothing"), preset="stone-age") == [("", "behavior_preset")]
    assert errors(READ, preset="current") == []


def test_finalising_fails_as_a_whole_and_says_everything() -> None:
    with pytest.raises(ConfigRejected) as rejected:
        registry().finalise(config(OUTPUT, KILL, READ))
    assert len(rejected.value.errors) == 2
    assert "run_terminal_cmd" in str(rejected.value)


def test_lines_by_number_and_by_hash_do_not_stand_together() -> None:
    hashed = Echo(dataclasses.replace(READ.spec, namespace="GrokBuildHashline", id="hashline_read"))
    tools = registry()
    tools.register(hashed)
    both = ToolServerConfig((ToolConfig(READ.spec.key), ToolConfig(hashed.spec.key)))
    assert [error.category for error in tools.validate(both)] == ["file_toolset_conflict"]
    assert tools.validate(ToolServerConfig((ToolConfig(hashed.spec.key),))) == ()


def test_two_tools_of_one_id_cannot_be_registered() -> None:
    with pytest.raises(ValueError, match="read_file is registered already"):
        Registry([READ, READ])


def test_a_client_that_hears_nothing_is_seen_by_the_validator_too() -> None:
    wrong = registry().validate(config(RUN, OUTPUT, KILL), ClientContract(offers=frozenset()))
    assert "notifications" in str(wrong[0])


def test_the_manifest_holds_every_registration() -> None:
    manifest = registry().manifest()
    assert list(manifest) == [tool.spec.key for tool in ALL]
    assert manifest[EDIT.spec.key]["requires"].startswith("((skip_read_before_edit = True or")
    assert manifest[OUTPUT.spec.key]["read_only"] is True


def test_a_configuration_is_read_from_the_wires_shape() -> None:
    value = {"tools": [{"id": "GrokBuild:read_file", "name_override": "look", "kind": "read"}]}
    assert ToolServerConfig.from_json(value).tools[0].client_name == "look"
    with pytest.raises(TypeError, match="nonsense"):
        ToolServerConfig.from_json({"tools": [{"id": "x", "nonsense": 1}]})
