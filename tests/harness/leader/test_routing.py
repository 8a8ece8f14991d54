"""Who gets what when several clients share one agent: a table of cases, and random interleavings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.leader.routing import AGENT, NOBODY, SHARED, Overrun, Router, To
from harness.limits import SIZES

Message = dict[str, Any]


def request(number: Any, method: str, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def notice(method: str, **params: Any) -> Message:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def update(session: str, kind: str = "agent_message_chunk", **more: Any) -> Message:
    return notice("session/update", sessionId=session, update={"sessionUpdate": kind}, **more)


class Stage:
    """A router with clients a, b, c."""

    def __init__(self, *clients: str) -> None:
        self.router = Router()
        for client in clients or ("a", "b", "c"):
            self.router.join(client, f"type {client}", {})

    def opens(self, client: str, session: str) -> None:
        """The client makes a session."""
        (to,) = self.router.from_client(client, request(1, "session/new", cwd="/"))
        self.answer(to, {"sessionId": session})

    def answer(self, to: To, result: Any) -> list[To]:
        assert to.client == AGENT
        return self.router.from_agent({"jsonrpc": "2.0", "id": to.message["id"], "result": result})

    def told(self, message: Message) -> list[str]:
        """Which clients get a message of the agent."""
        return [to.client for to in self.router.from_agent(message)]


@pytest.mark.parametrize("number", [1, "1", 1.5, None, "a|b", 'x"y', -7])
def test_ids_of_clients_never_meet_and_come_back_as_they_were(number: Any) -> None:
    stage = Stage()
    sent = [
        stage.router.from_client(client, request(number, "session/prompt", sessionId="s"))[0]
        for client in ("a", "b")
    ]
    assert sent[0].message["id"] != sent[1].message["id"]
    for client, to in zip(("a", "b"), sent, strict=True):
        assert stage.answer(to, {}) == [To(client, {"jsonrpc": "2.0", "id": number, "result": {}})]
        assert stage.answer(to, {}) == [], "answered twice"


def test_two_requests_with_one_id_are_both_answered() -> None:
    stage = Stage()
    first, second = (stage.router.from_client("a", request(1, "x"))[0] for _ in range(2))
    assert stage.answer(second, 2)[0].message["result"] == 2
    assert stage.answer(first, 1)[0].message["result"] == 1


def test_updates_go_to_subscribers_in_order_of_their_coming() -> None:
    stage = Stage()
    stage.opens("b", "s")
    assert stage.told(update("s")) == ["b"]
    stage.router.from_client("a", notice("session/cancel", sessionId="s"))
    assert stage.told(update("s")) == ["b", "a"]
    assert stage.router.driver("s") == "b"
    assert stage.told(update("other")) == []


def test_the_whole_machines_news_go_to_everybody_and_loose_ones_to_the_last_active() -> None:
    stage = Stage()
    assert stage.told(notice("_x.ai/sessions/changed", upserted=[])) == ["a", "b", "c"]
    stage.router.from_client("b", notice("anything"))
    assert stage.told(notice("_x.ai/settings/update")) == ["b"]
    stage.router.leave("b")
    assert stage.told(notice("_x.ai/settings/update")) == ["c"]


@pytest.mark.parametrize("method", sorted(SHARED))
def test_everybody_is_asked_and_the_first_answer_counts(method: str) -> None:
    stage = Stage()
    stage.opens("a", "s")
    stage.router.from_client("b", notice("x", sessionId="s"))
    asked = request(9, method, sessionId="s", toolCall={"toolCallId": "t"})
    assert stage.told(asked) == ["a", "b"]
    reply = {"jsonrpc": "2.0", "id": 9, "result": {}}
    assert stage.router.from_client("c", reply) == [], "c has no part in the session"
    assert stage.router.from_client("b", reply) == [To(AGENT, reply)]
    assert stage.router.from_client("a", reply) == []


def test_a_hook_goes_to_the_driver_alone_and_nobody_else_can_answer_it() -> None:
    stage = Stage()
    stage.opens("a", "s")
    stage.router.from_client("b", notice("x", sessionId="s"))
    assert stage.told(request(3, "_x.ai/hooks/run", sessionId="s")) == ["a"]
    allow = {"jsonrpc": "2.0", "id": 3, "result": {}}
    assert stage.router.from_client("b", allow) == []
    assert stage.router.from_client("a", allow) == [To(AGENT, allow)]


def test_a_hook_of_a_lost_driver_goes_to_the_next_one() -> None:
    stage = Stage()
    stage.opens("a", "s")
    stage.router.from_client("b", notice("x", sessionId="s"))
    hook = request(3, "_x.ai/hooks/run", sessionId="s")
    stage.router.from_agent(hook)
    assert stage.router.leave("a") == [To("b", hook)]
    assert stage.router.from_client("b", {"id": 3, "result": {}}) == [To(AGENT, {"id": 3, "result": {}})]


def test_a_hook_that_nobody_can_answer_is_an_error_at_once() -> None:
    stage = Stage()
    (to,) = stage.router.from_agent(request(3, "_x.ai/hooks/run", sessionId="s"))
    assert (to.client, to.message["id"], to.message["error"]["code"]) == (AGENT, 3, NOBODY)
    stage.opens("a", "s")
    stage.router.from_agent(request(4, "_x.ai/hooks/run", sessionId="s"))
    error, evicted = stage.router.leave("a")
    assert (error.message["id"], error.message["error"]["code"]) == (4, NOBODY)
    assert evicted.message["params"] == {"sessionIds": ["s"]}


def test_a_question_waits_for_whoever_loads_its_session() -> None:
    stage = Stage()
    stage.opens("a", "s")
    asked = request(5, "session/request_permission", sessionId="s", toolCall={"toolCallId": "t"})
    stage.router.from_agent(asked)
    stage.router.leave("a")
    (load,) = stage.router.from_client("b", request(1, "session/load", sessionId="s"))
    answer, again = stage.answer(load, {})
    assert answer.client == again.client == "b"
    assert again.message == asked
    stage.router.from_agent(update("s", "interaction_resolved"))
    (load,) = stage.router.from_client("c", request(1, "session/load", sessionId="s"))
    assert len(stage.answer(load, {})) == 2, "another call was resolved"
    resolved = notice(
        "_x.ai/session_notification",
        sessionId="s",
        update={"sessionUpdate": "interaction_resolved", "tool_call_id": "t"},
    )
    stage.router.from_agent(resolved)
    (load,) = stage.router.from_client("c", request(1, "session/load", sessionId="s"))
    assert len(stage.answer(load, {})) == 1


def test_what_happens_during_a_load_comes_behind_it() -> None:
    stage = Stage()
    stage.opens("a", "s")
    (load,) = stage.router.from_client("b", request("L", "session/load", sessionId="s"))
    client = load.message["params"]["_meta"]["x.ai/leaderClientId"]
    replayed = update("s", _meta={"x.ai/leaderClientId": client, "isReplay": True})
    live = update("s", number=1)
    assert stage.told(replayed) == ["b"], "the others know it"
    assert stage.told(live) == ["a"]
    answer, behind = stage.answer(load, {})
    assert answer.message["id"] == "L"
    assert behind == To("b", live)
    assert stage.told(update("s")) == ["a", "b"]


def test_what_a_load_has_shown_does_not_come_again_behind_it() -> None:
    stage = Stage()
    stage.opens("a", "s")
    (load,) = stage.router.from_client("b", request("L", "session/load", sessionId="s"))
    client = load.message["params"]["_meta"]["x.ai/leaderClientId"]
    live = [update("s", _meta={"eventId": f"s-{n}"}) for n in (9, 10, 11)]
    assert stage.told(live[0]) == stage.told(live[1]) == ["a"], "b loads"
    marks = {"eventId": "s-10", "x.ai/leaderClientId": client}
    assert stage.told(update("s", _meta=marks)) == ["b"]
    assert stage.told(live[2]) == ["a"]
    passing = update("s", "tool_call_update")
    assert stage.told(passing) == ["a"]
    assert [to.message for to in stage.answer(load, {})[1:]] == [live[2], passing]


def test_a_load_that_is_followed_by_too_much_costs_its_client_alone() -> None:
    stage = Stage()
    stage.opens("a", "s")
    stage.router.from_client("b", request(1, "session/load", sessionId="s"))
    for _ in range(SIZES.load_waiting - 1):
        assert stage.told(update("s")) == ["a"]
    (load,) = stage.router.from_client("c", request(1, "session/load", sessionId="s"))
    assert stage.told(update("s")) == ["a"]
    with pytest.raises(Overrun) as caught:
        stage.router.from_agent(update("s"))
    assert caught.value.clients == ["b"]
    stage.router.leave("b")
    last = update("s", number=2)
    assert stage.told(last) == ["a"]
    behind = [to.message for to in stage.answer(load, {})[1:]]
    assert behind == [update("s"), last], "nothing of the message that was refused"


def test_a_client_that_has_gone_gets_nothing_and_its_turn_goes_on() -> None:
    stage = Stage()
    stage.opens("a", "s")
    (prompt,) = stage.router.from_client("a", request(2, "session/prompt", sessionId="s"))
    (evicted,) = stage.router.leave("a")
    assert evicted.message["method"] == "x.ai/internal/evict_sessions"
    assert stage.answer(prompt, {"stopReason": "end_turn"}) == []
    assert stage.told(update("s")) == []


@pytest.mark.parametrize("chosen", [{}, {"sessionId": "s"}])
def test_a_session_that_is_made_for_a_client_that_has_gone_is_evicted_then(chosen: Message) -> None:
    stage = Stage()
    (new,) = stage.router.from_client("a", request(1, "session/new", cwd="/", _meta=chosen))
    stage.router.leave("a")
    (evicted,) = stage.answer(new, {"sessionId": "s"})
    assert (evicted.client, evicted.message["method"]) == (AGENT, "x.ai/internal/evict_sessions")
    assert evicted.message["params"] == {"sessionIds": ["s"]}
    assert stage.answer(new, {"sessionId": "s"}) == [], "answered twice"


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
def test_a_session_that_is_loaded_for_a_client_that_has_gone_is_evicted_again(method: str) -> None:
    stage = Stage()
    (load,) = stage.router.from_client("a", request(1, method, sessionId="s", cwd="/"))
    (early,) = stage.router.leave("a")
    assert stage.answer(load, {}) == [early], "at the first time it was not in memory yet"
    (load,) = stage.router.from_client("b", request(1, method, sessionId="s", cwd="/"))
    stage.opens("c", "s")
    assert stage.router.leave("b") == []
    assert stage.answer(load, {}) == [], "c has it"


def test_a_session_that_its_client_asks_for_again_is_not_evicted() -> None:
    """The client's bridge was killed; the next one asks for the session under the same id."""
    stage = Stage()
    (new,) = stage.router.from_client("a", request(1, "session/new", cwd="/", _meta={"sessionId": "s"}))
    stage.router.leave("a")
    (again,) = stage.router.from_client("b", request(1, "session/new", cwd="/", _meta={"sessionId": "s"}))
    assert stage.answer(new, {"sessionId": "s"}) == []
    assert [to.client for to in stage.answer(again, {"sessionId": "s"})] == ["b"]


