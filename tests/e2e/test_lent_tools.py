"""Tools that a client lends: Grok calls them over HTTP, the client answers on its WebSocket."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from tests.e2e.client import SILENT, Client, allow_everything
from tests.e2e.gateway import Gateway
from tests.engines.scripted_model import ScriptedModel

CALL = "_x.ai/mcp/sdk_call"
TOOL = {
    "name": "echo",
    "description": "Says it again",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


class Lender:
    """A client's policy that lends one tool; ``run`` makes the answer of a call."""

    def __init__(self, run: Callable[[dict[str, Any]], Any]) -> None:
        self.run, self.token = run, secrets.token_hex(32)
        self.calls: list[dict[str, Any]] = []

    def __call__(self, message: dict[str, Any]) -> Any:
        if message["method"] != CALL:
            return allow_everything(message)
        inner = message["params"]["message"]
        assert message["params"]["serverId"] == self.token
        if inner["method"] == "tools/list":
            return {"jsonrpc": "2.0", "id": inner["id"], "result": {"tools": [TOOL]}}
        self.calls.append(message)
        result = self.run(inner)
        return result if result is SILENT else {"jsonrpc": "2.0", "id": inner["id"], **result}

    async def session(self, gateway: Gateway) -> tuple[Client, str]:
        client = await gateway.client(self)
        server = {"type": "http", "name": "pi", "url": f"{gateway.http}/mcp/{self.token}", "headers": []}
        params = {"cwd": str(gateway.work), "mcpServers": [server]}
        session = str((await client.call("session/new", params))["sessionId"])
        await client.wait_for(lambda m: m.get("method") == "_x.ai/mcp_initialized")
        return client, session


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"result": {"content": [{"type": "text", "text": text}], **more}}


def use(model: ScriptedModel, text: str) -> str:
    arguments = {"tool_name": "pi__echo", "tool_input": {"text": text}}
    return model.script([{"tools": [{"name": "use_tool", "args": arguments}]}, {"text": "end"}])


@pytest.mark.grok
async def test_a_lent_tool_is_called_and_answers(shared: Gateway, model: ScriptedModel) -> None:
    lender = Lender(lambda call: said(f"echo: {call['params']['arguments']['text']}"))
    client, session = await lender.session(shared)
    nonce = secrets.token_hex(6)
    script = use(model, nonce)
    assert (await client.prompt(session, script))["stopReason"] == "end_turn"
    assert f"echo: {nonce}" in model.calls(script)[-1].tool_results()[-1]
    assert len(lender.calls) == 1
    await client.close()


@pytest.mark.grok
@pytest.mark.parametrize(
    "result", [said("it broke", isError=True), {"error": {"code": -32000, "message": "it broke"}}, {}]
)
async def test_a_failing_tool_runs_once(shared: Gateway, model: ScriptedModel, result: Any) -> None:
    """Grok repeats a call that ends with an error or a dropped connection; here it gets a result."""
    lender = Lender(lambda call: result)
    client, session = await lender.session(shared)
    script = use(model, "x")
    assert (await client.prompt(session, script))["stopReason"] == "end_turn"
    assert len(lender.calls) == 1
    await client.close()


@pytest.mark.grok
async def test_a_parked_call_outlives_the_front(real: Gateway, model: ScriptedModel) -> None:
    lender = Lender(lambda call: SILENT)
    client, session = await lender.session(real)
    script = use(model, "x")
    turn = await client.start_prompt(session, script)
    await client.wait_for(lambda m: m.get("method") == CALL and "tools/call" in str(m))
    os.kill(real.pid("front"), signal.SIGKILL)
    await real.until("front", 1)
    await real.ready()
    (call,) = lender.calls
    inner = call["params"]["message"]
    await client.respond(call, {"jsonrpc": "2.0", "id": inner["id"], **said("after the front's death")})
    assert (await client.answer_to(turn))["stopReason"] == "end_turn"
    assert "after the front's death" in model.calls(script)[-1].tool_results()[-1]
    assert len(lender.calls) == 1
    await client.close()


@pytest.mark.grok
async def test_cancel_gives_a_parked_call_up(shared: Gateway, model: ScriptedModel) -> None:
    lender = Lender(lambda call: SILENT)
    client, session = await lender.session(shared)
    turn = await client.start_prompt(session, use(model, "x"))
    await client.wait_for(lambda m: m.get("method") == CALL and "tools/call" in str(m))
    await client.notify("session/cancel", {"sessionId": session})
    assert (await client.answer_to(turn))["stopReason"] == "cancelled"
    await client.wait_for(lambda m: m.get("method") == "gateway/lent_call_given_up")
    await client.close()


async def post(gateway: Gateway, token: str, body: Any, **headers: str) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{gateway.http}/mcp/{token}", json=body, headers=headers) as answer,
    ):
        return answer.status, await answer.json() if answer.status == 200 else await answer.text()


async def test_the_handshake_needs_no_client(shared_fake: Gateway) -> None:
    """Grok gives a server up whose first answers do not come: they come from the gateway."""
    lender = Lender(lambda call: SILENT)
    client = await shared_fake.client(lambda message: SILENT)
    server = {"type": "http", "name": "pi", "url": f"{shared_fake.http}/mcp/{lender.token}", "headers": []}
    await client.call("session/new", {"cwd": str(shared_fake.work), "mcpServers": [server]})
    initialize = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}
    status, answer = await post(shared_fake, lender.token, initialize)
    assert status == 200
    assert "tools" in answer["result"]["capabilities"]
    assert (await post(shared_fake, lender.token, initialize, Origin="http://evil.example"))[0] == 403
    parked = asyncio.create_task(
        post(shared_fake, lender.token, {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {}})
    )
    await client.wait_for(lambda m: m.get("method") == CALL)
    await client.close()
    status, answer = await asyncio.wait_for(parked, 60)
    assert (status, answer["id"], answer["result"]["isError"]) == (200, 5, True)
    async with asyncio.timeout(60):
        while (await post(shared_fake, lender.token, initialize))[0] != 404:
            await asyncio.sleep(0.05)


async def test_a_token_belongs_to_one_connection(shared_fake: Gateway) -> None:
    lender = Lender(lambda call: SILENT)
    first, second = await shared_fake.client(), await shared_fake.client()
    server = {"type": "http", "name": "pi", "url": f"{shared_fake.http}/mcp/{lender.token}", "headers": []}
    params = {"cwd": str(shared_fake.work), "mcpServers": [server]}
    await first.call("session/new", params)
    answer = await (await second.start("session/new", params))
    assert answer["error"]["code"] == -32602
    await first.close()
    await second.close()
