"""What of a session's updates is kept, and what a load makes of it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.session import history, transcript
from harness.session.conversation import Conversation
from harness.session.history import Entry, Text, replay
from harness.session.updates import Update, Updates
from harness.session.usage import TurnUsage

SESSION = "0190aaaa-0000-7000-8000-000000000000"


def entries(*told: Update) -> list[Entry]:
    return [history.entry(u.method, u.params, 1) for u in told]


def shown(found: list[Entry], **options: Any) -> list[dict[str, Any]]:
    return [params["update"] for _, params in replay(found, **options)]


def ended(updates: Updates, call_id: str, status: str) -> Update:
    return updates._call_update({"toolCallId": call_id, "status": status}, None)


def turn_completed(updates: Updates) -> Update:
    return updates.turn_completed("p", "end_turn", TurnUsage(), {}, {})


def user(updates: Updates, text: str, index: int) -> Update:
    return updates.user_message(text, "m", index, hidden=False)


def test_what_only_passes_is_not_kept() -> None:
    updates = Updates(SESSION)
    passing = [
        updates.pending("c", "permission"),
        updates.queue([], None),
        updates.commands((), ()),
        updates.model_changed("m", None),
        *updates.title("t"),
        updates.tool_call_progress("c", [], {}),
    ]
    assert not any(history.is_kept(update) for update in passing)
    kept = [
        updates.message("a"),
        turn_completed(updates),
        updates.mode("plan"),
        updates.plan([], at_end=True),
    ]
    assert all(history.is_kept(update) for update in kept)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=20))
def test_chunks_become_one_with_the_numbers_of_the_last(texts: list[str]) -> None:
    updates = Updates(SESSION)
    first, *rest = [updates.message(text) for text in texts]
    text = Text(first.params)
    for chunk in rest:
        assert text.takes(chunk.params)
        text.add(chunk.params)
    whole = text.whole()
    assert whole["update"]["content"]["text"] == "".join(texts)
    last = [first, *rest][-1].params["_meta"]
    assert whole["_meta"]["eventId"] == last["eventId"]
    assert whole["_meta"]["chunkId"] == len(texts)
    assert not text.takes(updates.thought("x").params)


def test_a_call_is_shown_once_where_its_last_news_came() -> None:
    updates = Updates(SESSION)
    card = {"x.ai/tool": {"name": "t"}}
    told = entries(
        updates.tool_call("c", "t", {"a": 1}, card["x.ai/tool"]),
        updates.tool_call("d", "t", {}, None),
        ended(updates, "d", "failed"),
        ended(updates, "c", "completed"),
        updates.message("x"),
    )
    d, c, text = shown(told)
    assert (d["toolCallId"], d["status"], c["toolCallId"], c["status"]) == ("d", "failed", "c", "completed")
    assert c["sessionUpdate"] == "tool_call"
    assert c["rawInput"] == {"a": 1}
    assert c["_meta"] == card
    assert text["content"]["text"] == "x"


def test_a_call_without_an_end_failed_with_its_turn_and_is_left_out_while_it_waits_to_be_allowed() -> None:
    updates = Updates(SESSION)
    told = entries(
        updates.tool_call("c", "t", {}, None),
        turn_completed(updates),
        updates.tool_call("c", "t", {}, None),  # a model that numbers its calls anew in each turn
        updates.tool_call("d", "t", {}, None),
    )
    calls = [u for u in shown(told, running=True, asked={"d"}) if u["sessionUpdate"] == "tool_call"]
    assert [(call["toolCallId"], call["status"]) for call in calls] == [("c", "failed"), ("c", "pending")]
    assert {u.get("status") for u in shown(told)} == {"failed", None}


def test_replays_are_marked_and_stamped_and_begin_behind_a_cursor() -> None:
    updates = Updates(SESSION)
    told = entries(updates.message("a"), turn_completed(updates), updates.message("b"))
    found = list(replay(told, stamp={"x.ai/leaderClientId": "x"}))
    assert [method for method, _ in found] == ["session/update", history.KEPT, "session/update"]
    assert all(params["_meta"]["isReplay"] for _, params in found)
    assert all(params["_meta"]["x.ai/leaderClientId"] == "x" for _, params in found)
    (behind,) = replay(told, after=1)
    assert behind[1]["update"]["content"]["text"] == "b"
    assert "isReplay" not in behind[1]["_meta"]  # to this client it is news


def test_what_a_process_left_is_found() -> None:
    updates = Updates(SESSION)
    backgrounded = updates.own_method("_x.ai/task_backgrounded", "task_backgrounded", {"task_id": "T"})
    told = entries(
        user(updates, "a", 0),
        updates.tool_call("old", "t", {}, None),
        turn_completed(updates),
        backgrounded,
        user(updates, "b", 1),
        updates.tool_call("c", "t", {}, None),
        ended(updates, "c", "completed"),
        updates.tool_call("d", "t", {}, None),
    )
    found = history.lost(told)
    assert (found.turn, found.calls, [task["task_id"] for task in found.tasks]) == (True, ("d",), ["T"])
    completed = updates.own_method("m", "task_completed", {"task_snapshot": {"task_id": "T"}})
    assert history.lost([*told, *entries(turn_completed(updates), completed)]) == history.Lost(False, (), ())
    assert history.prompt_starts(told) == [0, 4]
    assert history.turns_begun(told) == 2


_TEXTS = st.text(max_size=10)
_MESSAGES = st.lists(
    st.one_of(
        st.tuples(st.just("user"), _TEXTS), st.tuples(st.just("answer"), _TEXTS, _TEXTS, st.integers(0, 3))
    ),
    max_size=8,
)


@given(_MESSAGES, st.integers(0, 30))
def test_a_conversation_comes_back_and_is_closed_wherever_it_was_cut(script: list[Any], cut: int) -> None:
    messages = list[dict[str, Any]]()
    for number, step in enumerate(script):
        if step[0] == "user":
            messages.append({"role": "user", "content": step[1]})
            continue
        _, text, thought, count = step
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if thought:
            message["reasoning_content"] = thought
        ids = [f"c{number}-{i}" for i in range(count)]
        if ids:
            function = {"name": "t", "arguments": "{}"}
            message["tool_calls"] = [{"id": i, "type": "function", "function": function} for i in ids]
        messages.append(message)
        messages += [{"role": "tool", "tool_call_id": i, "content": "r"} for i in ids]
    lines = [line for message in messages for line in transcript.to_lines(message, "m")]
    assert transcript.from_lines(json.loads(json.dumps(lines))) == messages

    found = transcript.from_lines(lines[:cut])
    found += transcript.closing(found, interrupted=True)
    called = [call["id"] for message in found for call in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in found if message["role"] == "tool"]
    assert called == answered
    Conversation([], found).add_user("next")