@pytest.mark.parametrize("number", [{"id": 4}, {"id": None}, {}])
@pytest.mark.parametrize("method", [["x"], 5, None, {"a": 1}])
def test_a_method_that_is_no_text_is_refused(number: Message, method: Any) -> None:
    (to,) = Stage().router.from_client("a", {"jsonrpc": "2.0", "method": method, **number})
    assert (to.client, to.message["id"], to.message["error"]["code"]) == ("a", number.get("id"), -32600)


@pytest.mark.parametrize("number", [[1], {"x": 1}])
@pytest.mark.parametrize("rest", [{"method": "x"}, {"result": {}}])
def test_an_id_that_is_none_is_refused(number: Any, rest: Message) -> None:
    (to,) = Stage().router.from_client("a", {"jsonrpc": "2.0", "id": number, **rest})
    assert (to.client, to.message["id"], to.message["error"]["code"]) == ("a", None, -32600)


@pytest.mark.parametrize("method", ["x.ai/internal/evict_sessions", "_x.ai/internal/evict_sessions"])
def test_no_client_may_evict_a_session(method: str) -> None:
    stage = Stage()
    stage.opens("a", "s")
    assert stage.router.from_client("b", notice(method, sessionIds=["s"])) == []
    (to,) = stage.router.from_client("b", request(3, method, sessionIds=["s"], sessionId="s"))
    assert (to.client, to.message["id"], to.message["error"]["code"]) == ("b", 3, -32601)
    assert stage.told(update("s")) == ["a"], "and b has no part in it"


