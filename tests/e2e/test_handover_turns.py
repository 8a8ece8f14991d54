"""Planned restarts of workers in the middle of things, on the real engine: no turn is lost."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.client import SILENT, Client, allow_everything
from tests.e2e.gateway import Gateway
from tests.engines.scripted_model import steps

pytestmark = pytest.mark.grok

HOOKS = {"x.ai/hooks": {"pre_tool_use": [{"hookCallbackIds": ["pre"], "timeout": 600}]}}
HOOK, PERMISSION = "_x.ai/hooks/run", "session/request_permission"


def words(count: int) -> str:
    return " ".join(f"w{n}" for n in range(count))


def run(command: str) -> dict[str, Any]:
    args = {"command": command, "description": "test"}
    return {"tools": [{"name": "run_terminal_command", "args": args}]}


def silent_on(method: str) -> Callable[[dict[str, Any]], Any]:
    return lambda message: SILENT if message["method"] == method else allow_everything(message)


async def follow(gateway: Gateway, client: Client, timeout: float = 45) -> Client:
    """Come back after the planned end of a client's socket, as a client that can resume does."""
    code, reason = await asyncio.wait_for(asyncio.shield(client.closed), timeout)
    assert code == 1012, (code, reason)
    return await gateway.connect(client.policy, resume=client)


async def restart_worker_of(gateway: Gateway, bridge: int) -> asyncio.Task[Any]:
    number = gateway.worker_of(bridge)[-2:]
    return asyncio.create_task(gateway.run("restart", f"worker:{number}"))


async def restarted(restart: asyncio.Task[Any]) -> None:
    done = await restart
    assert done.returncode == 0, done.stdout + done.stderr


def difference(got: str, text: str) -> str:
    """Where two texts part, "" if they do not."""
    at = next((n for n, pair in enumerate(zip(got, text, strict=False)) if len(set(pair)) > 1), None)
    at = min(len(got), len(text)) if at is None else at
    return "" if got == text else f"at {at}: {got[at - 20 : at + 30]!r} for {text[at - 20 : at + 30]!r}"


async def begin(client: Client, session: str, prompt: str) -> int:
    """Start a turn: the id of its request."""
    await client.start_prompt(session, prompt)
    return int(tuple(client.unanswered)[-1])


async def ended(client: Client, number: int, timeout: float = 60) -> str:
    """How the turn of a request ended, on whichever socket its one answer came."""
    await client.wait_for(lambda m: m.get("id") == number and "method" not in m, timeout)
    (answer,) = [m for m in client.messages if m.get("id") == number and "method" not in m]
    return str(Client.result_of(answer)["stopReason"])


def times_asked(client: Client, request: dict[str, Any]) -> int:
    return sum(message["id"] == request["id"] for message in client.asked)


async def test_text_streams_on_whole_and_in_order(real: Gateway) -> None:
    client, bridge = await real.with_own_worker()
    session = await client.new_session(real.work)
    text = words(600)
    turn = await begin(client, session, steps({"text": text, "chunks": 600, "delay": 0.01}))
    await client.wait_for(lambda m: "w40" in client.text(session))
    restart = await restart_worker_of(real, bridge)
    again = await follow(real, client)
    assert await ended(again, turn) == "end_turn"
    await restarted(restart)
    assert again.text(session) == text
    assert not any("isReplay" in str(message) for message in again.messages)
    assert (await again.prompt(session, steps({"text": "and on"})))["stopReason"] == "end_turn"
    await again.close()


async def test_an_open_permission_is_carried_over_and_answered_once(real: Gateway) -> None:
    client, bridge = await real.with_own_worker(silent_on(PERMISSION))
    session = await client.new_session(real.work)
    marker = real.work / "marker"
    command = f"python3 -c \"open('{marker}', 'w')\""
    turn = await begin(client, session, steps(run(command), {"text": "done"}))
    asked = await client.wait_asked(PERMISSION)
    restart = await restart_worker_of(real, bridge)
    again = await follow(real, client)
    await restarted(restart)
    await asyncio.sleep(0.5)
    assert not marker.exists()
    assert times_asked(again, asked) <= 2  # as after any loss of a socket: the same id
    assert {message["id"] for message in again.asked if message["method"] == PERMISSION} == {asked["id"]}
    since = len(again.messages)
    await again.respond(asked, allow_everything(asked))
    assert await ended(again, turn) == "end_turn"
    assert marker.exists()
    assert not [m for m in again.messages[since:] if m.get("method") == PERMISSION]
    assert again.text(session) == "done"
    await again.close()


