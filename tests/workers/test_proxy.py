"""The proxy against a bridge of the test's own: one answer for each request, whatever happens."""

from __future__ import annotations

import asyncio
import json
import os
import selectors
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.acp import ErrorCode
from gateway.wire.audit import Decision
from gateway.wire.handoff import LeaderInfo
from gateway.wire.limits import LIMITS
from gateway.wire.process import Identity
from gateway.wire.records import Record
from workers import link as link_module
from workers.bridge import BridgeExit
from workers.leader import LeaderWatch
from workers.proxy import Proxy
from workers.screening import Screen


class VirtualTime(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__(selectors.SelectSelector())
        self._now = 0.0
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None = None) -> Any:
            self._now += timeout or 0.0
            return select(0)

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now


def run(work: Coroutine[Any, Any, Any]) -> None:
    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        runner.run(work)


class FakeBridge:
    """A bridge that answers when it is told to."""

    made: list[FakeBridge]
    mute = False  #: the next ones do not even initialize

    def __init__(self, **callbacks: Callable[..., None]) -> None:
        self.open, self.lines, self.closed, self.pid = dict[str, dict[str, Any]](), list[Any](), False, 1
        self.is_mute = FakeBridge.mute
        FakeBridge.made.append(self)

    def start(self, info: LeaderInfo, on_line: Callable[[bytes], None], on_exit: Callable[..., None]) -> None:
        self._on_line, self._on_exit = on_line, on_exit

    def write(self, line: bytes) -> None:
        message = json.loads(line)
        self.lines.append(message)
        if "method" in message and "id" in message:
            self.open[message["id"]] = message
            if message["method"] == "initialize" and not self.is_mute:
                asyncio.get_running_loop().call_soon(self.answer, message["id"], {"protocolVersion": 1})

    def answer(self, key: str, result: Any = None, error: Any = None) -> None:
        self.open.pop(key)
        outcome = {"error": error} if error else {"result": result}
        self.say({"id": key, **outcome})

    def replay(self, session: str = "s1") -> None:
        """History for a load, before its answer."""
        update = {"sessionUpdate": "background_tasks", "tasks": []}
        params = {"sessionId": session, "update": update, "_meta": {"isReplay": True}}
        self.say({"method": "_x.ai/session/update", "params": params})

    def say(self, message: dict[str, Any]) -> None:
        if not self.closed:
            self._on_line(json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode())

    def die(self) -> None:
        self._end(BridgeExit("run", 3))

    def hang_up(self) -> None:
        self._end(BridgeExit("run", signal=9, hung_up=True))

    def _end(self, exit_: BridgeExit) -> None:
        if not self.closed:
            self.closed = True
            self._on_exit(exit_)

    async def close(self) -> None:
        self.closed = True

    def kill(self) -> None:
        self.closed = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Client:
    """The client's side of a proxy, and everything around it."""

    def __init__(self) -> None:
        FakeBridge.made, FakeBridge.mute = [], False
        self.leader = LeaderWatch()
        self.id = "c" * 32
        self.decisions = list[Decision]()
        self.frames, self.paused, self.records = list[bytes](), False, list[Record]()
        self.proxy = Proxy(
            self, self.leader, self.frames.append, [], self.throttle, lambda servers: "", acks=False
        )
        self.screen = Screen("test", self.proxy.ledger)
        self.asked = Counter[str]()
        self.generations = 0
        self.task = asyncio.get_running_loop().create_task(self.proxy.link.run())

    # what the proxy and the screen ask of a connection
    def throttle(self, on: bool) -> None:
        self.paused = on

    def take_session(self, session_id: str) -> bool:
        return True

    def release_session(self, session_id: str) -> None: ...

    def elsewhere(self, session_id: str) -> bool:
        return False

    def directory(self, path: str) -> bool:
        return True

    def record(self, *records: Record) -> bool:
        self.records += records
        return True

    def audit(self, decision: Decision) -> None:
        self.decisions.append(decision)

    # what happens
    def leader_ready(self) -> None:
        self.generations += 1
        me = Identity.of(os.getpid())
        assert me is not None
        generation = f"{self.generations:08x}"
        self.leader.said(LeaderInfo("ready", generation=generation, pid=me.pid, created=me.created))

    def leader_dies(self) -> None:
        if self.leader.info is not None:
            self.leader._ended()

    @property
    def bridge(self) -> FakeBridge | None:
        return FakeBridge.made[-1] if FakeBridge.made and not FakeBridge.made[-1].closed else None

    def send(self, method: str, params: Any, id_raw: str | None) -> None:
        number = "" if id_raw is None else f'"id":{id_raw},'
        data = f'{{"jsonrpc":"2.0",{number}"method":"{method}","params":{json.dumps(params)}}}'.encode()
        if id_raw is not None:
            self.asked[id_raw] += 1
        verdict = self.screen.receive(data)
        if verdict.action == "answer":
            self.frames.append(verdict.answer)
        elif verdict.action == "consume":
            self.proxy.initialize(verdict)
        elif verdict.action == "forward":
            self.proxy.receive(verdict)

    def respond(self, id_: str, result: Any) -> None:
        """Answer a question of the engine."""
        message = json.dumps({"jsonrpc": "2.0", "id": id_, "result": result})
        self.proxy.receive(self.screen.receive(message.encode()))

    @property
    def answers(self) -> Counter[str]:
        found = Counter[str]()
        for frame in self.frames:
            if b'"method":' not in frame:
                found[frame.split(b'"id":', 1)[1].split(b",", 1)[0].decode()] += 1
        return found

    def notified(self, method: str) -> list[Any]:
        messages = map(json.loads, self.frames)
        return [message["params"] for message in messages if message.get("method") == method]

    def answer_to(self, id_raw: str) -> Any:
        (frame,) = [f for f in self.frames if f'"id":{id_raw},'.encode() in f and b'"method":' not in f]
        return json.loads(frame)

    async def new_session(self, session_id: str = "s1", *, load: bool = True, **meta: Any) -> FakeBridge:
        bridge = await self.up()
        self.send("session/new", {"cwd": "/w", "mcpServers": [], "_meta": meta}, f'"new-{session_id}"')
        bridge.answer(next(iter(bridge.open)), {"sessionId": session_id})
        if load and "x.ai/hooks" in meta:
            bridge.answer(next(iter(bridge.open)), {"models": {}})
            await settle()
        return bridge

    async def up(self) -> FakeBridge:
        if self.leader.info is None:
            self.leader_ready()
        await settle()
        assert self.bridge is not None
        return self.bridge

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.proxy.ledger.refuse_all(ErrorCode.DRAINING, "the end")
        await self.proxy.close()
        self.leader.close()


