"""``ask`` as its user meets it: streams, exit codes, dialogs on a terminal, Ctrl-C, lost sockets."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.operate.ask_link import close_text, refusal_text, resumable
from gateway.operate.ask_turn import ending
from tests.operate.fake_gateway import SESSION, FakeGateway, Message, ask_command, fake_gateway

PIPE = subprocess.PIPE
Behaviour = Callable[[FakeGateway, Message], Awaitable[None]]


async def run(
    home: Path, prompt: Behaviour, *arguments: str, refuse: dict[int, int] | None = None, data: bytes = b""
) -> tuple[int | None, str, str, FakeGateway]:
    """Exit code, standard output, standard error, and what the gateway saw."""
    async with fake_gateway(home / "gg", prompt) as gateway:
        gateway.refuse = refuse or {}
        process = await ask_command(gateway, *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        out, err = await asyncio.wait_for(process.communicate(data), 60)
        return process.returncode, out.decode(), err.decode(), gateway


async def plain_turn(gateway: FakeGateway, message: Message) -> None:
    thought = {"type": "text", "text": "let me see"}
    await gateway.update(sessionUpdate="agent_thought_chunk", content=thought)
    await gateway.update(sessionUpdate="tool_call", toolCallId="c", title="run_terminal_command")
    await gateway.update(
        sessionUpdate="tool_call_update", toolCallId="c", kind="execute", title="Execute `ls`"
    )
    for part in ("one ", "two"):
        await gateway.say(part)
    usage = {"totalTokens": 12, "inputTokens": 10, "outputTokens": 2}
    await gateway.end(message, modelId="m1", usage=usage)


async def test_answer_on_stdout_and_the_rest_on_stderr(short_tmp: Path) -> None:
    code, out, err, gateway = await run(short_tmp, plain_turn, "hello there", "--cwd", str(short_tmp))
    assert (code, out) == (0, "one two\n")
    assert "let me see\n" in err
    assert "● Execute `ls`\n" in err
    assert "grok 9.9 · model m1 · 10 tokens in, 2 out" in err
    new = next(m for m in gateway.received if m["method"] == "session/new")
    assert new["params"] == {"cwd": str(short_tmp), "mcpServers": []}
    prompt = gateway.received[-1]["params"]
    assert prompt == {"sessionId": SESSION, "prompt": [{"type": "text", "text": "hello there"}]}
    (head,) = gateway.heads
    assert head.headers["Authorization"] == f"Bearer {gateway.secret}"
    assert head.headers["Grok-Gateway-Acks"] == "1"
    assert "Origin" not in head.headers
    assert "permessage-deflate" not in head.headers.get("Sec-WebSocket-Extensions", "")


async def test_text_that_is_no_utf8_is_asked_all_the_same(short_tmp: Path) -> None:
    for text, data in (("bad \udcff text", b""), ("-", b"bad \xff text")):
        code, _, err, gateway = await run(short_tmp, plain_turn, text, data=data)
        assert code == 0, err
        assert gateway.received[-1]["params"]["prompt"][0]["text"] == "bad \ufffd text"


async def test_an_answer_of_the_offline_model_says_how_to_get_another(short_tmp: Path) -> None:
    async with fake_gateway(short_tmp / "gg", plain_turn) as gateway:
        gateway.leader = {"state": "ready", "offline": True, "model": "the offline model; run grok login"}
        process = await ask_command(gateway, "x", stdin=PIPE, stdout=PIPE, stderr=PIPE)
        out, err = await asyncio.wait_for(process.communicate(), 60)
    assert out == b"one two\n"
    assert err.endswith(b"  answered by the offline model; run grok login\n")


async def test_a_turn_of_the_embedded_engine_says_why_and_how_to_get_grok(short_tmp: Path) -> None:
    async with fake_gateway(short_tmp / "gg", plain_turn) as gateway:
        gateway.engine = "harness"
        gateway.leader = {"state": "ready", "source": "the embedded engine 1.0 (no grok found)"}
        process = await ask_command(gateway, "x", stdout=PIPE, stderr=PIPE)
        _, err = await asyncio.wait_for(process.communicate(), 60)
    assert b"harness 9.9" in err
    assert err.endswith(b"  run by the embedded engine 1.0 (no grok found)\n")


async def test_text_from_standard_input(short_tmp: Path) -> None:
    code, _, _, gateway = await run(short_tmp, plain_turn, "-", data="späte\nZeile".encode())
    assert code == 0
    assert gateway.received[-1]["params"]["prompt"][0]["text"] == "späte\nZeile"


async def test_model_is_chosen_before_the_prompt(short_tmp: Path) -> None:
    code, _, _, gateway = await run(short_tmp, plain_turn, "x", "--model", "m2")
    assert code == 0
    assert [m["method"] for m in gateway.received[-2:]] == ["session/set_model", "session/prompt"]
    assert gateway.received[-2]["params"] == {"sessionId": SESSION, "modelId": "m2"}


async def test_unknown_model_names_the_known_ones(short_tmp: Path) -> None:
    code, _, err, gateway = await run(short_tmp, plain_turn, "x", "--model", "m3")
    assert code == 1
    assert "the engine offers m1, m2" in err
    assert "session/prompt" not in [m["method"] for m in gateway.received]


@pytest.mark.parametrize(
    ("arguments", "word"), [(["x", "--cwd", "/nowhere/at/all"], "not a folder"), ([" "], "empty")]
)
async def test_usage(short_tmp: Path, arguments: list[str], word: str) -> None:
    code, _, err, gateway = await run(short_tmp, plain_turn, *arguments)
    assert code == 2
    assert word in err
    assert gateway.heads == []


@pytest.mark.parametrize("left", [False, True], ids=["never", "killed"])
async def test_not_running(short_tmp: Path, left: bool) -> None:
    gateway = FakeGateway(short_tmp / "gg", plain_turn)
    if left:  # a supervisord that was killed leaves its socket
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(gateway.paths.supervisor_socket))
    process = await ask_command(gateway, "x", stdin=PIPE, stdout=PIPE, stderr=PIPE)
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 3
    assert b"grok-gateway up" in err


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"message": "model said 401"}, "session/prompt: Internal error: model said 401\n"),
        ("in plain words", "session/prompt: Internal error: in plain words\n"),
        ({"reason": "leader_lost", "retryable": True}, "session/prompt: Internal error; try again\n"),
        (None, "session/prompt: Internal error\n"),
    ],
)
async def test_error_of_the_prompt_is_told(short_tmp: Path, data: Any, told: str) -> None:
    async def failing(gateway: FakeGateway, message: Message) -> None:
        error = {"code": -32603, "message": "Internal error", "data": data}
        await gateway.send({"id": message["id"], "error": error})

    code, out, err, _ = await run(short_tmp, failing, "x")
    assert (code, out) == (1, "")
    assert err.endswith(told)


async def test_without_a_terminal_everything_is_refused_and_said(short_tmp: Path) -> None:
    options = [{"optionId": "yes", "kind": "allow_once"}, {"optionId": "no", "kind": "reject_once"}]

    async def asking(gateway: FakeGateway, message: Message) -> None:
        call = {"toolCallId": "c", "title": "Execute `rm x`"}
        params = {"sessionId": SESSION, "toolCall": call, "options": options}
        await gateway.send({"id": "1.0", "method": "session/request_permission", "params": params})
        answer = await gateway.wait_for(lambda m: m.get("id") == "1.0")
        assert answer["result"] == {"outcome": {"outcome": "selected", "optionId": "no"}}
        await gateway.send({"id": "1.1", "method": "_x.ai/hooks/run", "params": {}})
        unknown = await gateway.wait_for(lambda m: m.get("id") == "1.1")
        assert unknown["error"]["code"] == -32601
        await gateway.end(message, "cancelled", cancellationCategory="PermissionRejected")

    code, _, err, _ = await run(short_tmp, asking, "x")
    assert code == 1
    assert "refused, since there is no terminal to ask at: Execute `rm x`" in err
    assert "was not allowed: Execute `rm x`" in err


# -- lost sockets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["handed over", "broken"])
async def test_turn_goes_on_over_a_new_socket(short_tmp: Path, way: str) -> None:
    async def moved(gateway: FakeGateway, message: Message) -> None:
        await gateway.say("one ")
        assert gateway.sock is not None
        if way == "broken":
            await gateway.break_off()
        else:
            await gateway.sock.close(1012, "worker restarts")
            gateway.sock = None
        await gateway.say("two ")
        while gateway.sock is None:
            await asyncio.sleep(0.01)
        await gateway.say("three")
        await gateway.end(message)

    code, out, err, gateway = await run(short_tmp, moved, "x", refuse={2: 503})
    assert (code, out) == (0, "one two three\n")
    assert "reconnecting" in err
    first, *_, last = gateway.heads
    assert "Grok-Gateway-Connection" not in first.headers
    assert last.headers["Grok-Gateway-Connection"] == gateway.connection
    assert len([m for m in gateway.received if m["method"] == "session/prompt"]) == 1


async def test_what_the_gateway_did_not_accept_is_sent_again(short_tmp: Path) -> None:
    async def forgetful(gateway: FakeGateway, message: Message) -> None:
        if len(gateway.heads) == 1:
            gateway.accepted -= 1  # as if the socket had broken before the prompt had arrived
            await gateway.break_off()
        else:
            await gateway.end(message)

    code, _, _, gateway = await run(short_tmp, forgetful, "x")
    assert code == 0
    assert [m["method"] for m in gateway.received].count("session/prompt") == 2
    assert [m["method"] for m in gateway.received].count("initialize") == 1


@pytest.mark.parametrize(
    ("close", "word"), [(1001, "stopped"), (1011, "error"), (1009, "too large"), (4000, "4000")]
)
async def test_closed_for_good(short_tmp: Path, close: int, word: str) -> None:
    async def closing(gateway: FakeGateway, message: Message) -> None:
        assert gateway.sock is not None
        await gateway.sock.close(close, "because")

    code, _, err, gateway = await run(short_tmp, closing, "x")
    assert code == 1
    assert word in err
    assert "because" in err
    assert len(gateway.heads) == 1


@pytest.mark.parametrize(("status", "word"), [(401, "secret"), (410, "no longer knows"), (404, "404")])
async def test_refused_sockets_are_not_tried_again(short_tmp: Path, status: int, word: str) -> None:
    code, _, err, gateway = await run(short_tmp, plain_turn, "x", refuse={1: status})
    assert code == 1
    assert word in err
    assert len(gateway.heads) == 1


@pytest.mark.parametrize(("code", "again"), [(1006, True), (1012, True), (1000, False), (1001, False)])
def test_resumable(code: int, again: bool) -> None:
    assert resumable(code) is again


def test_texts_never_end_in_the_middle() -> None:
    assert close_text(1012, "") == "the worker was restarted"
    assert close_text(4001, "") == "the gateway closed the connection (4001)"
    assert refusal_text(418, "") == "the gateway refused the connection: 418"


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({"stopReason": "end_turn"}, None),
        ({"stopReason": "cancelled"}, "cancelled"),
        ({"stopReason": "cancelled", "_meta": {"cancellationCategory": "PermissionRejected"}}, "a tool"),
        ({"stopReason": "refusal"}, "refused"),
        ({"stopReason": "max_tokens"}, "max_tokens"),
        ({}, "None"),
    ],
)
def test_ending(result: Message, told: str | None) -> None:
    ended = ending(result, None)
    assert ended is None if told is None else told in str(ended)


# -- at a terminal ---------------------------------------------------------------------------------


class Person:
    """The other side of the pseudo-terminal at which the command runs."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        os.set_blocking(self.master, False)
        self.screen = ""

    async def sees(self, text: str) -> None:
        async with asyncio.timeout(60):
            while text not in self.screen:
                try:
                    self.screen += os.read(self.master, 65536).decode(errors="replace").replace("\r\n", "\n")
                except BlockingIOError:
                    await asyncio.sleep(0.01)
        self.screen = self.screen.partition(text)[2]

    def types(self, text: str) -> None:
        os.write(self.master, text.encode())

    def close(self) -> None:
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def person() -> Any:
    person = Person()
    yield person
    person.close()