async def test_an_open_hook_is_waited_for(real: Gateway) -> None:
    client, bridge = await real.with_own_worker(silent_on(HOOK))
    session = await client.new_session(real.work, **HOOKS)
    marker = real.work / "marker"
    turn = await begin(client, session, steps(run(f"touch {marker}"), {"text": "done"}))
    asked = await client.wait_asked(HOOK)
    restart = await restart_worker_of(real, bridge)
    await asyncio.sleep(2)
    assert not client.closed.done()  # only this bridge can bring the answer to Grok
    assert not marker.exists()
    await client.respond(asked, {})
    again = await follow(real, client)
    await restarted(restart)
    assert await ended(again, turn) == "end_turn"
    assert marker.exists()
    assert times_asked(again, asked) == 1
    assert again.text(session) == "done"
    await again.close()


async def test_a_hook_that_nobody_answers_is_denied_when_the_time_is_over(real: Gateway) -> None:
    client, bridge = await real.with_own_worker(silent_on(HOOK))
    session = await client.new_session(real.work, **HOOKS)
    marker = real.work / "marker"
    turn = await begin(client, session, steps(run(f"touch {marker}"), {"text": "done"}))
    asked = await client.wait_asked(HOOK)
    restart = await restart_worker_of(real, bridge)
    again = await follow(real, client)
    await restarted(restart)
    assert await ended(again, turn) == "end_turn"
    with contextlib.suppress(Exception):
        await again.respond(asked, {})  # too late
    await asyncio.sleep(1)
    assert not marker.exists()
    assert "Hook denied" in str(again.messages)
    assert (await again.prompt(session, steps({"text": "alive"})))["stopReason"] == "end_turn"
    await again.close()


async def test_hooks_go_to_the_successor(real: Gateway) -> None:
    """The next hook of a turn that was handed over comes to the client, and its denial holds."""
    client, bridge = await real.with_own_worker()
    session = await client.new_session(real.work, **HOOKS)
    marker = real.work / "marker"
    script = {"text": words(300), "chunks": 300, "delay": 0.02}
    turn = await begin(client, session, steps({**script, **run(f"touch {marker}")}, {"text": " end"}))
    await client.wait_for(lambda m: "w20" in client.text(session))
    restart = await restart_worker_of(real, bridge)
    client.policy = silent_on(HOOK)
    again = await follow(real, client)
    asked = await again.wait_asked(HOOK)
    await again.respond(asked, {"decision": "deny", "reason": "no"})
    await restarted(restart)
    assert await ended(again, turn) == "end_turn"
    assert not marker.exists()
    assert again.text(session) == words(300) + " end"
    await again.close()


async def test_background_work_of_an_idle_session_goes_on(real: Gateway) -> None:
    client, bridge = await real.with_own_worker()
    session = await client.new_session(real.work)
    ticks = real.work / "ticks"
    command = f"for i in $(seq 300); do echo $i >> {ticks}; sleep 0.1; done"
    call = run(command)
    call["tools"][0]["args"]["background"] = True
    await client.prompt(session, steps(call, {"text": "started"}))
    while not ticks.exists():
        await asyncio.sleep(0.05)
    restart = await restart_worker_of(real, bridge)
    again = await follow(real, client)
    await restarted(restart)
    await asyncio.sleep(2)  # without a subscriber it dies within 1.5 s
    before = ticks.read_text()
    await asyncio.sleep(1)
    assert ticks.read_text() != before
    tasks = (await again.call("_x.ai/task/list", {"sessionId": session}))["result"]["tasks"]
    assert [task["completed"] for task in tasks] == [False]
    await again.call("_x.ai/task/kill", {"sessionId": session, "taskId": tasks[0]["task_id"]})
    await again.close()