async def settle() -> None:
    """Let everything happen that needs no time."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def fake_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "Bridge", FakeBridge)


def scenario(test: Callable[[Client], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test with a client, in virtual time."""

    def wrapped() -> None:
        async def body() -> None:
            client = Client()
            try:
                await test(client)
            finally:
                await client.end()
            assert client.answers == client.asked

        run(body())

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


PROMPT = {"sessionId": "s1", "prompt": [{"type": "text", "text": "hi"}]}


# -- one answer --------------------------------------------------------------------------------

_IDS = ["1", "1.0", "-0", "1e2", '"\\u0061"', '"a"', "1180591620717411303424"]
_METHODS: list[tuple[str, Any]] = [
    ("initialize", {"protocolVersion": 1}),
    ("session/new", {"cwd": "/w", "mcpServers": []}),
    ("session/load", {"sessionId": "s2", "cwd": "/w", "mcpServers": []}),
    ("session/list", {}),
    ("session/prompt", PROMPT),
    ("session/set_mode", {"sessionId": "s1", "modeId": "plan"}),
    ("session/close", {"sessionId": "s1"}),
    ("session/bogus", {}),
]
_ACTIONS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(_IDS), st.sampled_from(_METHODS)),
    st.tuples(st.just("answer"), st.integers(0, 9), st.sampled_from(["ok", "null", "running", "error"])),
    st.tuples(st.just("say"), st.sampled_from(["turn_completed", "queue", "idle", "permission", "hook"])),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 1.0, 6.0, 16.0, 31.0, 61.0])),
    st.tuples(st.sampled_from(["cancel", "bridge dies", "leader dies", "leader ready", "broken", "mute"])),
    st.tuples(st.sampled_from(["gone", "back"])),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_ACTIONS, max_size=40))
