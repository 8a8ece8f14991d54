"""The line splitter against an oracle that sees the whole stream at once."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.wire.limits import SIZES
from gateway.wire.ndjson import LineSplitter, Overlong

BOM = b"\xef\xbb\xbf"


def oracle(stream: bytes, limit: int) -> tuple[list[bytes], list[int], bytes]:
    """Lines, sizes of overlong lines, rest."""
    *complete, rest = stream.split(b"\n")
    lines, overlong = [], []
    for number, raw in enumerate(complete):
        if len(raw) > limit:
            overlong.append(len(raw))
            continue
        line = raw.removesuffix(b"\r")
        line = line.removeprefix(BOM) if number == 0 else line
        lines += [line] if line else []
    return lines, overlong, rest


def chunks(stream: bytes, sizes: list[int]) -> list[bytes]:
    pieces, at = [], 0
    for size in itertools.cycle(sizes):
        if at >= len(stream):
            return pieces
        pieces.append(stream[at : at + size])
        at += size
    raise AssertionError


def run(splitter: LineSplitter, pieces: list[bytes]) -> list[bytes]:
    return [line for piece in pieces for line in splitter.feed(piece)]


BYTES = st.lists(
    st.one_of(
        st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", BOM, b"{}", "héllo 漢字 🎉".encode()]),
        st.binary(max_size=40),
        st.integers(0, 3000).map(lambda n: b"x" * n),
    ),
    max_size=30,
).map(b"".join)


@settings(max_examples=400, deadline=None)
@given(BYTES, st.lists(st.integers(1, 70_000), min_size=1, max_size=8), st.integers(1, 2500))
@example(b"\r\r\n", [9], 9)
def test_any_chunking_gives_the_same_lines(stream: bytes, sizes: list[int], limit: int) -> None:
    splitter = LineSplitter(limit)
    lines = run(splitter, chunks(stream, sizes))
    expected, overlong, rest = oracle(stream, limit)
    assert lines == expected
    assert [line.size for line in splitter.take_overlong()] == overlong
    assert splitter.take_overlong() == []
    if len(rest) <= limit:
        assert splitter.rest() == rest


@pytest.mark.parametrize("seed", range(3))
def test_large_random_streams(seed: int) -> None:
    rng = random.Random(seed)
    lines = [
        rng.randbytes(rng.choice((1, 50, 5_000, 200_000))).replace(b"\n", b" ") + b"." for _ in range(60)
    ]
    stream = b"".join(line + rng.choice((b"\n", b"\r\n", b"\n\n")) for line in lines)
    sizes = [rng.randint(1, 70_000) for _ in range(50)]
    assert run(LineSplitter(), chunks(stream, sizes)) == lines


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 2**20, 63 * 2**20])
@pytest.mark.parametrize("chunk", [65_536, 262_144])
def test_long_lines_arrive_whole(size: int, chunk: int) -> None:
    line = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    lines = run(LineSplitter(), chunks(b"{}\n" + line + b"\n{}\n", [chunk]))
    assert lines == [b"{}", line, b"{}"]


def test_a_character_cut_anywhere_stays_whole() -> None:
    text = '{"text":"é漢字🎉"}\n'.encode() * 3
    assert run(LineSplitter(), chunks(text, [1])) == [text.splitlines()[0]] * 3


def test_endings_empty_lines_and_byte_order_mark() -> None:
    splitter = LineSplitter()
    stream = BOM + b'{"a":1}\r\n\n\r\n{"b":"\\r"}\n' + BOM + b"x\ny\rz\r\r\nrest"
    assert run(splitter, [stream]) == [b'{"a":1}', b'{"b":"\\r"}', BOM + b"x", b"y\rz\r"]
    assert splitter.rest() == b"rest"
    assert run(LineSplitter(), chunks(stream, [1])) == [b'{"a":1}', b'{"b":"\\r"}', BOM + b"x", b"y\rz\r"]


@pytest.mark.parametrize("chunk", [1, 7, 5_000, 20_000])
def test_the_limit_is_exact_and_the_next_line_survives(chunk: int) -> None:
    splitter = LineSplitter(1000)
    stream = b"a" * 1000 + b"\n" + b"b" * 1001 + b"\n" + b"c" * 4000 + b"\r\n{}\n"
    assert run(splitter, chunks(stream, [chunk])) == [b"a" * 1000, b"{}"]
    first, second = splitter.take_overlong()
    assert first == Overlong(1001, first.head)
    assert second == Overlong(4001, second.head)
    assert b"b" * len(first.head) == first.head
    assert b"c" * len(second.head) == second.head
    assert len(first.head) <= SIZES.overlong_head


def test_an_overlong_line_gives_its_memory_back_before_it_ends() -> None:
    splitter = LineSplitter(1000)
    head = b'{"jsonrpc":"2.0","id":7,'
    splitter.feed(head)
    for _ in range(1000):
        assert splitter.feed(b"x" * 10_000) == []
    assert len(splitter.rest()) <= SIZES.overlong_head
    assert splitter.feed(b"\n{}\n") == [b"{}"]
    (overlong,) = splitter.take_overlong()
    assert overlong == Overlong(len(head) + 10_000_000, overlong.head)
    assert overlong.head.startswith(head)


def test_a_long_line_in_small_reads_costs_linear_work() -> None:
    """Searching or copying what came before at each read would be 2 * 10^12 bytes: the suite's
    timeout would end it."""
    pieces = [b"y" * 100] * 200_000
    assert run(LineSplitter(), [*pieces, b"\n"]) == [b"y" * 20_000_000]
