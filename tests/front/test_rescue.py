"""Rescues of the front: what is ended for whom, over a bridge that is gone afterwards, and on record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.front.control_bridge import NoAnswerError
from gateway.front.rescue import Rescuer, Ward, everything_of, open_hooks, turns_with_a_hook
from gateway.wire.audit import AuditLog
from gateway.wire.records import (
    Attached,
    ConnectionRecord,
    GateOpened,
    Opened,
    Record,
    RequestOpened,
    Rescued,
)

GENERATION = "0badcafe"
PRE = GateOpened(f"{GENERATION}.1", "_x.ai/hooks/run", "s1", event="PreToolUse", tool_use_id="c1", opened=1.0)
POST = GateOpened(f"{GENERATION}.2", "_x.ai/hooks/run", "s2", event="post_tool_use")
PERMISSION = GateOpened(f"{GENERATION}.3", "session/request_permission", "s1")
OLD = GateOpened("5ca1ab1e.1", "_x.ai/hooks/run", "s2", event="pre_tool_use")


def record(*records: Record) -> ConnectionRecord:
    state = ConnectionRecord()
    for one in (Opened("c"), Attached("s1", {}), Attached("s2", {}), Attached("s3", {}), *records):
        one.apply(state)
    return state


def test_only_pre_hooks_of_the_leader_that_runs_are_urgent() -> None:
    state = record(PRE, POST, PERMISSION, OLD)
    assert open_hooks(state, GENERATION) == [PRE]
    assert open_hooks(state, "") == [PRE, OLD]  # while nobody knows


def test_the_turn_of_an_open_hook_goes_with_all_its_gates() -> None:
    ward = turns_with_a_hook(record(PRE, POST, PERMISSION), GENERATION)
    assert ward == Ward("c", ("s1",), gates=(PRE, PERMISSION))


def test_everything_is_looked_at_and_what_was_asked_for_is_cancelled() -> None:
    state = record(PERMISSION, RequestOpened("k", "1", "session/prompt", "s2"))
    assert everything_of(state) == Ward("c", ("s1", "s2"), ("s1", "s2", "s3"), (PERMISSION,))


def test_what_a_rescue_has_ended_is_only_looked_at() -> None:
    state = record(RequestOpened("k", "1", "session/prompt", "s2"), Rescued(["s2"], "gone"))
    assert everything_of(state).sessions == ()
    RequestOpened("k2", "2", "session/prompt", "s2").apply(state)
    assert everything_of(state).sessions == ("s2",)


class EngineBridge:
    """At the engine a hook is asked once, then nothing is at work."""

    def __init__(self) -> None:
        self.on_line: Callable[[bytes], None] = lambda line: None
        self.on_end: Callable[[], None] = lambda: None
        self.closed = False
        self.dies = False
        self.answers = list[Any]()

    async def get(self, on_line: Callable[[bytes], None], on_end: Callable[[], None]) -> EngineBridge:
        self.on_line, self.on_end = on_line, on_end
        return self

    def write(self, line: bytes) -> None:
        message = json.loads(line)
        loop = asyncio.get_running_loop()
        if self.dies:
            loop.call_soon(self.on_end)
        elif message.get("method") == "session/cancel":
            params = {"sessionId": "s1", "hookEventName": "pre_tool_use", "toolName": "bash"}
            self._say({"id": 1, "method": "_x.ai/hooks/run", "params": params})
        elif message.get("method") == "_x.ai/sessions/list":
            self._say({"id": message["id"], "result": {"result": {"sessions": []}}})
        elif "result" in message:
            self.answers.append(message["result"])

    def _say(self, message: dict[str, Any]) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}).encode()
        asyncio.get_running_loop().call_soon(self.on_line, line)

    async def close(self) -> None:
        self.closed = True


WARD = Ward("c" * 32, ("s1",), gates=(PRE, PERMISSION))


async def test_a_rescue_is_on_record_and_leaves_no_bridge(tmp_path: Path) -> None:
    bridge = EngineBridge()
    rescuer = Rescuer(bridge.get, AuditLog(tmp_path / "audit.jsonl"))
    assert await rescuer.rescue([WARD], "its worker ended")
    assert bridge.closed
    assert bridge.answers == [{"decision": "deny", "reason": "Denied by the gateway: its worker ended."}]
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(one["kind"], one["tool"], one["tool_use_id"], one["answer"]) for one in lines] == [
        ("PreToolUse", "", "c1", "cancelled"),
        ("permission", "", "", "cancelled"),
        ("pre_tool_use", "bash", "", "deny"),
    ]
    assert {(one["connection"], one["by"], one["why"]) for one in lines} == {
        ("c" * 32, "gateway", "its worker ended")
    }
    assert rescuer.counters == {"rescues": 1, "rescued_sessions": 1}


async def test_a_bridge_that_dies_leaves_the_turn_to_the_next_try(tmp_path: Path) -> None:
    bridge = EngineBridge()
    bridge.dies = True
    rescuer = Rescuer(bridge.get, AuditLog(tmp_path / "audit.jsonl"))
    assert not await rescuer.rescue([WARD], "its worker ended")
    assert bridge.closed
    assert rescuer.counters["rescues_failed"] == 1


async def test_no_bridge_no_rescue(tmp_path: Path) -> None:
    async def none(on_line: Callable[[bytes], None], on_end: Callable[[], None]) -> EngineBridge:
        raise NoAnswerError("the leader is lost")

    assert not await Rescuer(none, AuditLog(tmp_path / "audit.jsonl")).rescue([WARD], "its worker ended")
    assert not (tmp_path / "audit.jsonl").exists()


async def test_a_cancelled_rescue_ends_its_bridge(tmp_path: Path) -> None:
    bridge = EngineBridge()
    rescue = asyncio.create_task(
        Rescuer(bridge.get, AuditLog(tmp_path / "audit.jsonl")).rescue([WARD], "its worker ended")
    )
    await asyncio.sleep(0)
    rescue.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rescue
    assert bridge.closed
