"""A call of a server's tool passes hooks and permissions under its own name, or does not run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.engines.scripted_model import ScriptedModel, steps
from tests.harness.mcp.sessions import (
    DONE,
    NewClient,
    answering,
    asked,
    opened,
    search,
    use,
)
from tests.harness.mcp.support import HttpMcp, Message


@pytest.mark.parametrize("direct", [False, True])
async def test_permission_is_asked_for_the_tool_itself_and_without_it_nothing_runs(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel, direct: bool
) -> None:
    client = new_client()
    call = {"tools": [{"name": "srv__echo", "args": {}}]} if direct else use()
    client.reply = answering({"outcome": "selected", "optionId": "reject-once"})
    await opened(client, http.entry())
    answer = await client.turn(model.script([call, DONE]))
    assert answer["result"]["stopReason"] == "cancelled"
    (question,) = asked(client, "session/request_permission")
    assert question["toolCall"]["title"] == "srv__echo"
    assert [option["optionId"] for option in question["options"]] == [
        "always-allow",
        "allow-once",
        "reject-once",
    ]
    assert http.calls() == []
    client.reply = answering({"outcome": "selected", "optionId": "always-allow"})
    await client.turn(model.script([call, call, DONE]), "p2")
    assert len(asked(client, "session/request_permission")) == 2
    assert len(http.calls()) == 2


async def test_a_rule_forbids_a_tool_however_it_is_called(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel, tmp_path: Path
) -> None:
    client = new_client()
    with (tmp_path / "home" / "config.toml").open("a") as file:
        file.write('\n[permission]\ndeny = ["MCPTool(srv__*)"]\n')
    script = model.script([use(), {"tools": [{"name": "srv__echo", "args": {}}]}, DONE])
    await opened(client, http.entry(), yoloMode=True)
    await client.turn(script)
    assert ["forbids" in text for text in model.calls(script)[-1].tool_results()] == [True, True]
    assert http.calls() == []


async def test_a_hook_judges_the_tool_itself(
    new_client: NewClient, http: HttpMcp, model: ScriptedModel
) -> None:
    client = new_client()
    decisions = [{"decision": "deny", "reason": "not this one"}, {}]

    def reply(message: Message) -> Any:
        return {"result": decisions.pop(0)} if message["method"] == "_x.ai/hooks/run" else None

    client.reply = reply
    hooks: Any = {"pre_tool_use": [{"matcher": "srv__.*", "hookCallbackIds": ["pre"]}]}
    script = model.script([search("echo"), use(text="a"), use(text="b"), DONE])
    await opened(client, http.entry(), yoloMode=True, **{"x.ai/hooks": hooks})
    await client.turn(script)
    told = asked(client, "_x.ai/hooks/run")
    assert [params["toolName"] for params in told] == ["srv__echo", "srv__echo"]
    assert told[0]["toolInput"] == {"tool_name": "srv__echo", "tool_input": {"text": "a"}}
    assert "not this one" in model.calls(script)[-1].tool_results()[1]
    assert [params["arguments"] for params in http.calls()] == [{"text": "b"}]


async def test_a_cancelled_turn_calls_its_call_off(new_client: NewClient, http: HttpMcp) -> None:
    client = new_client()

    async def never(_: web.Request, message: Message) -> web.StreamResponse | None:
        if message.get("method") == "tools/call":
            await asyncio.sleep(3600)
        return None

    http.special = never
    await opened(client, http.entry(), yoloMode=True)
    turn = client.prompt(steps(use(), DONE))
    await http.until(http.calls)
    client.cancel()
    assert (await turn)["result"]["stopReason"] == "cancelled"
    await http.until(lambda: "notifications/cancelled" in http.methods())
