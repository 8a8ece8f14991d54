"""Which lines of a monitor become events, and when it has to end."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.limits import LIMITS, SIZES
from harness.workspace.monitor import LineBuffer, MonitorLimiter

TICK = LIMITS.monitor_tick


def played(
    limiter: MonitorLimiter, seconds: float, data: bytes, start: float = 0.0
) -> list[tuple[float, str]]:
    """Events of a limiter that gets ``data`` at every tick."""
    events = list[tuple[float, str]]()
    for number in range(1, round(seconds / TICK) + 1):
        now = start + number * TICK
        limiter.feed(data)
        events += [(round(now, 1), text) for text in limiter.tick(now)]
    return events


@pytest.mark.parametrize(
    ("data", "event"),
    [
        (b"one\n", ["one"]),
        (b"one\ntwo\n", ["one\ntwo"]),
        (b"  one  \r\n\n \ntwo\nrest", ["one\ntwo"]),
        (b"no end", []),
        (b"\n\n", []),
        (b"x" * 600 + b"\nshort\n", ["x" * 500 + "\nshort"]),
        ("é".encode() * 400 + b"\n", ["é" * 250]),
        (b"x" + "é".encode() * 400 + b"\n", ["x" + "é" * 249]),
        (b"bad \xff end\n", ["bad  end"]),
        (b"12345678\n" * 1000, ["12345678\n" * 333 + "123"]),
    ],
)
def test_one_tick_is_one_event(data: bytes, event: list[str]) -> None:
    limiter = MonitorLimiter(0)
    limiter.feed(data)
    assert limiter.tick(TICK) == event


def test_a_line_may_come_in_pieces() -> None:
    limiter = MonitorLimiter(0)
    limiter.feed(b"be")
    assert limiter.tick(0.2) == []
    limiter.feed(b"gin\nen")
    assert limiter.tick(0.4) == ["begin"]
    assert limiter.tick(0.6) == []
    assert limiter.tick(0.8, last=True) == ["en"]


def test_slow_lines_are_never_held_back() -> None:
    limiter = MonitorLimiter(0)
    for number in range(100):
        limiter.feed(b"x\n")
        assert limiter.tick(number * 2.0) == ["x"]
    assert not limiter.stopped


def test_a_flood_is_suppressed_told_and_ended() -> None:
    limiter = MonitorLimiter(0, "kill_it")
    events = played(limiter, 40, b"flood\n")
    burst = [at for at, text in events if text == "flood" and at <= 2.0]
    assert len(burst) == 10, "a burst, before the rate counts"
    notices = [text for _, text in events if "suppressed" in text]
    assert notices[0].startswith("[")
    assert "kill_it" in notices[0]
    later = [at for at, text in events if text == "flood" and at > 4]
    assert all(round(b - a, 1) == LIMITS.monitor_refill for a, b in itertools.pairwise(later))
    at, last = events[-1]
    assert limiter.stopped
    assert last.startswith("[Monitor stopped")
    assert 32 <= at <= 33
    shown = sum(text == "flood" for _, text in events)
    counted = sum(int(text[1:].split()[0]) for text in notices[:-1])
    final = int(last.split("(")[1].split()[0])
    assert shown + counted + final == round(at / TICK)
    limiter.feed(b"more\n")
    assert limiter.tick(50) == []


def test_a_pause_ends_the_count() -> None:
    limiter = MonitorLimiter(0)
    events = played(limiter, 20, b"flood\n")
    assert "suppressed" in events[-1][1] or "suppressed" in events[-2][1]
    for number in range(4):
        limiter.feed(b"calm\n")
        assert limiter.tick(30.0 + 5 * number)[-1] == "calm"
    events = played(limiter, 25, b"flood\n", start=60)
    assert not limiter.stopped, "the thirty seconds began anew"


def test_a_flood_costs_no_memory() -> None:
    limiter = MonitorLimiter(0)
    block = b"".join(b"line %d\n" % number for number in range(10_000))
    tracemalloc.start()
    try:
        for tick in range(100):
            for _ in range(20):
                limiter.feed(block)
            limiter.tick(tick * TICK)
        assert tracemalloc.get_traced_memory()[1] < 4 * SIZES.monitor_buffer
    finally:
        tracemalloc.stop()


@given(st.lists(st.binary(max_size=50)), st.integers(1, 60))
def test_the_buffer_is_bounded(pieces: list[bytes], limit: int) -> None:
    buffer = LineBuffer(limit)
    for piece in pieces:
        buffer.feed(piece)
        assert len(buffer) <= limit
    taken = buffer.take()
    assert taken == b"" or taken.endswith(b"\n")
    assert b"\n" not in buffer.take(last=True)
    assert len(buffer) == 0


@given(st.lists(st.binary(max_size=50)), st.lists(st.booleans(), min_size=60, max_size=60))
def test_nothing_is_lost_below_the_bound(pieces: list[bytes], looks: list[bool]) -> None:
    buffer, taken = LineBuffer(), b""
    for piece, look in zip(pieces, looks, strict=False):
        buffer.feed(piece)
        if look:
            taken += buffer.take()
    taken += buffer.take() + buffer.take(last=True)
    assert taken == b"".join(pieces[: len(looks)])
