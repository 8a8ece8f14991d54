"""Lost sockets, workers and leaders under a Pi client: the message goes on, nothing is asked twice."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.gateway import Gateway
from tests.e2e.pi_client import PiClient, PiSession
from tests.engines.processes import parent
from tests.engines.scripted_model import ScriptedModel

Make = Callable[..., Awaitable[PiClient]]
ASKS = "python3 -c 'print(40 + 2)'"
LETTERS = "".join(chr(65 + i % 26) for i in range(120))


def allow_once(ask: dict[str, Any]) -> dict[str, Any]:
    return {"value": next(o for o in ask["args"]["options"] if "allow_once" in o or o == "Allow")}


async def until(condition: Callable[[], Any], timeout: float = 60) -> None:
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.fixture
async def pi(real: Gateway, tmp_path: Path) -> AsyncIterator[PiClient]:
    """A Pi on an instance of its own."""
    client = PiClient(real.url.replace("/ws", "/pi"), real.secret, tmp_path)
    await client.connect()
    await client.show(PiSession(real.work))
    yield client
    await client.close()


def worker_of(gateway: Gateway) -> int:
    """Pid of the worker that has the one Pi client."""
    (bridge,) = gateway.bridges()
    return parent(bridge.pid)


# -- sockets -------------------------------------------------------------------------------------------


async def test_a_lost_socket_in_the_middle_of_a_stream(pi_of: Make, model: ScriptedModel) -> None:
    pi = await pi_of()
    one, two = secrets.token_hex(4), secrets.token_hex(4)
    script = [
        {"think": "abc", "text": LETTERS, "chunks": 30, "gate": one, "gate_after": 10},
    ]
    marker = model.script(script)
    answer = await pi.prompt(f"go {marker}")
    await until(lambda: len(answer.text) >= 20)
    await pi.drop()
    model.release(one)
    await asyncio.sleep(0.3)  # the turn goes on with nobody listening
    await pi.come_back()
    await answer.done()
    assert answer.text == LETTERS
    assert [b["type"] for b in answer.blocks] == ["thinking", "text"]
    assert len(model.calls(marker)) == 1
    model.release(two)


async def test_a_turn_that_ended_meanwhile_is_told_at_the_return(pi_of: Make, model: ScriptedModel) -> None:
    pi = await pi_of()
    gate = secrets.token_hex(4)
    answer = await pi.prompt("go " + model.script([{"text": "\U0001f600 done", "gate": gate}]))
    await model.waiting(gate)
    await pi.drop()
    model.release(gate)
    await asyncio.sleep(0.5)
    await pi.come_back()
    await answer.done()
    assert (answer.stop, answer.text) == ("stop", "\U0001f600 done")


async def test_a_dialog_is_asked_again_after_the_return(pi_of: Make, model: ScriptedModel) -> None:
    pi = await pi_of(person=lambda ask: None)
    call = {"name": "run_terminal_command", "args": {"command": ASKS, "description": "d"}}
    answer = await pi.prompt("go " + model.script([{"tools": [call]}, {"text": "ran"}]))
    await until(lambda: pi.asked)
    await pi.drop()
    pi.person = allow_once
    await pi.come_back()
    await answer.done()
    assert answer.text == "ran"
    assert [a["ask"] for a in pi.asked] == [pi.asked[0]["ask"]] * 2


async def test_a_pi_that_stays_away_lets_nothing_run(pi_of: Make, model: ScriptedModel) -> None:
    pi = await pi_of()
    assert pi.session is not None
    gate, file = secrets.token_hex(4), Path(pi.session.cwd) / f"touched-{secrets.token_hex(4)}"
    call = {"name": "run_terminal_command", "args": {"command": f"touch {file}", "description": "d"}}
    marker = model.script([{"tools": [call], "gate": gate}, {"text": "went on"}])
    await pi.prompt(f"go {marker}")
    await model.waiting(gate)
    await pi.drop()
    model.release(gate)
    await model.called(marker, 2)
    assert not file.exists()
    await pi.come_back()


# -- workers -------------------------------------------------------------------------------------------


async def test_a_killed_worker_in_the_middle_of_a_stream(
    pi: PiClient, real: Gateway, model: ScriptedModel
) -> None:
    pi.person = allow_once
    gate = secrets.token_hex(4)
    call = {"name": "run_terminal_command", "args": {"command": "echo hello", "description": "d"}}
    marker = model.script(
        [
            {"think": "first", "tools": [call]},
            {"text": LETTERS, "chunks": 40, "gate": gate, "gate_after": 12},
        ]
    )
    answer = await pi.prompt(f"go {marker}")
    await until(lambda: len(answer.text) >= 30)
    os.kill(worker_of(real), signal.SIGKILL)
    await pi.closed
    await pi.come_back()
    model.release(gate)
    await answer.done()
    assert answer.text == LETTERS
    assert answer.stop == "stop"
    assert answer.thinking.count("[grok run_terminal_command] #1") == 1
    assert len(model.calls(marker)) == 2
    assert pi.session is not None
    assert [e["n"] for e in pi.session.entries("grok-tool")] == [1]
    pi.session.assistant(answer)
    after = await pi.ask("next " + model.script([{"text": "fine"}]))
    assert after.text == "fine"


async def test_a_killed_worker_at_the_end_of_a_turn(
    pi: PiClient, real: Gateway, model: ScriptedModel
) -> None:
    gate = secrets.token_hex(4)
    marker = model.script([{"text": "the end", "gate": gate}])
    answer = await pi.prompt(f"go {marker}")
    await model.waiting(gate)
    worker = worker_of(real)
    os.kill(worker, signal.SIGSTOP)
    model.release(gate)
    await asyncio.sleep(0.3)  # the answer waits in the pipes of a worker that will not read it
    os.kill(worker, signal.SIGKILL)
    await pi.closed
    await pi.come_back()
    await answer.done()
    assert answer.text == "the end"
    assert len(model.calls(marker)) == 1


async def test_a_killed_worker_between_turns(pi: PiClient, real: Gateway, model: ScriptedModel) -> None:
    one = model.script([{"text": "first"}])
    await pi.ask(f"one {one}")
    os.kill(worker_of(real), signal.SIGKILL)
    await pi.closed
    await pi.come_back()
    two = model.script([{"text": "second"}])
    answer = await pi.ask(f"two {two}")
    assert answer.text == "second"
    (call,) = model.calls(two)
    assert call.text.count(one) == 1
    assert "Pi transcript" not in call.text


async def test_a_killed_worker_with_a_tool_that_waits_to_be_allowed(
    pi: PiClient, real: Gateway, model: ScriptedModel
) -> None:
    assert pi.session is not None
    await pi.request("command", {"text": "perms ask"})
    pi.person = lambda ask: None
    file = Path(pi.session.cwd) / "touched"
    call = {"name": "run_terminal_command", "args": {"command": f"touch {file}", "description": "d"}}
    answer = await pi.prompt("go " + model.script([{"tools": [call]}, {"text": "never"}]))
    await until(lambda: pi.asked)
    os.kill(worker_of(real), signal.SIGKILL)
    await pi.closed
    await pi.come_back()
    await answer.done()
    if not real.embedded:  # it denies the tool at once, and its turn goes on
        assert answer.stop == "error"
        assert "did not run" in answer.end["error"]
    assert not file.exists()


async def test_a_new_connection_finds_the_message_at_work(
    pi: PiClient, real: Gateway, model: ScriptedModel
) -> None:
    """Pi was restarted in the middle: its new process has the session, but not the connection."""
    gate = secrets.token_hex(4)
    marker = model.script([{"text": "just once", "gate": gate}])
    await pi.prompt(f"go {marker}")
    await model.waiting(gate)
    await pi.close()
    assert pi.session is not None
    model.release(gate)
    await pi.connect(fresh=True)
    await pi.show(pi.session)
    answer = await (await pi.call()).done(40)
    assert answer.stop in ("stop", "error")
    assert len(model.calls(marker)) <= 1, "the message was prompted twice"


# -- leader --------------------------------------------------------------------------------------------


async def test_a_lost_leader_ends_the_turn_and_the_next_one_goes_on(
    pi: PiClient, real: Gateway, model: ScriptedModel
) -> None:
    gate = secrets.token_hex(4)
    one = model.script([{"text": "before"}])
    await pi.ask(f"one {one}")
    marker = model.script([{"text": "x" * 40, "chunks": 10, "gate": gate, "gate_after": 4}])
    answer = await pi.prompt(f"two {marker}")
    await until(lambda: answer.text)
    os.kill(real.pid("leader"), signal.SIGKILL)
    await answer.done()
    model.release(gate)
    assert answer.stop == "error"
    assert "leader" in answer.end["error"]
    assert pi.session is not None
    pi.session.assistant(answer)
    three = model.script([{"text": "after"}])
    after = await pi.ask(f"three {three}")
    assert after.text == "after"
    (call,) = model.calls(three)
    assert one in call.text
    assert "You are a test." in call.text


# -- turns of Grok's own -------------------------------------------------------------------------------


def background(flag: Path) -> dict[str, Any]:
    """A command that ends when there is a file."""
    command = f"until [ -e {flag} ]; do sleep 0.1; done; echo finished"
    return {
        "name": "run_terminal_command",
        "args": {"command": command, "description": "d", "is_background": True},
    }


async def test_pi_is_woken_for_a_turn_that_grok_starts(
    pi_of: Make, model: ScriptedModel, tmp_path: Path
) -> None:
    pi = await pi_of(person=allow_once)
    flag = tmp_path / "flag"
    await pi.ask("go " + model.script([{"tools": [background(flag)]}, {"text": "started"}]))
    flag.touch()
    await until(lambda: any(a.woken and a.ended.is_set() for a in pi.answers.values()))
    (woken,) = [a for a in pi.answers.values() if a.woken]
    assert woken.stop == "stop"
    assert woken.text
    assert pi.session is not None
    pi.session.assistant(woken)
    assert not pi.session.entries("grok-turn")
    after = await pi.ask("next " + model.script([{"text": "fine"}]))
    assert after.text == "fine"


async def test_without_a_wake_such_a_turn_is_an_entry(
    pi_of: Make, model: ScriptedModel, tmp_path: Path
) -> None:
    pi = await pi_of(person=allow_once, wakes="busy")
    flag = tmp_path / "flag"
    await pi.ask("go " + model.script([{"tools": [background(flag)]}, {"text": "started"}]))
    flag.touch()
    assert pi.session is not None
    session = pi.session
    await until(lambda: session.entries("grok-turn"))
    (entry,) = session.entries("grok-turn")
    assert entry["text"]
    assert "background task" in entry["reason"]


# -- planned restarts ----------------------------------------------------------------------------------


async def test_a_planned_restart_of_its_worker_in_the_middle_of_a_stream(
    pi: PiClient, real: Gateway, model: ScriptedModel
) -> None:
    pi.person = lambda ask: None
    gate = secrets.token_hex(4)
    call = {"name": "run_terminal_command", "args": {"command": ASKS, "description": "d"}}
    marker = model.script(
        [
            {"text": LETTERS, "chunks": 40, "gate": gate, "gate_after": 12, "tools": [call]},
            {"text": "!"},
        ]
    )
    answer = await pi.prompt(f"go {marker}")
    await until(lambda: len(answer.text) >= 30)
    (bridge,) = real.bridges()
    restart = asyncio.create_task(real.run("restart", f"worker:{real.worker_of(bridge.pid)}"))
    assert await pi.closed == 1012
    await pi.come_back()
    model.release(gate)
    await until(lambda: pi.asked)
    (ask,) = pi.asked
    await pi.answer_ask(ask["ask"], allow_once(ask))
    await answer.done()
    assert (answer.text, answer.stop) == (LETTERS + "!", "stop")
    assert len(model.calls(marker)) == 2
    assert (await restart).returncode == 0
    assert pi.session is not None
    pi.session.assistant(answer)
    assert (await pi.ask("next " + model.script([{"text": "fine"}]))).text == "fine"


async def test_an_abort_that_went_with_the_socket_counts_after_all(
    pi: PiClient, real: Gateway, model: ScriptedModel
) -> None:
    gate = secrets.token_hex(4)
    answer = await pi.prompt("go " + model.script([{"text": "never", "gate": gate}]))
    await model.waiting(gate)
    await pi.drop()
    answer.finish({"stop": "aborted"})  # Pi has aborted it, and cannot say so
    await pi.come_back()
    assert pi.session is not None
    pi.session.assistant(answer)
    after = await pi.ask("next " + model.script([{"text": "fine"}]))
    assert after.text == "fine"
    model.release(gate)
