"""Processes die under open requests: every request is answered, the sockets of others stay."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
from typing import Any

import pytest

from tests.e2e.client import Client, ClosedError, RpcError
from tests.e2e.gateway import Gateway
from tests.engines.fake import FakeEngine, do
from tests.engines.scripted_model import ScriptedModel, steps

LEADER_LOST, BRIDGE_LOST = -32050, -32051


async def error_of(answer: asyncio.Future[dict[str, Any]], timeout: float = 60) -> RpcError:
    with pytest.raises(RpcError) as failed:
        await Client.answer_to(answer, timeout)
    return failed.value


# -- the bridge ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["initialize", "session/new", "session/prompt", "session/list"])
async def test_a_bridge_that_dies_on_a_request_costs_one_error(
    shared_fake: Gateway, knobs: FakeEngine, method: str
) -> None:
    """The open request is answered with the exact reason and the same socket goes on."""
    client = await shared_fake.connect()
    session = ""
    if method != "initialize":
        await client.initialize()
    if method == "session/prompt":
        session = await client.new_session(shared_fake.work)
    knobs.set(bridge={"die_on": {method: 9}})
    params = {
        "initialize": {"protocolVersion": 1},
        "session/new": {"cwd": str(shared_fake.work), "mcpServers": []},
        "session/prompt": {"sessionId": session, "prompt": [{"type": "text", "text": "x"}]},
        "session/list": {},
    }[method]
    failed = await error_of(await client.start(method, params))
    assert failed.code == BRIDGE_LOST
    assert "9" in str(failed)
    knobs.set()
    if method == "initialize":
        await client.initialize()
    session = session or await client.new_session(shared_fake.work)
    assert (await client.prompt(session, "again"))["stopReason"] == "end_turn"
    await client.close()


@pytest.mark.grok
async def test_a_killed_bridge_is_replaced_on_the_same_socket(shared: Gateway, model: ScriptedModel) -> None:
    client, bridge = await shared.with_own_worker()
    session = await client.new_session(shared.work)
    await client.prompt(session, steps({"text": "first"}))
    os.kill(bridge, signal.SIGKILL)
    script = model.script([{"text": "second"}])
    async with asyncio.timeout(60):
        while not (result := await answered_or_lost(client, session, script)):
            await asyncio.sleep(0.05)
    assert result["stopReason"] == "end_turn"
    assert "first" in model.calls(script)[-1].text  # the session has kept its history
    await client.close()


async def test_three_lost_bridges_in_a_minute_close_the_socket(
    shared_fake: Gateway, knobs: FakeEngine
) -> None:
    client = await shared_fake.client()
    knobs.set(bridge={"die_on": {"session/list": "KILL"}})
    for _ in range(3):
        with contextlib.suppress(RpcError, ClosedError):
            await client.call("session/list", {})
    code, reason = await asyncio.wait_for(client.closed, 60)
    assert code == 1011
    assert reason


async def answered_or_lost(client: Client, session: str, script: str) -> Any:
    """The prompt's result, None when it went into the pipe of a bridge that had just died."""
    try:
        return await client.prompt(session, script)
    except RpcError as error:
        if error.code != BRIDGE_LOST:
            raise
        return None


# -- the leader ------------------------------------------------------------------------------------


@pytest.mark.grok
async def test_a_killed_leader_costs_the_open_prompts_and_nothing_else(
    real: Gateway, model: ScriptedModel
) -> None:
    rule = f"rule-{secrets.token_hex(6)}"
    clients: list[tuple[Client, str]] = [await real.session(rules=rule) for _ in range(4)]
    for client, session in clients:
        await client.prompt(session, steps({"text": f"kept-{session}"}))
    gate = secrets.token_hex(4)
    prompts = [await c.start_prompt(s, steps({"text": "never", "gate": gate})) for c, s in clients]
    await model.waiting(gate, len(clients))

    before = real.pid("leader")
    os.kill(before, signal.SIGKILL)
    for prompt in prompts:
        assert (await error_of(prompt)).code == LEADER_LOST
    for client, session in clients:
        news = await client.wait_for(lambda m: m.get("method") == "gateway/leader_restarted")
        (row,) = news["params"]["sessions"]
        assert row["sessionId"] == session
        assert row["rulesReapplied"] is True
        assert row["lostPromptId"]
    assert real.pid("leader") != before

    for client, session in clients:
        assert not client.closed.done()
        marker = f"after-{secrets.token_hex(4)}"
        replayed = len(client.messages)
        result = await client.prompt(session, f"{marker} {steps({'text': 'again'})}")
        assert result["stopReason"] == "end_turn"
        call = model.calls(marker)[-1]
        assert rule in call.text  # the engine has dropped it; the gateway put it before the prompt
        assert f"kept-{session}" in call.text  # the history is the old one
        assert not any("isReplay" in str(m) for m in client.messages[replayed:])
        await client.close()
    model.release(gate)


