"""Turns over ``/pi`` with the real engine: what goes out, what comes back, and how it ends."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.e2e.gateway import Gateway
from tests.e2e.pi_client import PiClient, PiSession
from tests.engines.scripted_model import ScriptedModel

Make = Callable[..., Awaitable[PiClient]]


@pytest.fixture
async def pi(pi_of: Make) -> PiClient:
    """A Pi with one session on screen."""
    return await pi_of()


def session_of(pi: PiClient) -> PiSession:
    assert pi.session is not None
    return pi.session


# -- streams -----------------------------------------------------------------------------------------


async def test_a_turn_streams_thought_and_text(pi: PiClient, model: ScriptedModel) -> None:
    text = model.script([{"think": "let me see", "text": "hello world, this is it", "chunks": 5}])
    answer = await pi.ask(f"hi {text}")
    assert answer.stop == "stop"
    assert [b["type"] for b in answer.blocks] == ["thinking", "text"]
    assert answer.blocks[0]["text"] == "let me see"
    assert answer.text == "hello world, this is it"
    assert sum(e["op"] == "delta" for e in answer.events) > 4
    usage = answer.end["usage"]
    assert usage["totalTokens"] > usage["output"] > 0
    assert usage["input"] + usage["cacheRead"] + usage["output"] == usage["totalTokens"]


async def test_a_native_tool_is_a_line_and_an_entry(pi: PiClient, model: ScriptedModel) -> None:
    call = {"name": "run_terminal_command", "args": {"command": "echo yes", "description": "d"}}
    answer = await pi.ask("do " + model.script([{"tools": [call]}, {"text": "done"}]))
    assert answer.text == "done"
    assert answer.thinking == (
        '[grok run_terminal_command] #1 {"command":"echo yes","description":"d"}\n'
        "[grok run_terminal_command completed] #1 yes\n"
    )
    (tool,) = session_of(pi).entries("grok-tool")
    assert (tool["n"], tool["tool"], tool["status"], tool["output"]) == (
        1,
        "run_terminal_command",
        "completed",
        "yes\n",
    )
    assert tool["input"]["command"] == "echo yes"
    assert answer.end["usage"]["totalTokens"] < 4000, "the context of the last call, not the sum"


async def test_an_edit_has_a_diff(pi: PiClient, model: ScriptedModel) -> None:
    file = Path(session_of(pi).cwd) / f"{secrets.token_hex(4)}.txt"
    file.write_text("one\ntwo\n")
    read = {"name": "read_file", "args": {"target_file": str(file)}}
    edit = {
        "name": "search_replace",
        "args": {"file_path": str(file), "old_string": "two", "new_string": "three"},
    }
    pi.person = lambda ask: {"value": next(o for o in ask["args"]["options"] if "allow_once" in o)}
    await pi.ask("edit " + model.script([{"tools": [read]}, {"tools": [edit]}, {"text": "ok"}]))
    assert file.read_text() == "one\nthree\n"
    last = session_of(pi).entries("grok-tool")[-1]
    assert "-two" in last["diff"]
    assert "+three" in last["diff"]
    assert [e["n"] for e in session_of(pi).entries("grok-tool")] == [1, 2]


async def test_a_repeated_model_call_shows_no_text_twice(pi: PiClient, model: ScriptedModel) -> None:
    script = model.script([{"text": "0123456789" * 8, "chunks": 20, "drop": True, "times": 2}])
    answer = await (await pi.prompt(f"go {script}")).done(60)
    assert answer.stop == "stop"
    assert answer.text == "0123456789" * 8


async def test_a_cut_off_answer_is_a_length(pi: PiClient, model: ScriptedModel) -> None:
    answer = await pi.ask("go " + model.script([{"text": "as far as I get", "finish": "length"}]))
    assert answer.stop == "length"
    assert answer.text == "as far as I get"
    assert answer.end["usage"]["totalTokens"] > 0


async def test_an_error_of_the_model_is_told_without_a_word_that_pi_repeats(
    pi: PiClient, model: ScriptedModel
) -> None:
    answer = await pi.ask("go " + model.script([{"status": 400, "text": "context length exceeded"}]))
    assert answer.stop == "error"
    assert "Grok could not answer" in answer.end["error"]
    assert "context length" not in answer.end["error"]  # there is an invisible character in between
    after = await pi.ask("again " + model.script([{"text": "fine"}]))
    assert after.text == "fine"


@pytest.mark.original("it has no subagents yet")
async def test_a_subagent_is_nested_under_its_parent(pi: PiClient, model: ScriptedModel) -> None:
    inner = model.script(
        [
            {"tools": [{"name": "list_dir", "args": {"target_directory": "."}}]},
            {"text": "the child's words"},
        ]
    )
    task = {
        "name": "spawn_subagent",
        "args": {"prompt": f"look {inner}", "description": "a look", "run_in_background": False},
    }
    pi.person = lambda ask: {"value": next(o for o in ask["args"]["options"] if "allow_once" in o)}
    answer = await (await pi.prompt("go " + model.script([{"tools": [task]}, {"text": "parent"}]))).done()
    assert answer.text == "parent"
    assert "the child's words" not in answer.text
    assert "[grok a look › list_dir]" in answer.thinking, answer.thinking


# -- what goes out -----------------------------------------------------------------------------------


async def test_the_system_prompt_becomes_rules_and_the_session_stays(
    pi: PiClient, model: ScriptedModel
) -> None:
    one, two = model.script([{"text": "one"}]), model.script([{"text": "two"}])
    await pi.ask(f"first {one}")
    await pi.ask(f"second {two}")
    (call,) = model.calls(two)
    assert "You are a test." in call.text
    assert call.text.count(one) == 1, "the first message was given twice"
    assert "Pi transcript" not in call.text
    assert len({data["grok"] for data in session_of(pi).entries("grok-session")}) == 1


async def test_a_session_with_a_past_is_told_as_text(pi: PiClient, model: ScriptedModel) -> None:
    session = session_of(pi)
    session.user("what is the word?")
    session.add(
        {
            "role": "assistant",
            "provider": "other",
            "content": [
                {"type": "text", "text": "the word is plover"},
                {"type": "toolCall", "id": "c1", "name": "grep", "arguments": {"pattern": "xyzzy"}},
            ],
        }
    )
    session.add(
        {
            "role": "toolResult",
            "toolCallId": "c1",
            "toolName": "grep",
            "content": [{"type": "text", "text": "3 hits"}],
        }
    )
    marker = model.script([{"text": "I see"}])
    await pi.ask(f"go on {marker}")
    (call,) = model.calls(marker)
    assert "Conversation so far (Pi transcript):" in call.text
    for part in ("the word is plover", 'grep({"pattern": "xyzzy"})', "3 hits"):
        assert part in call.text


async def test_what_another_model_did_meanwhile_is_told(pi: PiClient, model: ScriptedModel) -> None:
    await pi.ask("one " + model.script([{"text": "first answer"}]))
    session = session_of(pi)
    session.user("asked of another model")
    answer = [{"type": "text", "text": "its answer"}]
    session.add({"role": "assistant", "provider": "other", "content": answer})
    marker = model.script([{"text": "I see"}])
    await pi.ask(f"back {marker}")
    (call,) = model.calls(marker)
    assert "What has happened in Pi since" in call.text
    assert "asked of another model" in call.text
    assert "its answer" in call.text
    prompt = call.text.split("What has happened in Pi since")[1]
    assert "first answer" not in prompt, "Grok knows its own answer"


async def test_an_image_becomes_a_file(pi: PiClient, model: ScriptedModel) -> None:
    data = secrets.token_bytes(40)
    marker = model.script([{"text": "nice"}])
    block = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(data).decode()}
    await pi.ask([{"type": "text", "text": f"look {marker}"}, block])
    (call,) = model.calls(marker)
    path = call.text.split("[image: ")[1].split("]")[0]
    assert path.endswith(".png")
    assert Path(path).read_bytes() == data
    assert Path(path).stat().st_mode & 0o77 == 0


async def test_the_same_message_is_not_prompted_twice(pi: PiClient, model: ScriptedModel) -> None:
    marker = model.script([{"text": "once only"}])
    first = await pi.ask(f"go {marker}")
    session_of(pi).branch.pop()  # Pi drops the answer and calls again
    second = await (await pi.call()).done()
    assert (second.text, second.stop) == (first.text, "stop")
    assert len(model.calls(marker)) == 1


async def test_a_second_call_for_a_running_message_joins_it(pi: PiClient, model: ScriptedModel) -> None:
    gate = secrets.token_hex(4)
    marker = model.script([{"text": "abcdefgh", "chunks": 8, "gate": gate, "gate_after": 4}])
    await pi.prompt(f"go {marker}")
    await model.waiting(gate)
    second = await pi.call()
    model.release(gate)
    await second.done()
    assert second.text == "abcdefgh"
    assert len(model.calls(marker)) == 1


async def test_only_the_tail_is_needed_once_grok_knows_the_rest(pi: PiClient, model: ScriptedModel) -> None:
    await pi.ask("one " + model.script([{"text": "first"}]))
    session = session_of(pi)
    state = await pi.show(session, "change")
    assert state["state"] == "bound"
    since = state["delivered"]
    marker = model.script([{"text": "second"}])
    session.user(f"two {marker}")
    entries, messages = session.wire()
    at = next(i for i, e in enumerate(entries) if e["id"] == since) + 1
    answer = await pi.call(entries=entries[at:], messages=messages[1:], since=since, system=[])
    assert (await answer.done()).text == "second"
    session.assistant(answer)
    session.user("three " + model.script([{"text": "third"}]))
    wrong = await pi.call(since="nowhere")
    assert (await wrong.done()).text == "third", "the client sends all when it is asked to"


async def test_always_approve_is_no_way_around_the_gate(pi: PiClient) -> None:
    answer = await (await pi.prompt("/always-approve on")).done()
    assert answer.stop == "error"
    assert "/grok perms" in answer.end["error"]


async def test_nothing_new_is_said_aloud(pi: PiClient) -> None:
    answer = await (await pi.call()).done()
    assert answer.stop == "error"
    assert "nothing in this session" in answer.end["error"]


# -- models ------------------------------------------------------------------------------------------


async def test_the_model_and_the_effort_are_used(pi: PiClient, model: ScriptedModel) -> None:
    one, two, three = (model.script([{"text": str(n)}]) for n in range(3))
    await pi.ask(f"a {one}")
    await pi.ask(f"b {two}", model="scripted-two", effort="high")
    await pi.ask(f"c {three}", model="scripted-two", effort="low")
    assert [model.calls(m)[0].body["model"] for m in (one, two, three)] == [
        "scripted-1",
        "scripted-2",
        "scripted-2",
    ]
    assert model.calls(two)[0].body["reasoning_effort"] == "high"
    assert model.calls(three)[0].body["reasoning_effort"] == "low"


async def test_an_unknown_model_fails_with_the_list(pi: PiClient) -> None:
    answer = await (await pi.prompt("hi", model="grok-99")).done()
    assert answer.stop == "error"
    assert "scripted, scripted-two" in answer.end["error"]


# -- abort -------------------------------------------------------------------------------------------


async def test_abort_ends_the_turn_and_nothing_leaks_into_the_next(
    pi: PiClient, model: ScriptedModel
) -> None:
    gate = secrets.token_hex(4)
    marker = model.script([{"text": "never to be seen", "chunks": 8, "gate": gate, "gate_after": 2}])
    answer = await pi.prompt(f"go {marker}")
    await model.waiting(gate)
    started = time.monotonic()
    await pi.abort(answer)
    await answer.done()
    assert answer.stop == "aborted"
    assert time.monotonic() - started < 5
    session_of(pi).assistant(answer)
    after = await pi.ask("next " + model.script([{"text": "clean"}]))
    model.release(gate)
    assert after.text == "clean"


async def test_a_command_that_runs_is_stopped(pi: PiClient, model: ScriptedModel) -> None:
    call = {"name": "run_terminal_command", "args": {"command": "sleep 30", "description": "d"}}
    answer = await pi.prompt("go " + model.script([{"tools": [call]}, {"text": "no"}]))
    async with asyncio.timeout(60):
        while "#1" not in answer.thinking:
            await asyncio.sleep(0.02)
    await pi.abort(answer)
    await answer.done(10)
    assert answer.stop == "aborted"
    (tool,) = session_of(pi).entries("grok-tool")
    assert tool["status"] == "failed"


# -- sessions ----------------------------------------------------------------------------------------


async def test_a_fork_and_a_navigation_get_their_own_grok_session(pi: PiClient, model: ScriptedModel) -> None:
    await pi.ask("one " + model.script([{"text": "first"}]))
    parent = session_of(pi)
    fork = PiSession(Path(parent.cwd))
    fork.branch = list(parent.branch)
    assert (await pi.show(fork, "fork"))["state"] == "new"
    marker = model.script([{"text": "forked"}])
    await pi.ask(f"two {marker}")
    (call,) = model.calls(marker)
    assert "Conversation so far (Pi transcript):" in call.text
    assert fork.entries("grok-session")[-1]["grok"] != parent.entries("grok-session")[-1]["grok"]
    before = fork.entries("grok-session")[-1]["grok"]
    await pi.show(fork, "tree")
    await pi.ask("three " + model.script([{"text": "elsewhere"}]))
    assert fork.entries("grok-session")[-1]["grok"] != before


async def test_a_branch_that_has_left_what_grok_knows_gets_a_new_session(
    pi: PiClient, model: ScriptedModel
) -> None:
    await pi.ask("one " + model.script([{"text": "first"}]))
    session = session_of(pi)
    old = session.entries("grok-session")[-1]["grok"]
    session.branch = [e for e in session.branch if e["type"] == "custom"]
    await pi.ask("other " + model.script([{"text": "second"}]))
    assert session.entries("grok-session")[-1]["grok"] != old


async def test_two_sessions_at_once_on_one_socket(
    pi: PiClient, shared: Gateway, model: ScriptedModel
) -> None:
    gate = secrets.token_hex(4)
    slow = await pi.prompt("a " + model.script([{"text": "slow", "gate": gate}]))
    other = PiSession(shared.work)
    other.user("b " + model.script([{"text": "quick"}]))
    quick = await pi.call(other, entries=None)
    await quick.done()
    assert quick.text == "quick"
    assert not slow.ended.is_set()
    model.release(gate)
    assert (await slow.done()).text == "slow"


async def test_a_pi_that_comes_again_goes_on_where_it_was(
    pi_of: Make, shared: Gateway, model: ScriptedModel
) -> None:
    first = await pi_of()
    one = model.script([{"text": "first"}])
    await first.ask(f"one {one}")
    session = session_of(first)
    await first.close()
    second = await pi_of(session)
    two = model.script([{"text": "second"}])
    answer = await second.ask(f"two {two}")
    assert answer.text == "second"
    (call,) = model.calls(two)
    assert "Pi transcript" not in call.text
    assert call.text.count(one) == 1
    assert "You are a test." in call.text, "rules are lost on a load, so they go with the prompt"
    assert len({data["grok"] for data in session.entries("grok-session")}) == 1


async def test_a_second_pi_on_the_same_session_gets_its_own(pi_of: Make, model: ScriptedModel) -> None:
    first = await pi_of()
    await first.ask("one " + model.script([{"text": "first"}]))
    session = session_of(first)
    copy = PiSession(Path(session.cwd), session.id)
    copy.branch = list(session.branch)
    second = await pi_of()
    assert (await second.show(copy))["state"] == "busy"
    answer = await (await second.prompt("two " + model.script([{"text": "second"}]))).done(40)
    assert answer.text == "second"
    assert any("another Pi has it open" in notice for notice in second.notices)
    assert (await first.ask("three " + model.script([{"text": "third"}]))).text == "third"


# -- side calls --------------------------------------------------------------------------------------


async def test_side_calls_are_apart_inert_and_leave_nothing(
    pi: PiClient, shared: Gateway, model: ScriptedModel, grok_home_of_shared: Path
) -> None:
    await pi.ask("one " + model.script([{"text": "first"}]))
    call = {"name": "run_terminal_command", "args": {"command": "touch side-was-here", "description": "d"}}
    one = model.script([{"tools": [call]}, {"text": "summary one"}])
    two = model.script([{"text": "summary two"}])
    system = [{"role": "system", "content": "You are a context summarization assistant."}]

    async def side(text: str) -> str:
        session = PiSession(shared.work)
        session.user(text)
        answer = await pi.call(session, kind="side", system=system)
        return (await answer.done()).text

    assert await asyncio.gather(side(f"sum {one}"), side(f"sum {two}")) == ["summary one", "summary two"]
    assert not any("side-was-here" in names for _, _, names in os.walk(shared.folder))
    (call_seen,) = model.calls(two)
    assert "You are a context summarization assistant." in call_seen.text
    assert "first" not in call_seen.text
    async with asyncio.timeout(60):
        while list(shared.paths.run.glob("pi-side-*")) or list(
            grok_home_of_shared.glob("sessions/*pi-side-*")
        ):
            await asyncio.sleep(0.05)
    assert (await pi.ask("two " + model.script([{"text": "second"}]))).text == "second"


@pytest.fixture
def grok_home_of_shared(shared: Gateway) -> Path:
    return Path(shared.environment["GROK_HOME"])
