"""A lock between processes, on a file, with a bounded wait.

``flock`` is freed by the kernel when its holder dies.  A holder that is *stopped* keeps it, though, and
an event loop that waits for it would hang as well: so nobody waits longer than ``LIMITS.lock``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from gateway.wire.limits import LIMITS

__all__ = ["locked"]


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` (created 0600), which everybody holds for microseconds only.

    Blocks up to ``LIMITS.lock`` seconds.  Raises OSError: TimeoutError when another process still holds it.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + LIMITS.lock
        while not _try(fd):
            if time.monotonic() > deadline:
                raise TimeoutError(None, "another process holds the lock", str(path))
            time.sleep(LIMITS.lock_pause)
        yield
    finally:
        os.close(fd)


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
