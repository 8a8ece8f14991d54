"""Turns of the real Pi: what is shown, what is stored, and what stays usable."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.e2e.gateway import Gateway
from tests.engines.scripted_model import ScriptedModel
from tests.pi.pi import PiProcess, environment, last_message, run_pi, text_of, thinking_of

Start = Callable[..., Awaitable[PiProcess]]


def command(line: str) -> dict[str, object]:
    return {"name": "run_terminal_command", "args": {"command": line, "description": "d"}}


async def test_a_turn_streams_thought_text_and_tools(pi: PiProcess, model: ScriptedModel) -> None:
    step = {"think": "let me see", "tools": [command("echo yes")]}
    script = model.script([step, {"text": "all is done", "chunks": 4}])
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
    assert "auto" in pi.status
    deltas = [r["assistantMessageEvent"]["type"] for r in records if r["type"] == "message_update"]
    assert deltas.count("text_delta") > 1, "the text was not streamed"
    # The second turn goes to the same Grok session, which is not told again what it knows.
    second = model.script([{"text": "second"}])
    assert text_of(await pi.prompt(f"more {second}")) == "second"
    (call,) = model.calls(second)
    assert "Pi transcript" not in call.text
    assert call.text.count(script) == 1
    assert len({e["grok"] for e in pi.entries("grok-session")}) == 1


async def test_errors_lengths_and_unknown_models(pi: PiProcess, model: ScriptedModel) -> None:
    records = await pi.prompt("go " + model.script([{"text": "as far as I get", "finish": "length"}]))
    assert last_message(records)["stopReason"] == "length"
    assert text_of(records) == "as far as I get"
    records = await pi.prompt("go " + model.script([{"status": 400, "text": "context length exceeded"}]))
    message = last_message(records)
    assert message["stopReason"] == "error"
    assert "Grok could not answer" in message["errorMessage"]
    assert not any(r["type"] in ("auto_retry_start", "compaction_start") for r in pi.records)
    assert text_of(await pi.prompt("on " + model.script([{"text": "fine"}]))) == "fine"


async def test_abort_is_quick_and_leaks_nothing(pi: PiProcess, model: ScriptedModel) -> None:
    gate = secrets.token_hex(4)
    slow = model.script([{"text": "never to be seen", "chunks": 8, "gate": gate, "gate_after": 2}])
    start = len(pi.records)
    await pi.call("prompt", message=f"go {slow}")
    await model.waiting(gate)
    await pi.call("abort")
    await pi.until(lambda r: r["type"] == "agent_settled", start, timeout=5)
    assert last_message(pi.records[start:])["stopReason"] == "aborted"
    after = await pi.prompt("next " + model.script([{"text": "clean"}]))
    model.release(gate)
    assert text_of(after) == "clean"


async def test_dialogs_permissions_and_commands(
    start_pi: Start, shared: Gateway, model: ScriptedModel
) -> None:
    pi = await start_pi(shared)
    marker = shared.work / secrets.token_hex(4)
    asked: list[str] = []

    def person(request: dict[str, object]) -> dict[str, object]:
        asked.append(str(request["title"]))
        options = request.get("options")
        if isinstance(options, list):
            return {"value": "Deny" if "Deny" in options else next(o for o in options if "allow_once" in o)}
        return {"cancelled": True}

    pi.person = person
    start = len(pi.records)
    await pi.call("prompt", message="/grok perms ask")
    await pi.until(lambda r: r.get("method") == "notify" and "ask" in r["message"], start)
    denied = await pi.prompt("do " + model.script([{"tools": [command(f"touch {marker}")]}, {"text": "no"}]))
    assert text_of(denied) == "no", "a denial lets the turn go on"
    assert asked
    assert not marker.exists()
    assert pi.entries("grok-tool")[-1]["status"] == "denied"
    start = len(pi.records)
    await pi.call("prompt", message="/grok perms yolo")
    await pi.until(lambda r: r.get("method") == "notify" and "yolo" in r["message"], start)
    asked.clear()
    await pi.prompt("do " + model.script([{"tools": [command(f"touch {marker}")]}, {"text": "ok"}]))
    assert marker.exists()
    assert not asked
    kept = json.loads(Path(pi.env["PI_CODING_AGENT_DIR"], "grok-ws.json").read_text())
    assert kept["permissionMode"] == "yolo"
    await pi.call("prompt", message="/grok debug")
    await pi.until(lambda r: r.get("method") == "notify" and "Grok session" in r["message"])
    await pi.call("prompt", message="/grok nonsense")
    await pi.until(lambda r: r.get("method") == "notify" and "/grok knows" in r["message"])


async def test_a_question_is_a_dialog(pi: PiProcess, model: ScriptedModel) -> None:
    question = {
        "question": "Which colour?",
        "options": [{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}],
    }
    call = {"name": "ask_user_question", "args": {"questions": [question]}}
    marker = model.script([{"tools": [call]}, {"text": "I see"}])
    pi.person = lambda request: {"value": next(o for o in request["options"] if "blue" in o)}
    assert text_of(await pi.prompt(f"ask {marker}")) == "I see"
    assert any("blue" in result for result in model.calls(marker)[-1].tool_results())


async def test_the_model_and_the_level_are_used(pi: PiProcess, model: ScriptedModel) -> None:
    await pi.prompt("a " + model.script([{"text": "one"}]))
    await pi.call("set_model", provider="grok", modelId="scripted-two")
    await pi.call("set_thinking_level", level="high")
    marker = model.script([{"text": "two"}])
    assert text_of(await pi.prompt(f"b {marker}")) == "two"
    (call,) = model.calls(marker)
    assert call.body["model"] == "scripted-2"
    assert call.body["reasoning_effort"] == "high"


async def test_sessions_are_apart(pi: PiProcess, model: ScriptedModel) -> None:
    one = model.script([{"text": "first"}])
    await pi.prompt(f"one {one}")
    grok = pi.entries("grok-session")[-1]["grok"]
    await pi.call("new_session")
    two = model.script([{"text": "second"}])
    assert text_of(await pi.prompt(f"two {two}")) == "second"
    assert pi.entries("grok-session")[-1]["grok"] != grok
    (call,) = model.calls(two)
    assert one not in call.text
    await pi.call("clone")
    three = model.script([{"text": "third"}])
    assert text_of(await pi.prompt(f"three {three}")) == "third"
    assert len({e["grok"] for e in pi.entries("grok-session")}) == 3
    (call,) = model.calls(three)
    assert "Conversation so far (Pi transcript):" in call.text


async def test_compaction_by_hand_goes_through_and_leaves_grok_alone(
    start_pi: Start, shared: Gateway, model: ScriptedModel, tmp_path: Path
) -> None:
    agent = tmp_path / "home/agent"
    agent.mkdir(parents=True)
    (agent / "settings.json").write_text('{"compaction": {"keepRecentTokens": 20}}')
    pi = await start_pi(shared, home=tmp_path / "home")
    for word in ("one", "two", "three"):
        await pi.prompt(f"{word} " + model.script([{"text": f"{word} " * 40}]))
    grok = {e["grok"] for e in pi.entries("grok-session")}
    await pi.call("compact")
    marker = model.script([{"text": "after"}])
    assert text_of(await pi.prompt(f"on {marker}")) == "after"
    assert {e["grok"] for e in pi.entries("grok-session")} == grok
    compactions = [r["reason"] for r in pi.records if r["type"] == "compaction_start"]
    assert compactions == ["manual"]


@pytest.mark.parametrize("window", [8_000, 32_000, 256_000])
async def test_no_window_makes_pi_compact_by_accident(
    window: int,
    start_pi: Start,
    make_gateway: Callable[..., Gateway],
    engine_binary: Path,
    grok_home: Path,
    model: ScriptedModel,
) -> None:
    config = grok_home / "config.toml"
    config.write_text(config.read_text().replace("context_window = 200000", f"context_window = {window}"))
    pi = await start_pi(make_gateway(engine_binary, grok_home).up())
    for number in range(20):
        assert (
            text_of(await pi.prompt("go " + model.script([{"text": f"answer {number}"}])))
            == f"answer {number}"
        )
    assert not any(r["type"] == "compaction_start" for r in pi.records)
    assert len({e["grok"] for e in pi.entries("grok-session")}) == 1


async def test_pi_is_woken_for_a_turn_of_groks_own(pi: PiProcess, model: ScriptedModel) -> None:
    pi.person = lambda request: {"value": next(o for o in request["options"] if "allow_once" in o)}
    line = "sleep 1; echo finished"
    call = {
        "name": "run_terminal_command",
        "args": {"command": line, "description": "d", "is_background": True},
    }
    marker = model.script([{"tools": [call]}, {"text": "started"}, {"text": "it is finished"}])
    await pi.prompt(f"go {marker}")
    start = len(pi.records)
    await pi.until(lambda r: r["type"] == "agent_settled", start)
    assert last_message(pi.records[start:])["stopReason"] == "stop"
    assert text_of(pi.records[start:])
    assert not pi.entries("grok-turn"), "told twice"
    assert text_of(await pi.prompt("next " + model.script([{"text": "fine"}]))) == "fine"


async def test_a_lost_worker_costs_nothing(start_pi: Start, real: Gateway, model: ScriptedModel) -> None:
    pi = await start_pi(real)
    await pi.prompt("a " + model.script([{"text": "one"}]))
    (bridge,) = real.bridges()
    victim = real.workers()[real.worker_of(bridge.pid)]
    gate = secrets.token_hex(4)
    marker = model.script([{"text": "abcdefghijklmnop", "chunks": 16, "gate": gate, "gate_after": 6}])
    start = len(pi.records)
    await pi.call("prompt", message=f"go {marker}")
    await pi.delta("abcd", start)
    os.kill(victim, signal.SIGKILL)
    await asyncio.sleep(0.5)
    model.release(gate)
    await pi.until(lambda r: r["type"] == "agent_settled", start, timeout=60)
    records = pi.records[start:]
    assert last_message(records)["stopReason"] == "stop", last_message(records)
    assert text_of(records) == "abcdefghijklmnop"
    assert len(model.calls(marker)) == 1, "prompted twice"
    # A planned restart: 1012, and the next turn finds the same Grok session.
    grok = {e["grok"] for e in pi.entries("grok-session")}
    assert (await real.run("restart", "workers")).returncode == 0
    assert text_of(await pi.prompt("on " + model.script([{"text": "still here"}]))) == "still here"
    assert {e["grok"] for e in pi.entries("grok-session")} == grok
    # The gateway stops: said, and Pi stays.
    await real.run("down")
    stopped = await pi.prompt("anybody?")
    assert "grok-gateway up" in last_message(stopped)["errorMessage"]


async def test_two_pis_at_once(start_pi: Start, shared: Gateway, model: ScriptedModel) -> None:
    first, second = await start_pi(shared), await start_pi(shared)
    gates = [secrets.token_hex(4), secrets.token_hex(4)]
    scripts = [model.script([{"text": f"answer {n}", "gate": gate}]) for n, gate in enumerate(gates)]
    both = [asyncio.create_task(pi.prompt(f"go {s}")) for pi, s in zip((first, second), scripts, strict=True)]
    for gate in gates:
        await model.waiting(gate)
    model.release(gates[1])
    assert text_of(await both[1]) == "answer 1"
    assert not both[0].done()
    model.release(gates[0])
    assert text_of(await both[0]) == "answer 0"


# -- print mode ----------------------------------------------------------------------------------------


async def test_print_mode_prints_and_ends(shared: Gateway, model: ScriptedModel, tmp_path: Path) -> None:
    env = environment(
        shared,
        tmp_path,
        HTTP_PROXY="http://127.0.0.1:9",
        no_proxy="example.org",
        PI_GROK_HEADLESS_PERMISSIONS="deny",
    )
    marker = shared.work / secrets.token_hex(4)
    edit = {"name": "search_replace", "args": {"file_path": str(marker), "old_string": "", "new_string": "x"}}
    script = model.script([{"tools": [edit]}, {"text": "said"}])
    done = await run_pi(env, shared.work, "-p", "--no-session", "--model", "grok/scripted", f"go {script}")
    assert (done.returncode, done.stdout.strip()) == (0, "said"), done.stderr
    assert not marker.exists(), "nobody could be asked"
    done = await run_pi(env, shared.work, "-p", "--no-session", "--model", "grok/grok-99", "go")
    assert done.returncode == 1
    assert "scripted, scripted-two" in done.stderr


async def test_a_session_is_taken_up_by_the_next_pi(
    shared: Gateway, model: ScriptedModel, tmp_path: Path
) -> None:
    env = environment(shared, tmp_path)
    one, two = model.script([{"text": "first"}]), model.script([{"text": "second"}])
    done = await run_pi(env, shared.work, "-p", "--model", "grok/scripted", f"one {one}")
    assert done.stdout.strip() == "first", done.stderr
    done = await run_pi(env, shared.work, "-c", "-p", "--model", "grok/scripted", f"two {two}")
    assert done.stdout.strip() == "second", done.stderr
    (call,) = model.calls(two)
    assert one in call.text
    assert "Pi transcript" not in call.text, "the same Grok session"
