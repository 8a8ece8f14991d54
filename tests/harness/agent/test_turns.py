"""Whole turns: a client, the agent, its tools and a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.engines.scripted_model import ScriptedModel, steps
from tests.harness.agent.conftest import TestClient

ALLOW = {"result": {"outcome": {"outcome": "selected", "optionId": "allow-once"}}}
REJECT = {"result": {"outcome": {"outcome": "selected", "optionId": "reject-once"}}}


def run(command: str, **more: Any) -> dict[str, Any]:
    return {"name": "run_terminal_command", "args": {"command": command, "description": "d", **more}}


def tool(name: str, **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args}


async def test_text_in_chunks(client: TestClient) -> None:
    answer = await client.turn(steps({"think": "hm", "text": "Hello there", "chunks": 3}))
    assert answer["result"]["stopReason"] == "end_turn"
    assert client.text == "Hello there"
    assert len(client.updates("agent_message_chunk")) == 3
    assert [u["content"]["text"] for u in client.updates("agent_thought_chunk")] == ["h", "m"]
    meta = answer["result"]["_meta"]
    assert (meta["promptId"], meta["modelId"], meta["usage"]["modelCalls"]) == ("p", "scripted-1", 1)
    ends = ["_x.ai/session/prompt_complete", "_x.ai/sessions/changed"]
    assert client.methods()[-2:] == ends  # all is told before the answer
    assert client.heard[-1]["id"] == 3


async def test_two_rounds_with_tools(client: TestClient, model: ScriptedModel) -> None:
    (client.work / "f.txt").write_text("one\ntwo\n")
    prompt = steps(
        {"text": "I look.", "tools": [tool("read_file", target_file="f.txt")], "argchunks": 2},
        {"tools": [run("echo hello")]},
        {"text": "done"},
    )
    answer = await client.turn(prompt)
    assert answer["result"]["_meta"]["usage"]["numTurns"] == 3
    kinds = [u["sessionUpdate"] for u in client.updates() if u.get("toolCallId") or "tool_call_id" in u]
    assert kinds[:6] == [
        "tool_call_delta_chunk",
        "tool_call",
        "pending_interaction",
        "tool_call_update",
        "interaction_resolved",
        "tool_call_update",
    ]
    read = client.updates("tool_call_update")[1]
    assert (read["status"], read["rawOutput"]["type"]) == ("completed", "ReadFile")
    last = model.calls(prompt)[-1]
    assert "one" in last.tool_results()[0]
    assert "hello" in last.tool_results()[1]
    assert last.body["messages"][3]["tool_calls"][0]["function"]["name"] == "read_file"


async def test_a_broken_stream_is_shown_once(client: TestClient) -> None:
    answer = await client.turn(steps({"text": "The whole text of it", "chunks": 5, "drop": True, "times": 1}))
    assert answer["result"]["stopReason"] == "end_turn"
    assert client.text == "The whole text of it"
    (retry,) = client.updates("retry_state")
    assert (retry["type"], retry["attempt"], retry["max_retries"], retry["error_type"]) == (
        "retrying",
        1,
        15,
        "http",
    )


@pytest.mark.parametrize(
    ("step", "code", "reason"),
    [
        ({"status": 401, "text": "bad key"}, -32603, "error"),
        ({"status": 404, "text": "no model"}, -32603, "error"),
        ({"text": "half", "finish": "length"}, -32603, "error"),
    ],
)
async def test_failures_end_the_turn_and_the_next_one_works(
    client: TestClient, step: dict[str, Any], code: int, reason: str
) -> None:
    answer = await client.turn(steps(step))
    assert answer["error"]["code"] == code
    assert client.updates("turn_completed")[-1]["stop_reason"] == reason
    assert client.updates("retry_state")[-1]["type"] == "failed"
    assert (await client.turn(steps({"text": "after"}), "q"))["result"]["stopReason"] == "end_turn"


async def test_a_refusal(client: TestClient) -> None:
    answer = await client.turn(steps({"text": "I must not", "finish": "content_filter"}))
    assert answer["result"]["stopReason"] == "refusal"


async def test_calls_that_cannot_be_understood(client: TestClient, model: ScriptedModel) -> None:
    prompt = steps(
        {"tools": [{"name": "read_file", "args": "{not json"}]},
        {"tools": [tool("no_such_tool", x=1)]},
        {"text": "done"},
    )
    assert (await client.turn(prompt))["result"]["stopReason"] == "end_turn"
    first, second = client.updates("tool_call")
    assert "rawInput" not in first
    assert second["rawInput"] == {"x": 1}
    assert "_meta" not in second
    assert [u["status"] for u in client.updates("tool_call_update")] == ["failed", "failed"]
    assert not client.updates("pending_interaction")
    assert all(model.calls(prompt)[-1].tool_results())


async def test_calls_on_one_file_keep_their_order(client: TestClient) -> None:
    file = client.work / "f.txt"
    file.write_text("0")
    edits = [
        tool("search_replace", file_path="f.txt", old_string=str(n), new_string=str(n + 1)) for n in range(8)
    ]
    await client.turn(steps({"tools": [*edits, tool("read_file", target_file=str(file))]}, {"text": "done"}))
    assert file.read_text() == "8"
    ended = [u["status"] for u in client.updates("tool_call_update") if "status" in u]
    assert ended == ["completed"] * 9
    assert "8" in client.updates("tool_call_update")[-1]["content"][0]["content"]["text"]


async def test_calls_beside_each_other_run_at_once(client: TestClient) -> None:
    both = [run(f"touch {a}; while [ ! -e {b} ]; do sleep 0.02; done") for a, b in (("x", "y"), ("y", "x"))]
    assert (await client.turn(steps({"tools": both}, {"text": "done"})))["result"]["stopReason"] == "end_turn"


async def test_cancel_in_a_command_then_the_queued_prompt_runs(
    client: TestClient, model: ScriptedModel
) -> None:
    first = client.prompt(steps({"text": "go", "tools": [run("sleep 300")]}, {"text": "never"}), "p1")
    await client.heard_update("tool_call_update", status="in_progress")
    queued = steps({"text": "queued answer"})
    second = client.prompt(queued, "p2")
    await client.until(lambda: any("p2" in str(m) for m in client.heard))
    started = asyncio.get_running_loop().time()
    client.cancel()
    answer = (await first)["result"]
    assert asyncio.get_running_loop().time() - started < 1
    assert (answer["stopReason"], answer["_meta"]["cancellationCategory"]) == ("cancelled", "MidTurnAbort")
    assert (await second)["result"]["stopReason"] == "end_turn"
    call = model.calls(queued)[-1]
    assert len(call.tool_results()) == 1  # the call that was stopped has a result all the same
    assert "stopped the previous turn" in call.text
    assert not [u for u in client.updates("tool_call_update") if u.get("status") == "completed"]


async def test_cancel_in_a_stream(client: TestClient, model: ScriptedModel) -> None:
    pending = client.prompt(steps({"text": "slow answer", "chunks": 10, "gate": "g1", "gate_after": 2}))
    await client.until(lambda: len(client.updates("agent_message_chunk")) >= 2)
    client.cancel()
    assert (await pending)["result"]["stopReason"] == "cancelled"
    assert "usage" not in client.updates("turn_completed")[-1]
    model.release("g1")
    assert (await client.turn(steps({"text": "after"}), "q"))["result"]["stopReason"] == "end_turn"


async def test_cancel_while_the_user_is_asked(new_client: Callable[..., TestClient]) -> None:
    client = new_client()
    await client.open()
    pending = client.prompt(steps({"tools": [run("python3 -c 'print(1)'")]}, {"text": "never"}))
    await client.until(lambda: "session/request_permission" in client.methods())
    client.cancel()
    assert (await pending)["result"]["_meta"]["cancellationCategory"] == "MidTurnAbort"
    kinds = [u["sessionUpdate"] for u in client.updates()]
    assert kinds.index("interaction_resolved") < kinds.index("turn_completed")
    client.send({"id": 0, **ALLOW})  # too late
    client.reply = lambda _: ALLOW
    answer = await client.turn(steps({"tools": [run("python3 -c 'print(2)'")]}, {"text": "x"}), "q")
    assert answer["result"]["stopReason"] == "end_turn"


async def test_a_rejection_ends_the_turn(new_client: Callable[..., TestClient], model: ScriptedModel) -> None:
    client = new_client()
    await client.open()
    answers = iter([ALLOW, REJECT])
    client.reply = lambda _: next(answers)
    batch = [run(f'python3 -c \'open("f{n}", "w")\'') for n in (1, 2, 3)]
    prompt = steps({"tools": batch}, {"text": "never"})
    answer = (await client.turn(prompt))["result"]
    assert (answer["stopReason"], answer["_meta"]["cancellationCategory"]) == (
        "cancelled",
        "PermissionRejected",
    )
    assert answer["_meta"]["cancellationContext"]["tool_name"] == "run_terminal_command"
    assert [(client.work / f"f{n}").exists() for n in (1, 2, 3)] == [True, False, False]
    assert len(model.calls(prompt)) == 1
    after = steps({"text": "after"})
    await client.turn(after, "q")
    assert len(model.calls(after)[-1].tool_results()) == 3


async def test_a_client_that_answers_with_an_error_lets_nothing_run(
    new_client: Callable[..., TestClient],
) -> None:
    client = new_client()
    await client.open()
    client.reply = lambda _: {"error": {"code": -32601, "message": "no such method"}}
    answer = await client.turn(steps({"tools": [run('python3 -c \'open("f", "w")\'')]}, {"text": "never"}))
    assert answer["result"]["stopReason"] == "cancelled"
    assert not (client.work / "f").exists()


async def test_interjections(client: TestClient, model: ScriptedModel) -> None:
    prompt = steps({"tools": [run("while [ ! -e go ]; do sleep 0.02; done")]}, {"text": "x"})
    pending = client.prompt(prompt)
    await client.heard_update("tool_call_update", status="in_progress")
    params = {"sessionId": client.session, "text": "hold on", "interjectionId": "i1"}
    assert await client.result("_x.ai/interject", params) == {"result": {"status": "queued"}}
    (client.work / "go").touch()
    await pending
    assert "hold on" in model.calls(prompt)[-1].text
    await client.result("_x.ai/interject", {"sessionId": client.session, "text": "idle words"})
    end = await client.until(
        lambda: next(
            (u for u in client.updates("turn_completed") if u["prompt_id"].startswith("interject-fallback-")),
            None,
        )
    )
    assert end["stop_reason"] == "end_turn"
    assert client.methods().count("_x.ai/session/prompt_complete") == 1  # nobody asked for that turn


async def test_a_prompt_that_will_not_wait(client: TestClient, model: ScriptedModel) -> None:
    first = client.prompt(steps({"tools": [run("sleep 300")]}, {"text": "never"}), "p1")
    await client.heard_update("tool_call_update", status="in_progress")
    second = client.prompt(steps({"text": "second"}), "p2")
    now = steps({"text": "now"})
    third = client.prompt(now, "p3", sendNow=True)
    assert (await first)["result"]["_meta"]["cancelTrigger"] == "send_now"
    assert (await third)["result"]["stopReason"] == "end_turn"
    assert (await second)["result"]["stopReason"] == "end_turn"
    assert client.text == "nowsecond"
    assert client.updates("task_backgrounded")[0]["command"] == "sleep 300"
    assert "background" in model.calls(now)[0].tool_results()[0]
    (task,) = (await client.result("_x.ai/task/list", {"sessionId": client.session}))["result"]["tasks"]
    params = {"sessionId": client.session, "taskId": task["task_id"]}
    assert (await client.result("_x.ai/task/kill", params))["result"]["outcome"] == "killed"


async def test_the_queue_can_be_changed(client: TestClient, model: ScriptedModel) -> None:
    first = client.prompt(steps({"text": "one", "gate": "g2"}), "p1")
    await model.waiting("g2")
    second, third = client.prompt(steps({"text": "two"}), "p2"), client.prompt(steps({"text": "three"}), "p3")
    await client.until(lambda: any("p3" in str(m) for m in client.heard))
    gone = {"sessionId": client.session, "id": "p2", "expectedVersion": 0}
    client.send({"method": "_x.ai/queue/remove", "params": gone})
    removed = (await second)["result"]
    assert (removed["stopReason"], removed["_meta"]["completionKind"]) == ("cancelled", "removedFromQueue")
    model.release("g2")
    assert (await first)["result"]["stopReason"] == (await third)["result"]["stopReason"] == "end_turn"
    assert client.text == "onethree"


async def test_a_task_that_ends_wakes_the_session_once(client: TestClient, model: ScriptedModel) -> None:
    prompt = steps(
        {"tools": [run("while [ ! -e go ]; do sleep 0.02; done; echo finished", background=True)]},
        {"text": "started"},
        {"text": "I have heard."},
    )
    await client.turn(prompt)
    (client.work / "go").touch()
    completed = await client.heard_update("task_completed")
    task = completed["task_snapshot"]["task_id"]
    assert completed["will_wake"]
    await client.heard_update("turn_completed", prompt_id=f"task-completed-{task}")
    assert client.text == "startedI have heard."
    assert len(model.calls(prompt)) == 3
    assert task in model.calls(prompt)[-1].text


async def test_close_answers_what_runs_and_waits(client: TestClient) -> None:
    first = client.prompt(steps({"tools": [run("sleep 300")]}, {"text": "never"}), "p1")
    await client.heard_update("tool_call_update", status="in_progress")
    second = client.prompt(steps({"text": "never"}), "p2")
    await client.until(lambda: any("p2" in str(m) for m in client.heard))
    closed = await client.result("session/close", {"sessionId": client.session})
    assert closed == {"_meta": {"x.ai/closeOutcome": "closed"}}
    assert (await first)["result"]["_meta"]["cancelTrigger"] == "session_close"
    assert (await second)["result"]["stopReason"] == "cancelled"
    again = await client.call("session/prompt", {"sessionId": client.session, "prompt": []})
    assert again["error"] == {"code": -32602, "message": "Invalid params", "data": "unknown session id"}


async def test_the_model_is_told_where_it_is_and_by_which_rules(
    new_client: Callable[..., TestClient], model: ScriptedModel
) -> None:
    client = new_client()
    await client.open(rules="speak softly")
    prompt = steps({"text": "x"})
    await client.turn(prompt)
    system, place, query = model.calls(prompt)[-1].body["messages"]
    assert "<human_rules>\nspeak softly\n</human_rules>" in system["content"]
    assert f"Workspace Path: {client.work}" in place["content"]
    assert query["content"] == f"<user_query>\n{prompt}\n</user_query>"


async def test_reasoning_goes_back_to_the_model(client: TestClient, model: ScriptedModel) -> None:
    await client.turn(steps({"think": "deeply", "text": "x"}))
    after = steps({"text": "y"})
    await client.turn(after, "q")
    said = model.calls(after)[-1].body["messages"][3]
    assert (said["reasoning_content"], said["content"]) == ("deeply", "x")
