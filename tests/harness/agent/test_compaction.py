"""Conversations that are replaced by a summary, by command and by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.session.commands import Sheet
from tests.engines.scripted_model import ScriptedModel
from tests.harness.agent.conftest import TestClient

SUMMARY = "<conversation_summary>"
FULL = {"prompt_tokens": 190_000, "completion_tokens": 10, "total_tokens": 190_010}
ECHO = {"name": "run_terminal_command", "args": {"command": "echo x", "description": "d"}}


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    """One of its own, whose summaries a test may spoil."""
    made = ScriptedModel().start()
    yield made
    made.stop()


async def test_by_command(client: TestClient, model: ScriptedModel) -> None:
    await client.turn(f"first {model.script([{'tools': [ECHO]}, {'text': 'secret-of-the-past'}])}")
    answer = await client.turn("/compact the names", "c")
    assert answer["result"]["stopReason"] == "end_turn"
    assert answer["result"]["_meta"]["totalTokens"] == 0
    (done,) = client.updates("auto_compact_completed")
    assert not client.updates("auto_compact_started")
    assert done["tokens_after"] != done["tokens_before"]
    assert client.updates("turn_completed")[-1]["prompt_id"] == "c"
    (call,) = model.calls(kind="compaction")
    assert "the names" in call.text

    second = model.script([{"text": "on"}])
    await client.turn(f"second {second}")
    (call,) = model.calls(second)
    assert SUMMARY in call.text
    assert "first" in call.text  # the newest of the user's texts
    assert "secret-of-the-past" not in call.text
    assert "/compact" not in call.text


async def test_another_process_goes_on_with_the_summary(
    client: TestClient, model: ScriptedModel, new_client: Callable[..., TestClient]
) -> None:
    await client.turn(f"first {model.script([{'text': 'secret-of-the-past'}])}")
    await client.turn("/compact")
    client.connection.close()
    await client.agent.close()
    again = new_client()
    await again.result("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
    params = {"sessionId": client.session, "cwd": str(client.work), "mcpServers": []}
    await again.result("session/load", params)
    again.session = client.session
    assert again.text == "secret-of-the-past"  # the client's history is whole
    marker = model.script([{"text": "on"}])
    await again.turn(f"second {marker}")
    (call,) = model.calls(marker)
    assert SUMMARY in call.text
    assert "secret-of-the-past" not in call.text


async def test_nothing_to_summarise(client: TestClient, model: ScriptedModel) -> None:
    assert (await client.turn("/compact"))["result"]["stopReason"] == "end_turn"
    assert "nothing" in client.text
    assert model.calls_seen == 0


@pytest.mark.parametrize("spoiled", [{"text": "short"}, {"text": ""}, {"status": 400, "text": "no"}])
async def test_a_poor_summary_loses_nothing(
    client: TestClient, model: ScriptedModel, spoiled: dict[str, Any]
) -> None:
    model.own_answers["compaction"] = spoiled
    await client.turn(f"first {model.script([{'text': 'of the past'}])}")
    answer = await client.turn("/compact")
    assert answer["error"]["code"] == -32603
    assert not client.updates("auto_compact_completed")
    assert client.updates("turn_completed")[-1]["stop_reason"] == "error"
    marker = model.script([{"text": "on"}])
    await client.turn(f"second {marker}")
    (call,) = model.calls(marker)
    assert "of the past" in call.text
    assert SUMMARY not in call.text


async def test_a_command_that_breaks_is_answered(
    client: TestClient, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Sheet) -> str:
        raise RuntimeError("no sheet")

    monkeypatch.setattr(Sheet, "context", broken)
    assert "no sheet" in (await client.turn("/context"))["error"]["data"]["message"]
    assert "result" in await client.turn("/compact")


async def test_by_itself_when_the_window_is_nearly_full_and_not_for_ever(
    client: TestClient, model: ScriptedModel
) -> None:
    """The scripted model says again and again that the window is full."""
    script = model.script([{"tools": [ECHO], "usage": FULL}, {"text": "done"}])
    answer = await client.turn(f"go {script}")
    assert answer["result"]["stopReason"] == "end_turn"
    assert client.text == "done"
    started = client.updates("auto_compact_started")
    assert len(started) == 3
    assert (started[0]["context_window"], started[0]["percentage"]) == (200_000, 95)
    assert len(client.updates("auto_compact_completed")) == 3


async def test_when_the_model_says_that_it_is_too_long(client: TestClient, model: ScriptedModel) -> None:
    await client.turn(f"first {model.script([{'text': 'of the past'}])}")
    said = "This model's maximum context length is 10 tokens."
    marker = model.script([{"status": 400, "text": said, "times": 1, "then": {"text": "fits now"}}])
    answer = await client.turn(f"second {marker}")
    assert answer["result"]["stopReason"] == "end_turn"
    assert client.text.endswith("fits now")
    assert len(client.updates("auto_compact_completed")) == 1
    assert SUMMARY in model.calls(marker)[-1].text


async def test_a_model_that_always_says_so_ends_the_turn(client: TestClient, model: ScriptedModel) -> None:
    await client.turn(f"first {model.script([{'text': 'of the past'}])}")
    marker = model.script([{"status": 400, "text": "prompt is too long: 11 tokens > 10 maximum"}])
    answer = await client.turn(f"second {marker}")
    assert "too long" in answer["error"]["data"]["message"]
    assert len(client.updates("auto_compact_completed")) == 3


async def test_cancelled_it_changes_nothing(client: TestClient, model: ScriptedModel) -> None:
    model.own_answers["compaction"] = {"text": "never " * 100, "gate": "summary"}
    await client.turn(f"first {model.script([{'text': 'of the past'}])}")
    turn = client.prompt("/compact", "c")
    await model.waiting("summary")
    client.cancel()
    assert (await turn)["result"]["stopReason"] == "cancelled"
    marker = model.script([{"text": "on"}])
    await client.turn(f"second {marker}")
    (call,) = model.calls(marker)
    assert "of the past" in call.text
    assert SUMMARY not in call.text


async def test_the_extension(client: TestClient, model: ScriptedModel) -> None:
    await client.turn(f"first {model.script([{'text': 'x'}])}")
    params = {"sessionId": client.session, "userContext": "numbers"}
    assert await client.result("_x.ai/compact_conversation", params) == {}
    assert "numbers" in model.calls(kind="compaction")[0].text
    assert "error" in await client.call("_x.ai/compact_conversation", {"sessionId": "none"})


async def test_always_approve_asks_again_or_not(client: TestClient, model: ScriptedModel) -> None:
    asked = list[Any]()

    def reject(message: dict[str, Any]) -> dict[str, Any]:
        asked.append(message)
        return {"result": {"outcome": {"outcome": "selected", "optionId": "reject-once"}}}

    client.reply = reject
    python = {"name": "run_terminal_command", "args": {"command": "python3 -c 1", "description": "d"}}
    for text, questions in (("off", 1), ("maybe", 2), ("on", 2), ("", 3)):
        await client.turn(f"/always-approve {text}".strip())
        await client.turn(f"go {model.script([{'tools': [python]}, {'text': 'x'}])}")
        assert len(asked) == questions, text
    assert "maybe" in client.text


async def test_what_is_said_of_a_session(client: TestClient, model: ScriptedModel) -> None:
    assert [c["name"] for c in client.updates("available_commands_update")[-1]["availableCommands"]]
    await client.turn(f"first words {model.script([{'text': 'x'}])}")
    calls = model.calls_seen
    await client.turn("/session-info")
    told = client.updates("agent_message_chunk")[-1]
    assert told["_meta"] == {"hostTurn": True}
    assert "first words" in told["content"]["text"]
    assert "**Turns:** 1" in told["content"]["text"]  # a command is none
    await client.turn("/context")
    assert model.calls_seen == calls
