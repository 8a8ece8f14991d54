"""The clocks of a socket, without a socket."""

from __future__ import annotations

import dataclasses
import math

import pytest

from gateway.wire.limits import LIMITS
from workers.liveness import Liveness

ROWS = dataclasses.replace(LIMITS, ping_interval=20, ping_timeout=20, write=10)


@pytest.fixture
def clocks() -> Liveness:
    made = Liveness(100, ROWS)
    made.listen(100)
    return made


def test_a_ping_after_the_interval_and_the_end_after_the_timeout(clocks: Liveness) -> None:
    assert clocks.check(119.9) == "fine"
    assert clocks.next_check() == 120
    assert clocks.check(120) == "ping"
    clocks.pinged(120)
    assert clocks.check(139.9) == "fine"
    assert clocks.next_check() == 140
    assert clocks.check(140) == "silent"


def test_a_byte_after_the_ping_begins_anew(clocks: Liveness) -> None:
    assert not clocks.heard(101)
    clocks.pinged(120)
    assert clocks.heard(139)
    assert not clocks.heard(139)
    assert clocks.check(158.9) == "fine"
    assert clocks.check(159) == "ping"


def test_blocked_data_that_moves_puts_the_end_off(clocks: Liveness) -> None:
    """A client that reads 60 MiB at 1 MiB/s sees our ping after a minute."""
    clocks.pinged(120)
    for second in range(120, 180):
        clocks.blocked(float(second))
        assert clocks.check(second + 0.5) == "fine"
    clocks.blocked(None)
    assert clocks.check(198.9) == "fine"
    assert clocks.check(199) == "silent"


def test_data_that_stands_still(clocks: Liveness) -> None:
    clocks.blocked(105)
    assert clocks.next_check() == 115
    assert clocks.check(114.9) == "fine"
    assert clocks.check(115) == "stalled"
    clocks.blocked(None)
    assert clocks.check(115) == "fine"


def test_a_bound_phase(clocks: Liveness) -> None:
    clocks.bound(103)
    assert clocks.next_check() == 103
    assert clocks.check(103) == "overdue"
    clocks.bound(math.inf)
    assert clocks.check(103) == "fine"


def test_nobody_is_suspected_while_reading_is_paused(clocks: Liveness) -> None:
    clocks.pinged(120)
    clocks.deafen()
    assert clocks.check(1000) == "fine"
    assert clocks.next_check() == math.inf
    clocks.listen(1000)
    assert clocks.check(1019.9) == "fine"
    assert clocks.check(1020) == "ping"


def test_before_it_listens_only_bounds_count() -> None:
    clocks = Liveness(100, ROWS)
    assert clocks.next_check() == math.inf
    clocks.bound(105)
    assert clocks.check(105) == "overdue"
