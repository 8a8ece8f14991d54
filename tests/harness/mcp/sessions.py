"""Sessions with servers, as their client sees them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.engines.processes import state
from tests.harness.agent.conftest import TestClient
from tests.harness.mcp.support import Message

NewClient = Callable[..., TestClient]
DONE = {"text": "done"}


def use(name: str = "srv__echo", **arguments: Any) -> dict[str, Any]:
    return {"tools": [{"name": "use_tool", "args": {"tool_name": name, "tool_input": arguments}}]}


def search(query: str) -> dict[str, Any]:
    return {"tools": [{"name": "search_tool", "args": {"query": query}}]}


async def opened(client: TestClient, *entries: Message, wait: bool = True, **meta: Any) -> str:
    """A session with these servers."""
    await client.result("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    params = {"cwd": str(client.work), "mcpServers": list(entries), "_meta": meta}
    client.session = (await client.result("session/new", params))["sessionId"]
    if wait:
        await initialized(client, client.session)
    return client.session


async def initialized(client: TestClient, session: str, count: int = 1) -> Message:
    def found() -> Any:
        told = notified(client, "_x.ai/mcp_initialized")
        mine = [params for params in told if params["sessionId"] == session]
        return mine[count - 1 :]

    told: Message = (await client.until(found))[0]
    return told


def notified(client: TestClient, method: str) -> list[Message]:
    return [message["params"] for message in client.heard if message.get("method") == method]


def statuses(client: TestClient) -> list[tuple[str, str, str]]:
    told = notified(client, "_x.ai/mcp/server_status")
    return [(params["name"], params["status"], params["reason"]) for params in told]


def ended(client: TestClient) -> list[Message]:
    found = client.updates("tool_call_update")
    return [update for update in found if update.get("status") in ("completed", "failed")]


def answering(outcome: Message) -> Callable[[Message], Any]:
    """A client that answers each question for permission so."""

    def reply(message: Message) -> Any:
        asks = message["method"] == "session/request_permission"
        return {"result": {"outcome": outcome}} if asks else None

    return reply


def asked(client: TestClient, method: str) -> list[Message]:
    return [m["params"] for m in client.heard if m.get("method") == method and "id" in m]


async def gone(pid: int) -> None:
    async with asyncio.timeout(60):
        while state(pid) not in ("", "Z", "X"):
            await asyncio.sleep(0.01)
