"""The server frames of one connection, kept for a client that comes back.

The buffer is a ring in a shared memory map of a file beside the connection's journal, so that it
outlives the worker: after a SIGKILL another worker opens the file and goes on exactly where the
client's count says, without asking Grok for anything that the client has already been sent.  The
page cache survives any kill; nothing is ever synced to disk.  Like the journal the file is 0600 in
a 0700 folder and is removed with the connection.

Layout: two header slots, then the ring.  A header holds the counters below and a checksum; a write
goes to the older slot, so that a kill in the middle of it leaves the other one valid.  A record is
written before the header that makes it part of the ring.

Frames are numbered from 1 for the life of the connection, whatever worker sent them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from gateway.wire.limits import SIZES

__all__ = ["FrameBuffer"]

#: version, first kept frame, next frame, offset of the first, offset of the end (all within the ring)
_COUNTERS = struct.Struct("<QQQQQ")
_CHECKSUM = struct.Struct("<I")
_LENGTH = struct.Struct("<I")
_SLOT = 64
_RING = 2 * _SLOT
#: stands for a length: the next record is at the start of the ring
_WRAP = 0xFFFFFFFF


class FrameBuffer:
    """A bounded memory of the newest frames.  ``size`` bytes, old frames make way for new ones."""

    def __init__(self, path: Path, *, create: bool, size: int = SIZES.resume_buffer) -> None:
        """Raises OSError when the file cannot be made, FileNotFoundError when there is none to open."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        fd = os.open(path, flags, 0o600)
        try:
            if create:
                os.ftruncate(fd, _RING + size)  # sparse: a quiet connection takes two pages
            self._map = mmap.mmap(fd, 0)
        finally:
            os.close(fd)
        self._path = path
        self._size = len(self._map) - _RING
        self._version, self._first, self._next, self._start, self._end = self._newest_header()

    @property
    def last(self) -> int:
        """Number of the newest frame; 0 before the first."""
        return self._next - 1

    def append(self, frame: bytes) -> int:
        """Keep a frame; its number.  A frame larger than the ring is counted but not kept."""
        need = _LENGTH.size + len(frame)
        if need + _LENGTH.size > self._size:
            self._next += 1
            self._first, self._start = self._next, self._end
        else:
            first = self._first
            position = self._room(need)
            if first != self._first:  # what is about to be overwritten must not be in the ring any more
                self._write_header()
            _LENGTH.pack_into(self._map, _RING + position, len(frame))
            self._map[_RING + position + _LENGTH.size : _RING + position + need] = frame
            self._end = position + need
            self._next += 1
        self._write_header()
        return self._next - 1

    def since(self, number: int) -> list[bytes] | None:
        """The frames after ``number``; None if some of them are no longer kept or never existed."""
        if not self._first - 1 <= number < self._next:
            return None
        return [frame for current, frame in self if current > number]

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """The kept frames with their numbers, oldest first."""
        position = self._start
        for number in range(self._first, self._next):
            position, length = self._record(position)
            body = _RING + position + _LENGTH.size
            yield number, self._map[body : body + length]
            position += _LENGTH.size + length

    def close(self, *, remove: bool) -> None:
        """Release the map; ``remove`` also the file."""
        self._map.close()
        if remove:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    def _room(self, need: int) -> int:
        """Drop old frames until ``need`` bytes in one piece are free; where they are."""
        while True:
            if self._first == self._next:
                self._start = self._end = 0
                return 0
            if self._start < self._end:
                if self._end + need <= self._size:
                    return self._end
                if need < self._start:
                    if self._end + _LENGTH.size <= self._size:
                        _LENGTH.pack_into(self._map, _RING + self._end, _WRAP)
                    return 0
            elif self._end + need < self._start:  # strictly: equal offsets mean an empty ring
                return self._end
            need = max(need, self._size // 64)  # drop a few at once: each drop costs a header
            position, length = self._record(self._start)
            self._start = position + _LENGTH.size + length
            self._first += 1
            if self._first < self._next:
                self._start, _ = self._record(self._start)

    def _record(self, position: int) -> tuple[int, int]:
        """Where the record at ``position`` really is (it may have wrapped), and its length."""
        if position + _LENGTH.size <= self._size:
            (length,) = _LENGTH.unpack_from(self._map, _RING + position)
            if length != _WRAP:
                return position, length
        (length,) = _LENGTH.unpack_from(self._map, _RING)
        return 0, length

    def _newest_header(self) -> tuple[int, int, int, int, int]:
        headers = [(0, 1, 1, 0, 0)]
        for slot in (0, _SLOT):
            counters = self._map[slot : slot + _COUNTERS.size]
            (checksum,) = _CHECKSUM.unpack_from(self._map, slot + _COUNTERS.size)
            if zlib.crc32(counters) == checksum and any(counters):
                headers.append(_COUNTERS.unpack(counters))
        return max(headers)

    def _write_header(self) -> None:
        self._version += 1
        counters = _COUNTERS.pack(self._version, self._first, self._next, self._start, self._end)
        slot = _SLOT * (self._version & 1)
        self._map[slot : slot + _SLOT] = (counters + _CHECKSUM.pack(zlib.crc32(counters))).ljust(_SLOT, b"\0")