def test_every_request_gets_exactly_one_answer(actions: list[tuple[Any, ...]]) -> None:
    async def body() -> None:
        client = Client()
        client.leader_ready()
        await settle()
        for action in actions:
            await act(client, action)
        # With the leader gone for good everything is answered without anybody's help.
        client.leader_dies()
        await asyncio.sleep(100)
        assert client.answers == client.asked
        await client.end()
        assert client.answers == client.asked

    run(body())


async def act(client: Client, action: tuple[Any, ...]) -> None:
    bridge = client.bridge
    match action:
        case ("ask", id_raw, (method, params)):
            if client.answers[id_raw] == client.asked[id_raw]:  # else two answers would look alike
                client.send(method, params, id_raw)
        case ("answer", index, outcome) if bridge is not None and bridge.open:
            key = list(bridge.open)[index % len(bridge.open)]
            _answer(bridge, key, outcome)
        case ("say", what) if bridge is not None:
            _say(bridge, what)
        case ("wait", seconds):
            await asyncio.sleep(seconds)
        case ("cancel",):
            client.send("session/cancel", {"sessionId": "s1"}, None)
        case ("bridge dies",) if bridge is not None:
            bridge.die()
        case ("leader dies",):
            client.leader_dies()
        case ("leader ready",):
            client.leader_ready()
        case ("broken",):
            client.leader.said(LeaderInfo("broken", reason="too many starts"))
        case ("mute",):
            FakeBridge.mute = not FakeBridge.mute
        case ("gone",):
            client.proxy.client_lost()
        case ("back",):
            client.proxy.client_back()
    await settle()


def _answer(bridge: FakeBridge, key: str, outcome: str) -> None:
    message = bridge.open[key]
    running = {"x.ai/runningPromptId": "p1"} if outcome == "running" else {}
    session = {"sessionId": "s1"} if message["method"] == "session/new" else {}
    if outcome == "error":
        bridge.answer(key, error={"code": -32603, "message": "no"})
    else:
        bridge.answer(key, None if outcome == "null" else {**session, "_meta": running})


def _say(bridge: FakeBridge, what: str) -> None:
    if what in ("permission", "hook"):
        method = "session/request_permission" if what == "permission" else "_x.ai/hooks/run"
        params = {"sessionId": "s1", "hookEventName": "pre_tool_use", "options": []}
        bridge.say({"id": 7, "method": method, "params": params})
    elif what == "queue":
        params = {"sessionId": "s1", "entries": [{"id": "p2"}], "runningPromptId": "p1"}
        bridge.say({"method": "_x.ai/queue/changed", "params": params})
    elif what == "idle":
        bridge.say({"method": "_x.ai/queue/changed", "params": {"sessionId": "s1", "entries": []}})
    else:
        update = {"sessionUpdate": "turn_completed", "prompt_id": "p1", "stop_reason": "end_turn"}
        params = {"sessionId": "s1", "update": update}
        bridge.say({"method": "_x.ai/session_notification", "params": params})


# -- the cases by name -------------------------------------------------------------------------


