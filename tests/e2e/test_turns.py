"""Turns through the whole gateway on the real engine."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

import pytest

from tests.e2e.client import SILENT, Client, RpcError, allow_everything
from tests.e2e.gateway import Gateway
from tests.engines.grok import MODEL, SECOND_MODEL
from tests.engines.scripted_model import ScriptedModel, steps

pytestmark = pytest.mark.grok


def bash(command: str) -> dict[str, Any]:
    arguments = {"command": command, "description": "a test"}
    return {"tools": [{"name": "run_terminal_command", "args": arguments}]}


async def test_a_prompt_runs_a_tool_and_streams_the_answer(shared: Gateway) -> None:
    client, session = await shared.session()
    file = shared.work / f"{secrets.token_hex(4)}.txt"
    script = steps(bash(f"echo written > {file}"), {"think": "hm", "text": "all is done", "chunks": 4})
    result = await client.prompt(session, script)
    assert result["stopReason"] == "end_turn"
    assert file.read_text() == "written\n"
    assert client.text(session) == "all is done"
    kinds = [
        m["params"]["update"]["sessionUpdate"] for m in client.messages if m.get("method") == "session/update"
    ]
    assert "agent_thought_chunk" in kinds
    assert kinds.index("tool_call") < kinds.index("agent_message_chunk")
    await client.close()


async def test_every_client_has_a_bridge_of_its_own(shared: Gateway) -> None:
    before = {p.pid for p in shared.bridges()}
    clients = [await shared.client() for _ in range(4)]
    own = {p.pid for p in shared.bridges()} - before
    assert len(own) == 4
    assert {shared.worker_of(pid) for pid in own} == set(shared.workers())  # spread over the pool
    assert len(shared.processes("leader")) == 1
    for client in clients:
        await client.close()
    await shared.gone(*own)


async def test_parallel_turns_keep_their_text(shared: Gateway) -> None:
    async def turn(number: int) -> None:
        client, session = await shared.session()
        words = " ".join(f"{number}-{n}" for n in range(200))
        result = await client.prompt(session, steps({"text": words, "chunks": 100, "delay": 0.002}))
        assert result["stopReason"] == "end_turn"
        assert client.text(session) == words
        others = {m["params"]["sessionId"] for m in client.messages if m.get("method") == "session/update"}
        assert others == {session}
        await client.close()

    await asyncio.gather(*(turn(n) for n in range(6)))


async def test_a_client_hears_of_no_session_but_its_own(shared: Gateway) -> None:
    watcher, own = await shared.session()
    other, session = await shared.session()
    nonce = f"private-{secrets.token_hex(6)}"
    await other.prompt(session, f"{nonce} {steps({'text': 'x'})}")
    await watcher.prompt(own, steps({"text": "y"}))
    seen = b"\n".join(watcher.frames)
    assert nonce.encode() not in seen
    assert session.encode() not in seen
    await watcher.close()
    await other.close()


async def test_cancel_ends_the_turn_and_kills_the_command(shared: Gateway) -> None:
    client, session = await shared.session()
    marker = f"sleep 54{secrets.randbelow(10**6):06}"
    prompt = await client.start_prompt(session, steps(bash(marker)))
    await client.wait_for(lambda m: "in_progress" in str(m) or "interaction_resolved" in str(m))
    await client.notify("session/cancel", {"sessionId": session})
    assert (await client.answer_to(prompt))["stopReason"] == "cancelled"
    result = await client.prompt(session, steps({"text": "still here"}))
    assert result["stopReason"] == "end_turn"
    await client.close()


@pytest.mark.parametrize(("kind", "ran"), [("allow_once", True), ("reject_once", False)])
async def test_a_permission_is_asked_and_kept(shared: Gateway, kind: str, ran: bool) -> None:
    def policy(message: dict[str, Any]) -> Any:
        if message["method"] != "session/request_permission":
            return allow_everything(message)
        option = next(o["optionId"] for o in message["params"]["options"] if o["kind"] == kind)
        return {"outcome": {"outcome": "selected", "optionId": option}}

    client, session = await shared.session(policy)
    marker = shared.work / f"marker-{secrets.token_hex(4)}"
    await client.prompt(session, steps(bash(f"python3 -c \"open('{marker}', 'x')\""), {"text": "end"}))
    assert [m["method"] for m in client.asked] == ["session/request_permission"]
    assert marker.exists() == ran
    await client.close()


@pytest.mark.parametrize(("decision", "ran"), [("allow", True), ("deny", False)])
async def test_a_pre_hook_decides(shared: Gateway, model: ScriptedModel, decision: str, ran: bool) -> None:
    def policy(message: dict[str, Any]) -> Any:
        if message["method"] == "_x.ai/hooks/run":
            return {"decision": decision, "reason": "because of the test"}
        return allow_everything(message)

    hooks = {"pre_tool_use": [{"matcher": ".*", "hookCallbackIds": ["pre"], "timeout": 20}]}
    client, session = await shared.session(policy, **{"x.ai/hooks": hooks, "yoloMode": True})
    marker = shared.work / f"marker-{secrets.token_hex(4)}"
    script = model.script([bash(f"touch {marker}"), {"text": "end"}])
    result = await client.prompt(session, script)
    assert result["stopReason"] == "end_turn"
    assert marker.exists() == ran
    assert ("because of the test" in model.calls(script)[-1].text) == (not ran)
    await client.close()


async def test_a_question_of_the_engine_reaches_the_client(shared: Gateway, model: ScriptedModel) -> None:
    def policy(message: dict[str, Any]) -> Any:
        if message["method"] != "_x.ai/ask_user_question":
            return allow_everything(message)
        return {"outcome": "accepted", "answers": {"Which colour?": ["Red"]}}

    client, session = await shared.session(policy)
    options = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
    question = {"question": "Which colour?", "header": "Colour", "options": options, "multiSelect": False}
    tool = {"name": "ask_user_question", "args": {"questions": [question]}}
    script = model.script([{"tools": [tool]}, {"text": "end"}])
    await client.prompt(session, script)
    assert any("Red" in text for text in model.calls(script)[-1].tool_results())
    await client.close()


async def test_several_sessions_on_one_socket(shared: Gateway) -> None:
    client = await shared.client()
    sessions = [await client.new_session(shared.work) for _ in range(3)]
    turns = [await client.start_prompt(s, steps({"text": f"for {s}", "chunks": 3})) for s in sessions]
    for session, turn in zip(sessions, turns, strict=True):
        assert (await client.answer_to(turn))["stopReason"] == "end_turn"
        assert client.text(session) == f"for {session}"
    listed = await client.call("session/list", {})
    assert set(sessions) <= {row["sessionId"] for row in listed["sessions"]}
    await client.close()


async def test_a_session_comes_back_on_another_socket(shared: Gateway) -> None:
    first, session = await shared.session()
    await first.prompt(session, steps({"text": "remember me"}))
    params = {"sessionId": session, "cwd": str(shared.work), "mcpServers": []}
    second = await shared.client()
    with pytest.raises(RpcError) as refused:  # a live session cannot be taken away
        await second.call("session/load", params)
    assert refused.value.code == -32056
    with pytest.raises(RpcError) as refused:
        await second.prompt(session, steps({"text": "not mine"}))
    assert refused.value.code == -32056
    await first.close()

    await shared.eventually_loads(second, params)
    replayed = [m for m in second.messages if ((m.get("params") or {}).get("_meta") or {}).get("isReplay")]
    assert "remember me" in str(replayed)
    assert (await second.prompt(session, steps({"text": "and on"})))["stopReason"] == "end_turn"
    await second.close()


async def test_models_and_modes_are_set(shared: Gateway, model: ScriptedModel) -> None:
    client, session = await shared.session()
    await client.call("session/set_model", {"sessionId": session, "modelId": SECOND_MODEL})
    script = model.script([{"text": "from two"}])
    await client.prompt(session, script)
    assert model.calls(script)[-1].body["model"] == "scripted-2"
    with pytest.raises(RpcError):
        await client.call("session/set_model", {"sessionId": session, "modelId": "nobody"})
    await client.call("session/set_model", {"sessionId": session, "modelId": MODEL})
    await client.call("session/set_mode", {"sessionId": session, "modeId": "plan"})
    await client.wait_for(lambda m: "current_mode_update" in str(m))
    await client.close()


async def test_rules_reach_the_model(shared: Gateway, model: ScriptedModel) -> None:
    rule = f"always say {secrets.token_hex(6)}"
    client, session = await shared.session(rules=rule)
    script = model.script([{"text": "yes"}])
    await client.prompt(session, script)
    assert rule in model.calls(script)[-1].text
    await client.close()


async def test_model_failures_become_the_prompts_error(shared: Gateway) -> None:
    client, session = await shared.session()
    with pytest.raises(RpcError) as failed:
        await client.prompt(session, steps({"status": 400, "text": "no such thing"}))
    assert "no such thing" in str(failed.value)
    assert (await client.prompt(session, steps({"text": "ok"})))["stopReason"] == "end_turn"
    await client.close()


async def test_a_queued_prompt_gets_its_own_answer(shared: Gateway, model: ScriptedModel) -> None:
    client, session = await shared.session()
    gate = secrets.token_hex(4)
    first = await client.start_prompt(session, steps({"text": "one", "gate": gate}))
    await model.waiting(gate)
    second = await client.start_prompt(session, steps({"text": "two"}))
    model.release(gate)
    assert [(await client.answer_to(p))["stopReason"] for p in (first, second)] == ["end_turn"] * 2
    assert client.text(session) == "onetwo"
    await client.close()


async def test_an_unanswered_permission_ends_with_cancel(shared: Gateway) -> None:
    def policy(message: dict[str, Any]) -> Any:
        return SILENT if message["method"] == "session/request_permission" else allow_everything(message)

    client, session = await shared.session(policy)
    marker = shared.work / f"marker-{secrets.token_hex(4)}"
    turn = await client.start_prompt(session, steps(bash(f"python3 -c \"open('{marker}', 'x')\"")))
    request = await client.wait_asked("session/request_permission")
    await client.notify("session/cancel", {"sessionId": session})
    assert (await client.answer_to(turn))["stopReason"] == "cancelled"
    await client.respond(request, allow_everything(request))  # too late: nobody may take it
    assert (await client.prompt(session, steps({"text": "on"})))["stopReason"] == "end_turn"
    assert not marker.exists()
    await client.close()


async def test_the_constant_initialize_hides_nothing_of_the_answer(shared: Gateway) -> None:
    client: Client = await shared.connect()
    result = await client.call(
        "initialize", {"protocolVersion": 1, "clientInfo": {"name": "odd", "version": "0"}}
    )
    assert result["agentCapabilities"]["loadSession"] is True
    assert result["protocolVersion"] == 1
    assert len(client.connection) == 32
    await client.close()