def test_a_closed_session_has_no_subscribers() -> None:
    stage = Stage()
    stage.opens("a", "s")
    (close,) = stage.router.from_client("a", request(2, "session/close", sessionId="s"))
    stage.answer(close, {})
    assert stage.told(update("s")) == []
    assert stage.router.leave("a") == []


def test_sessions_are_told_who_their_client_is() -> None:
    router = Router()
    router.join("a", "mine", {"yolo_mode": True, "default_model": "m"})
    (to,) = router.from_client("a", request(1, "session/new", cwd="/", _meta={"modelId": "own"}))
    assert to.message["params"]["_meta"] == {
        "modelId": "own",
        "yoloMode": True,
        "clientIdentifier": "mine",
        "x.ai/leaderClientId": 1,
    }
    (to,) = router.from_client("a", request(1, "session/load", sessionId="s", cwd="/"))
    assert to.message["params"]["_meta"] == {"clientIdentifier": "mine", "x.ai/leaderClientId": 1}
    (to,) = router.from_client("a", request(1, "initialize", protocolVersion=1))
    assert to.message["params"]["_meta"] == {"clientIdentifier": "mine"}


_CLIENTS, _SESSIONS = st.sampled_from("abc"), st.sampled_from("st")
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), _CLIENTS),
        st.tuples(st.just("leave"), _CLIENTS),
        st.tuples(st.just("load"), _CLIENTS, _SESSIONS),
        st.tuples(st.just("hook"), _SESSIONS),
        st.tuples(st.just("permission"), _SESSIONS),
        st.tuples(st.just("reply"), _CLIENTS, st.integers(0, 5)),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(_STEPS)
