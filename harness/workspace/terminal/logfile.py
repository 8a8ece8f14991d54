"""The whole output of one command on disk."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from harness.limits import SIZES

__all__ = ["LogFile", "read_prefix"]

_log = logging.getLogger(__name__)


class LogFile:
    """Appends what comes.  A log that cannot be written costs the log, never the command."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.written = 0
        self._fd: int | None = None
        try:
            Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(path, flags, 0o600)
        except OSError as error:
            _log.warning("no log at %s: %s", path, error.strerror)

    def append(self, data: bytes) -> None:
        if self._fd is None:
            return
        view = memoryview(data)
        try:
            while view:
                count = os.write(self._fd, view)
                self.written += count
                view = view[count:]
        except OSError as error:
            _log.warning("the log %s ends here: %s", self.path, error.strerror)
            self._drop()

    def close(self) -> None:
        """At the end of the command: a long log keeps its first part only."""
        if self._fd is not None and self.written > SIZES.log_retained:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, SIZES.log_retained)
        self._drop()

    def _drop(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def read_prefix(path: str, limit: int = SIZES.log_prefix) -> bytes | None:
    """The beginning of a log, None if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        data = b""
        while len(data) < limit and (piece := os.read(fd, limit - len(data))):
            data += piece
        return data
    except OSError:
        return None
    finally:
        os.close(fd)
