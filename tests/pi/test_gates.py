"""The real Pi as the gate of Grok's tools: its active tools, plan mode, checks, and a gate open at a kill."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.e2e.gateway import Gateway
from tests.engines.scripted_model import ScriptedModel
from tests.pi.pi import PiProcess, last_message, text_of

Start = Callable[..., Awaitable[PiProcess]]


def command(line: str) -> dict[str, Any]:
    return {"name": "run_terminal_command", "args": {"command": line, "description": "d"}}


def write(path: Path, content: str) -> dict[str, Any]:
    return {"name": "write", "args": {"file_path": str(path), "content": content}}


def settings(home: Path, **values: Any) -> Path:
    """A home whose Pi has this grok-ws.json."""
    (home / "agent").mkdir(parents=True)
    (home / "agent/grok-ws.json").write_text(json.dumps(values))
    return home


def allow(request: dict[str, Any]) -> dict[str, Any]:
    """Allow whatever is asked, once."""
    return {"value": next(o for o in request["options"] if "allow_once" in o or o == "Allow")}


async def test_grok_may_what_pis_active_tools_may(
    start_pi: Start, shared: Gateway, model: ScriptedModel
) -> None:
    pi = await start_pi(shared, "--tools", "read,grep,find,ls")
    pi.person = allow
    marker = shared.work / secrets.token_hex(4)
    known = shared.work / f"{secrets.token_hex(4)}.txt"
    known.write_text("in the file\n")
    read = {"name": "read_file", "args": {"target_file": str(known)}}
    script = model.script([{"tools": [command(f"touch {marker}")]}, {"tools": [read]}, {"text": "end"}])
    assert text_of(await pi.prompt(f"do {script}")) == "end"
    assert not marker.exists()
    assert [e["status"] for e in pi.entries("grok-tool")] == ["denied", "completed"]
    assert "in the file" in model.calls(script)[-1].text


async def test_a_gate_open_at_the_kill_of_its_worker_lets_nothing_run(
    start_pi: Start, real: Gateway, model: ScriptedModel, tmp_path: Path
) -> None:
    pi = await start_pi(real, home=settings(tmp_path / "home", permissionMode="ask"))
    pi.person = lambda request: None  # the dialog stays on the screen
    marker = real.work / secrets.token_hex(4)
    script = model.script([{"tools": [command(f"touch {marker}")]}, {"text": "not reached"}])
    start = len(pi.records)
    await pi.call("prompt", message=f"do {script}")
    dialog = await pi.until(lambda r: r.get("method") == "select", start)
    (bridge,) = real.bridges()
    os.kill(real.workers()[real.worker_of(bridge.pid)], signal.SIGKILL)
    await asyncio.sleep(0.5)
    pi.answer(dialog, {"value": "Allow"})  # for a call that is dead by now
    await pi.until(lambda r: r["type"] == "agent_settled", start)
    end = last_message(pi.records[start:])
    if end["stopReason"] == "error":
        assert "did not run" in end["errorMessage"]
    else:  # denied as soon as its judge was gone; the turn went on, if the gateway did not cancel it before
        assert real.embedded
    assert not marker.exists()
    assert not any(r["type"] == "auto_retry_start" for r in pi.records)
    pi.person = lambda request: {"value": "Allow"}
    again = await pi.prompt(
        "again " + model.script([{"tools": [command(f"touch {marker}")]}, {"text": "ok"}])
    )
    assert text_of(again) == "ok"
    assert marker.exists()


async def test_the_end_of_plan_mode_is_a_dialog(pi: PiProcess, model: ScriptedModel) -> None:
    asked: list[str] = []

    def person(request: dict[str, Any]) -> dict[str, Any]:
        asked.append(request["title"])
        return {"value": request["options"][0]}

    pi.person = person
    enter, leave = {"name": "enter_plan_mode", "args": {}}, {"name": "exit_plan_mode", "args": {}}
    script = model.script([{"tools": [enter]}, {"tools": [leave]}, {"text": "planned"}])
    assert text_of(await pi.prompt(f"plan {script}")) == "planned"
    assert any("plan" in title.lower() for title in asked), asked


async def test_a_failed_check_is_told_to_grok(
    start_pi: Start, shared: Gateway, model: ScriptedModel, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    stop = f'if [ -e "{flag}" ]; then exit 0; else touch "{flag}"; echo not yet; exit 1; fi'
    checks = {"postEditCheck": 'printf "checked <%s>" {file}; exit 3', "stopCheck": stop}
    pi = await start_pi(shared, home=settings(tmp_path / "home", permissionMode="yolo", hooks=checks))
    file = shared.work / f"it's {secrets.token_hex(4)}.txt"
    script = model.script([{"tools": [write(file, "x")]}, {"text": "first"}, {"text": " second"}])
    assert text_of(await pi.prompt(f"do {script}")) == "first second"
    told = model.calls(script)
    assert f"checked <{file}>" in told[1].text
    assert "not yet" in told[-1].text
    assert "checked" in pi.entries("grok-tool")[-1]["hookContext"]
