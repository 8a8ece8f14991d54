"""The gate's tables: what a call is, and what each mode says to it."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from workers.pi.capabilities import Capabilities, Kind, Tool, classify, decide

ALL = Capabilities(read=True, write=True, shell=True)
NONE = Capabilities(read=False, write=False, shell=False)


@pytest.mark.parametrize(
    ("name", "stamp", "tool_input", "kind"),
    [
        ("read_file", None, None, Kind.READ),
        ("hashline_grep", None, None, Kind.READ),
        ("search_replace", None, None, Kind.WRITE),
        ("hashline_edit", None, None, Kind.WRITE),
        ("run_terminal_command", None, None, Kind.SHELL),
        ("kill_task", None, None, Kind.SHELL),
        ("todo_write", None, None, Kind.HARMLESS),
        ("spawn_subagent", None, None, Kind.HARMLESS),
        ("wonder_tool", None, None, Kind.OTHER),
        ("web_fetch", {"kind": "web_fetch", "read_only": True}, None, Kind.OTHER),
        ("wonder_tool", {"kind": "execute"}, None, Kind.SHELL),
        ("wonder_tool", {"kind": "delete"}, None, Kind.WRITE),
        ("srv__tool", None, None, Kind.MCP),
        ("use_tool", None, {"tool_name": "srv__tool"}, Kind.MCP),
        ("use_tool", {"kind": "use_tool"}, {"tool_name": "srv__tool"}, Kind.MCP),
        ("use_tool", None, None, Kind.MCP),
        ("anything", {"kind": "other", "namespace": "mcp"}, None, Kind.MCP),
    ],
)
def test_classification(name: str, stamp: Any, tool_input: Any, kind: Kind) -> None:
    assert classify(name, stamp, tool_input).kind is kind


def test_an_mcp_tool_has_its_server_and_its_real_name() -> None:
    tool = classify("use_tool", None, {"tool_name": "my_srv__do__it"})
    assert (tool.name, tool.server) == ("my_srv__do__it", "my_srv")


@pytest.mark.parametrize(
    ("kind", "auto", "read_only", "ask", "yolo"),
    [
        (Kind.READ, "allow", "allow", "allow", "allow"),
        (Kind.HARMLESS, "allow", "allow", "allow", "allow"),
        (Kind.WRITE, "allow", "deny", "ask", "allow"),
        (Kind.SHELL, "allow", "deny", "ask", "allow"),
        (Kind.MCP, "allow", "deny", "ask", "allow"),
        (Kind.OTHER, "allow", "deny", "ask", "allow"),
    ],
)
def test_verdicts_with_every_capability(kind: Kind, auto: str, read_only: str, ask: str, yolo: str) -> None:
    tool = Tool("t", kind)
    answers = [decide(tool, mode, ALL).answer for mode in ("auto", "read-only", "ask", "yolo")]
    assert answers == [auto, read_only, ask, yolo]
    assert decide(tool, "ask", ALL, ui=False).answer == read_only


@pytest.mark.parametrize(
    ("kind", "auto"),
    [
        (Kind.READ, "deny"),
        (Kind.HARMLESS, "allow"),
        (Kind.WRITE, "deny"),
        (Kind.SHELL, "deny"),
        (Kind.MCP, "deny"),
        (Kind.OTHER, "deny"),
    ],
)
def test_verdicts_without_any_capability(kind: Kind, auto: str) -> None:
    assert decide(Tool("t", kind), "auto", NONE).answer == auto


@pytest.mark.parametrize(("mode", "kind"), itertools.product(("auto", "read-only", "ask", "yolo"), Kind))
def test_the_deny_list_wins_always(mode: str, kind: Kind) -> None:
    lists = {"deny": [re.compile("t.*")], "allow": [re.compile("tool")]}
    verdict = decide(Tool("tool", kind), mode, ALL, **lists)
    assert verdict.answer == "deny"
    assert "denyGrokTools" in verdict.reason


def test_lists_match_whole_names() -> None:
    assert decide(Tool("run_it", Kind.SHELL), "auto", ALL, deny=[re.compile("run")]).answer == "allow"


def test_the_allow_list_lifts_lacking_capabilities_but_not_read_only_nor_ask() -> None:
    allow = [re.compile("t")]
    tool = Tool("t", Kind.SHELL)
    assert decide(tool, "auto", NONE, allow=allow).answer == "allow"
    assert decide(tool, "read-only", ALL, allow=allow).answer == "deny"
    assert decide(tool, "ask", NONE, allow=allow).answer == "ask"


@pytest.mark.parametrize("how", ["hint", "server"])
def test_an_mcp_tool_that_only_reads_is_read_only(how: str) -> None:
    tool = Tool("srv__t", Kind.MCP, "srv")
    if how == "hint":
        more: dict[str, Any] = {"hinted_read_only": True}
    else:
        more = {"mcp_read_only": [re.compile("s.v")]}
    for mode in ("auto", "read-only", "ask"):
        assert decide(tool, mode, NONE, **more).answer == "allow"
    assert decide(tool, "read-only", ALL).answer == "deny"


def test_a_stamp_may_say_that_an_unknown_tool_only_reads() -> None:
    assert decide(Tool("t", Kind.OTHER, read_only=True), "read-only", NONE).answer == "allow"
    assert decide(Tool("t", Kind.OTHER), "read-only", ALL).answer == "deny"


def test_capabilities_of_active_tools() -> None:
    assert Capabilities.of({"grep"}, "auto") == Capabilities(True, False, False)
    assert Capabilities.of({"edit", "bash"}, "auto") == Capabilities(False, True, True)
    assert Capabilities.of((), "yolo") == ALL