def test_a_hook_is_always_answered_or_with_a_living_client(steps: list[tuple[Any, ...]]) -> None:
    """No interleaving leaves the agent waiting for a hook that nobody has; none is answered twice."""
    router, here, loads = Router(), set[str](), 0
    waiting = dict[int, str]()  # hooks of the agent without an answer, by id; who has them
    settled, number = set[int](), 0

    def deliver(messages: list[To]) -> None:
        for to in messages:
            if to.client == AGENT and "method" not in to.message:
                assert to.message["id"] not in settled, "answered twice"
                settled.add(to.message["id"])
                waiting.pop(to.message["id"], None)
            elif to.client != AGENT:
                assert to.client in here
                if to.message.get("method") == "_x.ai/hooks/run":
                    waiting[to.message["id"]] = to.client
            elif to.message["method"] == "session/load":
                answer = {"jsonrpc": "2.0", "id": to.message["id"], "result": {}}
                deliver(router.from_agent(json.loads(json.dumps(answer))))

    for step in steps:
        match step:
            case ("join", client) if client not in here:
                here.add(client)
                router.join(client, "t", {})
            case ("leave", client) if client in here:
                here.discard(client)
                deliver(router.leave(client))
            case ("load", client, session) if client in here:
                loads += 1
                deliver(router.from_client(client, request(loads, "session/load", sessionId=session)))
            case ("hook" | "permission" as kind, session):
                number += 1
                method = "_x.ai/hooks/run" if kind == "hook" else "session/request_permission"
                deliver(router.from_agent(request(number, method, sessionId=session)))
            case ("reply", client, back) if client in here:
                deliver(router.from_client(client, {"jsonrpc": "2.0", "id": number - back, "result": {}}))
        assert set(waiting.values()) <= here, "a hook waits for a client that has gone"