async def test_a_parked_lent_call_is_waited_for(real: Gateway) -> None:
    client, bridge = await real.with_own_worker(lent)
    token = secrets.token_hex(16)
    server = {"type": "http", "name": "pi", "url": f"{real.http}/mcp/{token}", "headers": []}
    params = {"cwd": str(real.work), "mcpServers": [server], "_meta": {"yoloMode": True}}
    session = str((await client.call("session/new", params))["sessionId"])
    await client.wait_for(lambda m: m.get("method") == "_x.ai/mcp_initialized")
    call = {"tools": [{"name": "use_tool", "args": {"tool_name": "pi__wait", "tool_input": {}}}]}
    turn = await begin(client, session, steps(call, call, {"text": "done"}))
    calls = lambda client: [m for m in client.asked if calls_tool(m)]  # noqa: E731
    first = await client.wait_for(calls_tool)
    restart = await restart_worker_of(real, bridge)
    await asyncio.sleep(1)
    assert not client.closed.done()
    await client.respond(first, tool_result("one"))
    again = await follow(real, client)
    await restarted(restart)
    await again.wait_for(lambda m: len(calls(again)) == 2)
    second = calls(again)[1]  # its address belongs to the successor now
    assert second["id"] != first["id"]
    await again.respond(second, tool_result("two"))
    assert await ended(again, turn) == "end_turn"
    await again.close()


def calls_tool(message: dict[str, Any]) -> bool:
    return (
        message.get("method") == "_x.ai/mcp/sdk_call"
        and message["params"]["message"].get("method") == "tools/call"
    )


def tool_result(text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": text}]}}


def lent(message: dict[str, Any]) -> Any:
    """A client that lends one tool, whose calls it answers by hand."""
    if message["method"] != "_x.ai/mcp/sdk_call":
        return allow_everything(message)
    if calls_tool(message):
        return SILENT
    tool = {"name": "wait", "description": "waits", "inputSchema": {"type": "object"}}
    return {"jsonrpc": "2.0", "id": 1, "result": {"tools": [tool]}}


async def test_rolling_restart_under_ten_streaming_turns(real: Gateway) -> None:
    """`restart workers`: each client is asked to come back, perhaps twice; no turn is lost."""
    text = words(500)

    async def whole_turn(started: asyncio.Event) -> tuple[str, str, str, int]:
        client, session = await real.session()
        turn = await begin(client, session, steps({"text": text, "chunks": 500, "delay": 0.04}))
        await client.wait_for(lambda m: "w10" in client.text(session), 60)
        started.set()
        moves = 0
        while True:
            answer = asyncio.create_task(ended(client, turn, 120))
            await asyncio.wait({answer, client.closed}, return_when=asyncio.FIRST_COMPLETED)
            if answer.done() and not answer.exception():
                got = client.text(session)
                kept = await client.recorded(session, real.work)
                await client.close()
                return answer.result(), got, kept, moves
            with contextlib.suppress(Exception):
                await answer
            client, moves = await follow(real, client), moves + 1

    began = [asyncio.Event() for _ in range(10)]
    turns = [asyncio.create_task(whole_turn(event)) for event in began]
    await asyncio.wait_for(asyncio.gather(*(event.wait() for event in began)), 90)
    done = await real.run("restart", "workers", timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    results = await asyncio.wait_for(asyncio.gather(*turns), 150)
    assert [(reason, difference(got, kept)) for reason, got, kept, _ in results] == [("end_turn", "")] * 10
    # Now and then Grok itself takes a turn for ended before its model has, and has no more in its history.
    cut = [kept for _, _, kept, _ in results if kept != text]
    assert len(cut) <= 2, [difference(kept, text) for kept in cut]
    assert all(text.startswith(kept) for kept in cut)
    assert sum(moves for *_, moves in results) >= 10
