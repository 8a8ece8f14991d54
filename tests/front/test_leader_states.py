"""The leader's states, without a loop and without a process."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.front.leader import (
    Acquire,
    Action,
    Adopted,
    Answered,
    Close,
    End,
    Event,
    Exited,
    Failed,
    Gone,
    LeaderMachine,
    Missed,
    Pause,
    Restart,
    Spawned,
    Start,
    TimedOut,
    TimerFired,
    Watch,
)
from gateway.wire.limits import LIMITS, SIZES, Limits

EVENTS: list[type[Event]] = [
    Start,
    Adopted,
    Spawned,
    Answered,
    Missed,
    Failed,
    TimedOut,
    Exited,
    Gone,
    TimerFired,
    Restart,
]


class Driver:
    """A machine with a clock; ``actions`` are what it asked for."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.machine, self.now = LeaderMachine(limits), 1000.0
        self.actions = list[Action | None]()

    def __call__(self, *events: Event) -> Action | None:
        for event in events:
            self.actions.append(self.machine.handle(event, self.now))
        return self.actions[-1]

    @property
    def state(self) -> str:
        return self.machine.state

    def become_ready(self) -> None:
        self(Spawned(), Answered())
        assert self.state == "ready"


@pytest.fixture
def driver() -> Driver:
    return Driver()


def started() -> Driver:
    driver = Driver()
    assert driver(Start()) == Acquire()
    return driver


def test_a_plain_life(driver: Driver) -> None:
    assert driver(Start()) == Acquire()
    assert driver(Spawned()) is None
    assert driver(Answered()) == Watch()
    assert driver(Answered()) is None
    assert driver(Exited("killed")) == End()
    assert driver.machine.reason == "killed"
    assert driver(Gone()) == Acquire()
    assert driver(Adopted(), Answered()) == Watch()
    assert (driver.machine.starts, driver.machine.adopted, driver.machine.reason) == (1, True, "")


def test_an_exit_seen_twice_restarts_once() -> None:
    driver = started()
    driver.become_ready()
    assert driver(Exited("a")) == End()
    assert driver(Exited("b"), Failed("c"), TimedOut("d"), Missed("e")) is None
    assert driver.state == "lost"
    assert driver.machine.reason == "a"


@pytest.mark.parametrize("failure", [Failed("no"), TimedOut("slow"), Exited("gone")])
def test_whatever_goes_wrong_at_the_start_what_is_left_is_ended_first(failure: Event) -> None:
    driver = started()
    driver(Spawned())
    assert driver(failure) == End()
    assert driver(Gone()) == Pause(LIMITS.backoff_first)
    assert driver.machine.reason == failure.reason


def test_only_misses_in_a_row_count() -> None:
    driver = started()
    driver.become_ready()
    for _ in range(3):
        for _ in range(SIZES.probe_misses - 1):
            assert driver(Missed("late")) is None
        assert driver.machine.misses == SIZES.probe_misses - 1
        assert driver(Answered()) is None
        assert (driver.machine.misses, driver.machine.reason) == (0, "")
    for _ in range(SIZES.probe_misses - 1):
        driver(Missed("late"))
    assert driver(Missed("no answer")) == End()
    assert (driver.state, driver.machine.reason) == ("lost", "no answer")


def test_a_fresh_leader_starts_with_no_misses() -> None:
    driver = started()
    driver.become_ready()
    driver(*[Missed()] * SIZES.probe_misses, Gone())
    driver.become_ready()
    assert driver(Missed()) is None


def test_pauses_double_up_to_the_last() -> None:
    limits = dataclasses.replace(LIMITS, circuit_window=1)
    driver = Driver(limits)
    driver(Start())
    pauses = []
    for _ in range(12):
        pause = driver(Failed(), Gone())
        assert isinstance(pause, Pause)
        pauses.append(pause.seconds)
        driver.now += 10  # every start is outside of the window: the circuit stays closed
        driver(TimerFired())
    assert pauses[:4] == [0.5, 1, 2, 4]
    assert pauses[-1] == limits.backoff_last
    assert pauses == sorted(pauses)


def test_the_first_loss_of_a_leader_that_worked_is_not_paused_for_the_next_ones_are() -> None:
    driver = started()
    driver.become_ready()
    assert driver(Exited(), Gone()) == Acquire()
    driver.become_ready()
    assert driver(Exited(), Gone()) == Pause(LIMITS.backoff_first)
    driver(TimerFired())
    driver.become_ready()
    assert driver(Exited(), Gone()) == Pause(LIMITS.backoff_first * 2)