@pytest.mark.grok
async def test_hooks_are_still_asked_after_the_leaders_death(real: Gateway) -> None:
    def deny(message: dict[str, Any]) -> Any:
        return {"decision": "deny", "reason": "never"}

    hooks = {"pre_tool_use": [{"matcher": ".*", "hookCallbackIds": ["pre"], "timeout": 20}]}
    client, session = await real.session(deny, **{"x.ai/hooks": hooks, "yoloMode": True})
    os.kill(real.pid("leader"), signal.SIGKILL)
    await client.wait_for(lambda m: m.get("method") == "gateway/leader_restarted")
    marker = real.work / "marker"
    arguments = {"command": f"touch {marker}", "description": "d"}
    script = steps({"tools": [{"name": "run_terminal_command", "args": arguments}]}, {"text": "end"})
    assert (await client.prompt(session, script))["stopReason"] == "end_turn"
    assert [m["method"] for m in client.asked] == ["_x.ai/hooks/run"]
    assert client.asked[0]["id"] != 0  # engine ids start again; a client must not mix two leaders' up
    assert not marker.exists()
    await client.close()


@pytest.mark.grok
async def test_restart_leader_is_ready_when_it_returns(real: Gateway) -> None:
    client, session = await real.session()
    before = real.pid("leader")
    done = await real.run("restart", "leader")
    assert done.returncode == 0, done.stdout + done.stderr
    assert real.pid("leader") != before
    assert (await client.prompt(session, steps({"text": "on"})))["stopReason"] == "end_turn"
    await client.close()


# -- the front -------------------------------------------------------------------------------------


@pytest.mark.grok
async def test_a_killed_front_takes_no_socket_with_it(real: Gateway, model: ScriptedModel) -> None:
    clients = [await real.session() for _ in range(4)]
    gate = secrets.token_hex(4)
    prompts = [await c.start_prompt(s, steps({"text": f"for {s}", "gate": gate})) for c, s in clients]
    await model.waiting(gate, len(clients))
    leader, front = real.pid("leader"), real.pid("front")
    os.kill(front, signal.SIGKILL)
    await real.gone(front)
    # New connections wait in the listening socket, which the watchdog keeps; none is refused.
    newcomers = [asyncio.create_task(real.session()) for _ in range(5)]
    model.release(gate)
    for (client, session), prompt in zip(clients, prompts, strict=True):
        assert (await client.answer_to(prompt))["stopReason"] == "end_turn"
        assert client.text(session) == f"for {session}"
    for client, session in await asyncio.gather(*newcomers):
        assert (await client.prompt(session, steps({"text": "new"})))["stopReason"] == "end_turn"
        await client.close()
    await real.ready()
    assert real.pid("leader") == leader
    assert real.pid("front") != front
    for client, session in clients:
        assert (await client.prompt(session, steps({"text": "old"})))["stopReason"] == "end_turn"
        await client.close()


@pytest.mark.grok
async def test_restart_and_reload_of_the_front_keep_everything(real: Gateway) -> None:
    client, session = await real.session()
    leader = real.pid("leader")
    for arguments in (("restart", "gateway"), ("reload",), ("restart", "gateway")):
        done = await real.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        assert real.pid("leader") == leader
        assert (await client.prompt(session, steps({"text": "same"})))["stopReason"] == "end_turn"
        newcomer, theirs = await real.session()
        assert (await newcomer.prompt(theirs, steps({"text": "new"})))["stopReason"] == "end_turn"
        await newcomer.close()
    await client.close()


# -- a worker --------------------------------------------------------------------------------------


@pytest.mark.grok
async def test_a_killed_worker_takes_only_its_own_clients(real: Gateway) -> None:
    clients = [(*(await real.with_own_worker()), "") for _ in range(4)]
    owners = {client: real.worker_of(bridge) for client, bridge, _ in clients}
    sessions = {client: await client.new_session(real.work) for client in owners}
    victim = sorted(set(owners.values()))[0]
    os.kill(real.workers()[victim], signal.SIGKILL)
    for client, owner in owners.items():
        if owner == victim:
            assert (await asyncio.wait_for(client.closed, 60))[0] == 1006
        else:
            result = await client.prompt(sessions[client], steps({"text": "untouched"}))
            assert result["stopReason"] == "end_turn"
            await client.close()
    await real.until("worker", 2)
    newcomer, session = await real.session()
    assert (await newcomer.prompt(session, steps({"text": "new"})))["stopReason"] == "end_turn"
    await newcomer.close()


async def test_every_open_request_is_answered_when_the_leader_dies(fake: Gateway) -> None:
    client, session = await fake.session()
    open_requests = [await client.start_prompt(session, do({"sleep": 60})) for _ in range(20)]
    await client.call("session/list", {})
    os.kill(fake.pid("leader"), signal.SIGKILL)
    for answer in open_requests:
        failed = await error_of(answer)
        assert failed.code == LEADER_LOST
        assert failed.data["retryable"] in (True, False)
    await client.close()
