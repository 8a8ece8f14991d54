"""Composition: what a session gets, what it does not get, and the reasons."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.foreign import ForeignTool
from harness.registry.capabilities import CapabilityMode, allows, within
from harness.registry.compose import Selection
from harness.registry.config import ConfigRejected, ToolConfig
from harness.registry.contract import ClientContract, Resource, ToolKind
from harness.registry.toolset import Toolset
from tests.harness.registry.tools import (
    ALL,
    CREATE,
    DELETE,
    EDIT,
    ENTER,
    KILL,
    LEAVE,
    MONITOR,
    OUTPUT,
    READ,
    RUN,
    TODO,
    Echo,
    config,
    registry,
)

MUTE = ClientContract(offers=frozenset())


def ids(toolset: Toolset) -> set[str]:
    return {tool.spec.id for tool in toolset.tools}


def without(*gone: Echo) -> Toolset:
    return registry().compose(config(*(tool for tool in ALL if tool not in gone)))


def test_with_everything_there_everything_is_there() -> None:
    toolset = registry().compose(config())
    assert [tool.spec for tool in toolset.tools] == [tool.spec for tool in ALL]
    assert not toolset.absent
    assert not toolset.concessions
    assert all(toolset.why_absent(tool.spec.key) is None for tool in ALL)


#: What is taken away, the tool that then is not there, and what its reason must name.
REMOVED = [
    (READ, EDIT, "kind read"),
    (LEAVE, ENTER, "GrokBuild:exit_plan_mode"),
    (ENTER, LEAVE, "GrokBuild:enter_plan_mode"),
    (CREATE, DELETE, "GrokBuild:scheduler_create"),
    (RUN, OUTPUT, "GrokBuild:run_terminal_cmd"),
    (RUN, KILL, "GrokBuild:run_terminal_cmd"),
    (OUTPUT, KILL, "enabled_background"),
    (KILL, OUTPUT, "enabled_background"),
]


@pytest.mark.parametrize(("gone", "dependent", "named"), REMOVED)
def test_a_tool_goes_with_what_it_needs_and_the_reason_names_it(
    gone: Echo, dependent: Echo, named: str
) -> None:
    toolset = without(gone)
    assert dependent.spec.id not in ids(toolset)
    reason = toolset.why_absent(dependent.spec.id)
    assert reason is not None
    assert reason.stage == "requirements"
    assert named in reason.text
    unlisted = toolset.why_absent(gone.spec.key)
    assert unlisted is not None
    assert unlisted.stage == "unselected"


@pytest.mark.parametrize(
    ("resource", "dependent"), [(Resource.NOTIFICATIONS, MONITOR), (Resource.PLAN_APPROVAL, LEAVE)]
)
def test_a_tool_goes_with_the_resource_it_needs(resource: Resource, dependent: Echo) -> None:
    contract = ClientContract(offers=frozenset(Resource) - {resource})
    reason = registry().compose(config(), contract=contract).why_absent(dependent.spec.id)
    assert reason is not None
    assert f"the resource {resource}" in reason.missing


@pytest.mark.parametrize("gone", [OUTPUT, KILL, None])
def test_a_terminal_without_retrieval_kill_or_channel_offers_no_background(gone: Echo | None) -> None:
    toolset = without(gone) if gone else registry().compose(config(), contract=MUTE)
    terminal = toolset.named("run_terminal_cmd")
    assert terminal is not None
    assert terminal.params["enabled_background"] is False
    assert "is_background" not in terminal.schema["properties"]
    assert "background" not in terminal.description
    conceded = toolset.concessions[RUN.spec.key]
    assert "enabled_background = False" in conceded.text
    assert (f"kind {gone.spec.kind}" if gone else "notifications") in conceded.text
    assert not {"get_task_output", "kill_task"} & ids(toolset)


def test_an_edit_that_is_configured_to_need_no_read_needs_none() -> None:
    bold = ToolConfig(EDIT.spec.key, {"skip_read_before_edit": True})
    assert ids(registry().compose(config(bold))) == {"search_replace"}


@given(st.sets(st.sampled_from(ALL)), st.sampled_from(CapabilityMode), st.sets(st.sampled_from(Resource)))
def test_what_is_composed_is_right_and_everything_else_has_a_reason(
    some: set[Echo], mode: CapabilityMode, offers: set[Resource]
) -> None:
    contract = ClientContract(offers=frozenset(offers))
    tools = registry()
    chosen = [tool for tool in ALL if tool in some]
    toolset = tools.compose(
        config(*chosen) if chosen else dataclasses.replace(config(), tools=()), mode, contract
    )
    again = tuple(ToolConfig(tool.spec.key, tool.params) for tool in toolset.tools)
    assert tools.validate(dataclasses.replace(config(), tools=again), contract) == ()
    assert all(allows(mode, tool.spec.kind) for tool in toolset.tools)
    for tool in ALL:
        assert (tool.spec.id in ids(toolset)) is (toolset.why_absent(tool.spec.key) is None)


# -- modes -----------------------------------------------------------------------------------------


def test_the_modes_are_a_lattice_with_two_that_cannot_be_compared() -> None:
    order = {(a.value, b.value) for a, b in itertools.product(CapabilityMode, repeat=2) if within(a, b)}
    below = {("read_only", "read_write"), ("read_only", "execute"), ("read_only", "all")}
    below |= {("read_write", "all"), ("execute", "all")} | {(m.value, m.value) for m in CapabilityMode}
    assert order == below


@given(st.sampled_from(CapabilityMode), st.sampled_from(CapabilityMode))
def test_a_narrower_mode_never_brings_a_kind(child: CapabilityMode, parent: CapabilityMode) -> None:
    if within(child, parent):
        assert all(allows(parent, kind) for kind in ToolKind if allows(child, kind))


@pytest.mark.parametrize(
    ("mode", "present"),
    [
        (CapabilityMode.READ_ONLY, {"read_file", "enter_plan_mode", "exit_plan_mode", "todo_write"}),
        (
            CapabilityMode.READ_WRITE,
            {"read_file", "search_replace", "enter_plan_mode", "exit_plan_mode", "todo_write"},
        ),
        (
            CapabilityMode.EXECUTE,
            {tool.spec.id for tool in ALL} - {"search_replace", "scheduler_create", "scheduler_delete"},
        ),
        (CapabilityMode.ALL, {tool.spec.id for tool in ALL}),
    ],
)
def test_a_mode_decides_by_kind(mode: CapabilityMode, present: set[str]) -> None:
    toolset = registry().compose(config(), mode)
    assert ids(toolset) == present
    for tool in ALL:
        if tool.spec.id not in present and not allows(mode, tool.spec.kind):
            reason = toolset.why_absent(tool.spec.key)
            assert reason is not None
            assert (reason.stage, str(mode) in reason.text) == ("capability", True)


def test_a_kind_that_nobody_knows_counts_as_other() -> None:
    assert ToolKind("teleport") is ToolKind.OTHER
    assert len(ToolKind) == 34


# -- lists of names --------------------------------------------------------------------------------


def test_what_is_forbidden_takes_its_dependents_along() -> None:
    toolset = registry().compose(config(), selection=Selection(disallowed=("Read",)))
    assert (toolset.why_absent("read_file") or 0).stage == "denied"  # type: ignore[union-attr]
    assert (toolset.why_absent("search_replace") or 0).stage == "requirements"  # type: ignore[union-attr]


def test_an_allow_list_takes_full_short_and_foreign_names() -> None:
    names = ("GrokBuild:todo_write", "read_file", "Edit")
    toolset = registry().compose(config(), selection=Selection(allowed=names))
    assert ids(toolset) == {"todo_write", "read_file", "search_replace"}


def test_an_allow_list_with_an_unknown_name_is_ignored_and_said_to_be() -> None:
    toolset = registry().compose(config(), selection=Selection(allowed=("read_file", "teleport")))
    assert len(toolset.tools) == len(ALL)
    assert "teleport" in toolset.warnings[0]


def test_the_operator_comes_after_the_agent() -> None:
    selection = Selection(
        allowed=("Read", "Edit", "Bash"), operator_denied=("Bash",), operator_allowed=("Read",)
    )
    assert ids(registry().compose(config(), selection=selection)) == {"read_file"}


# -- layers ----------------------------------------------------------------------------------------


async def _never(*_: object) -> str:
    return ""


def foreign(name: str, namespace: str = "MCP") -> ForeignTool:
    return ForeignTool(name, {"type": "object"}, _never, namespace=namespace)


def test_the_baseline_wins_over_servers_and_those_over_remote_tools() -> None:
    mcp = (foreign("read_file"), foreign("srv__look"))
    hub = (foreign("srv__look", "Hub"), foreign("far__look", "Hub"))
    toolset = registry().compose(config(READ), mcp=mcp, hub=hub)
    assert [tool.spec.key for tool in toolset.tools] == [
        "GrokBuild:read_file",
        "MCP:srv__look",
        "Hub:far__look",
    ]
    for key in ("MCP:read_file", "Hub:srv__look"):
        assert toolset.absent[key].stage == "name_taken"


def test_nobody_knows_what_a_foreign_tool_does_so_only_a_root_session_has_it() -> None:
    toolset = registry().compose(config(READ), CapabilityMode.READ_WRITE, mcp=(foreign("srv__look"),))
    assert toolset.absent["MCP:srv__look"].stage == "capability"


def test_a_wrong_configuration_is_rejected_not_composed() -> None:
    with pytest.raises(ConfigRejected, match="no such tool"):
        registry().compose(config(READ, ToolConfig("GrokBuild:nothing")))


def test_equal_compositions_have_one_fingerprint_and_others_another() -> None:
    tools = registry()
    prints = [
        tools.compose(config()).fingerprint,
        tools.compose(config(READ)).fingerprint,
        tools.compose(config(), CapabilityMode.EXECUTE).fingerprint,
        tools.compose(config(), contract=MUTE).fingerprint,
        tools.compose(config(), mcp=(foreign("srv__look"),)).fingerprint,
        tools.compose(config(ToolConfig(TODO.spec.key, name_override="plan"))).fingerprint,
    ]
    assert len(set(prints)) == len(prints)
    assert tools.compose(config()).fingerprint == prints[0]
