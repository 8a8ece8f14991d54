"""A file of JSON lines that only grows.

Every line is one ``write``: what was written survives the process however it ends, because the kernel has
it; only a line that the end cut in two is lost, and the next opening takes it away.  Nothing is synced to
the disk: a power cut may cost the last seconds, a sync for each chunk of a text would cost every session.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from harness.limits import SIZES

__all__ = ["AppendFile", "dump"]

_LOG = logging.getLogger("store")


def dump(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError):  # lone surrogates: names of files that are no UTF-8
        return json.dumps(value, default=str, separators=(",", ":")).encode()


def _load(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(line)


class AppendFile:
    """Open for one process at a time.  Raises BlockingIOError when another one has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.size = self._mended()
        except BaseException:
            os.close(self._fd)
            raise
        self._broken = False

    def append(self, *lines: bytes) -> None:
        """Add lines, all or none.  A disk that takes no more costs the history, never the turn."""
        data = b"".join(line + b"\n" for line in lines)
        try:
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError as error:
            if not self._broken:
                _LOG.error("%s: %s; what comes now is not kept", self.path, error.strerror)
            self._broken = True
            os.ftruncate(self._fd, self.size)
            return
        self._broken = False
        self.size += len(data)

    def values(self, start: int = 0, end: int | None = None) -> list[Any]:
        """The lines between two offsets; those that are no JSON objects or arrays are passed over."""
        return list(_values(self.raw(start, end)))

    def clear(self) -> None:
        os.ftruncate(self._fd, 0)
        self.size = 0

    def replace(self, data: bytes) -> None:
        """Other content; a process that ends meanwhile leaves the old file or the new."""
        temporary = self.path.with_name(self.path.name + ".new")
        fresh = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fresh, fcntl.LOCK_EX | fcntl.LOCK_NB)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fresh, rest) :]
            temporary.rename(self.path)
        except BaseException:
            os.close(fresh)
            raise
        os.close(self._fd)
        self._fd = fresh
        self.size = len(data)

    def raw(self, start: int, end: int | None = None) -> bytes:
        """The bytes between two offsets."""
        end = self.size if end is None else end
        parts = list[bytes]()
        while start < end and (part := os.pread(self._fd, end - start, start)):
            parts.append(part)
            start += len(part)
        return b"".join(parts)

    def close(self) -> None:
        os.close(self._fd)

    def _mended(self) -> int:
        """The size without a line that has no end."""
        size = end = os.fstat(self._fd).st_size
        while end > 0:
            start = max(0, end - SIZES.pipe_read)
            at = os.pread(self._fd, end - start, start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        if end < size:
            _LOG.info("%s: %d bytes of a torn line taken away", self.path, size - end)
            os.ftruncate(self._fd, end)
        return end


def _values(data: bytes) -> Iterator[Any]:
    for line in data.split(b"\n"):
        try:
            value = _load(line)
        except ValueError:
            continue
        if isinstance(value, dict | list):
            yield value
