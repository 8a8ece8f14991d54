"""The answer to a prompt and the end of its turn, in either order."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.wire.limits import LIMITS, SIZES
from tests.workers.test_arrivals import asked, ended, named, queued
from tests.workers.test_proxy import Client, FakeBridge, fake_bridge, scenario, settle

__all__ = ["fake_bridge"]  # for each test here, too


def answered(bridge: FakeBridge, prompt_id: str | None, number: int = -1) -> None:
    meta: dict[str, Any] = {"_meta": {"promptId": prompt_id}} if prompt_id else {}
    bridge.answer(asked(bridge, "session/prompt")[number]["id"], {"stopReason": "end_turn", **meta})


@scenario
async def test_an_answer_waits_for_the_text_of_its_turn(client: Client) -> None:
    bridge = await client.new_session()
    client.send("session/prompt", named("p1"), "1")
    answered(bridge, "p1")
    await settle()
    assert not client.answers["1"]
    queued(bridge, "p1")
    ended(bridge, "p1")
    assert client.answers["1"] == 1
    await asyncio.sleep(2 * LIMITS.late_text)
    assert client.answers["1"] == 1


@scenario
async def test_an_answer_behind_its_turn_is_given_at_once(client: Client) -> None:
    bridge = await client.new_session()
    client.send("session/prompt", named("p1"), "1")
    queued(bridge, "p1")
    ended(bridge, "p1")
    answered(bridge, "p1")
    assert client.answers["1"] == 1


@scenario
async def test_a_turn_without_an_end_is_answered_all_the_same(client: Client) -> None:
    bridge = await client.new_session()
    client.send("session/prompt", named("p1"), "1")
    answered(bridge, "p1")
    await asyncio.sleep(0.9 * LIMITS.late_text)
    assert not client.answers["1"]
    await asyncio.sleep(0.2 * LIMITS.late_text)
    assert client.answers["1"] == 1


@scenario
async def test_a_prompt_that_nobody_has_named_is_not_kept(client: Client) -> None:
    bridge = await client.new_session()
    client.send("session/prompt", {"sessionId": "s1", "prompt": []}, "1")
    answered(bridge, None)
    assert client.answers["1"] == 1


@scenario
async def test_an_error_waits_only_for_a_turn_that_runs(client: Client) -> None:
    bridge = await client.new_session()
    failed = {"error": {"code": -32603, "message": "no"}}
    client.send("session/prompt", named("p1"), "1")
    bridge.say({"id": asked(bridge, "session/prompt")[0]["id"], **failed})
    assert client.answers["1"] == 1
    client.send("session/prompt", named("p2"), "2")
    queued(bridge, "p2")
    bridge.say({"id": asked(bridge, "session/prompt")[1]["id"], **failed})
    assert not client.answers["2"]
    ended(bridge, "p2")
    assert client.answers["2"] == 1


@scenario
async def test_another_turns_end_does_not_count(client: Client) -> None:
    bridge = await client.new_session()
    client.send("session/prompt", named("p1"), "1")
    answered(bridge, "p1")
    for number in range(SIZES.ended_turns):
        ended(bridge, f"other-{number}")
    assert not client.answers["1"]
    ended(bridge, "p1")
    assert client.answers["1"] == 1
