"""The scripted model itself, over plain HTTP and under the real engine's own calls."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any

import aiohttp
import pytest

from tests.engines.scripted_model import ScriptedModel, steps


def request(*messages: tuple[str, str], **more: Any) -> dict[str, Any]:
    texts = [{"role": role, "content": text} for role, text in messages]
    return {"model": "scripted-1", "stream": True, "messages": texts, **more}


async def ask(model: ScriptedModel, body: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """(status, events) of one call."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{model.url}/chat/completions", json=body) as response,
    ):
        text = await response.text()
    if response.status != 200:
        return response.status, []
    lines = [line[6:] for line in text.split("\n") if line.startswith("data: {")]
    return response.status, [json.loads(line) for line in lines]


def texts(events: list[dict[str, Any]], field: str = "content") -> list[str]:
    deltas = [choice["delta"] for event in events for choice in event["choices"]]
    return [delta[field] for delta in deltas if field in delta]


async def test_steps_follow_the_assistant_messages(model: ScriptedModel) -> None:
    marker = model.script([{"text": "abcd", "chunks": 2, "think": "hm"}, {"text": "second"}])
    _, events = await ask(model, request(("user", f"go {marker}")))
    assert texts(events) == ["ab", "cd"]
    assert texts(events, "reasoning_content") == ["h", "m"]
    _, events = await ask(model, request(("user", f"go {marker}"), ("assistant", "abcd"), ("tool", "x")))
    assert texts(events) == ["second"]
    assert model.calls(marker)[-1].tool_results() == ["x"]


async def test_a_script_in_the_prompt_and_none(model: ScriptedModel) -> None:
    inline = steps({"tools": [{"name": "grep", "args": {"pattern": "]]"}}]})
    _, events = await ask(model, request(("user", f"<user_query>{inline}</user_query>")))
    arguments = [c["function"]["arguments"] for call in texts(events, "tool_calls") for c in call]
    assert json.loads("".join(arguments)) == {"pattern": "]]"}
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"
    _, events = await ask(model, request(("user", "nothing of ours")))
    assert texts(events) == ["(no script)"]


async def test_a_gate_holds_until_it_is_released(model: ScriptedModel) -> None:
    gate = secrets.token_hex(4)
    call = asyncio.create_task(ask(model, request(("user", steps({"text": "x", "gate": gate})))))
    await model.waiting(gate)
    assert not call.done()
    model.release(gate)
    assert texts((await call)[1]) == ["x"]


async def test_faults_happen_as_often_as_asked(model: ScriptedModel) -> None:
    marker = model.script([{"status": 500, "times": 2, "text": "fine now"}])
    answers = [await ask(model, request(("user", marker))) for _ in range(3)]
    assert [status for status, _ in answers] == [500, 500, 200]
    drop = model.script([{"drop": True, "times": 1, "text": "halves", "chunks": 2}])
    with pytest.raises(aiohttp.ClientError):
        await ask(model, request(("user", drop)))
    assert texts((await ask(model, request(("user", drop))))[1]) == ["hal", "ves"]


async def test_the_engines_own_calls_consume_no_step(model: ScriptedModel) -> None:
    marker = model.script([{"text": "step"}])
    nonce = secrets.token_hex(4)
    forced = {"type": "function", "function": {"name": "session_title"}}
    await ask(model, request(("user", f"{marker} {nonce}"), tool_choice=forced))
    dashboard = "<system-reminder>Write an ultra-short dashboard line that captures"
    await ask(model, request(("user", f"{marker} {nonce}"), ("assistant", "step"), ("user", dashboard)))
    assert model.calls(nonce) == []
    assert [call.kind for call in model.calls(nonce, kind="")] == ["title", "summary"]


async def test_many_calls_at_once_keep_their_scripts(model: ScriptedModel) -> None:
    words = [secrets.token_hex(4) for _ in range(50)]
    bodies = [request(("user", steps({"text": word, "chunks": 4, "delay": 0.001}))) for word in words]
    answers = await asyncio.gather(*(ask(model, body) for body in bodies))
    assert ["".join(texts(events)) for _, events in answers] == words