@scenario
async def test_messages_wait_for_a_leader_in_their_order(client: Client) -> None:
    client.send("initialize", {"protocolVersion": 1}, "1")
    client.send("session/list", {}, "2")
    assert client.paused
    bridge = await client.up()
    assert [m["method"] for m in bridge.lines] == ["initialize", "session/list"]
    assert client.answer_to("1")["result"] == {"protocolVersion": 1}
    assert not client.paused


@scenario
async def test_without_a_leader_a_request_fails_in_time_and_says_why(client: Client) -> None:
    client.leader.said(LeaderInfo("backoff", reason="it exits at once"))
    client.send("session/list", {}, "1")
    await asyncio.sleep(31)
    error = client.answer_to("1")["error"]
    assert error["code"] == ErrorCode.TIMED_OUT
    assert "it exits at once" in error["message"]


@scenario
async def test_a_broken_leader_fails_requests_at_once(client: Client) -> None:
    client.send("session/list", {}, "1")
    client.leader.said(LeaderInfo("broken", reason="five starts in a minute"))
    assert client.answer_to("1")["error"]["code"] == ErrorCode.LEADER_LOST
    assert "five starts" in client.answer_to("1")["error"]["message"]


@scenario
async def test_a_late_new_session_is_closed_again(client: Client) -> None:
    bridge = await client.up()
    client.send("session/new", {"cwd": "/w", "mcpServers": []}, "1")
    await asyncio.sleep(61)
    assert client.answer_to("1")["error"]["code"] == ErrorCode.TIMED_OUT
    bridge.answer(next(iter(bridge.open)), {"sessionId": "late"})
    assert bridge.lines[-1]["method"] == "session/close"
    assert bridge.lines[-1]["params"] == {"sessionId": "late"}
    assert "late" not in client.proxy.ledger.sessions


@scenario
async def test_a_cancelled_turn_that_goes_on_is_given_up(client: Client) -> None:
    await client.new_session()
    client.send("session/prompt", PROMPT, "1")
    client.send("session/cancel", {"sessionId": "s1"}, None)
    await asyncio.sleep(4)
    assert client.answers["1"] == 0
    await asyncio.sleep(2)
    assert client.answer_to("1")["error"]["code"] == ErrorCode.TIMED_OUT


@scenario
async def test_cancel_answers_what_is_asked(client: Client) -> None:
    bridge = await client.new_session()
    client.send("session/prompt", PROMPT, "1")
    for number, method in ((5, "session/request_permission"), (6, "_x.ai/ask_user_question")):
        bridge.say({"id": number, "method": method, "params": {"sessionId": "s1", "options": []}})
    client.send("session/cancel", {"sessionId": "s1"}, None)
    assert bridge.lines[-3]["method"] == "session/cancel"
    assert [(m["id"], m["result"]) for m in bridge.lines[-2:]] == [
        (5, {"outcome": {"outcome": "cancelled"}}),
        (6, {"outcome": "cancelled"}),
    ]
    bridge.answer(next(iter(bridge.open)), {"stopReason": "cancelled"})


@scenario
async def test_a_bridge_gets_to_know_the_hooks_of_a_session_that_it_made(client: Client) -> None:
    """It would load the session without them when its connection to the leader breaks."""
    hooks = {"pre_tool_use": [{"hookCallbackIds": ["x"], "timeout": 600}]}
    bridge = await client.new_session(load=False, **{"x.ai/hooks": hooks})
    new, load = bridge.lines[1:]
    assert [m["method"] for m in (new, load)] == ["session/new", "session/load"]
    assert load["params"]["sessionId"] == "s1"
    assert load["params"]["_meta"]["x.ai/hooks"] == new["params"]["_meta"]["x.ai/hooks"]
    bridge.say({"method": "session/update", "params": {"sessionId": "s1", "update": {"sessionUpdate": "x"}}})
    await settle()
    assert not client.answers, "a load in a turn would cost some of its text"
    assert not client.notified("session/update"), "the client does not know the session yet"
    bridge.answer(load["id"], {"models": {}})
    await settle()
    assert client.answers == {'"new-s1"': 1}
    assert len(client.notified("session/update")) == 1
    assert client.proxy.ledger.counters["late_answers"] == 0