async def start(gateway: FakeGateway, person: Person) -> asyncio.subprocess.Process:
    streams = {"stdin": person.slave, "stdout": person.slave, "stderr": person.slave}
    return await ask_command(gateway, "x", start_new_session=True, **streams)


async def test_dialogs_one_after_the_other(short_tmp: Path, person: Person) -> None:
    async def asking(gateway: FakeGateway, message: Message) -> None:
        options = [{"optionId": "yes", "kind": "allow_once"}, {"optionId": "no", "kind": "reject_once"}]
        for number in ("1.0", "1.1"):
            call = {"toolCallId": number, "title": f"tool {number}"}
            params = {"sessionId": SESSION, "toolCall": call, "options": options}
            await gateway.send({"id": number, "method": "session/request_permission", "params": params})
        allowed = await gateway.wait_for(lambda m: m.get("id") == "1.0")
        refused = await gateway.wait_for(lambda m: m.get("id") == "1.1")
        assert [m["result"]["outcome"]["optionId"] for m in (allowed, refused)] == ["yes", "no"]
        acks = [m["params"] for m in gateway.received if m.get("method") == "pi/gate-ack"]
        assert acks == [{"id": "1.0", "dialog": True}, {"id": "1.1", "dialog": True}]
        await gateway.end(message)

    async with fake_gateway(short_tmp / "gg", asking) as gateway:
        process = await start(gateway, person)
        await person.sees("? allow: tool 1.0")
        await person.sees("number] ")
        person.types("what?\n")
        await person.sees("? allow: tool 1.0")  # not understood: asked again
        await person.sees("number] ")
        person.types("y\n")
        await person.sees("? allow: tool 1.1")
        await person.sees("number] ")
        person.types("n\n")
        assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_a_dialog_that_was_answered_elsewhere_disappears(short_tmp: Path, person: Person) -> None:
    async def asking(gateway: FakeGateway, message: Message) -> None:
        params = {
            "sessionId": SESSION,
            "toolCallId": "c",
            "questions": [{"question": "Which?", "options": []}],
        }
        await gateway.send({"id": "1.0", "method": "_x.ai/ask_user_question", "params": params})
        await gateway.wait_for(lambda m: m.get("method") == "pi/gate-ack")
        update = {"sessionUpdate": "interaction_resolved", "tool_call_id": "c"}
        note = {"method": "_x.ai/session_notification", "params": {"sessionId": SESSION, "update": update}}
        await gateway.send(note)
        await gateway.end(message)

    async with fake_gateway(short_tmp / "gg", asking) as gateway:
        process = await start(gateway, person)
        assert await asyncio.wait_for(process.wait(), 60) == 0
        assert not [m for m in gateway.received if m.get("id") == "1.0"]


