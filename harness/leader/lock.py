"""One leader for each socket: a file with its process id, locked for its whole life.

The kernel frees the lock when the leader dies, however it dies; the files that a killed one leaves are taken
over by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from harness.leader.place import leader_place
from harness.limits import LIMITS

__all__ = ["LeaderLock", "LockHeld", "lock_path", "socket_path"]


class LockHeld(Exception):  # noqa: N818 (a verdict on this process)
    """Another leader has the socket; the text names the file."""


def socket_path(option: str | None) -> Path:
    """Where the leader listens."""
    return Path(leader_place(option))


def lock_path(socket: Path) -> Path:
    """The lock that belongs to a socket."""
    return socket.with_suffix(".lock")


class LeaderLock:
    """The lock, once `acquire` has got it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1

    def acquire(self, socket: Path) -> None:
        """Take the lock and write our process id.  Raises LockHeld.

        A holder without a socket may be about to bind it, or about to end: for
        ``LIMITS.leader_lock`` seconds it is waited for.
        """
        until = time.monotonic() + LIMITS.leader_lock
        while not self._taken():
            if socket.exists() or time.monotonic() >= until:
                raise LockHeld(f"Another leader already holds the lock at {self.path}")
            time.sleep(LIMITS.leader_poll)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, str(os.getpid()).encode("ascii"), 0)
        os.fsync(self._file)

    def _taken(self) -> bool:
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = os.fstat(file).st_ino == self.path.stat().st_ino
        except OSError:
            same = False
        if same:
            self._file = file
        else:  # held, or its holder has just taken the file away
            os.close(file)
        return same

    def release(self, socket: Path) -> None:
        """Take the files away: the next leader starts from nothing."""
        if self._file < 0:
            return
        for path in (socket, self.path):
            with contextlib.suppress(OSError):
                path.unlink()
        os.close(self._file)
        self._file = -1