@scenario
async def test_a_lost_introduction_holds_a_new_session_up_for_a_moment_only(client: Client) -> None:
    meta = {"x.ai/hooks": {"pre_tool_use": [{"hookCallbackIds": ["x"]}]}}
    await client.new_session(load=False, **meta)
    await asyncio.sleep(1.9 * LIMITS.first_request)
    assert not client.answers
    await asyncio.sleep(0.2 * LIMITS.first_request)
    assert client.answers == {'"new-s1"': 1}


@scenario
async def test_a_session_is_there_although_its_bridge_went_before_the_introduction(client: Client) -> None:
    meta = {"x.ai/hooks": {"pre_tool_use": [{"hookCallbackIds": ["x"]}]}}
    bridge = await client.new_session(load=False, **meta)
    bridge.hang_up()
    await settle()
    assert client.answers == {'"new-s1"': 1}


@scenario
async def test_what_may_be_repeated_is_sent_once_more_when_the_leader_hung_up(client: Client) -> None:
    bridge = await client.new_session()
    client.send("session/list", {}, "1")
    client.send("session/close", {"sessionId": "s1"}, "2")
    bridge.hang_up()
    await settle()
    bridge = await client.up()
    assert client.answer_to("2")["error"]["code"] == ErrorCode.BRIDGE_LOST
    load = next(m for m in bridge.lines if m["method"] == "session/load")
    bridge.answer(load["id"], {"models": {}})
    await settle()
    assert client.answers["1"] == 0
    assert [m["method"] for m in bridge.lines].count("session/list") == 1
    bridge.hang_up()
    await settle()
    assert client.answer_to("1")["error"]["code"] == ErrorCode.BRIDGE_LOST


@scenario
async def test_a_lost_leader_answers_at_once_and_the_next_gets_the_sessions(client: Client) -> None:
    hooks = {"stop": [{"hookCallbackIds": ["x"], "timeout": 3}]}
    await client.new_session(rules="be kind", **{"x.ai/hooks": hooks})
    client.send("session/prompt", PROMPT, "1")
    client.leader_dies()
    await settle()
    assert client.answer_to("1")["error"]["code"] == ErrorCode.LEADER_LOST
    client.send("session/prompt", PROMPT, "2")
    bridge = await client.up()
    (load,) = [m for m in bridge.lines if m["method"] == "session/load"]
    assert load["params"]["_meta"]["x.ai/hooks"] == hooks
    assert load["params"]["cwd"] == "/w"
    bridge.say({"method": "session/update", "params": {"sessionId": "s1", "update": {"sessionUpdate": "x"}}})
    bridge.answer(load["id"], {"models": {}})
    await settle()
    assert client.notified("session/update") == []
    (told,) = client.notified("gateway/leader_restarted")
    assert told["sessions"][0]["rulesReapplied"] is True
    assert "be kind" in bridge.lines[-1]["params"]["prompt"][0]["text"]
    assert bridge.lines[-1]["params"]["prompt"][1:] == PROMPT["prompt"]
    bridge.answer(bridge.lines[-1]["id"], {"stopReason": "end_turn"})


@scenario
async def test_an_open_hook_is_cancelled_before_anything_else_on_the_next_bridge(client: Client) -> None:
    bridge = await client.new_session()
    client.send("session/prompt", {**PROMPT, "_meta": {"promptId": "p1"}}, "1")
    hook = {"sessionId": "s1", "hookEventName": "pre_tool_use"}
    bridge.say({"id": 3, "method": "_x.ai/hooks/run", "params": hook})
    bridge.die()
    await settle()
    after = await client.up()
    assert [m["method"] for m in after.lines] == ["initialize", "session/cancel", "session/load"]
    update = {"sessionUpdate": "turn_completed", "prompt_id": "p1", "stop_reason": "cancelled"}
    after.replay()
    after.say({"method": "_x.ai/session_notification", "params": {"sessionId": "s1", "update": update}})
    after.answer(after.lines[-1]["id"], {})
    await settle()
    assert client.answer_to("1")["result"]["stopReason"] == "cancelled"


