"""Session parameters: what is set by the gateway, what stays, and which hooks are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.wire.jsonrpc import BadMessage, dump
from gateway.wire.limits import Limits
from workers.session_params import hook_timeout, session_params

IDENTIFIER = "gateway-0123"


def test_the_identifier_is_ours_and_all_else_stays() -> None:
    raw = b'{"cwd": "/w\\u006frk","_meta":{"n":1180591620717411303424 , "clientIdentifier":"x"},"z":[1.50]}'
    assert session_params(raw, IDENTIFIER) == raw.replace(b'"x"', b'"gateway-0123"')
    assert session_params(b"{}", IDENTIFIER) == b'{"_meta":{"clientIdentifier":"gateway-0123"}}'
    assert (
        session_params(b'{"_meta": null }', IDENTIFIER) == b'{"_meta": {"clientIdentifier":"gateway-0123"} }'
    )
    assert (
        session_params(b'{"a":1,"_meta":{"b": 2 } }', IDENTIFIER)
        == b'{"a":1,"_meta":{"b": 2 ,"clientIdentifier":"gateway-0123"} }'
    )


def registered(event: str, group: dict[str, Any], scale: float = 1) -> dict[str, Any]:
    raw = dump({"_meta": {"x.ai/hooks": {event: [group]}}})
    return json.loads(session_params(raw, IDENTIFIER, Limits().scaled(scale)))["_meta"]["x.ai/hooks"][event][
        0
    ]


@pytest.mark.parametrize("event", ["pre_tool_use", "PreToolUse", "preToolUse"])
@pytest.mark.parametrize("timeout", [None, 1, 30, 599.5, 600, 10**30, -1, 0, "30", True, []])
def test_a_pre_hook_waits_as_long_as_grok_allows(event: str, timeout: Any) -> None:
    group = {"matcher": "Bash", "hookCallbackIds": ["pre"], "timeout": timeout, "more": [1]}
    assert registered(event, group) == group | {"timeout": 600}
    assert registered(event, group, 0.0125) == group | {"timeout": 8}
    assert registered(event, group, 0.0001) == group | {"timeout": 1}
    del group["timeout"]
    assert registered(event, group) == group | {"timeout": 600}


@pytest.mark.parametrize(
    ("timeout", "kept"),
    [
        (30, 30),
        (1, 1),
        (0.5, 1),
        (2.5, 3),
        (601, 600),
        (10**30, 600),
        (None, 600),
        (0, 600),
        (-5, 600),
        ("9", 600),
    ],
)
@pytest.mark.parametrize("event", ["post_tool_use", "Stop", "subagentStop"])
def test_other_hooks_keep_their_bounded_timeout(event: str, timeout: Any, kept: int) -> None:
    assert registered(event, {"hookCallbackIds": ["x"], "timeout": timeout})["timeout"] == kept
    assert hook_timeout(event, timeout, Limits()) == kept


@pytest.mark.parametrize(
    "hooks",
    [
        None,
        [],
        "all",
        {"pre_tool_use": {}},
        {"pre_tool_use": [[]]},
        {"pre_tool_use": [{}]},
        {"pre_tool_use": [{"hookCallbackIds": []}]},
        {"pre_tool_use": [{"hookCallbackIds": "pre"}]},
        {"pre_tool_use": [{"hookCallbackIds": [""]}]},
        {"pre_tool_use": [{"hookCallbackIds": [1]}]},
        {"pre_tool_use": [{"hookCallbackIds": ["a"], "matcher": 1}]},
        {"PRE_TOOL_USE": [{"hookCallbackIds": ["a"]}]},
        {"pre-tool-use": [{"hookCallbackIds": ["a"]}]},
        {"Pre_Tool_Use": [{"hookCallbackIds": ["a"]}]},
    ],
)
def test_hooks_that_grok_would_skip_are_refused(hooks: Any) -> None:
    with pytest.raises(BadMessage):
        session_params(dump({"_meta": {"x.ai/hooks": hooks}}), IDENTIFIER)


ACCEPTED_MATCHERS = [
    "",
    "*",
    "Bash",
    "Bash|Edit",
    "run_terminal.*|read_file",
    "^run_(terminal|x)_(?:command|cmd)$",
    "[A-Za-z_-]+",
    r"\w+",
    "pi__.*",
    ".",
]


@pytest.mark.parametrize("matcher", ACCEPTED_MATCHERS)
def test_matchers_that_both_engines_read_alike(matcher: str) -> None:
    group = {"matcher": matcher, "hookCallbackIds": ["pre"]}
    assert registered("pre_tool_use", group)["matcher"] == matcher


@pytest.mark.parametrize(
    "matcher",
    [
        "(",
        ")",
        "[run",
        "(?=x)|run",
        "run(?!x)",
        "(?<=a)b",
        r"(a)\1",
        "(?i)bash",
        "(?a)b",
        "(?P<n>a)",
        "(?>a)b",
        "a{2}",
        r"\d{",
        r"\Z",
        "[a--b]",
        "[[:alpha:]]",
        "[z-a]",
        "+",
        "é",
        "run\n",
        "a" * 257,
    ],
)
def test_matchers_that_grok_may_not_compile_are_refused(matcher: str) -> None:
    """Grok drops such a hook silently: its tools would run unasked."""
    with pytest.raises(BadMessage, match="matcher") as refused:
        registered("pre_tool_use", {"matcher": matcher, "hookCallbackIds": ["pre"]})
    assert refused.value.code == -32602


def test_no_hooks_are_no_hooks() -> None:
    raw = dump({"_meta": {"x.ai/hooks": {}}})
    assert json.loads(session_params(raw, IDENTIFIER))["_meta"]["x.ai/hooks"] == {}
