from __future__ import annotations

import logging

import pytest

from gateway.wire.limits import LIMITS, SIZES
from workers.chatter import Chatter


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def chatter(clock: Clock, caplog: pytest.LogCaptureFixture) -> Chatter:
    caplog.set_level(logging.INFO)
    return Chatter(logging.getLogger("chatter-test"), logging.INFO, clock)


def test_a_few_lines_are_logged_as_they_are(chatter: Chatter, caplog: pytest.LogCaptureFixture) -> None:
    chatter.add("bridge 7, stderr", [b"\x1b[31mError:\x1b[0m no \xff licence", b"second\tline"])
    assert caplog.messages == ["bridge 7, stderr: Error: no \ufffd licence", "bridge 7, stderr: second line"]
    assert chatter.tail == "Error: no \ufffd licence\nsecond line"


def test_a_flood_is_counted_not_logged(
    chatter: Chatter, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for n in range(SIZES.chatter * 3):
        chatter.add("x", [b"line %d" % n])
    assert len(caplog.messages) == SIZES.chatter
    clock.now += LIMITS.chatter
    chatter.add("x", [b"after the flood"])
    assert caplog.messages[-2:] == [f"x: {SIZES.chatter * 2} more lines left out", "x: after the flood"]


def test_the_end_is_kept_whatever_is_logged(chatter: Chatter) -> None:
    for n in range(10_000):
        chatter.add("x", [b"line %d" % n] * 3)
    assert chatter.tail.endswith("line 9999\nline 9999\nline 9999")
    assert len(chatter.tail) <= SIZES.stderr_tail
    chatter.add("x", [b"first", *[b"y" * 100] * 10_000, b"last"])
    assert chatter.tail.endswith("y\nlast")
    assert len(chatter.tail) <= SIZES.stderr_tail


def test_what_was_left_out_is_said_at_the_end(chatter: Chatter, caplog: pytest.LogCaptureFixture) -> None:
    chatter.add("x", [b"line"] * (SIZES.chatter + 5))
    chatter.flush("x")
    chatter.flush("x")
    assert caplog.messages[-1] == "x: 5 more lines left out"
    assert len(caplog.messages) == SIZES.chatter + 1


def test_no_line_adds_nothing(chatter: Chatter, caplog: pytest.LogCaptureFixture) -> None:
    chatter.add("x", [])
    assert (chatter.tail, caplog.messages) == ("", [])