@scenario
async def test_a_permission_asked_again_after_a_loss_is_shown_once(client: Client) -> None:
    bridge = await client.new_session()
    client.send("session/prompt", PROMPT, "1")
    request = {"id": 3, "method": "session/request_permission", "params": {"sessionId": "s1", "options": []}}
    bridge.say(request)
    bridge.die()
    await settle()
    after = await client.up()
    after.answer(after.lines[-1]["id"], {"_meta": {"x.ai/runningPromptId": "p1"}})
    after.say(request)
    await settle()
    (shown,) = client.notified("session/request_permission")
    assert shown == request["params"]


@scenario
async def test_three_lost_bridges_in_a_minute_end_the_link_with_the_reason(client: Client) -> None:
    client.send("session/list", {}, "1")
    for _ in range(3):
        (await client.up()).die()
        await settle()
    assert "exit code 3" in await client.task


@scenario
async def test_a_lost_client_has_the_time_of_an_ack_and_then_nothing_runs(client: Client) -> None:
    bridge = await client.new_session()
    hook = {"sessionId": "s1", "hookEventName": "pre_tool_use"}
    bridge.say({"id": 3, "method": "_x.ai/hooks/run", "params": hook})
    client.proxy.client_lost()
    await asyncio.sleep(LIMITS.ack - 1)
    bridge.say({"id": 4, "method": "_x.ai/hooks/run", "params": hook})
    await asyncio.sleep(1.1)
    assert (bridge.lines[-1]["id"], bridge.lines[-1]["result"]["decision"]) == (3, "deny")
    client.proxy.client_back()
    await asyncio.sleep(LIMITS.ack + 1)
    assert bridge.lines[-1]["id"] == 3, "who is back has all the time of the hook"
    client.respond("00000001.4", {})
    assert (bridge.lines[-1]["id"], bridge.lines[-1]["result"]) == (4, {})


@scenario
async def test_a_client_that_has_left_lets_nothing_run(client: Client) -> None:
    bridge = await client.new_session()
    hook = {"sessionId": "s1", "hookEventName": "pre_tool_use"}
    bridge.say({"id": 3, "method": "_x.ai/hooks/run", "params": hook})
    client.proxy.client_gone("it has closed its connection")
    assert (bridge.lines[-1]["id"], bridge.lines[-1]["result"]["decision"]) == (3, "deny")
    bridge.say({"id": 4, "method": "_x.ai/hooks/run", "params": hook})
    assert (bridge.lines[-1]["id"], bridge.lines[-1]["result"]["decision"]) == (4, "deny")


@scenario
async def test_a_hook_is_denied_before_grok_gives_up_on_it(client: Client) -> None:
    bridge = await client.new_session()
    hook = {"sessionId": "s1", "hookEventName": "pre_tool_use"}
    bridge.say({"id": 3, "method": "_x.ai/hooks/run", "params": hook})
    await asyncio.sleep(LIMITS.pre_hook_answer - 1)
    assert bridge.lines[-1].get("id") != 3
    await asyncio.sleep(1.1)
    assert (bridge.lines[-1]["id"], bridge.lines[-1]["result"]["decision"]) == (3, "deny")
    before = len(bridge.lines)
    client.respond("00000001.3", {})
    assert len(bridge.lines) == before, "an answer that comes too late goes nowhere"


