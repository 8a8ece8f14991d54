"""Planned restarts of workers in the middle of things, on the real engine: no turn is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import SILENT, Client, allow_everything
from tests.e2e.gateway import Gateway
from tests.engines.scripted_model import ScriptedModel, steps

pytestmark = pytest.mark.grok

HOOKS = {"x.ai/hooks": {"pre_tool_use": [{"hookCallbackIds": ["pre"], "timeout": 600}]}}
HOOK, PERMISSION = "_x.ai/hooks/run", "session/request_permission"


def words(count: int) -> str:
    return " ".join(f"w{n}" for n in range(count))


def run(command: str) -> dict[str, Any]:
    args = {"command": command, "description": "test"}
    return {"tools": [{"name": "run_terminal_command", "args": args}]}


def silent_on(method: str) -> Callable[[dict[str, Any]], Any]:
    return lambda message: SILENT if message["method"] == method else allow_everything(message)


async def follow(gateway: Gateway, client: Client, timeout: float = 45) -> Client:
    """Come back after the planned end of a client's socket, as a client that can resume does."""
    code, reason = await asyncio.wait_for(asyncio.shield(client.closed), timeout)
    assert code == 1012, (code, reason)
    return await gateway.connect(client.policy, resume=client)


async def restart_worker_of(gateway: Gateway, bridge: int) -> asyncio.Task[Any]:
    number = gateway.worker_of(bridge)[-2:]
    return asyncio.create_task(gateway.run("restart", f"worker:{number}"))


async def restarted(restart: asyncio.Task[Any]) -> None:
    done = await restart
    assert done.returncode == 0, done.stdout + done.stderr


def times_asked(client: Client, request: dict[str, Any]) -> int:
    return sum(message["id"] == request["id"] for message in client.asked)


async def test_text_streams_on_whole_and_in_order(real: Gateway) -> None:
    client, bridge = await real.with_own_worker()
    session = await client.new_session(real.work)
    text = words(600)
    await client.start_prompt(session, steps({"text": text, "chunks": 600, "delay": 0.01}))
    await client.wait_for(lambda m: "w40" in client.text(session))
    restart = await restart_worker_of(real, bridge)
    again = await follow(real, client)
    number = next(iter(again.unanswered))
    answer = await again.answer_to(again.again(int(number)))
    await restarted(restart)
    assert answer["stopReason"] == "end_turn"
    assert again.text(session) == text
    assert sum("result" in m and m.get("id") == int(number) for m in again.messages) == 1
    assert not any("isReplay" in str(message) for message in again.messages)
    assert (await again.prompt(session, steps({"text": "and on"})))["stopReason"] == "end_turn"
    await again.close()
