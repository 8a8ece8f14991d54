"""Both sides of a hand-over on bridges of the test's own, in orders that a real engine does not show."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway.wire.handoff import Succession
from gateway.wire.limits import LIMITS
from gateway.wire.records import ConnectionRecord, GateClosed, GateOpened
from tests.workers.test_proxy import PROMPT, Client, FakeBridge, run, settle
from workers import link as link_module
from workers.link import CallError
from workers.proxy import Proxy
from workers.successor import Successor

HOOKS = {"x.ai/hooks": {"pre_tool_use": [{"hookCallbackIds": ["pre"], "timeout": 600}]}}
HOOK = {"sessionId": "s1", "hookEventName": "pre_tool_use", "toolUseId": "t1", "hookCallbackId": "pre"}
PERMISSION = {"sessionId": "s1", "toolCall": {"toolCallId": "t1"}, "options": []}


@pytest.fixture(autouse=True)
def fake_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "Bridge", FakeBridge)


def chunk(text: str, number: int, *, replay: bool = False) -> dict[str, Any]:
    meta = {"eventId": f"s1-{number}", "promptId": "p1", "streamStartMs": 1, "chunkId": number}
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    more = {"isReplay": True} if replay else {}
    return {"method": "session/update", "params": {"sessionId": "s1", "update": update, "_meta": meta | more}}


def ended(number: int = 99) -> dict[str, Any]:
    update = {"sessionUpdate": "turn_completed", "prompt_id": "p1", "stop_reason": "end_turn"}
    params = {"sessionId": "s1", "update": update, "_meta": {"eventId": f"s1-{number}"}}
    return {"method": "_x.ai/session_notification", "params": params}


def asks(number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"id": number, "method": method, "params": params}


class Move:
    """A connection with one session and one turn, and the bridge that succeeds its own."""

    def __init__(self) -> None:
        self.old, self.frames = Client(), list[bytes]()
        self.old.proxy._seams._frames = _Numbered(self.old.frames)

    async def begin(self) -> None:
        self.bridge = await self.old.new_session(**HOOKS)
        self.old.send("session/prompt", {**PROMPT, "_meta": {"promptId": "p1"}}, "7")
        queue = {"sessionId": "s1", "entries": [], "runningPromptId": "p1"}
        self.bridge.say({"method": "_x.ai/queue/changed", "params": queue})
        self.successor = Successor(self.old.leader)
        await settle()
        assert self.old.bridge is not None
        self.new_bridge = self.old.bridge

    def hold(self) -> None:
        self.old.proxy.holding.begin({"s1"})

    async def load(self, *replay: dict[str, Any], running: str | None = "p1") -> None:
        loading = asyncio.create_task(self.successor.load(self.record, ["s1"]))
        await settle()
        for message in replay:
            self.new_bridge.say(message)
        (key,) = self.new_bridge.open
        self.new_bridge.answer(key, {"_meta": {"x.ai/runningPromptId": running} if running else {}})
        await loading

    @property
    def record(self) -> ConnectionRecord:
        record = ConnectionRecord(self.old.id)
        for change in self.old.records:
            change.apply(record)
        return record

    def take(self, *, running: bool = True) -> Proxy:
        """Close the old bridge and go on; the frames of both are one stream for the client."""
        self.old.proxy.leave()
        self.frames = list(self.old.frames)
        numbered = _Numbered(self.frames)
        proxy = Proxy(
            self.old,
            self.old.leader,
            self.frames.append,
            numbered,
            lambda on: None,
            lambda servers: "",
            acks=False,
            successor=self.successor,
        )
        record = self.record
        known = [gate.id for gate in record.gates.values() if gate.method != "_x.ai/hooks/run"]
        proxy.restore(record)
        word = Succession(self.old.id, "take", running=["s1"] if running else [])
        proxy.succeed(known, self.successor.heard, word)
        self.proxy = proxy
        return proxy

    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(frame) for frame in self.frames]

    def text(self) -> str:
        updates = [m["params"]["update"] for m in self.messages() if m.get("method") == "session/update"]
        return "".join(u["content"]["text"] for u in updates if u["sessionUpdate"] == "agent_message_chunk")

    def asked(self, method: str) -> list[str]:
        return [m["id"] for m in self.messages() if m.get("method") == method]

    def told_engine(self, method: str) -> list[Any]:
        return [line["params"] for line in self.new_bridge.lines if line.get("method") == method]

    async def end(self) -> None:
        await self.successor.drop()
        if hasattr(self, "proxy"):
            await self.proxy.close()
        self.old.task.cancel()
        await asyncio.gather(self.old.task, return_exceptions=True)
        await self.old.proxy.close()
        self.old.leader.close()


class _Numbered:
    def __init__(self, frames: list[bytes]) -> None:
        self._frames = frames

    def __iter__(self) -> Any:
        return iter(list(enumerate(self._frames, 1)))


def move(test: Any) -> Any:
    def wrapped() -> None:
        async def body() -> None:
            scene = Move()
            try:
                await scene.begin()
                await test(scene)
            finally:
                await scene.end()

        run(body())

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


@move
async def test_text_goes_on_where_the_client_has_read_to(scene: Move) -> None:
    scene.bridge.say(chunk("a", 1))
    scene.hold()
    scene.bridge.say(chunk("b", 2))  # held: the successor's replay has it
    await scene.load(chunk("ab", 2, replay=True))
    scene.new_bridge.say(chunk("c", 3))
    scene.old.proxy.holding.close()
    scene.bridge.say(chunk("c", 3))  # the old bridge's last words
    scene.take()
    scene.new_bridge.say(chunk("d", 4))
    scene.new_bridge.say(ended())
    assert scene.text() == "abcd"
    answers = [m for m in scene.messages() if m.get("id") == 7]
    assert [m["result"]["stopReason"] for m in answers] == ["end_turn"]


@move
async def test_a_turn_that_ends_while_nobody_speaks_is_answered(scene: Move) -> None:
    scene.hold()
    await scene.load(chunk("ab", 2, replay=True))
    scene.new_bridge.say(ended())
    scene.old.proxy.holding.close()
    scene.take()
    await settle()  # what may be missing before the end is loaded once more
    (key,) = scene.new_bridge.open
    scene.new_bridge.say(chunk("abc", 3, replay=True))
    scene.new_bridge.answer(key, {})
    await settle()
    assert scene.text() == "abc"
    assert [m["result"]["stopReason"] for m in scene.messages() if m.get("id") == 7] == ["end_turn"]


@move
async def test_a_released_bridge_leaves_no_gap(scene: Move) -> None:
    """The successor's load costs the old bridge a chunk; its own load brings it back."""
    await release(scene, fits=0)


