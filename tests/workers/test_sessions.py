"""The session book: parameters kept for a load, and what a session is doing."""

from __future__ import annotations

from typing import Any

import pytest

from workers.sessions import Event, Session, SessionBook, State, TooManySessions, TurnEnd

HOOKS = {"pre_tool_use": [{"hookCallbackIds": ["a"], "timeout": 600}]}


def book_with(meta: dict[str, Any] | None = None, **params: Any) -> tuple[SessionBook, Session]:
    book = SessionBook()
    params = {"cwd": "/w", "mcpServers": [], **params, **({"_meta": meta} if meta else {})}
    return book, book.attach("s", params, 0.0)


def queue(running: str | None = None, *entries: str, session: str = "s") -> dict[str, Any]:
    params: dict[str, Any] = {"sessionId": session, "entries": [{"id": entry} for entry in entries]}
    return params | ({"runningPromptId": running} if running else {})


def update(kind: str, session: str = "s", **fields: Any) -> dict[str, Any]:
    return {"sessionId": session, "update": {"sessionUpdate": kind, **fields}}


def see(book: SessionBook, method: str, params: dict[str, Any], now: float = 1.0) -> TurnEnd | None:
    assert book.tells(method, str(params.get("update", {}).get("sessionUpdate", "")))
    return book.observe(method, params, now)


# -- parameters --------------------------------------------------------------------------------


def test_a_session_is_loaded_with_everything_it_was_made_with() -> None:
    _, session = book_with({"x.ai/hooks": HOOKS, "rules": "r", "clientIdentifier": "c"}, additional=[1])
    assert session.load_params() == {
        "sessionId": "s",
        "cwd": "/w",
        "mcpServers": [],
        "additional": [1],
        "_meta": {"x.ai/hooks": HOOKS, "rules": "r", "clientIdentifier": "c"},
    }


def test_what_only_a_new_session_understands_is_not_sent_with_a_load() -> None:
    _, session = book_with({"sessionId": "s", "modelId": "m", "yoloMode": True})
    assert session.load_params()["_meta"] == {"yoloMode": True}


def test_what_belongs_to_one_load_is_not_kept() -> None:
    _, session = book_with({"cursor": "s-4", "noReplay": True, "x.ai/hooks": HOOKS})
    assert session.load_params()["_meta"] == {"x.ai/hooks": HOOKS}


def test_a_load_that_does_not_mention_hooks_keeps_them_and_one_that_does_replaces_them() -> None:
    book, session = book_with({"x.ai/hooks": HOOKS, "rules": "r"})
    book.attach("s", {"cwd": "/w", "mcpServers": [{"name": "x"}]}, 1.0)
    assert session.load_params()["_meta"] == {"x.ai/hooks": HOOKS, "rules": "r"}
    assert session.load_params()["mcpServers"] == [{"name": "x"}]
    book.attach("s", {"cwd": "/w", "mcpServers": [], "_meta": {"x.ai/hooks": {}}}, 2.0)
    assert session.load_params()["_meta"]["x.ai/hooks"] == {}


def test_the_last_options_are_restored_model_before_the_rest() -> None:
    book, session = book_with()
    for method, params in (
        ("session/set_mode", {"sessionId": "s", "modeId": "plan"}),
        ("session/set_model", {"sessionId": "s", "modelId": "a"}),
        ("session/set_model", {"sessionId": "s", "modelId": "b", "_meta": {"reasoningEffort": "low"}}),
        ("session/set_config_option", {"sessionId": "s", "configId": "c", "value": 1}),
    ):
        book.option_set(method, params)
    assert [method for method, _ in session.option_requests()] == [
        "session/set_model",
        "session/set_config_option",
        "session/set_mode",
    ]
    assert session.option_requests()[0][1]["modelId"] == "b"
    see(book, "session/update", update("current_mode_update", currentModeId="default"))
    assert session.option_requests()[-1][1]["modeId"] == "default"


def test_rules_are_due_after_a_load_but_not_while_a_turn_runs() -> None:
    book, session = book_with({"rules": "r", "systemPromptOverride": "p"})
    session.move(Event.BRIDGE_LOST, 1.0)
    book.loaded(session, "turn", 2.0)
    assert not session.rules_due
    session.move(Event.BRIDGE_LOST, 3.0)
    book.loaded(session, None, 4.0)
    assert session.rules_due
    assert session.rules == "p\n\nr"


def test_the_number_of_sessions_is_bounded() -> None:
    book = SessionBook(capacity=1)
    book.check_room()
    book.attach("s", {}, 0.0)
    with pytest.raises(TooManySessions):
        book.check_room()


# -- state -------------------------------------------------------------------------------------


