"""Time limits: who asks for what, and what comes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.workspace.terminal.timing import Deadline, TimingPolicy, resolve

HOUR = 3600
MOVING = TimingPolicy()
KILLING = TimingPolicy(auto_background=False)
SHORT = TimingPolicy(auto_background=False, ceiling=300)


@pytest.mark.parametrize(
    ("requested", "background", "policy", "expected"),
    [
        (None, False, MOVING, Deadline(10 * HOUR, move=15)),
        (0, False, MOVING, Deadline(10 * HOUR, move=15)),
        (700, False, MOVING, Deadline(10 * HOUR, move=0.7)),
        (99_000, False, MOVING, Deadline(10 * HOUR, move=15)),
        (99_000, False, TimingPolicy(block_budget=0), Deadline(10 * HOUR, move=99)),
        (None, False, TimingPolicy(block_budget=0), Deadline(10 * HOUR, move=120)),
        (None, False, KILLING, Deadline(120)),
        (0, False, KILLING, Deadline(120)),
        (250, False, KILLING, Deadline(0.25)),
        (HOUR * 1000, False, KILLING, Deadline(300)),
        (HOUR * 1000, False, TimingPolicy(default=500, auto_background=False), Deadline(500)),
        (290_000, False, SHORT, Deadline(290)),
        (310_000, False, SHORT, Deadline(300)),
        (None, True, MOVING, Deadline(10 * HOUR)),
        (0, True, KILLING, Deadline(10 * HOUR)),
        (1500, True, SHORT, Deadline(1.5)),
        (11 * HOUR * 1000, True, MOVING, Deadline(10 * HOUR)),
    ],
)
def test_table(requested: int | None, background: bool, policy: TimingPolicy, expected: Deadline) -> None:
    assert resolve(requested, background=background, policy=policy) == expected


@given(
    st.none() | st.integers(0, 10**12),
    st.booleans(),
    st.builds(
        TimingPolicy,
        default=st.floats(1, 10**6),
        ceiling=st.floats(1, 10**6),
        auto_background=st.booleans(),
        block_budget=st.floats(0, 10**4),
    ),
)
def test_nothing_runs_longer_than_the_cap(
    requested: int | None, background: bool, policy: TimingPolicy
) -> None:
    deadline = resolve(requested, background=background, policy=policy)
    assert deadline.kill is not None
    assert 0 < deadline.kill <= 10 * HOUR
    assert deadline.move is None or 0 < deadline.move <= policy.ceiling
    assert (deadline.move is not None) == (policy.auto_background and not background)