@move
async def test_nor_one_behind_a_chunk_that_came_before_the_load(scene: Move) -> None:
    await release(scene, fits=1)


async def release(scene: Move, fits: int) -> None:
    """``fits``: chunks that come while lines are held, before the successor's load."""
    scene.bridge.say(chunk("a", 1))
    scene.hold()
    for number in range(fits):
        scene.bridge.say(chunk("-", 2 + number))
    await scene.load(
        chunk("a" + fits * "-" + "b", 2 + fits, replay=True)
    )  # its last chunk reaches the old bridge never
    scene.bridge.say(chunk("c", 3 + fits))
    scene.bridge.say(asks(5, "_x.ai/hooks/run", HOOK))
    assert scene.old.proxy.holding.disturbed
    assert not [f for f in scene.old.frames if b"hooks/run" in f]
    releasing = asyncio.create_task(scene.old.proxy.holding.release())
    await settle()
    key = [k for k, m in scene.bridge.open.items() if m["method"] == "session/load"][-1]
    scene.bridge.say(chunk("d", 4 + fits))  # a stream does not wait
    text = "a" + fits * "-" + "bcd"
    scene.bridge.say(chunk(text, 4 + fits, replay=True))
    scene.bridge.answer(key, {"_meta": {"x.ai/runningPromptId": "p1"}})
    await releasing
    scene.frames = scene.old.frames
    assert scene.text() == text
    assert len(scene.asked("_x.ai/hooks/run")) == 1
    scene.old.respond(scene.asked("_x.ai/hooks/run")[0], {"decision": "deny"})


@move
async def test_a_load_that_is_lost_is_sent_again(scene: Move) -> None:
    scene.bridge.say(chunk("a", 1))
    scene.hold()
    loading = asyncio.create_task(scene.successor.load(scene.record, ["s1"]))
    await settle()
    lost = next(iter(scene.new_bridge.open))
    await asyncio.sleep(LIMITS.first_request + 0.1)
    (again,) = set(scene.new_bridge.open) - {lost}
    assert scene.new_bridge.open[again]["params"] == scene.new_bridge.open[lost]["params"]
    scene.new_bridge.say(chunk("ab", 2, replay=True))
    for key in (again, lost):  # it was only late
        scene.new_bridge.answer(key, {"_meta": {"x.ai/runningPromptId": "p1"}})
    await loading
    assert [line.is_replay for line in scene.successor.heard.loads["s1"].replay] == [True]
    scene.old.proxy.holding.close()
    scene.take()
    assert scene.text() == "ab"