def test_a_turn_from_prompt_to_end() -> None:
    book, session = book_with()
    book.prompt_sent("s", 1.0)
    see(book, "_x.ai/queue/changed", queue(None, "p1"))
    assert (session.state, session.queued) == (State.WORKING, ("p1",))
    see(book, "_x.ai/queue/changed", queue("p1"))
    assert (session.running, session.queued, session.turns) == ("p1", (), 1)
    see(book, "_x.ai/queue/changed", queue())
    end = see(book, "_x.ai/session_notification", update("turn_completed", prompt_id="p1", stop_reason="x"))
    assert end == TurnEnd("s", "p1", "x", None)
    assert (session.state, session.running) == (State.IDLE, None)


def test_between_two_turns_of_a_queue_the_session_stays_busy() -> None:
    book, session = book_with()
    see(book, "_x.ai/queue/changed", queue("p1", "p2"))
    see(book, "_x.ai/queue/changed", queue(None, "p2"))
    see(book, "_x.ai/session_notification", update("turn_completed", prompt_id="p1", stop_reason="end_turn"))
    assert session.busy
    idle = {"upserted": [{"sessionId": "s", "activity": "idle"}]}
    see(book, "_x.ai/sessions/changed", idle)
    assert session.busy
    see(book, "_x.ai/queue/changed", queue("p2"))
    assert (session.running, session.turns) == ("p2", 2)


def test_a_turn_that_nobody_asked_for_counts_as_work() -> None:
    book, session = book_with()
    see(book, "_x.ai/sessions/changed", {"upserted": [{"sessionId": "s", "activity": "working"}]})
    assert session.busy
    done = update("turn_completed", prompt_id="task-completed-1", stop_reason="end_turn")
    see(book, "_x.ai/session_notification", done)
    assert not session.busy


def test_a_late_end_of_another_turn_does_not_end_this_one() -> None:
    book, session = book_with()
    see(book, "_x.ai/queue/changed", queue("p2"))
    see(book, "_x.ai/session_notification", update("turn_completed", prompt_id="p1", stop_reason="end_turn"))
    assert (session.state, session.running) == (State.WORKING, "p2")


def test_an_open_question_shows_until_it_is_settled() -> None:
    book, session = book_with()
    see(book, "_x.ai/queue/changed", queue("p1"))
    book.asked("s", 2, 1.0)
    assert session.state is State.NEEDS_INPUT
    book.asked("s", 1, 2.0)
    assert session.state is State.NEEDS_INPUT
    book.asked("s", 0, 3.0)
    assert (session.state, session.since) == (State.WORKING, 3.0)


def test_nothing_but_a_load_ends_the_lost_state() -> None:
    book, session = book_with()
    book.bridge_lost(1.0)
    see(book, "_x.ai/queue/changed", queue("p1"))
    book.asked("s", 1, 2.0)
    book.prompt_answered("s", 0, 2.0)
    assert session.state is State.LOST
    book.loaded(session, "p1", 3.0)
    assert session.state is State.WORKING


# -- subagents and others ----------------------------------------------------------------------


def test_a_subagents_session_belongs_to_its_parent_until_it_has_finished() -> None:
    book, session = book_with()
    see(book, "_x.ai/session_notification", update("subagent_spawned", child_session_id="c"))
    assert "c" in book
    assert book.get("c") is session
    assert book.family("c") == book.family("s") == {"s", "c"}
    see(book, "_x.ai/queue/changed", queue("p1"))
    child_end = update("turn_completed", session="c", prompt_id="x", stop_reason="end_turn")
    assert see(book, "_x.ai/session_notification", child_end) is None
    assert session.busy
    see(book, "_x.ai/session_notification", update("subagent_finished", child_session_id="c"))
    assert "c" not in book


def test_closing_a_session_forgets_its_subagents() -> None:
    book, _ = book_with()
    see(book, "_x.ai/session_notification", update("subagent_spawned", child_session_id="c"))
    book.detach("s")
    assert "s" not in book
    assert "c" not in book


def test_a_notification_about_sessions_is_rebuilt_with_own_ones() -> None:
    book, _ = book_with()
    mine, other = {"sessionId": "s", "title": "mine"}, {"sessionId": "t", "title": "secret"}
    params = {"upserted": [other, mine], "removed": ["t"], "more": 1}
    assert book.own_changes(params) == {"upserted": [mine], "removed": [], "more": 1}
    assert book.own_changes({"upserted": [other], "removed": []}) is None
    assert book.own_changes({"upserted": "?", "removed": [7]}) is None


@pytest.mark.parametrize(
    ("method", "kind"),
    [("session/update", "agent_message_chunk"), ("_x.ai/mcp/init_progress", ""), ("session/update", "plan")],
)
def test_the_many_other_notifications_are_not_looked_into(method: str, kind: str) -> None:
    assert not SessionBook.tells(method, kind)


@pytest.mark.parametrize(
    "params", [{}, {"sessionId": 7}, {"sessionId": "s"}, {"sessionId": "s", "update": []}]
)
def test_odd_notifications_change_nothing(params: dict[str, Any]) -> None:
    book, session = book_with()
    for method in ("_x.ai/queue/changed", "_x.ai/sessions/changed", "_x.ai/session_notification"):
        assert book.observe(method, params, 1.0) is None
    assert session.state is State.IDLE
