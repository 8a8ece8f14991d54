"""Hooks around a turn: what the client is asked and shown, and what silence means."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from harness.hook_runner import EVENT, RUN, ClientHooks
from harness.hooks import parse_hooks
from harness.limits import SIZES


class Client:
    """``answers`` by callback; an exception is raised, None waits for ever."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[dict[str, Any]] = []

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        assert method == RUN
        self.asked.append(dict(params))
        answer = self.answers.get(params["hookCallbackId"], {})
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        result: dict[str, Any] = answer
        return result


class Room:
    def __init__(self, registration: Any, **answers: Any) -> None:
        self.client = Client(**answers)
        self.shown: list[dict[str, Any]] = []
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.hooks = ClientHooks(
            "S",
            "/w/sub",
            "/w",
            parse_hooks(registration),
            self.client,
            lambda method, params: self.told.append((method, params)),
            self.shown.append,
            about=lambda: {"permissionMode": "default"},
        )

    async def before(self, tool: str = "run_terminal_command") -> str | None:
        return await self.hooks.before("c1", tool, {"command": "ls"}, "P")

    async def after(self, result: Any = None) -> list[str]:
        return list(await self.hooks.after("c1", "grep", {}, result or {"type": "Text"}, 0.25, False))


def pre(*callbacks: str, **more: Any) -> dict[str, Any]:
    return {"pre_tool_use": [{"hookCallbackIds": list(callbacks), **more}]}


async def test_the_payload() -> None:
    room = Room(pre("a"))
    assert await room.before() is None
    (payload,) = room.client.asked
    timestamp = payload.pop("timestamp")
    assert timestamp.endswith("+00:00")
    assert payload == {
        "hookCallbackId": "a",
        "hookEventName": "pre_tool_use",
        "sessionId": "S",
        "cwd": "/w/sub",
        "workspaceRoot": "/w",
        "permissionMode": "default",
        "toolName": "run_terminal_command",
        "toolUseId": "c1",
        "toolInput": {"command": "ls"},
        "toolInputTruncated": False,
    }
    assert not room.shown


async def test_all_are_asked_and_the_first_in_order_counts() -> None:
    room = Room(
        pre("a", "b", "c"),
        b={"decision": "deny", "reason": "second"},
        c={"decision": "block", "reason": "third"},
    )
    assert await room.before() == "Hook denied: second"
    assert [p["hookCallbackId"] for p in room.client.asked] == ["a", "b", "c"]
    assert len({p["timestamp"] for p in room.client.asked}) == 1
    (shown,) = room.shown
    assert shown == {
        "sessionUpdate": "hook_annotation",
        "message": "`run_terminal_command` blocked by client:b: second",
        "kind": "tool_outcome",
    }


@pytest.mark.parametrize(
    "answer", [None, RuntimeError("method not found"), ConnectionError(), [1], "x", {"decision": "maybe"}]
)
async def test_whatever_is_no_answer_denies(answer: Any) -> None:
    room = Room(pre("a", timeout=0.1), a=answer)
    denied = await room.before()
    assert denied is not None
    assert room.shown


async def test_a_slow_hook_has_its_own_time() -> None:
    registration = {
        "pre_tool_use": [{"hookCallbackIds": ["fast"]}, {"hookCallbackIds": ["never"], "timeout": 0.1}],
    }
    room = Room(registration, never=None)
    denied = await room.before()
    assert denied is not None
    assert "0.1 s" in denied


async def test_only_what_matches_is_asked() -> None:
    room = Room(pre("a", matcher="Bash"))
    assert await room.before("read_file") is None
    assert not room.client.asked


async def test_cancelling_the_turn_cancels_the_wait() -> None:
    room = Room(pre("a", timeout=60), a=None)
    work = asyncio.ensure_future(room.before())
    await asyncio.sleep(0.02)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_new_hooks_replace_the_old() -> None:
    room = Room({})
    assert await room.before() is None
    room.hooks.hooks = parse_hooks(pre("a"))
    await room.before()
    assert room.client.asked


# -- after a tool ----------------------------------------------------------------------------------

POST = {"post_tool_use": [{"hookCallbackIds": ["a", "b"], "timeout": 0.2}]}