@move
async def test_an_open_permission_is_the_successors_and_not_asked_twice(scene: Move) -> None:
    scene.bridge.say(asks(3, "session/request_permission", PERMISSION))
    (shown,) = [json.loads(f)["id"] for f in scene.old.frames if b"request_permission" in f]
    scene.hold()
    await scene.load()
    scene.new_bridge.say(asks(3, "session/request_permission", PERMISSION))
    scene.old.proxy.holding.close()
    proxy = scene.take()
    assert scene.asked("session/request_permission") == [shown]
    assert [gate.shown for gate in proxy.ledger.guard] == [shown]
    assert shown in scene.record.gates


@move
async def test_a_permission_answered_over_the_old_bridge_is_not_asked_again(scene: Move) -> None:
    await scene.load()
    for bridge in (scene.bridge, scene.new_bridge):
        bridge.say(asks(3, "session/request_permission", PERMISSION))
    (shown,) = [json.loads(f)["id"] for f in scene.old.frames if b"request_permission" in f]
    scene.old.respond(shown, {"outcome": {"outcome": "cancelled"}})
    scene.hold()
    scene.old.proxy.holding.close()
    proxy = scene.take()
    assert scene.asked("session/request_permission") == [shown]
    assert len(proxy.ledger.guard) == 0


@move
async def test_a_permission_that_only_the_mute_bridge_heard_is_shown(scene: Move) -> None:
    scene.hold()
    await scene.load()
    scene.new_bridge.say(asks(3, "session/request_permission", PERMISSION))
    assert not [f for f in scene.old.frames if b"request_permission" in f]
    scene.old.proxy.holding.close()
    scene.bridge.say(asks(3, "session/request_permission", PERMISSION))
    scene.take()
    assert len(scene.asked("session/request_permission")) == 1


@move
async def test_a_hook_in_the_tail_is_lost_and_its_turn_cancelled(scene: Move) -> None:
    scene.hold()
    await scene.load()
    scene.old.proxy.holding.close()
    scene.bridge.say(asks(5, "_x.ai/hooks/run", HOOK))
    assert [r.tool_use_id for r in scene.old.records if isinstance(r, GateOpened)] == ["t1"]
    scene.take()
    assert {"sessionId": "s1"} in scene.told_engine("session/cancel")
    assert not scene.asked("_x.ai/hooks/run")
    assert isinstance(scene.old.records[-1], GateClosed) or not scene.record.gates


@move
async def test_a_call_whose_hook_no_bridge_has_seen_is_cancelled(scene: Move) -> None:
    scene.hold()
    await scene.load()
    call = {"sessionUpdate": "tool_call", "toolCallId": "t9", "title": "x"}
    params = {"sessionId": "s1", "update": call, "_meta": {"eventId": "s1-5"}}
    scene.new_bridge.say({"method": "session/update", "params": params})
    scene.old.proxy.holding.close()
    proxy = scene.take()
    assert not scene.told_engine("session/cancel")
    await asyncio.sleep(1.5)
    assert scene.told_engine("session/cancel") == [{"sessionId": "s1"}]
    assert proxy.ledger.counters["lost_hooks"] == 1


@move
async def test_the_next_hook_is_asked_by_the_successor(scene: Move) -> None:
    scene.hold()
    await scene.load()
    scene.old.proxy.holding.close()
    scene.new_bridge.say(asks(6, "_x.ai/hooks/run", HOOK))  # the old one has gone: this one drives
    assert not [line for line in scene.new_bridge.lines if line.get("id") == 6]
    proxy = scene.take()
    assert len(scene.asked("_x.ai/hooks/run")) == 1
    await asyncio.sleep(3)
    assert not scene.told_engine("session/cancel"), "its hook is open here"
    assert len(proxy.ledger.guard) == 1


@move
async def test_a_dropped_successor_denies_what_it_was_asked(scene: Move) -> None:
    await scene.load()
    scene.new_bridge.say(asks(6, "_x.ai/hooks/run", HOOK))
    scene.new_bridge.say(asks(7, "session/request_permission", PERMISSION))
    await scene.successor.drop()
    answers = {line["id"]: line["result"] for line in scene.new_bridge.lines if "result" in line}
    assert answers[6]["decision"] == "deny"
    assert 7 not in answers, "Grok asks it again elsewhere"
    assert scene.new_bridge.closed


@move
async def test_a_mute_bridge_that_was_lost_is_of_no_use(scene: Move) -> None:
    await scene.load()
    scene.new_bridge.die()
    await settle()
    with pytest.raises(CallError):
        scene.successor.check()


@move
async def test_what_both_bridges_heard_is_said_once(scene: Move) -> None:
    await scene.load(running="p1")
    note = {"method": "_x.ai/task_completed", "params": {"sessionId": "s1", "taskId": "x"}}
    for bridge in (scene.bridge, scene.new_bridge):
        bridge.say(note)
    scene.old.proxy.holding.close()
    scene.take(running=False)
    assert sum(m.get("method") == "_x.ai/task_completed" for m in scene.messages()) == 1
