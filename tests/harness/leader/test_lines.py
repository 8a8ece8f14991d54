"""Lines in any pieces, and lines that are too long."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.leader.lines import LineReader

LIMIT = 8


def read(data: bytes, step: int) -> list[bytes | None]:
    reader, found = LineReader(LIMIT), list[bytes | None]()
    for start in range(0, len(data), step):
        found += reader.feed(data[start : start + step])
    return found


_LINE = st.binary(max_size=2 * LIMIT).map(lambda line: line.replace(b"\n", b""))


@given(st.lists(_LINE, max_size=8), st.integers(1, 9))
def test_lines_survive_any_cuts_and_those_too_long_are_told_once(lines: list[bytes], step: int) -> None:
    data = b"".join(line + b"\n" for line in lines)
    assert read(data, step) == [line if len(line) <= LIMIT else None for line in lines]


@pytest.mark.parametrize("step", [1, 5, 100])
def test_a_line_without_its_end_is_no_line_but_too_long_at_once(step: int) -> None:
    assert read(b"a\nbc", step) == [b"a"]
    assert read(b"a\n" + b"x" * 30, step) == [b"a", None]


def test_a_piece_of_a_long_line_costs_no_copy_of_the_line() -> None:
    reader, piece, pieces = LineReader(1 << 30), b"x" * 4096, 1000
    for _ in range(pieces):
        assert reader.feed(piece) == []
    tracemalloc.start()
    try:
        assert reader.feed(piece) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < pieces * len(piece) // 10
    assert reader.feed(b"\n") == [piece * (pieces + 1)]
