"""Tools of servers in a session: announced, found, called, and what comes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.engines.scripted_model import ScriptedModel
from tests.harness.mcp.sessions import (
    DONE,
    NewClient,
    ended,
    initialized,
    notified,
    opened,
    search,
    statuses,
    use,
)
from tests.harness.mcp.support import ECHO, HttpMcp, Message, said


async def test_a_tool_is_announced_found_and_called(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel
) -> None:
    client = new_client()
    script = model.script([search("say again"), use(text="hey"), DONE])
    await opened(client, http.entry(), yoloMode=True)
    assert (await initialized(client, client.session))["mcpToolCount"] == 1
    progress = notified(client, "_x.ai/mcp/init_progress")
    assert [(told["total"], told["connected"]) for told in progress] == [(1, 0), (1, 1)]
    assert statuses(client) == [("srv", "ready", "initialized")]
    await client.turn(script)
    first, _, last = model.calls(script)
    offered = [tool["function"]["name"] for tool in first.body["tools"]]
    assert {"search_tool", "use_tool"} <= set(offered)
    assert "srv__echo" not in offered
    assert "- srv: connected, 1 tools. Handle with care." in first.text
    found, said_again = last.tool_results()
    (group,) = json.loads(found)["results"]
    assert (group["server"], group["tools"][0]["tool_name"]) == ("srv", "srv__echo")
    assert group["tools"][0]["input_schema"] == ECHO["inputSchema"]
    assert said_again == "echo: hey"
    searched, called = ended(client)
    assert searched["rawOutput"]["result_count"] == 1
    names = {"type": "MCP", "tool_name": "echo", "server_name": "srv"}
    assert called["rawOutput"] == {**names, "output": {"OkayOutput": "echo: hey"}}
    assert "content" not in called
    refined = [u for u in client.updates("tool_call_update") if u.get("title") == "srv__echo"]
    asked_for = {"variant": "UseTool", "tool_name": "srv__echo", "tool_input": {"text": "hey"}}
    assert (refined[0]["kind"], refined[0]["rawInput"]) == ("other", asked_for)
    rows = (await client.result("_x.ai/mcp/list", {"sessionId": client.session}))["result"]["servers"]
    assert [(row["name"], row["type"], row["session"]["status"]) for row in rows] == [
        ("srv", "http", "ready")
    ]
    assert rows[0]["session"]["tools"][0]["_meta"] == {"hint": 1}


async def test_the_model_hears_of_servers_once_and_of_changes(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel
) -> None:
    client = new_client()
    one, two, three = (model.script([DONE]) for _ in range(3))
    named = {"sessionId": await opened(client, http.entry(), yoloMode=True)}
    await client.turn(one)
    await client.turn(two, "p2")
    assert model.calls(two)[-1].text.count("Servers with further tools") == 1
    answer = await client.result("_x.ai/session/update_mcp_servers", {**named, "mcpServers": []})
    assert answer == {"result": {"ok": True}}
    await initialized(client, client.session, 2)
    await client.turn(three, "p3")
    assert "- srv: removed, with its tools" in model.calls(three)[-1].text
    assert statuses(client)[-1] == ("srv", "unavailable", "config_removed")


async def test_a_direct_call_by_the_full_name_is_understood(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel
) -> None:
    client = new_client()
    script = model.script([{"tools": [{"name": "srv__echo", "args": {"text": "x"}}]}, DONE])
    await opened(client, http.entry(), yoloMode=True)
    await client.turn(script)
    assert model.calls(script)[-1].tool_results() == ["echo: x"]
    refined = [u for u in client.updates("tool_call_update") if "rawInput" in u]
    shown = {"variant": "MCPTool", "tool_name": "srv__echo", "tool_input": {"text": "x"}}
    assert refined[0]["rawInput"] == shown
    assert refined[0]["_meta"]["x.ai/tool"]["namespace"] == "mcp"


async def test_servers_that_fail_are_told_and_hold_nothing_up(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel, tmp_path: Path
) -> None:
    client = new_client()
    nobody = {"type": "http", "name": "nobody", "url": "http://127.0.0.1:1/secret-of-the-path", "headers": []}
    entries: list[Any] = [
        nobody,
        {"name": "none", "command": "/no/such"},
        {"name": "odd", "type": "x"},
        http.entry(),
        5,
    ]
    script = model.script([use("nobody__x"), use(text="a"), DONE])
    await opened(client, *entries, yoloMode=True)
    assert sorted(statuses(client)) == [
        ("", "unavailable", "invalid_config"),
        ("nobody", "unavailable", "handshake_failed"),
        ("none", "unavailable", "handshake_failed"),
        ("odd", "unavailable", "invalid_config"),
        ("srv", "ready", "initialized"),
    ]
    details = {told["name"]: told.get("detail", "") for told in notified(client, "_x.ai/mcp/server_status")}
    assert details["nobody"].startswith("http://127.0.0.1:1 cannot be reached")
    assert "secret-of-the-path" not in str(client.heard)
    await client.turn(script)
    missing, good = model.calls(script)[-1].tool_results()
    assert "no tool `nobody__x`" in missing
    assert "cannot be reached" in missing
    assert good == "echo: a"


async def test_a_name_twice_is_one_server(new_client: NewClient, http: HttpMcp) -> None:
    client = new_client()
    await opened(client, http.entry(), http.entry(), yoloMode=True)
    assert statuses(client) == [
        ("srv", "unavailable", "invalid_config"),
        ("srv", "ready", "initialized"),
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("read_file", "call it directly"),
        ("plain", "no full name"),
        ("srv__nothing", "there is no tool"),
        ("SRV__echo", "there is no tool"),
        ("srv__echo ", "there is no tool"),
        ("other__echo", "there is no tool"),
    ],
)
async def test_names_that_lead_nowhere(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel, name: str, text: str
) -> None:
    client = new_client()
    script = model.script([use(name), DONE])
    await opened(client, http.entry(), yoloMode=True)
    await client.turn(script)
    assert text in model.calls(script)[-1].tool_results()[0]
    (failed,) = ended(client)
    assert (failed["status"], failed["rawOutput"]["error"]) == ("failed", "tool_execution_failed")
    assert http.calls() == []


@pytest.mark.parametrize(
    ("given", "got"),
    [('{"text": "x"}', {"text": "x"}), (None, {}), ({"a": None}, {"a": None}), ("[1]", None)],
)
async def test_an_input_written_as_text_or_left_empty(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel, given: Any, got: Any
) -> None:
    client = new_client()
    call = {"name": "use_tool", "args": {"tool_name": "srv__echo", "tool_input": given}}
    script = model.script([{"tools": [call]}, DONE])
    await opened(client, http.entry(), yoloMode=True)
    await client.turn(script)
    if got is None:
        assert "must be an object" in model.calls(script)[-1].tool_results()[0]
    assert [params["arguments"] for params in http.calls()] == ([] if got is None else [got])


async def test_a_failure_of_the_tool_and_a_refusal_of_the_server(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel
) -> None:
    client = new_client()
    answers: list[Message] = [
        {"result": said("it broke", isError=True)},
        {"error": {"code": -32000, "message": "it broke so"}},
    ]

    async def special(_: web.Request, message: Message) -> web.StreamResponse | None:
        if message.get("method") != "tools/call":
            return None
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], **answers.pop(0)})

    http.special = special
    script = model.script([use(), use(), DONE])
    await opened(client, http.entry(), yoloMode=True)
    await client.turn(script)
    assert len(http.calls()) == 2
    failed, refused = ended(client)
    assert (failed["status"], failed["rawOutput"]["output"]) == ("failed", {"Error": "it broke"})
    assert (refused["status"], refused["rawOutput"]["error"]) == ("failed", "tool_execution_failed")
    assert ["it broke" in text for text in model.calls(script)[-1].tool_results()] == [True, True]