def test_a_stable_leader_wipes_the_history() -> None:
    driver = started()
    for _ in range(3):
        driver(Failed(), Gone(), TimerFired())
    driver.become_ready()
    driver.now += LIMITS.circuit_window
    assert driver(Exited(), Gone()) == Acquire()


def open_circuit() -> Driver:
    driver = started()
    for _ in range(SIZES.leader_starts - 1):
        assert isinstance(driver(Failed("it burns"), Gone()), Pause)
        driver(TimerFired())
    assert driver(Failed("it burns"), Gone()) == Pause(LIMITS.circuit_rest)
    return driver


def test_too_many_starts_open_the_circuit() -> None:
    driver = open_circuit()
    assert driver.state == "broken"
    assert sum(action == Acquire() for action in driver.actions) == SIZES.leader_starts
    for part in ("it burns", "5 starts within 60 s", "next try in 60 s", "grok-gateway restart leader"):
        assert part in driver.machine.reason


def test_a_crash_loop_of_leaders_that_come_up_opens_it_too() -> None:
    driver = started()
    for _ in range(SIZES.leader_starts):
        driver.become_ready()
        driver(Exited(), Gone())
        if driver.state == "backoff":
            driver(TimerFired())
    assert driver.state == "broken"


def test_an_open_circuit_allows_one_trial() -> None:
    driver = open_circuit()
    driver.now += LIMITS.circuit_rest
    assert driver(TimerFired()) == Acquire()
    assert driver(Failed("still burns"), Gone()) == Pause(LIMITS.circuit_rest)
    assert "trial" in driver.machine.reason
    driver.now += LIMITS.circuit_rest
    driver(TimerFired())
    driver.become_ready()
    assert driver.machine.reason == ""


def test_starts_spread_over_time_do_not_open_it() -> None:
    driver = started()
    for _ in range(3 * SIZES.leader_starts):
        driver.now += LIMITS.circuit_window / 2
        driver(Failed(), Gone(), TimerFired())
    assert driver.state == "starting"


def test_a_planned_restart_is_no_failure() -> None:
    driver = started()
    for _ in range(2 * SIZES.leader_starts):
        driver.become_ready()
        assert driver(Restart("asked")) == End()
        assert driver(Restart("asked again")) is None
        assert driver(Gone()) == Acquire()
    assert driver.state == "starting"


def test_a_restart_joins_a_start_and_does_not_wait_for_a_pause() -> None:
    driver = started()
    assert driver(Restart()) is None
    driver(Failed(), Gone())
    assert driver.state == "backoff"
    assert driver(Restart()) == Acquire()
    broken = open_circuit()
    assert broken(Restart()) == Acquire()
    assert broken(Failed("no better"), Gone()) == Pause(LIMITS.circuit_rest), "it was the trial"


def test_a_loss_during_which_a_restart_is_asked_for_is_followed_by_it_at_once() -> None:
    driver = started()
    driver(Failed())
    driver(Restart())
    assert driver(Gone()) == Acquire()


def test_closing_ends_everything_from_every_state() -> None:
    for prefix in (
        [],
        [Start()],
        [Start(), Answered()],
        [Start(), Failed()],
        [Start(), Failed(), Gone()],
    ):
        driver = Driver()
        driver(*prefix, Close("the front stops"))
        assert (driver.state, driver.machine.reason) == ("absent", "the front stops")
        for event in EVENTS:
            if event not in (Start, Restart):
                assert driver(event()) is None
        assert driver.state == "absent"


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.floats(0, 40)), max_size=60))
def test_any_order_of_events(events: list[tuple[type[Event], float]]) -> None:
    """A change of state brings its activity, no change brings none, and starts stay bounded."""
    expected = {"starting": Acquire, "ready": Watch, "lost": End, "backoff": Pause, "broken": Pause}
    driver = Driver()
    starts = list[float]()
    for kind, wait in events:
        driver.now += wait
        before = driver.state
        action = driver(kind())
        if driver.state == before:
            assert action is None
            continue
        assert type(action) is expected[driver.state]
        if isinstance(action, Pause):
            assert 0 < action.seconds <= max(LIMITS.backoff_last, LIMITS.circuit_rest)
        if kind is Restart:
            starts.clear()
        if driver.state == "starting":
            starts.append(driver.now)
        if before == "ready" and driver.state == "lost":
            starts.clear()  # it may have been stable, or be replaced as planned
        for first, last in itertools.pairwise(starts[:: SIZES.leader_starts]):
            assert last - first >= LIMITS.circuit_window
