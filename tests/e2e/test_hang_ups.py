"""The leader hangs up on a bridge that goes on: it makes another connection, and loads its sessions.

Grok 1.0.41 does so when it has something to send to a bridge just between the length and the body of a
message that it reads from there.  What was under way is lost without a word.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest

from tests.e2e.client import SILENT, allow_everything
from tests.e2e.gateway import Gateway
from tests.engines.hang_up import hang_up
from tests.engines.scripted_model import ScriptedModel, steps

pytestmark = pytest.mark.grok

HOOKS = {"x.ai/hooks": {"pre_tool_use": [{"matcher": ".*", "hookCallbackIds": ["pre"], "timeout": 600}]}}
YOLO = {**HOOKS, "yoloMode": True}


def deny(message: dict[str, Any]) -> Any:
    return {"decision": "deny", "reason": "never"}


def touch(path: object) -> dict[str, Any]:
    args = {"command": f"touch {path}", "description": "t"}
    return {"name": "run_terminal_command", "args": args}


@pytest.mark.parametrize("pause", [0.02, 0.06])
async def test_no_tool_runs_unasked_before_the_bridge_is_replaced(
    real: Gateway, model: ScriptedModel, pause: float
) -> None:
    """A queued turn starts when the bridge has loaded the session by itself (20 ms), and the next bridge,
    which needs 300 ms, has not: with the hooks of the bridge's load, or with none."""
    client, bridge = await real.with_own_worker(deny)
    session = await client.new_session(real.work, **YOLO)
    marker, gate = real.work / "marker", secrets.token_hex(4)
    first = await client.start_prompt(session, steps({"text": "x", "gate": gate}))
    await model.waiting(gate)
    second = await client.start_prompt(session, steps({"tools": [touch(marker)]}, {"text": "end"}))
    await client.wait_for(lambda m: m.get("method") == "_x.ai/queue/changed" and m["params"]["entries"])
    hang_up(bridge, real.paths.leader_socket)
    await asyncio.sleep(pause)
    model.release(gate)
    await asyncio.wait_for(asyncio.gather(first, second), 60)
    await asyncio.sleep(0.5)
    assert not marker.exists()
    assert await client.prompt(session, steps({"tools": [touch(marker)]}, {"text": "end"}))
    assert not marker.exists()
    await client.close()


async def test_a_turn_whose_hook_was_open_is_cancelled(real: Gateway) -> None:
    client, bridge = await real.with_own_worker(
        lambda m: SILENT if m["method"] == "_x.ai/hooks/run" else allow_everything(m)
    )
    session = await client.new_session(real.work, **YOLO)
    marker = real.work / "marker"
    turn = await client.start_prompt(session, steps({"tools": [touch(marker)]}, {"text": "end"}))
    await client.wait_for(lambda m: m.get("method") == "_x.ai/hooks/run")
    hang_up(bridge, real.paths.leader_socket)
    assert (await client.answer_to(turn))["stopReason"] in real.ends_without_a_judge
    assert not marker.exists()
    client.policy = allow_everything
    assert (await client.prompt(session, steps({"text": "alive"})))["stopReason"] == "end_turn"
    await client.close()


async def test_text_goes_on_whole_and_nothing_is_shown_twice(real: Gateway) -> None:
    client, bridge = await real.with_own_worker()
    session = await client.new_session(real.work, **HOOKS)
    await client.prompt(session, steps({"text": "an earlier turn"}))
    since = len(client.messages)
    text = " ".join(str(n) for n in range(300))
    turn = await client.start_prompt(session, steps({"text": text, "chunks": 150, "delay": 0.02}))
    await client.wait_for(lambda m: "agent_message_chunk" in str(m) and client.text(session, since) != "")
    hang_up(bridge, real.paths.leader_socket)
    assert (await client.answer_to(turn))["stopReason"] == "end_turn"
    assert client.text(session, since) == text
    assert not any("isReplay" in str(message) for message in client.messages[since:])
    assert real.bridges()[0].pid != bridge
    await client.close()


@pytest.mark.parametrize("pause", [0, 0.005, 0.02])
async def test_what_was_under_way_is_answered_and_no_prompt_runs_twice(
    real: Gateway, model: ScriptedModel, pause: float
) -> None:
    """Requests are asked again; a prompt only when it never arrived."""
    script = model.script([{"text": "x"}])
    client, bridge = await real.with_own_worker()
    session = await client.new_session(real.work, **HOOKS)
    asked = [
        await client.start("session/list", {}),
        await client.start("session/new", {"cwd": str(real.work), "mcpServers": []}),
        await client.start_prompt(session, script),
    ]
    await asyncio.sleep(pause)
    hang_up(bridge, real.paths.leader_socket)
    listed, new, prompted = await asyncio.wait_for(asyncio.gather(*asked), 60)
    assert "result" in listed
    assert "result" in new
    assert len(model.calls(script)) <= 1
    if "result" in prompted:
        assert client.text(session) == "x"
    else:  # nobody can tell what became of it: never twice
        assert prompted["error"]["data"]["retryable"] is True
    await real.gone(bridge)
    async with asyncio.timeout(60):
        while "result" not in await (await client.start_prompt(session, steps({"text": "again"}))):
            await asyncio.sleep(0.05)
    await client.close()
