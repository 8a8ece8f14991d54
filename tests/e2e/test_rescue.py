"""Turns of a lost worker are ended before a tool runs that nobody allowed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import SILENT, Client
from tests.e2e.gateway import Gateway
from tests.engines.scripted_model import ScriptedModel, Step

pytestmark = pytest.mark.grok

#: A hook registered with 600 s fails open after 8 s.
SCALE = 8 / 600
FAIL_OPEN = 8.0
HOOKS = {
    "x.ai/hooks": {"pre_tool_use": [{"matcher": ".*", "hookCallbackIds": ["pre"], "timeout": 600}]},
    "yoloMode": True,
}


def silent(message: dict[str, Any]) -> Any:
    return SILENT


@pytest.fixture
def scaled(make_gateway: Callable[..., Gateway], grok_binary: Path, grok_home: Path) -> Gateway:
    return make_gateway(grok_binary, grok_home, scale=SCALE).up()


def touch(marker: Path) -> Step:
    arguments = {"command": f"touch {marker}", "description": "d"}
    return {"tools": [{"name": "run_terminal_command", "args": arguments}]}


async def with_open_hook(
    gateway: Gateway, model: ScriptedModel, marker: Path, queued: int = 0
) -> tuple[Client, str, list[asyncio.Future[dict[str, Any]]], str]:
    """(client, session, its prompts, the worker's name): the first prompt's hook is open."""
    client, bridge = await gateway.with_own_worker(silent)
    session = await client.new_session(gateway.work, **HOOKS)
    script = model.script([touch(marker), {"text": "end"}])
    prompts = [await client.start_prompt(session, script)]
    await client.wait_asked("_x.ai/hooks/run")
    prompts += [await client.start_prompt(session, script) for _ in range(queued)]
    await client.call("session/list", {})
    return client, session, prompts, gateway.worker_of(bridge)


async def back(gateway: Gateway, client: Client, policy: Any = silent) -> Client:
    """The client on its next socket, as soon as it is let in."""
    await client.closed
    while True:
        try:
            return await gateway.connect(policy, resume=client)
        except Exception as error:
            if "503" not in str(error):
                raise
        await asyncio.sleep(0.05)


async def test_a_killed_worker_with_an_open_hook(scaled: Gateway, model: ScriptedModel) -> None:
    marker = scaled.folder / "marker"
    client, session, (prompt,), worker = await with_open_hook(scaled, model, marker)
    struck = time.monotonic()
    os.kill(scaled.workers()[worker], signal.SIGKILL)
    client = await back(scaled, client)
    result = await Client.answer_to(client.again(json.loads(next(iter(client.unanswered)))), 20)
    assert result["stopReason"] == "cancelled"
    await asyncio.sleep(max(0, struck + FAIL_OPEN + 2 - time.monotonic()))
    assert not marker.exists()
    await client.close()
