"""Turns of the real Pi: what is shown, what is stored, and what stays usable."""

from __future__ import annotations

import pytest

from tests.engines.scripted_model import ScriptedModel
from tests.pi.pi import PiProcess, last_message, text_of, thinking_of


async def test_a_turn_streams_thought_text_and_tools(pi: PiProcess, model: ScriptedModel) -> None:
    call = {"name": "run_terminal_command", "args": {"command": "echo yes", "description": "d"}}
    script = model.script([{"think": "let me see", "tools": [call]}, {"text": "all is done", "chunks": 4}])
    records = await pi.prompt(f"do {script}")
    message = last_message(records)
    assert message["stopReason"] == "stop", message
    assert text_of(records) == "all is done"
    assert "let me see" in thinking_of(records)
    assert '[grok run_terminal_command] #1 {"command":"echo yes"' in thinking_of(records)
    (tool,) = pi.entries("grok-tool")
    assert (tool["status"], tool["output"], tool["n"]) == ("completed", "yes\n", 1)
    assert message["usage"]["totalTokens"] > 0
    assert "scripted" in pi.status
    deltas = [r["assistantMessageEvent"] for r in records if r["type"] == "message_update"]
    assert sum(d["type"] == "text_delta" for d in deltas) > 1, "the text was not streamed"