async def test_a_dialog_that_the_gateway_settled_disappears(short_tmp: Path, person: Person) -> None:
    async def asking(gateway: FakeGateway, message: Message) -> None:
        params = {"sessionId": SESSION, "toolCallId": "c", "planContent": "1. all"}
        await gateway.send({"id": "1.0", "method": "_x.ai/exit_plan_mode", "params": params})
        await gateway.wait_for(lambda m: m.get("method") == "pi/gate-ack")
        params = {"id": "1.0", "reason": "nobody answered in time"}
        await gateway.send({"method": "gateway/gate_closed", "params": params})
        await gateway.say("going on")
        await gateway.end(message)

    async with fake_gateway(short_tmp / "gg", asking) as gateway:
        process = await start(gateway, person)
        await person.sees("no longer asked: nobody answered in time\n")
        await person.sees("going on\n")
        assert await asyncio.wait_for(process.wait(), 60) == 0
        assert not [m for m in gateway.received if m.get("id") == "1.0"]


async def test_a_question_asked_again_after_a_lost_socket(short_tmp: Path, person: Person) -> None:
    async def asking(gateway: FakeGateway, message: Message) -> None:
        params = {"sessionId": SESSION, "toolCallId": "c", "planContent": "1. all"}
        question = {"id": "1.0", "method": "_x.ai/exit_plan_mode", "params": params}
        await gateway.send(question)
        await gateway.wait_for(lambda m: m.get("method") == "pi/gate-ack")
        await gateway.break_off()
        while gateway.sock is None:
            await asyncio.sleep(0.01)
        await gateway.send(question)
        while [m.get("method") for m in gateway.received].count("pi/gate-ack") < 2:
            await asyncio.sleep(0.01)
        await gateway.say("asked again")
        answer = await gateway.wait_for(lambda m: m.get("id") == "1.0")
        assert answer["result"] == {"outcome": "approved"}
        await gateway.end(message)

    async with fake_gateway(short_tmp / "gg", asking) as gateway:
        process = await start(gateway, person)
        await person.sees("asked again")
        person.types("y\n")
        assert await asyncio.wait_for(process.wait(), 60) == 0
        assert len([m for m in gateway.received if m.get("id") == "1.0"]) == 1


async def test_ctrl_c_cancels_the_turn(short_tmp: Path, person: Person) -> None:
    async def long(gateway: FakeGateway, message: Message) -> None:
        await gateway.say("working")
        await gateway.wait_for(lambda m: m.get("method") == "session/cancel")
        await gateway.end(message, "cancelled", cancellationCategory="MidTurnAbort")

    async with fake_gateway(short_tmp / "gg", long) as gateway:
        process = await start(gateway, person)
        await person.sees("working")
        process.send_signal(signal.SIGINT)
        await person.sees("the turn was cancelled")
        assert await asyncio.wait_for(process.wait(), 60) == 1


async def test_second_ctrl_c_leaves(short_tmp: Path, person: Person) -> None:
    async def deaf(gateway: FakeGateway, message: Message) -> None:
        await gateway.say("working")

    async with fake_gateway(short_tmp / "gg", deaf) as gateway:
        process = await start(gateway, person)
        await person.sees("working")
        process.send_signal(signal.SIGINT)
        await person.sees("Ctrl-C again")
        process.send_signal(signal.SIGINT)
        await person.sees("left before the turn had ended")
        assert await asyncio.wait_for(process.wait(), 60) == 1
        assert [m for m in gateway.received if m.get("method") == "session/cancel"]