@scenario
async def test_an_answer_for_an_earlier_leader_goes_nowhere(client: Client) -> None:
    bridge = await client.new_session()
    bridge.say({"id": 3, "method": "session/request_permission", "params": {"sessionId": "s1"}})
    before = len(bridge.lines)
    for id_raw in ('"00000009.3"', '"3"', "3", '"00000001.4"'):
        verdict = client.screen.receive(b'{"jsonrpc":"2.0","id":%b,"result":{}}' % id_raw.encode())
        client.proxy.receive(verdict)
    assert len(bridge.lines) == before
    client.proxy.receive(client.screen.receive(b'{"jsonrpc":"2.0","id":"00000001.3","result":{}}'))
    assert bridge.lines[-1] == {"jsonrpc": "2.0", "id": 3, "result": {}}


@scenario
async def test_the_end_of_a_client_closes_what_is_busy(client: Client) -> None:
    bridge = await client.new_session("s1")
    await client.new_session("s2")
    client.send("session/prompt", PROMPT, "1")
    finishing = asyncio.create_task(client.proxy.finish(given_up=False))
    await settle()
    (close,) = [m for m in bridge.lines if m["method"] == "session/close"]
    assert close["params"] == {"sessionId": "s1"}
    bridge.answer(close["id"], {})
    await finishing


@scenario
async def test_the_audit_log_says_who_answered_what(client: Client) -> None:
    bridge = await client.new_session()
    hook = {"sessionId": "s1", "hookEventName": "pre_tool_use", "toolName": "x", "toolUseId": "call-1"}
    options = [{"optionId": "yes", "kind": "allow_once"}, {"optionId": "no", "kind": "reject_once"}]
    permission = {"sessionId": "s1", "options": options, "toolCall": {"toolCallId": "call-1"}}

    def ask(number: int, method: str, params: dict[str, Any]) -> None:
        bridge.say({"id": number, "method": method, "params": params})

    def answer(number: int, result: str) -> None:
        data = f'{{"jsonrpc":"2.0","id":"00000001.{number}","result":{result}}}'
        client.proxy.receive(client.screen.receive(data.encode()))

    ask(1, "_x.ai/hooks/run", hook)
    answer(1, "{}")
    ask(2, "_x.ai/hooks/run", hook)
    answer(2, '{"decision":"deny"}')
    ask(3, "session/request_permission", permission)
    answer(3, '{"outcome":{"outcome":"selected","optionId":"yes"}}')
    ask(4, "session/request_permission", permission)
    client.send("session/cancel", {"sessionId": "s1"}, None)
    ask(5, "_x.ai/hooks/run", hook)
    bridge.die()
    await settle()
    assert [(d.by, d.kind, d.answer) for d in client.decisions] == [
        ("client", "pre_tool_use", "allow"),
        ("client", "pre_tool_use", "deny"),
        ("client", "permission", "allow_once"),
        ("gateway", "permission", "cancelled"),
        ("gateway", "pre_tool_use", "void"),
    ]
    assert {d.tool_use_id for d in client.decisions} == {"call-1"}


@scenario
async def test_a_lost_turn_says_how_its_bridge_ended(client: Client) -> None:
    bridge = await client.new_session()
    client.send("session/prompt", PROMPT, "1")
    bridge.die()
    await settle()
    after = await client.up()
    after.replay()
    after.answer(after.lines[-1]["id"], {})
    await settle()
    error = client.answer_to("1")["error"]
    assert error["code"] == ErrorCode.BRIDGE_LOST
    assert "exit code 3" in error["message"]


@scenario
async def test_a_replay_that_comes_late_is_hidden_unless_the_client_wants_it(client: Client) -> None:
    bridge = await client.new_session()
    bridge.die()
    await settle()
    after = await client.up()
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "old"}}
    params = {"sessionId": "s1", "update": update, "_meta": {"isReplay": True}}
    after.answer(after.lines[-1]["id"], {})
    after.say({"method": "session/update", "params": params})
    await settle()
    assert client.notified("session/update") == []
    client.send("session/load", {"sessionId": "s1", "cwd": "/w", "mcpServers": []}, "1")
    after.say({"method": "session/update", "params": params})
    assert client.notified("session/update") == [params]
    after.answer(after.lines[-1]["id"], {})