async def test_what_hooks_say_of_a_result() -> None:
    room = Room(POST, a={"additionalContext": "context"}, b={"decision": "block", "reason": "feedback"})
    first, second = await room.after()
    assert first.startswith("<system-reminder>\n")
    assert first.endswith("\n</system-reminder>")
    assert "client:a" in first
    assert "context" in first
    assert "feedback" in second
    payload = room.client.asked[0]
    assert payload["toolResult"] == {"type": "Text"}
    assert (payload["durationMs"], payload["isBackgrounded"], payload["toolResultTruncated"]) == (
        250,
        False,
        False,
    )
    (shown,) = room.shown
    assert (shown["event_name"], shown["tool_name"]) == ("post_tool_use", "grep")
    assert [run["name"] for run in shown["runs"]] == ["client:a", "client:b"]
    assert {run["status"]["status"] for run in shown["runs"]} == {"success"}


async def test_a_silent_hook_after_a_tool_hangs_no_turn() -> None:
    room = Room(POST, a=None, b=RuntimeError("x"))
    assert await room.after() == []
    assert [run["status"]["status"] for run in room.shown[0]["runs"]] == ["failed", "failed"]


async def test_a_large_result_is_cut() -> None:
    room = Room(POST)
    await room.after({"text": "x" * (SIZES.hook_payload + 1)})
    payload = room.client.asked[0]
    assert payload["toolResultTruncated"]
    assert isinstance(payload["toolResult"], str)


# -- the end of a turn -----------------------------------------------------------------------------

STOP = {"stop": [{"hookCallbackIds": ["a", "b"], "timeout": 0.2}]}


async def test_a_stop_hook_keeps_the_turn_going() -> None:
    room = Room(STOP, a={"decision": "block", "reason": "tests fail"}, b={"additionalContext": "more"})
    told = await room.hooks.stop("P", "done")
    assert len(told) == 2
    assert "tests fail" in told[0]
    assert told[1] == "more"
    payload = room.client.asked[0]
    assert payload["promptId"] == "P"
    assert (payload["reason"], payload["stopHookActive"], payload["lastAssistantMessage"]) == (
        "end_turn",
        False,
        "done",
    )
    assert (payload["backgroundTasks"], payload["sessionCrons"]) == ([], [])
    assert room.shown[0]["runs"][0]["status"]["blocked"] is True
    await room.hooks.stop("P", "done")
    assert room.client.asked[-1]["stopHookActive"] is True


async def test_a_halt_wins() -> None:
    room = Room(STOP, a={"decision": "block", "reason": "on"}, b={"continue": False, "stopReason": "enough"})
    assert await room.hooks.stop("P", "") == []


async def test_stop_hooks_cannot_keep_a_turn_for_ever() -> None:
    room = Room(STOP, a={"decision": "block", "reason": "again"})
    rounds = 0
    while await room.hooks.stop("P", ""):
        rounds += 1
    assert rounds == SIZES.stop_rounds
    assert len(room.client.asked) == 2 * SIZES.stop_rounds  # the last time nobody is asked
    assert await room.hooks.stop("Q", "")  # the next turn counts anew


@pytest.mark.parametrize("answer", [None, RuntimeError("x"), [1], "x"])
async def test_a_stop_hook_without_an_answer_lets_the_turn_end(answer: Any) -> None:
    assert await Room(STOP, a=answer).hooks.stop("P", "") == []


# -- only told -------------------------------------------------------------------------------------


async def test_events_are_told() -> None:
    room = Room(
        {
            "UserPromptSubmit": [{"hookCallbackIds": ["u"]}],
            "permission_denied": [{"hookCallbackIds": ["d"], "matcher": "Bash"}],
        }
    )
    room.hooks.tell("user_prompt_submit", {"prompt": "hi"}, "P")
    room.hooks.tell("permission_denied", {"toolName": "run_terminal_command", "toolUseId": "c"}, "P")
    room.hooks.tell("permission_denied", {"toolName": "grep", "toolUseId": "c"}, "P")
    room.hooks.tell("nothing_known", {}, "P")
    (first, prompt), (second, denied) = room.told
    assert first == second == EVENT
    assert (prompt["hookEventName"], prompt["promptId"], prompt["prompt"]) == (
        "user_prompt_submit",
        "P",
        "hi",
    )
    assert denied["toolName"] == "run_terminal_command"
    assert "promptId" not in denied
