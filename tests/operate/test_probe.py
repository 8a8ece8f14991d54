"""Decisions of the watchdog, without a process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.operate.probe import ProbeBook
from gateway.wire.limits import LIMITS
from gateway.wire.process import Identity

ONE, OTHER = Identity(100, 1.0), Identity(100, 2.0)  # one pid, two processes


def book() -> ProbeBook:
    made = ProbeBook()
    made.present(0, {"worker": ONE})
    return made


#: (what happens: seconds, event), state afterwards
STORIES = [
    ([], "unproven"),
    ([(5, "answered")], "answering"),
    ([(5, "missed")], "silent"),
    ([(5, "missed"), (10, "missed")], "silent"),
    ([(5, "missed"), (10, "missed"), (15, "missed")], "hung"),
    ([(5, "answered"), (10, "missed"), (15, "missed")], "silent"),
    ([(5, "answered"), (10, "missed"), (15, "missed"), (20, "missed")], "hung"),
    ([(5, "missed"), (10, "missed"), (14, "answered")], "answering"),
    ([(5, "missed"), (10, "missed"), (14, "answered"), (19, "missed")], "silent"),
    ([(5, "missed"), (10, "missed"), (15, "missed"), (16, "answered")], "answering"),
    ([(5, "missed"), (10, "missed"), (15, "missed"), (20, "missed")], "hung"),
    # one look after a long sleep of the watchdog is not proof of anything
    ([(5, "answered"), (3600, "missed")], "silent"),
    ([(5, "answered"), (3600, "missed"), (3601, "answered")], "answering"),
]


@pytest.mark.parametrize(("story", "state"), STORIES)
def test_story(story: list[tuple[float, str]], state: str) -> None:
    made = book()
    for now, event in story:
        if event == "answered":
            made.answered(now, "worker", ONE)
        else:
            verdict = made.missed(now, "worker", ONE)
            assert verdict is (made.state("worker") == "hung")
    assert made.state("worker") == state
    assert ("worker" in made.hung()) is (state == "hung")


def test_a_new_process_starts_with_a_clean_sheet() -> None:
    made = book()
    for now in (5, 10, 15):
        made.missed(now, "worker", ONE)
    made.present(16, {"worker": OTHER})
    assert (made.state("worker"), made.hung()) == ("unproven", {})


def test_a_result_about_an_earlier_process_counts_for_nobody() -> None:
    made = book()
    made.present(1, {"worker": OTHER})
    assert not any(made.missed(now, "worker", ONE) for now in (5, 10, 15, 20))
    made.answered(21, "worker", ONE)
    assert made.state("worker") == "unproven"


def test_a_stopped_component_is_forgotten() -> None:
    made = book()
    for now in (5, 10, 15):
        made.missed(now, "worker", ONE)
    made.present(16, {})
    assert (made.state("worker"), made.hung()) == (None, {})


def test_reason_is_for_people() -> None:
    made = book()
    for now in (5, 10, 15):
        made.missed(now, "worker", ONE)
    assert made.hung() == {"worker": "no answer for 15 s"}


@given(st.lists(st.tuples(st.floats(0.1, 100), st.booleans()), max_size=40))
def test_never_hung_without_patience_of_silence(steps: list[tuple[float, bool]]) -> None:
    """Whatever the pauses: hung means two misses and the patience since the last sign of life."""
    made, now, heard, misses = book(), 0.0, 0.0, 0
    for pause, answered in steps:
        now += pause
        if answered:
            made.answered(now, "worker", ONE)
            heard, misses = now, 0
        else:
            misses += 1
            if made.missed(now, "worker", ONE):
                assert misses >= 2
                assert now - heard > LIMITS.worker_hang - LIMITS.probe_interval
