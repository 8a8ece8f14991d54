"""The gate over ``/pi`` with the real engine: modes, lists, dialogs, checks and questions."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.pi_client import PiClient
from tests.engines.scripted_model import ScriptedModel

Make = Callable[..., Awaitable[PiClient]]

#: A command for which Grok itself asks for permission.
ASKS = "python3 -c 'print(40 + 2)'"


def shell(command: str) -> dict[str, Any]:
    return {"name": "run_terminal_command", "args": {"command": command, "description": "d"}}


def write(path: Path, text: str) -> dict[str, Any]:
    return {"name": "write", "args": {"file_path": str(path), "content": text}}


def settings(folder: Path, **values: Any) -> None:
    (folder / "grok-ws.json").write_text(json.dumps(values))


def allow_once(ask: dict[str, Any]) -> dict[str, Any]:
    options = ask["args"]["options"]
    return {"value": next(o for o in options if "allow_once" in o or o == "Allow")}


def refuse(ask: dict[str, Any]) -> dict[str, Any]:
    raise AssertionError(f"nothing should be asked: {ask}")


def touch(pi: PiClient) -> Path:
    assert pi.session is not None
    return Path(pi.session.cwd) / f"touched-{secrets.token_hex(4)}"


def tool(pi: PiClient) -> dict[str, Any]:
    assert pi.session is not None
    return dict(pi.session.entries("grok-tool")[-1])


# -- modes and lists -----------------------------------------------------------------------------------


async def test_without_bash_no_command_runs(pi_of: Make, model: ScriptedModel) -> None:
    pi = await pi_of(active=["read", "edit"], person=refuse)
    file = touch(pi)
    answer = await pi.ask("x " + model.script([{"tools": [shell(f"touch {file}")]}, {"text": "went on"}]))
    assert answer.text == "went on"
    assert not file.exists()
    assert tool(pi)["status"] == "denied"
    assert "bash" in tool(pi)["denyReason"]


async def test_read_only_lets_read_and_denies_the_rest(
    pi_of: Make, model: ScriptedModel, tmp_path: Path
) -> None:
    settings(tmp_path, permissionMode="readonly", hooks={"allowGrokTools": [".*"]})
    pi = await pi_of(person=refuse)
    file = touch(pi)
    script = model.script(
        [
            {"tools": [{"name": "list_dir", "args": {"target_directory": "."}}]},
            {"tools": [shell(f"touch {file}")]},
            {"tools": [write(file, "x")]},
            {"text": "went on"},
        ]
    )
    answer = await pi.ask(f"x {script}")
    assert answer.text == "went on"
    assert not file.exists()
    assert pi.session is not None
    assert [e["status"] for e in pi.session.entries("grok-tool")] == ["completed", "denied", "denied"]


async def test_the_deny_list_wins_in_every_mode(pi_of: Make, model: ScriptedModel, tmp_path: Path) -> None:
    settings(tmp_path, permissionMode="yolo", hooks={"denyGrokTools": ["run_.*"]})
    pi = await pi_of(person=refuse)
    file = touch(pi)
    await pi.ask("x " + model.script([{"tools": [shell(f"touch {file}")]}, {"text": "ok"}]))
    assert not file.exists()
    assert "deny list" in tool(pi)["denyReason"]


async def test_yolo_allows_without_a_question(pi_of: Make, model: ScriptedModel) -> None:
    pi = await pi_of(active=["read"], person=refuse)
    await pi.request("command", {"text": "perms yolo"})
    assert json.loads((pi.agent_dir / "grok-ws.json").read_text())["permissionMode"] == "yolo"
    await pi.ask("x " + model.script([{"tools": [shell(ASKS)]}, {"text": "ok"}]))
    assert tool(pi)["output"].strip() == "42"
    assert "yolo" in pi.status


async def test_a_broken_setting_stops_turns_and_says_what_to_do(pi_of: Make, tmp_path: Path) -> None:
    settings(tmp_path, hooks={"denyGrokTools": "run_.*", "postEditCheck": 7})
    pi = await pi_of()
    assert "postEditCheck" in pi.welcome["notice"]
    answer = await (await pi.prompt("hi")).done()
    assert "postEditCheck" in answer.end["error"]


# -- ask mode ------------------------------------------------------------------------------------------


async def test_ask_asks_once_for_the_gate_and_for_groks_own_prompt(
    pi_of: Make, model: ScriptedModel, tmp_path: Path
) -> None:
    settings(tmp_path, permissionMode="ask")
    pi = await pi_of(person=allow_once)
    await pi.ask("x " + model.script([{"tools": [shell(ASKS)]}, {"text": "ok"}]))
    assert tool(pi)["output"].strip() == "42"
    assert len(pi.asked) == 1
    assert "run_terminal_command" in pi.asked[0]["args"]["title"]


async def test_ask_denied_goes_on(pi_of: Make, model: ScriptedModel, tmp_path: Path) -> None:
    settings(tmp_path, permissionMode="ask")
    pi = await pi_of(person=lambda ask: {"value": "Deny"})
    file = touch(pi)
    answer = await pi.ask("x " + model.script([{"tools": [shell(f"touch {file}")]}, {"text": "went on"}]))
    assert answer.text == "went on"
    assert not file.exists()


async def test_ask_without_ui_is_read_only(pi_of: Make, model: ScriptedModel, tmp_path: Path) -> None:
    settings(tmp_path, permissionMode="ask")
    pi = await pi_of(person=refuse, ui=False)
    file = touch(pi)
    await pi.ask("x " + model.script([{"tools": [shell(f"touch {file}")]}, {"text": "ok"}]))
    assert not file.exists()


# -- permissions ---------------------------------------------------------------------------------------


async def test_a_permission_is_one_dialog(pi_of: Make, model: ScriptedModel) -> None:
    pi = await pi_of(person=allow_once)
    await pi.ask("x " + model.script([{"tools": [shell(ASKS)]}, {"text": "ok"}]))
    (ask,) = pi.asked
    assert ask["kind"] == "select"
    assert ASKS in ask["args"]["title"]
    assert any("allow_always" in option for option in ask["args"]["options"])
    assert tool(pi)["output"].strip() == "42"


async def test_a_dismissed_permission_ends_the_turn_without_an_abort(
    pi_of: Make, model: ScriptedModel
) -> None:
    pi = await pi_of()
    answer = await pi.ask("x " + model.script([{"tools": [shell(ASKS)]}, {"text": "never"}]))
    assert answer.stop == "stop"
    assert answer.end["raw_stop"] == "cancelled"
    assert answer.text == ""


@pytest.mark.parametrize(
    ("policy", "ran"), [("dialog", False), ("deny", False), ("reads", False), ("allow", True)]
)
async def test_without_ui_the_headless_policy_answers_and_the_turn_goes_on(
    pi_of: Make, model: ScriptedModel, policy: str, ran: bool
) -> None:
    pi = await pi_of(person=refuse, ui=False, env={"PI_GROK_HEADLESS_PERMISSIONS": policy})
    answer = await pi.ask("x " + model.script([{"tools": [shell(ASKS)]}, {"text": "went on"}]))
    assert answer.text == "went on"
    assert (tool(pi)["output"].strip() == "42") is ran


async def test_an_abort_takes_the_dialog_away(pi_of: Make, model: ScriptedModel) -> None:
    pi = await pi_of(person=lambda ask: None)
    answer = await pi.prompt("x " + model.script([{"tools": [shell(ASKS)]}, {"text": "never"}]))
    async with asyncio.timeout(60):
        while not pi.asked:
            await asyncio.sleep(0.02)
    await pi.abort(answer)
    assert (await answer.done()).stop == "aborted"
    assert [c["ask"] for c in pi.closed_asks] == [pi.asked[0]["ask"]]


# -- checks --------------------------------------------------------------------------------------------


async def test_a_syntax_error_is_told_to_the_model(pi_of: Make, model: ScriptedModel) -> None:
    pi = await pi_of(person=allow_once)
    assert pi.session is not None
    file = Path(pi.session.cwd) / f"it's a {secrets.token_hex(4)}.py"
    marker = model.script([{"tools": [write(file, "def broken(:\n")]}, {"text": "ok"}])
    await pi.ask(f"x {marker}")
    last = model.calls(marker)[-1].text
    assert "The check of" in last
    assert "SyntaxError" in last
    assert "SyntaxError" in tool(pi)["hookContext"]


async def test_the_users_check_gets_the_file_as_an_argument(
    pi_of: Make, model: ScriptedModel, tmp_path: Path
) -> None:
    settings(tmp_path, hooks={"postEditCheck": 'printf "checked <%s>" {file}; exit 3'})
    pi = await pi_of(person=allow_once)
    assert pi.session is not None
    name = f"$(touch gotcha-{secrets.token_hex(4)}) x.txt"
    file = Path(pi.session.cwd) / name
    marker = model.script([{"tools": [write(file, "x")]}, {"text": "ok"}])
    await pi.ask(f"x {marker}")
    assert f"checked <{file}>" in model.calls(marker)[-1].text
    assert not list(Path(pi.session.cwd).glob("gotcha-*"))


async def test_a_failed_stop_check_keeps_the_turn_going(
    pi_of: Make, model: ScriptedModel, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    command = f'if [ -e "{flag}" ]; then exit 0; else touch "{flag}"; echo not yet; exit 1; fi'
    settings(tmp_path, hooks={"stopCheck": command})
    pi = await pi_of()
    marker = model.script([{"text": "first"}, {"text": " second"}])
    answer = await pi.ask(f"x {marker}")
    assert answer.text == "first second"
    assert "not yet" in model.calls(marker)[-1].text


# -- questions -----------------------------------------------------------------------------------------


async def test_questions_are_dialogs(pi_of: Make, model: ScriptedModel) -> None:
    def person(ask: dict[str, Any]) -> dict[str, Any]:
        options = ask["args"].get("options", [])
        if ask["kind"] == "input":
            return {"value": "purple"}
        if "(2/2)" in ask["args"]["title"]:
            chosen = "Done selecting" if "Cat" not in options else "Cat"
            return {"value": chosen}
        return {"value": "Other…"}

    pi = await pi_of(person=person)
    question = {
        "name": "ask_user_question",
        "args": {
            "questions": [
                {
                    "question": "Color?",
                    "options": [
                        {"label": "Red", "description": "warm"},
                        {"label": "Blue", "description": "cold"},
                    ],
                },
                {
                    "question": "Pets?",
                    "options": [{"label": "Cat", "description": ""}, {"label": "Dog", "description": ""}],
                    "multi_select": True,
                },
            ]
        },
    }
    marker = model.script([{"tools": [question]}, {"text": "ok"}])
    answer = await pi.ask(f"x {marker}")
    assert answer.text == "ok"
    last = model.calls(marker)[-1].tool_results()[-1]
    assert "purple" in last
    assert "Cat" in last
    assert "Dog" not in last
    assert [a["kind"] for a in pi.asked] == ["select", "input", "select", "select"]


async def test_a_dismissed_question_lets_the_turn_go_on(pi_of: Make, model: ScriptedModel) -> None:
    pi = await pi_of()
    question = {
        "name": "ask_user_question",
        "args": {
            "questions": [
                {
                    "question": "Color?",
                    "options": [{"label": "Red", "description": ""}, {"label": "Blue", "description": ""}],
                }
            ]
        },
    }
    answer = await pi.ask("x " + model.script([{"tools": [question]}, {"text": "went on"}]))
    assert answer.text == "went on"


# -- commands ------------------------------------------------------------------------------------------


async def test_debug_says_what_is_what(pi_of: Make, model: ScriptedModel) -> None:
    pi = await pi_of()
    await pi.ask("x " + model.script([{"text": "ok"}]))
    assert pi.session is not None
    result = await pi.request("command", {"session": pi.session.id, "text": "debug"})
    for part in (pi.session.id, "scripted", "permissions auto", "1 turns, 1 model calls"):
        assert part in result["notice"]
    assert pi.secret not in result["notice"]
    unknown = await pi.request("command", {"text": "nonsense"})
    assert "debug, perms" in unknown["notice"]
