"""Servers of a session: whose they are, when they begin and end, and what becomes of slow and lost ones."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from harness.limits import LIMITS, SIZES
from tests.engines.scripted_model import ScriptedModel, steps
from tests.harness.mcp.sessions import (
    DONE,
    NewClient,
    gone,
    initialized,
    opened,
    search,
    statuses,
    use,
)
from tests.harness.mcp.support import ECHO, KEY, HttpMcp, Message, event, logged, process_entry
from tests.harness.mcp.support import opened as events_of


def hold_back(http: HttpMcp) -> None:
    """The server answers the first request when ``http.released`` is set."""

    async def late(_: web.Request, message: Message) -> web.StreamResponse | None:
        if message.get("method") == "initialize":
            await http.released.wait()
        return None

    http.special = late


async def test_two_sessions_never_see_each_others_tools(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel, tmp_path: Path
) -> None:
    client = new_client()
    first = await opened(client, http.entry("alpha"), yoloMode=True)
    params = {"cwd": str(client.work), "_meta": {"yoloMode": True}}
    entries = [process_entry(tmp_path / "log", name="bravo")]
    second = (await client.result("session/new", {**params, "mcpServers": entries}))["sessionId"]
    await initialized(client, second)
    for session, own, other in ((first, "alpha", "bravo"), (second, "bravo", "alpha")):
        client.session = session
        script = model.script([search("echo"), use(f"{other}__echo"), use(f"{own}__echo", text="x"), DONE])
        await client.turn(script, f"p-{own}")
        found, refused, answered = model.calls(script)[-1].tool_results()
        assert [group["server"] for group in json.loads(found)["results"]] == [own]
        assert "there is no tool" in refused
        assert "echo" in answered
        assert other not in model.calls(script)[0].text


async def test_the_same_list_keeps_a_connection_and_another_one_ends_it(
    new_client: NewClient, http: HttpMcp, tmp_path: Path
) -> None:
    client = new_client()
    http.session = "s"
    session = await opened(client, http.entry(), yoloMode=True)
    log = tmp_path / "log"
    params = {"sessionId": session, "cwd": str(client.work)}
    await client.result("session/load", {**params, "mcpServers": [http.entry()]})
    await initialized(client, session, 2)
    assert http.methods().count("initialize") == 1
    await client.result("session/load", {**params, "mcpServers": [process_entry(log)]})
    await initialized(client, session, 3)
    await http.until(lambda: "DELETE" in http.methods())
    rows = (await client.result("_x.ai/mcp/list", {"sessionId": session}))["result"]["servers"]
    assert [row["name"] for row in rows] == ["std"]
    assert client.updates("available_commands_update")[-1]["_meta"]["tools"][-2:] == ["std__echo", "std__die"]


async def test_closing_a_session_ends_its_servers_and_loading_it_begins_them(
    new_client: NewClient, tmp_path: Path
) -> None:
    client = new_client()
    log = tmp_path / "log"
    session = await opened(client, process_entry(log), yoloMode=True)
    await client.result("session/close", {"sessionId": session})
    await gone(logged(log)[0]["pid"])
    params = {"sessionId": session, "cwd": str(client.work), "mcpServers": [process_entry(log)]}
    await client.result("session/load", params)
    await initialized(client, session, 2)
    pid = [message["pid"] for message in logged(log) if "pid" in message][-1]
    await client.agent.close()
    await gone(pid)


async def test_closing_while_a_server_connects_leaves_nothing(new_client: NewClient, http: HttpMcp) -> None:
    client = new_client()

    async def never(*_: Any) -> web.StreamResponse:
        await asyncio.sleep(3600)
        raise AssertionError

    http.special = never
    session = await opened(client, http.entry(), wait=False, yoloMode=True)
    await http.until(http.methods)
    await client.result("session/close", {"sessionId": session})
    assert (await client.result("_x.ai/mcp/list", {"sessionId": session}))["result"] == {"servers": []}


async def test_a_turn_waits_a_moment_and_a_call_waits_for_its_server(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "mcp_turn", 0.05)
    client = new_client()

    hold_back(http)
    script = model.script([search("echo"), use(text="late"), DONE])
    await opened(client, http.entry(), wait=False, yoloMode=True)
    turn = client.prompt(script)
    await client.until(
        lambda: [u for u in client.updates("tool_call_update") if u.get("title") == "srv__echo"]
    )
    http.released.set()
    await turn
    found, called = model.calls(script)[-1].tool_results()
    assert json.loads(found)["status"] == "partial"
    assert "srv" in json.loads(found)["note"]
    assert called == "echo: late"
    assert "- srv: still connecting" in model.calls(script)[0].text


async def test_one_slow_server_holds_up_one_turn_only(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = new_client()

    async def never(*_: Any) -> web.StreamResponse:
        await asyncio.sleep(3600)
        raise AssertionError

    http.special = never
    await opened(client, http.entry(), wait=False, yoloMode=True)
    monkeypatch.setattr(LIMITS, "mcp_turn", 0.05)
    await client.turn(steps(DONE))
    monkeypatch.setattr(LIMITS, "mcp_turn", 3600)
    await client.turn(steps(DONE), "p2")


async def test_who_does_not_look_on_gets_all_tools_in_the_first_turn(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "mcp_turn", 0)
    client = new_client()

    hold_back(http)
    hints = {"nonInteractive": True}
    await opened(client, http.entry(), wait=False, yoloMode=True, startupHints=hints)
    script = model.script([DONE])
    turn = client.prompt(script)
    await http.until(http.methods)
    assert model.calls(script) == []
    http.released.set()
    await turn
    assert "- srv: connected, 1 tools" in model.calls(script)[0].text


async def test_a_server_that_was_not_ready_is_tried_again_when_a_tool_of_it_is_wanted(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel
) -> None:
    client = new_client()
    ill = [1]

    async def starts(_: web.Request, message: Message) -> web.StreamResponse | None:
        return (
            web.Response(status=503) if message.get("method") == "initialize" and ill and ill.pop() else None
        )

    http.special = starts
    script = model.script([use(text="x"), DONE])
    await opened(client, http.entry(), yoloMode=True)
    await client.turn(script)
    assert model.calls(script)[-1].tool_results() == ["echo: x"]
    told = [status for _, status, _ in statuses(client)]
    assert told == ["unavailable", "ready"]


async def test_one_that_was_away_between_two_calls_is_told_with_the_tools_it_has_then(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel
) -> None:
    client = new_client()
    refuses = [404, 503]  # the first call finds its session gone, and then no server

    async def away(_: web.Request, message: Message) -> web.StreamResponse | None:
        wanted = "tools/call" if len(refuses) == 2 else "initialize"
        if refuses and message.get("method") == wanted:
            return web.Response(status=refuses.pop(0))
        return None

    http.session = "s"
    await opened(client, http.entry(), yoloMode=True)
    http.special = away
    script = model.script([use(text="a"), use(text="b"), DONE])
    await client.turn(script)
    failed, good = model.calls(script)[-1].tool_results()
    assert "status 503" in failed
    assert good == "echo: b"
    await client.until(
        lambda: [status for _, status, _ in statuses(client)] == ["ready", "unavailable", "ready"]
    )


async def test_a_server_that_comes_back_is_called_again(
    new_client: NewClient, model: ScriptedModel, tmp_path: Path
) -> None:
    client = new_client()
    log = tmp_path / "log"
    script = model.script([use("std__die"), use("std__echo", text="again"), DONE])
    await opened(client, process_entry(log), yoloMode=True)
    await client.turn(script)
    died, again = model.calls(script)[-1].tool_results()
    assert "server `std` gave no result: its process ended with 3" in died
    assert again == "echo again"


async def test_other_tools_of_a_server_are_offered_when_it_says_so(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel
) -> None:
    client = new_client()
    http.session = "s"
    await opened(client, http.entry(), yoloMode=True)
    await http.until(lambda: "GET" in http.methods())
    http.tools = [{**ECHO, "name": "shout"}, {**ECHO, "name": "not__told", "description": "x"}]
    http.events.put_nowait({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

    def announced() -> Any:
        return [u for u in client.updates("available_commands_update") if "srv__shout" in u["_meta"]["tools"]]

    await client.until(announced)
    script = model.script([use("srv__echo"), use("srv__shout", text="x"), DONE])
    await client.turn(script)
    old, new = model.calls(script)[-1].tool_results()
    assert "there is no tool `srv__echo`" in old
    assert new == "shout: x"


async def test_tools_that_change_while_they_are_read_are_read_again(
    new_client: NewClient, http: HttpMcp
) -> None:
    client = new_client()
    http.session = "s"
    changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}

    async def slowly(request: web.Request, message: Message) -> web.StreamResponse | None:
        if message.get("method") != "tools/list":
            return None
        http.special = None
        response = await events_of(request)
        await event(response, changed)
        await event(response, {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": [ECHO]}})
        return response

    http.special = slowly
    http.tools = [{**ECHO, "name": "newer"}]
    await opened(client, http.entry(), yoloMode=True)
    rows = (await client.result("_x.ai/mcp/list", {"sessionId": client.session}))["result"]["servers"]
    assert [tool["name"] for tool in rows[0]["session"]["tools"]] == ["newer"]


async def test_a_tool_for_people_is_shown_to_them_only(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel
) -> None:
    client = new_client()
    http.tools = [{**ECHO, "_meta": {"ui": {"visibility": ["app"]}}}]
    script = model.script([search("echo"), use(), DONE])
    await opened(client, http.entry(), yoloMode=True)
    await client.turn(script)
    found, called = model.calls(script)[-1].tool_results()
    assert json.loads(found)["results"] == []
    assert "there is no tool" in called
    rows = (await client.result("_x.ai/mcp/list", {"sessionId": client.session}))["result"]["servers"]
    assert [tool["name"] for tool in rows[0]["session"]["tools"]] == ["echo"]
    assert http.calls() == []


async def test_what_a_search_finds_is_bounded(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel
) -> None:
    client = new_client()
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": "x" * 20_000}}}
    http.tools = [{"name": f"big{n}", "description": "big", "inputSchema": schema} for n in range(5)]
    script = model.script([search("big"), DONE])
    await opened(client, http.entry(), yoloMode=True)
    await client.turn(script)
    (text,) = model.calls(script)[-1].tool_results()
    assert len(text) < SIZES.tool_output + 2000
    found = json.loads(text)
    assert len(found["results"][0]["tools"]) == 1
    assert "4 more fit" in found["note"]


async def test_nothing_of_a_servers_secrets_is_kept(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel, tmp_path: Path
) -> None:
    client = new_client()
    log = tmp_path / "log"
    entries = [http.entry(), process_entry(log, "--", "argument-with-a-key", KEY="value-of-the-environment")]
    session = await opened(client, *entries, yoloMode=True)
    script = model.script([use(text="x"), use("std__die"), DONE])
    await client.turn(script)
    await client.result("session/close", {"sessionId": session})
    kept = b"".join(path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file())
    told = json.dumps(client.heard).encode() + model.calls(script)[-1].text.encode()
    assert b"echo: x" in kept
    for secret in (KEY, "a-secret-part-of-the-address", "argument-with-a-key", "value-of-the-environment"):
        assert secret.encode() not in kept + told
