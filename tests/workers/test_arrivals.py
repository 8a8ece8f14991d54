"""Messages that the engine never got, and ends that the client never saw, with a clock of its own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from gateway.wire.limits import LIMITS
from tests.workers.test_proxy import PROMPT, Client, FakeBridge, fake_bridge, scenario, settle

__all__ = ["fake_bridge"]  # for each test here, too

SESSIONS = "_x.ai/sessions/list"


def asked(bridge: FakeBridge, method: str) -> list[dict[str, Any]]:
    return [line for line in bridge.lines if line.get("method") == method]


def told(bridge: FakeBridge, activity: str) -> None:
    """The engine answers how the session is."""
    key = next(k for k, m in bridge.open.items() if m["method"] == SESSIONS)
    bridge.answer(key, {"result": {"sessions": [{"sessionId": "s1", "activity": activity}]}})


def queued(bridge: FakeBridge, running: str) -> None:
    params = {"sessionId": "s1", "entries": [], "runningPromptId": running}
    bridge.say({"method": "_x.ai/queue/changed", "params": params})


def ended(bridge: FakeBridge, prompt_id: str) -> None:
    update = {"sessionUpdate": "turn_completed", "prompt_id": prompt_id, "stop_reason": "end_turn"}
    params = {"sessionId": "s1", "update": update}
    bridge.say({"method": "_x.ai/session_notification", "params": params})


async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)
    await settle()


def named(prompt_id: str) -> dict[str, Any]:
    return {**PROMPT, "_meta": {"promptId": prompt_id}}


@scenario
async def test_a_prompt_without_a_sign_is_sent_once_more(client: Client) -> None:
    bridge = await client.new_session()
    client.send("session/prompt", named("p1"), "1")
    await pause(LIMITS.first_request)
    told(bridge, "idle")
    await settle()
    first, again = asked(bridge, "session/prompt")
    assert first == again
    queued(bridge, "p1")
    ended(bridge, "p1")
    bridge.answer(again["id"], {"stopReason": "end_turn"})
    assert client.answers["1"] == 1
    await pause(60)
    assert len(asked(bridge, "session/prompt")) == 2
    assert len(asked(bridge, SESSIONS)) == 1


@scenario
async def test_a_prompt_that_waits_is_not_sent_again(client: Client) -> None:
    bridge = await client.new_session()
    client.send("session/prompt", named("p1"), "1")
    await pause(LIMITS.first_request)
    told(bridge, "working")
    queued(bridge, "p1")
    await pause(LIMITS.first_request)
    assert len(asked(bridge, "session/prompt")) == 1
    bridge.answer(asked(bridge, "session/prompt")[0]["id"], {"stopReason": "end_turn"})


@scenario
async def test_a_turn_whose_end_was_lost_is_looked_up_by_the_next_bridge(client: Client) -> None:
    bridge = await client.new_session()
    client.send("session/prompt", named("p1"), "1")
    queued(bridge, "p1")
    await pause(LIMITS.first_request)
    assert not asked(bridge, SESSIONS)  # it gave a sign
    await pause(LIMITS.probe_interval)
    told(bridge, "idle")
    await pause(LIMITS.first_request)
    told(bridge, "idle")
    await settle()
    bridge = await client.up()
    load = asked(bridge, "session/load")[0]
    update = {"sessionUpdate": "turn_completed", "prompt_id": "p1", "stop_reason": "end_turn"}
    params = {"sessionId": "s1", "update": update, "_meta": {"isReplay": True}}
    bridge.say({"method": "_x.ai/session/update", "params": params})
    bridge.answer(load["id"], {"models": {}})
    await settle()
    assert client.answer_to("1")["result"]["stopReason"] == "end_turn"


@scenario
async def test_a_bridge_that_does_not_answer_is_given_up(client: Client) -> None:
    bridge = await client.new_session()
    client.send("session/prompt", named("p1"), "1")
    await pause(LIMITS.first_request + LIMITS.request)
    bridge = await client.up()
    bridge.replay()
    bridge.answer(asked(bridge, "session/load")[0]["id"], {"models": {}})
    await pause(LIMITS.first_request)
    assert not asked(bridge, "session/prompt")  # it may be about to start
    told(bridge, "idle")
    await settle()
    assert len(asked(bridge, "session/prompt")) == 1
    assert client.answers["1"] == 0


@scenario
async def test_an_answer_is_repeated_unless_its_id_is_used_again(client: Client) -> None:
    hook = {"hookCallbackId": "x", "hookEventName": "pre_tool_use", "sessionId": "s1", "toolUseId": "t1"}
    bridge = await client.new_session(**{"x.ai/hooks": {"pre_tool_use": [{"hookCallbackIds": ["x"]}]}})
    bridge.say({"id": 3, "method": "_x.ai/hooks/run", "params": hook})
    client.respond(next(iter(client.proxy.ledger.guard)).shown, {"decision": "deny"})
    await pause(2 * LIMITS.answer_again)
    answers = [line for line in bridge.lines if line.get("id") == 3]
    assert [a["result"]["decision"] for a in answers] == ["deny", "deny"]
    bridge.say({"id": 3, "method": "_x.ai/hooks/run", "params": {**hook, "toolUseId": "t2"}})
    await pause(4 * LIMITS.answer_again)
    assert len([line for line in bridge.lines if line.get("id") == 3]) == 2


@scenario
async def test_a_cancel_is_repeated_while_the_turn_runs(client: Client) -> None:
    bridge = await client.new_session()
    client.send("session/prompt", named("p1"), "1")
    queued(bridge, "p1")
    client.send("session/cancel", {"sessionId": "s1"}, None)
    await pause(LIMITS.first_request)
    assert len(asked(bridge, "session/cancel")) == 2
    bridge.answer(asked(bridge, "session/prompt")[0]["id"], {"stopReason": "cancelled"})
    await pause(LIMITS.first_request)
    assert len(asked(bridge, "session/cancel")) == 2


@scenario
async def test_a_load_that_is_followed_by_silence_is_sent_again(client: Client) -> None:
    bridge = await client.new_session()
    bridge.die()
    await settle()
    bridge = await client.up()
    await pause(LIMITS.first_request)
    first, again = asked(bridge, "session/load")
    assert first["params"] == again["params"]
    bridge.answer(again["id"], {"models": {}})
    await settle()
    bridge.answer(first["id"], {"models": {}})
    assert len([f for f in client.frames if json.loads(f).get("method") == "gateway/reattached"]) == 1
