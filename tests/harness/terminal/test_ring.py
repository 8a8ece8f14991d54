"""What is kept of an output, however it comes in pieces."""

from __future__ import annotations

import itertools
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from harness.workspace.terminal.ring import CUT_MARK, OutputRing


def rendered(data: bytes, limit: int) -> str:
    """The rule, applied to the whole output at once."""
    text, half = data.decode("utf-8", "replace"), limit // 2
    if len(text) <= limit:
        return text
    return f"{text[:half].rstrip()}\n\n{CUT_MARK}\n\n{text[-half:].lstrip()}"


@given(st.binary(max_size=400), st.lists(st.integers(0, 400)), st.integers(2, 100))
def test_pieces_do_not_matter(data: bytes, cuts: list[int], limit: int) -> None:
    ring = OutputRing(limit)
    edges = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    for start, end in itertools.pairwise(edges):
        ring.feed(data[start:end])
    ring.feed(b"", final=True)
    assert ring.render() == rendered(data, limit)
    assert ring.total_bytes == len(data)
    assert ring.truncated == (len(data.decode("utf-8", "replace")) > limit)


@given(st.text(max_size=300), st.integers(2, 60), st.booleans())
def test_a_byte_at_a_time(text: str, limit: int, looked_at: bool) -> None:
    data, ring = text.encode(), OutputRing(limit)
    for i in range(len(data)):
        ring.feed(data[i : i + 1])
        if looked_at:
            assert len(ring.tail()) <= limit
    ring.feed(b"", final=True)
    assert ring.render() == rendered(data, limit)


def test_a_long_output_costs_no_memory() -> None:
    ring = OutputRing(20_000)
    line = b"x" * 99 + b"\n"
    tracemalloc.start()
    try:
        for _ in range(200_000):
            ring.feed(line)
        assert ring.total_bytes == 20_000_000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    assert len(ring.render()) == 20_000 + len(CUT_MARK) + 4 - 1  # the line end at the seam is trimmed
