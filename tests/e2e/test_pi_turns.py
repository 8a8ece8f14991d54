"""Turns over ``/pi`` with the real engine: what goes out, what comes back, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.gateway import Gateway
from tests.e2e.pi_client import PiClient, PiSession
from tests.engines.scripted_model import ScriptedModel


def pi_client(gateway: Gateway, folder: Path, **options: Any) -> PiClient:
    return PiClient(gateway.url.replace("/ws", "/pi"), gateway.secret, folder, **options)


@pytest.fixture
async def pi(shared: Gateway, tmp_path: Path) -> AsyncIterator[PiClient]:
    """A Pi with one session on screen."""
    client = pi_client(shared, tmp_path)
    await client.connect()
    await client.show(PiSession(shared.work))
    yield client
    await client.close()


async def test_a_turn_streams_thought_and_text(pi: PiClient, model: ScriptedModel) -> None:
    text = model.script([{"think": "let me see", "text": "hello world, this is it", "chunks": 5}])
    answer = await pi.ask(f"hi {text}")
    assert answer.stop == "stop"
    assert [b["type"] for b in answer.blocks] == ["thinking", "text"]
    assert answer.blocks[0]["text"] == "let me see"
    assert answer.text == "hello world, this is it"
    assert sum(e["op"] == "delta" for e in answer.events) > 4
    usage = answer.end["usage"]
    assert usage["totalTokens"] > usage["output"] > 0
    assert usage["input"] + usage["cacheRead"] + usage["output"] == usage["totalTokens"]


async def test_the_system_prompt_becomes_rules_and_the_session_stays(
    pi: PiClient, model: ScriptedModel
) -> None:
    one, two = model.script([{"text": "one"}]), model.script([{"text": "two"}])
    await pi.ask(f"first {one}")
    await pi.ask(f"second {two}")
    (call,) = model.calls(two)
    assert "You are a test." in call.text
    assert call.text.count(one) == 1, "the first message was given twice"
    assert "Pi transcript" not in call.text
    assert pi.session is not None
    assert len({data["grok"] for data in pi.session.entries("grok-session")}) == 1
