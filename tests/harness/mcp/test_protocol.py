"""What is read of a server's words, and what is not believed."""

from __future__ import annotations

from typing import Any

import pytest

from harness.limits import SIZES
from harness.mcp.protocol import (
    Asked,
    Failing,
    McpError,
    Reply,
    Told,
    incoming,
    qualified,
    read_hello,
    read_reply,
    read_tools,
    response,
)


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("srv", "echo", "srv__echo"),
        ("my-server", "a_b", "my-server__a_b"),
        ("a__b", "c", None),
        ("srv", "a__b", None),
        ("srv_", "a", None),
        ("srv", "_a", None),
        ("srv", "", None),
        ("", "a", None),
        ("1srv", "a", None),
        ("srv", "a b", None),
        ("srv", "ä", None),
        ("srv", "a\n", None),
        ("srv", "x" * 59, "srv__" + "x" * 59),
        ("srv", "x" * 60, None),
    ],
)
def test_names_that_can_be_told_apart_and_sent(server: str, tool: str, name: str | None) -> None:
    assert qualified(server, tool) == name


def test_what_is_no_message_is_passed_over() -> None:
    reply, ping = {"id": 1, "result": {}}, {"id": "x", "method": "ping"}
    found = list(incoming([reply, ping, {"method": "notifications/x"}, 5, None, {"id": 2}, {"result": {}}]))
    assert found == [Reply(1, reply), Asked("x", "ping"), Told("notifications/x")]
    assert list(incoming("text")) == []


def test_a_server_may_look_whether_we_live_and_ask_for_nothing_else() -> None:
    assert response(Asked(7, "ping")) == {"jsonrpc": "2.0", "id": 7, "result": {}}
    assert response(Asked(8, "sampling/createMessage"))["error"]["code"] == -32601


@pytest.mark.parametrize(
    ("message", "kind", "text"),
    [
        ({"error": {"code": -5, "message": "no"}}, Failing.ERROR, "MCP error -5: no"),
        ({"error": "plain"}, Failing.ERROR, "plain"),
        ({"error": {"message": "y" * 9000}}, Failing.ERROR, "yyy"),
        ({"result": [1]}, Failing.NONSENSE, "no result"),
    ],
)
def test_answers_without_a_result(message: dict[str, Any], kind: Failing, text: str) -> None:
    with pytest.raises(McpError, match=text) as caught:
        read_reply(Reply(1, message))
    assert caught.value.kind is kind
    assert len(str(caught.value)) < SIZES.mcp_complaint + 100


@pytest.mark.parametrize("version", [None, 3, "1999-01-01", "x" * 10_000])
def test_a_version_that_is_not_spoken_ends_the_handshake(version: Any) -> None:
    with pytest.raises(McpError, match="version"):
        read_hello({"protocolVersion": version})


def test_what_a_server_says_of_itself_is_bounded() -> None:
    hello = read_hello({"protocolVersion": "2024-11-05", "instructions": " x" * 5000})
    assert hello.version == "2024-11-05"
    assert len(hello.instructions) == SIZES.mcp_instructions
    assert read_hello({"protocolVersion": "2024-11-05", "instructions": 5}).instructions == ""


def test_a_list_with_bad_entries_is_a_list_without_them() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    huge = {"properties": {"a": {"description": "x" * SIZES.mcp_schema}}}
    listed = [
        {"name": "good", "description": "d", "inputSchema": schema, "_meta": {"k": 1}},
        {"name": "bare"},
        {"name": 5},
        "text",
        {"name": "odd", "inputSchema": {"properties": [1]}},
        {"name": "huge", "inputSchema": huge},
        {"name": "people", "_meta": {"ui": {"visibility": ["app"]}}},
    ]
    tools, cursor = read_tools({"tools": listed, "nextCursor": "more"})
    assert [tool.name for tool in tools] == ["good", "bare", "people"]
    assert (tools[0].schema, tools[0].meta, cursor) == (schema, {"k": 1}, "more")
    assert tools[1].schema == {"type": "object", "properties": {}}
    assert [tool.hidden for tool in tools] == [False, False, True]
    assert read_tools({"tools": [], "nextCursor": 5})[1] == ""
    with pytest.raises(McpError, match="no list"):
        read_tools({"tools": {"good": {}}})
