"""Frames in any pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.leader.frames import FrameError, FrameReader, acp, frame
from harness.limits import SIZES

_TEXT = st.text(st.characters(codec=None), max_size=40)


@given(st.lists(_TEXT, max_size=6), st.integers(1, 7))
def test_messages_survive_any_cuts(lines: list[str], step: int) -> None:
    data, reader, found = b"".join(map(acp, lines)), FrameReader(), []
    for start in range(0, len(data), step):
        found += reader.feed(data[start : start + step])
    assert [message["payload"] for message in found] == lines


@pytest.mark.parametrize(
    "data",
    [
        (SIZES.frame + 1).to_bytes(4, "big"),
        b"\0\0\0\1x",
        b"\0\0\0\2[]",
        b"\0\0\0\2{}",
        b'\0\0\0\x0a{"type":1}',
        b"\0\0\0\1\xff",
        (100_000).to_bytes(4, "big") + b"[" * 100_000,
    ],
    ids=["size", "text", "list", "no type", "type", "bytes", "deep"],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        FrameReader().feed(data)


def test_too_large_a_message_is_refused() -> None:
    with pytest.raises(FrameError, match="allowed"):
        frame({"type": "acp", "payload": "x" * SIZES.frame})
