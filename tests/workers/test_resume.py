"""The frame buffer: against a plain list, over a reopen, and over a SIGKILL of its writer."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.resume import FrameBuffer

SIZE = 512
FRAMES = st.lists(st.binary(max_size=200), max_size=60)


@given(FRAMES, st.integers(0, 60))
@settings(max_examples=300, deadline=None)
def test_keeps_a_suffix_of_what_was_appended(
    tmp_path_factory: pytest.TempPathFactory, frames, reopen_at
) -> None:
    path = tmp_path_factory.mktemp("ring") / "c.frames"
    buffer = FrameBuffer(path, create=True, size=SIZE)
    for count, frame in enumerate(frames, 1):
        assert buffer.append(frame) == count
        if count == reopen_at:
            buffer.close(remove=False)
            buffer = FrameBuffer(path, create=False)
        kept = list(buffer)
        assert kept == list(enumerate(frames[:count], 1))[count - len(kept) :]
        assert kept  # a frame of at most 200 bytes always fits
    for number in range(len(frames) + 1):
        since = buffer.since(number)
        first_kept = next((n for n, _ in buffer), len(frames) + 1)
        assert since == (frames[number:] if number >= first_kept - 1 else None)
    buffer.close(remove=True)
    assert not path.exists()


@given(FRAMES)
@settings(max_examples=100, deadline=None)
def test_uses_at_least_half_of_its_room(tmp_path_factory: pytest.TempPathFactory, frames) -> None:
    buffer = FrameBuffer(tmp_path_factory.mktemp("ring") / "c.frames", create=True, size=SIZE)
    for frame in frames:
        buffer.append(frame)
    kept = [frame for _, frame in buffer]
    if len(kept) < len(frames):
        dropped = frames[len(frames) - len(kept) - 1]
        assert sum(len(f) + 4 for f in [dropped, *kept]) > SIZE / 2
    buffer.close(remove=True)


def test_a_frame_larger_than_the_ring_is_counted_and_makes_the_client_too_far_behind(tmp_path: Path) -> None:
    buffer = FrameBuffer(tmp_path / "c.frames", create=True, size=SIZE)
    buffer.append(b"one")
    assert buffer.append(b"x" * SIZE) == 2
    assert buffer.since(1) is None
    assert buffer.since(2) == []
    assert buffer.append(b"three") == 3
    assert buffer.since(2) == [b"three"]
    assert buffer.since(3) == []
    assert buffer.since(4) is None
    buffer.close(remove=True)


def test_the_file_is_private_and_not_taken_over_by_a_second_creation(tmp_path: Path) -> None:
    path = tmp_path / "c.frames"
    buffer = FrameBuffer(path, create=True)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        FrameBuffer(path, create=True)
    buffer.close(remove=True)


def test_a_killed_writer_leaves_a_whole_ring(tmp_path: Path) -> None:
    for attempt in range(20):
        path = tmp_path / f"{attempt}.frames"
        FrameBuffer(path, create=True, size=SIZE).close(remove=False)
        pid = os.fork()
        if pid == 0:  # the writer: frame n is n, repeated
            buffer = FrameBuffer(path, create=False)
            number = 0
            while True:
                number += 1
                buffer.append(str(number).encode() * (number % 7))
        time.sleep(random.uniform(0.001, 0.01))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        buffer = FrameBuffer(path, create=False)
        kept = list(buffer)
        assert all(frame == str(number).encode() * (number % 7) for number, frame in kept)
        numbers = [number for number, _ in kept]
        assert numbers == list(range(buffer.last - len(kept) + 1, buffer.last + 1))
        buffer.append(b"next")
        assert list(buffer)[-1] == (buffer.last, b"next")
        buffer.close(remove=True)
