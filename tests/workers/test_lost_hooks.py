"""Hooks that were lost with a bridge: which turns are looked at, cancelled, or left alone."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.limits import LIMITS
from workers.lost_hooks import Finding, LostHooks, State

S = "session"
LOST, SILENCE = LIMITS.lost_hook, LIMITS.reattach_silence


class Watched:
    """One turn that was attached at time 0; ``waits``: something of it is open here."""

    def __init__(self) -> None:
        self.waits = False
        self.hooks = LostHooks(lambda session_id: self.waits)
        self.hooks.attached(S, 0.0)

    def actions(self, now: float) -> list[str]:
        return [finding.action for finding in self.hooks.due(now)]

    def watching(self) -> Watched:
        """Looked at, and nothing found."""
        assert self.actions(LOST) == ["look"]
        assert self.hooks.tail(S, [], LOST) is None
        return self


def entry(kind: str, call: str = "") -> dict[str, Any]:
    return {"params": {"update": {"sessionUpdate": kind, "toolCallId": call}}}


def test_a_silent_turn_is_looked_at_once() -> None:
    watched = Watched()
    assert watched.actions(LOST - 0.01) == []
    assert watched.actions(LOST) == ["look"]
    assert watched.actions(LOST + 5) == []


def test_a_streaming_turn_is_not_looked_at() -> None:
    watched = Watched()
    for tenth in range(1, 100):
        watched.hooks.heard(S, "agent_message_chunk", "", tenth / 10)
        assert watched.actions(tenth / 10) == []


def test_a_tail_that_ends_in_a_lone_call_is_a_lost_hook() -> None:
    watched = Watched()
    watched.actions(LOST)
    found = watched.hooks.tail(
        S, [entry("tool_call", "a"), entry("tool_call_update", "a"), entry("tool_call", "b")], 2
    )
    assert isinstance(found, Finding)
    assert found.action == "cancel"
    assert watched.hooks.state(S) is State.LOST
    assert watched.hooks.next_deadline() == math.inf


def test_a_lone_call_of_an_earlier_turn_is_over() -> None:
    watched = Watched()
    watched.actions(LOST)
    assert watched.hooks.tail(S, [entry("tool_call", "a"), entry("turn_completed")], 2) is None


def test_a_call_whose_hook_is_open_here_is_not_lost() -> None:
    watched = Watched()
    watched.actions(LOST)
    watched.hooks.asked(S, "a", 1.1)
    assert watched.hooks.tail(S, [entry("tool_call", "a")], 1.2) is None


def test_a_lone_call_is_judged_when_what_was_open_is_settled() -> None:
    watched = Watched()
    watched.actions(LOST)
    watched.waits = True
    assert watched.hooks.tail(S, [entry("tool_call", "a")], 2) is None
    assert watched.actions(100) == []
    watched.waits = False
    assert watched.actions(100 + LOST) == ["cancel"]


def test_no_tail_to_be_had_leaves_the_silence() -> None:
    watched = Watched()
    watched.actions(LOST)
    assert watched.hooks.tail(S, None, LOST) is None
    assert watched.actions(LOST + SILENCE) == ["cancel"]


def test_a_call_that_comes_without_its_hook_is_lost() -> None:
    watched = Watched().watching()
    watched.hooks.heard(S, "tool_call", "a", 5)
    assert watched.actions(5 + LOST - 0.01) == []
    assert watched.actions(5 + LOST) == ["cancel"]


def test_a_call_is_settled_by_its_hook_its_update_or_its_permission() -> None:
    for settle in ("asked", "tool_call_update", "pending_interaction"):
        watched = Watched().watching()
        watched.hooks.heard(S, "tool_call", "a", 5)
        if settle == "asked":
            watched.hooks.asked(S, "a", 5.1)
        else:
            watched.hooks.heard(S, settle, "a", 5.1)
        assert watched.actions(5 + 2 * LOST) == []


def test_the_hook_may_come_before_its_call() -> None:
    watched = Watched().watching()
    watched.hooks.asked(S, "a", 5)
    watched.hooks.heard(S, "tool_call", "a", 5)
    assert watched.actions(5 + 2 * LOST) == []


def test_a_turn_that_stays_silent_hangs_on_a_lost_hook() -> None:
    watched = Watched().watching()
    assert watched.actions(LOST + SILENCE - 0.01) == []
    watched.hooks.heard(S, "agent_message_chunk", "", 10)
    assert watched.actions(10 + SILENCE - 0.01) == []
    assert watched.actions(10 + SILENCE) == ["cancel"]


def test_silence_means_nothing_while_something_is_open() -> None:
    watched = Watched().watching()
    watched.waits = True
    assert watched.actions(1000) == []
    watched.waits = False
    assert watched.actions(1000 + SILENCE) == ["cancel"]


def test_what_has_ended_is_not_watched() -> None:
    watched = Watched()
    watched.hooks.ended(S)
    assert S not in watched.hooks
    assert watched.actions(1000) == []


@given(
    st.lists(
        st.tuples(st.sampled_from(["hook", "tool_call_update", "agent_message_chunk"]), st.floats(0.01, 20)),
        max_size=30,
    )
)
def test_a_lone_call_is_found_whatever_else_happens(events: list[tuple[str, float]]) -> None:
    """Nothing that is said of other calls hides one that has no hook."""
    watched = Watched().watching()
    now = 5.0
    watched.hooks.heard(S, "tool_call", "lone", now)
    found = False
    for kind, pause in events:
        now += pause
        found |= "cancel" in watched.actions(now)
        if kind == "hook":
            watched.hooks.asked(S, "other", now)
        else:
            watched.hooks.heard(S, kind, "other", now)
    found |= "cancel" in watched.actions(now + LOST)
    assert found
