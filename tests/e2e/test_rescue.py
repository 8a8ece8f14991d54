"""Turns of a lost worker are ended before a tool runs that nobody allowed."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidMessage, InvalidStatus

from tests.e2e.client import SILENT, Client
from tests.e2e.gateway import Gateway
from tests.engines.scripted_model import ScriptedModel, Step

pytestmark = pytest.mark.grok

#: Seconds after which a hook registered with 600 s fails open, in the instances of this module.
FAIL_OPEN = 8.0
HOOKS = {
    "x.ai/hooks": {"pre_tool_use": [{"matcher": ".*", "hookCallbackIds": ["pre"], "timeout": 600}]},
    "yoloMode": True,
}


def silent(message: dict[str, Any]) -> Any:
    return SILENT


@pytest.fixture
def scaled(make_gateway: Callable[..., Gateway], engine_binary: Path, grok_home: Path) -> Gateway:
    return make_gateway(engine_binary, grok_home, scale=FAIL_OPEN / 600).up()


def touch(marker: Path) -> Step:
    arguments = {"command": f"touch {marker}", "description": "d"}
    return {"tools": [{"name": "run_terminal_command", "args": arguments}]}


async def with_open_hook(
    gateway: Gateway, model: ScriptedModel, marker: Path, queued: int = 0
) -> tuple[Client, str, str]:
    """(client, session, the worker's name): the hook of the first prompt is open, others wait."""
    client, bridge = await gateway.with_own_worker(silent)
    session = await client.new_session(gateway.work, **HOOKS)
    script = model.script([touch(marker), {"text": "end"}])
    await client.start_prompt(session, script)
    await client.wait_asked("_x.ai/hooks/run")
    for _ in range(queued):
        await client.start_prompt(session, script)
    await client.call("session/list", {})
    return client, session, gateway.worker_of(bridge)


async def back(gateway: Gateway, client: Client, policy: Any = silent) -> Client:
    """The client on its next socket, as soon as it is let in."""
    await client.closed
    while True:
        try:
            return await gateway.connect(policy, resume=client)
        except InvalidStatus as error:
            if error.response.status_code != 503:
                raise
        except InvalidMessage:  # it went to the worker in its last moment
            pass
        await asyncio.sleep(0.05)


async def never_ran(marker: Path, struck: float, fail_open: float = FAIL_OPEN) -> None:
    """The hook's time has passed, and its tool has not run."""
    await asyncio.sleep(max(0.0, struck + fail_open + 2 - time.monotonic()))
    assert not marker.exists()


async def answers(before: Client, client: Client) -> list[dict[str, Any]]:
    """On its next socket, the whole answers of the prompts that a client waited for."""
    prompts = [json.loads(key) for key, method in before.unanswered.items() if method == "session/prompt"]
    return [
        await client.wait_for(lambda m, number=number: m.get("id") == number and "method" not in m)
        for number in prompts
    ]


def answers_hooks(client: Client) -> Any:
    """A policy for the next socket: what was asked of ``client`` stays open, the rest is allowed."""
    known = {message["id"] for message in client.asked}
    return lambda message: SILENT if message["id"] in known else {}


async def test_a_killed_worker_with_an_open_hook(scaled: Gateway, model: ScriptedModel) -> None:
    marker = scaled.folder / "marker"
    client, session, worker = await with_open_hook(scaled, model, marker)
    struck = time.monotonic()
    os.kill(scaled.workers()[worker], signal.SIGKILL)
    (answer,) = await answers(client, client := await back(scaled, client))
    assert answer["result"]["stopReason"] in scaled.ends_without_a_judge
    await never_ran(marker, struck)
    records = [json.loads(line) for line in scaled.paths.audit_log.read_text().splitlines()]
    (record,) = [one for one in records if one["session_id"] == session]
    assert (record["kind"], record["by"], record["answer"]) == ("pre_tool_use", "gateway", "cancelled")
    await client.close()


async def test_after_a_rescue_with_a_queue_the_client_is_asked_again(
    scaled: Gateway, model: ScriptedModel
) -> None:
    marker = scaled.folder / "marker"
    client, session, worker = await with_open_hook(scaled, model, marker, queued=2)
    struck = time.monotonic()
    os.kill(scaled.workers()[worker], signal.SIGKILL)
    first, *queued = await answers(client, client := await back(scaled, client, answers_hooks(client)))
    assert first["result"]["stopReason"] in scaled.ends_without_a_judge
    for answer in queued:
        ended = answer.get("result", {}).get("stopReason") in scaled.ends_without_a_judge
        assert ended or answer["error"]["code"] == -32051
    asked = len(client.asked)
    allowed = scaled.folder / "allowed"
    result = await client.prompt(session, model.script([touch(allowed), {"text": "end"}]))
    assert result["stopReason"] == "end_turn"
    assert [message["method"] for message in client.asked[asked:]] == ["_x.ai/hooks/run"]
    assert allowed.exists()
    await never_ran(marker, struck)
    await client.close()


async def test_the_next_front_rescues_when_all_died_together(
    make_gateway: Callable[..., Gateway], engine_binary: Path, grok_home: Path, model: ScriptedModel
) -> None:
    fail_open = 3 * FAIL_OPEN  # supervisord and Python need a while on a busy machine
    scaled = make_gateway(engine_binary, grok_home, scale=fail_open / 600).up()
    marker = scaled.folder / "marker"
    _, session, _ = await with_open_hook(scaled, model, marker)
    leader = scaled.pid("leader")
    struck = time.monotonic()
    for pid in (scaled.pid("front"), *scaled.workers().values()):
        os.kill(pid, signal.SIGKILL)
    await scaled.ready()
    assert scaled.pid("leader") == leader
    await never_ran(marker, struck, fail_open)
    await nothing_left(scaled)
    assert await activity(scaled, session) in ("idle", "dormant")


@pytest.mark.parametrize("hook_open", [True, False])
async def test_nobody_comes_back(scaled: Gateway, model: ScriptedModel, hook_open: bool) -> None:
    marker = scaled.folder / "marker"
    if hook_open:
        _, session, worker = await with_open_hook(scaled, model, marker)
    else:
        client, bridge = await scaled.with_own_worker(silent)
        session, worker = await client.new_session(scaled.work, **HOOKS), scaled.worker_of(bridge)
        gate = secrets.token_hex(4)
        await client.start_prompt(session, model.script([{**touch(marker), "gate": gate}]))
        await model.waiting(gate)
    struck = time.monotonic()
    os.kill(scaled.workers()[worker], signal.SIGKILL)
    await nothing_left(scaled)
    assert await activity(scaled, session) in ("idle", "dormant")
    if not hook_open:
        model.release(gate)
    await never_ran(marker, struck)


async def nothing_left(gateway: Gateway) -> None:
    """No connection is remembered any more."""
    async with asyncio.timeout(60):
        while list(gateway.paths.journals.iterdir()):
            await asyncio.sleep(0.05)
    leases = [file.name for file in gateway.paths.leases.iterdir()]
    assert leases in ([], ["lock"])


async def activity(gateway: Gateway, session: str) -> str:
    """What the engine says of a session, asked by another client."""
    client = await gateway.client()
    rows = (await client.call("_x.ai/sessions/list", {}))["result"]["sessions"]
    await client.close()
    return next((str(row["activity"]) for row in rows if row["sessionId"] == session), "dormant")
