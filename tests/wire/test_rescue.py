"""A rescue: everything is cancelled at once, nothing is allowed, and it ends when nothing is at work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.wire.jsonrpc import parse_engine
from gateway.wire.limits import LIMITS, Limits
from gateway.wire.questions import GateKind
from gateway.wire.rescue import Rescue, RescueRun, State

PAUSE = LIMITS.rescue_pause


class Scene:
    """A rescue of s1 (a turn) and s2 (a suspect), told what the engine says; ``said`` is what it wrote."""

    def __init__(self) -> None:
        self.now = 100.0
        self.rescue = Rescue(["s1"], ["s1", "s2"], reason="nobody is there")
        self.said = list[dict[str, Any]]()
        self.look: Any = None

    def _say(self, lines: list[bytes]) -> list[tuple[str, str | None]]:
        """(method, session) of the lines."""
        messages = [json.loads(line) for line in lines]
        self.said += messages
        for message in messages:
            if message.get("method") == "_x.ai/sessions/list":
                self.look = message["id"]
        return [(m.get("method", "answer"), m.get("params", {}).get("sessionId")) for m in messages]

    def start(self) -> list[tuple[str, str | None]]:
        return self._say(self.rescue.start(self.now))

    def hears(self, **message: Any) -> list[tuple[str, str | None]]:
        line = parse_engine(json.dumps({"jsonrpc": "2.0", **message}).encode())
        return self._say(self.rescue.receive(line, self.now))

    def looks(self, **activities: str) -> list[tuple[str, str | None]]:
        rows = [{"sessionId": session, "activity": activity} for session, activity in activities.items()]
        return self.hears(id=self.look, result={"result": {"sessions": rows}})

    def waits(self, seconds: float = PAUSE) -> list[tuple[str, str | None]]:
        self.now += seconds
        return self._say(self.rescue.wake(self.now))

    def queue(self, session: str, running: str | None, *waiting: str) -> list[tuple[str, str | None]]:
        entries = [{"id": one} for one in waiting]
        params = {"sessionId": session, "entries": entries, "runningPromptId": running}
        return self.hears(method="_x.ai/queue/changed", params=params)


LOOK = ("_x.ai/sessions/list", None)


def cancel(session: str) -> tuple[str, str]:
    return ("session/cancel", session)


def close(session: str) -> tuple[str, str]:
    return ("session/close", session)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_turn_is_cancelled_at_once_and_two_looks_confirm(scene: Scene) -> None:
    assert scene.start() == [cancel("s1"), LOOK]
    assert scene.looks(s1="idle", s2="dormant", other="working") == []
    assert scene.rescue.state is State.CONFIRMING
    assert scene.waits(PAUSE / 2) == []
    assert scene.waits() == [LOOK]
    assert scene.looks(s1="idle") == []
    assert scene.rescue.state is State.IDLE
    assert scene.rescue.ended == {"s1"}
    assert scene.waits() == []


def test_a_cancelled_turn_may_need_a_moment(scene: Scene) -> None:
    scene.start()
    assert scene.looks(s1="working") == []
    assert scene.waits() == [LOOK]
    assert scene.looks(s1="working") == [cancel("s1"), close("s1")]
    assert scene.waits() == [LOOK]
    assert scene.looks(s1="working") == [cancel("s1")]  # its close is on the way, perhaps for long


def test_a_suspect_at_work_is_ended(scene: Scene) -> None:
    scene.start()
    assert scene.looks(s1="idle", s2="needs_input") == [cancel("s2"), close("s2")]
    assert scene.rescue.ended == {"s1", "s2"}


@pytest.mark.parametrize(("running", "waiting"), [("q0", ()), ("q0", ("q1",)), (None, ("q1",))])
def test_a_queue_is_closed_instead_of_being_started(
    scene: Scene, running: str | None, waiting: tuple[str, ...]
) -> None:
    scene.start()
    scene.looks(s1="idle")
    assert scene.queue("s1", running, *waiting) == [close("s1")]
    assert scene.rescue.state is State.ENDING  # the look fell between two prompts
    assert scene.queue("s1", running, *waiting) == []


def test_the_end_of_a_queue_and_queues_of_others_mean_nothing(scene: Scene) -> None:
    scene.start()
    scene.looks(s1="idle")
    assert scene.queue("s1", None) == []
    assert scene.queue("other", "q0") == []
    assert scene.rescue.state is State.CONFIRMING


def test_a_look_that_fails_is_no_rest(scene: Scene) -> None:
    scene.start()
    scene.hears(id=scene.look, error={"code": -1, "message": "no"})
    assert scene.rescue.state is State.ENDING
    assert scene.waits() == [LOOK]
    scene.hears(id="somebody's", result={"result": {"sessions": []}})
    assert scene.rescue.state is State.ENDING


def test_the_time_is_bounded(scene: Scene) -> None:
    scene.start()
    scene.looks(s1="working")
    assert scene.rescue.next_wake == 100 + PAUSE
    scene.waits()
    assert scene.rescue.next_wake == 100 + LIMITS.rescue  # that look is never answered
    assert scene.waits(LIMITS.rescue) == [cancel("s1"), close("s1")]
    assert scene.rescue.state is State.GIVEN_UP
    assert scene.looks(s1="idle") == []
    assert scene.rescue.state is State.GIVEN_UP


ASKED = [
    (
        "_x.ai/hooks/run",
        {"hookEventName": "pre_tool_use", "toolName": "bash", "toolUseId": "c1"},
        {"decision": "deny", "reason": "Denied by the gateway: nobody is there."},
        (GateKind.PRE_HOOK, "pre_tool_use", "bash", "c1"),
    ),
    (
        "_x.ai/hooks/run",
        {"hookEventName": "stop"},
        {"decision": "continue"},
        (GateKind.HOOK, "stop", "", ""),
    ),
    (
        "session/request_permission",
        {
            "toolCall": {"toolCallId": "c2"},
            "options": [
                {"optionId": "y", "kind": "allow_once"},
                {"optionId": "n", "kind": "reject_once"},
            ],
        },
        {"outcome": {"outcome": "selected", "optionId": "n"}},
        (GateKind.PERMISSION, "", "", "c2"),
    ),
    (
        "_x.ai/ask_user_question",
        {"toolCallId": "c3"},
        {"outcome": "cancelled"},
        (GateKind.QUESTION, "", "", "c3"),
    ),
]


@pytest.mark.parametrize(("method", "params", "result", "names"), ASKED)
def test_nothing_is_allowed(scene: Scene, method: str, params: Any, result: Any, names: Any) -> None:
    scene.start()
    scene.hears(id=7, method=method, params={"sessionId": "s1", **params})
    assert scene.said[-1] == {"jsonrpc": "2.0", "id": 7, "result": result}
    (refused,) = scene.rescue.refused
    assert (refused.kind, refused.event, refused.tool, refused.tool_use_id) == names


def test_what_is_unknown_is_refused(scene: Scene) -> None:
    scene.start()
    scene.hears(id=7, method="fs/write_text_file", params={"sessionId": "s1"})
    assert scene.said[-1]["error"]["code"] == -32601


# -- the shell -------------------------------------------------------------------------------------


class Engine:
    """Answers looks with the next of ``looks``, and with the last one for ever."""

    def __init__(self, *looks: dict[str, str] | None) -> None:
        self.looks = list(looks)
        self.written = list[str]()
        self.tell: Callable[[bytes], None] = lambda line: None

    def write(self, line: bytes) -> None:
        message = json.loads(line)
        self.written.append(message["method"])
        if message["method"] != "_x.ai/sessions/list":
            return
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if look is not None:
            rows = [{"sessionId": session, "activity": activity} for session, activity in look.items()]
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": {"result": {"sessions": rows}}}
            asyncio.get_running_loop().call_soon(self.tell, json.dumps(answer).encode())


def run(engine: Engine, limits: Limits = LIMITS) -> RescueRun:
    one = RescueRun(Rescue(["s1"], reason="nobody is there", limits=limits), engine.write)
    engine.tell = one.line
    return one


async def test_it_runs_until_nothing_is_at_work() -> None:
    engine = Engine({"s1": "working"}, {"s1": "working"}, {"s1": "idle"})
    assert await run(engine).run()
    looks = ["_x.ai/sessions/list"]
    ends = ["session/cancel", "session/close"]
    assert engine.written == ["session/cancel", *looks * 2, *ends, *looks * 2]


@pytest.mark.parametrize("look", [None, {"s1": "working"}])
async def test_it_gives_up_in_time(look: dict[str, str] | None) -> None:
    assert not await run(Engine(look), Limits(rescue=0.1)).run()


async def test_a_bridge_that_ends_ends_it() -> None:
    one = run(Engine(None), Limits(rescue=60))
    task = asyncio.create_task(one.run())
    await asyncio.sleep(0)
    one.lost()
    assert not await task
