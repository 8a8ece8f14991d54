"""The journal of one connection: what another process needs to know when its worker is gone.

One file a connection in ``Paths.journals``, 0600, one JSON object a line, appended with one ``write``
each.  The page cache keeps what was written through any kill, so nothing is synced: after a crash of the
machine there is no leader left that a journal could speak of.  A line is valid once its line end is there;
a torn last line is what was never said, and is cut off before the next owner appends.

A file has one owner at a time, the worker that its last `Owned` record names.  Who may take it over is
decided elsewhere (``gateway.front.roster``).  Above ``SIZES.journal`` the file is replaced by one that holds
only the present state.

Journals hold prompts (rules) and tokens: the one stated exception to "never in a file".
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

from gateway.paths import Paths
from gateway.wire.leases import Leases
from gateway.wire.limits import SIZES
from gateway.wire.records import ConnectionRecord, Opened, Owned, Record

__all__ = [
    "Journal",
    "JournalError",
    "forget",
    "frames_path",
    "journal_path",
    "read_journal",
    "read_journals",
    "sweep",
]


class JournalError(Exception):
    """A journal cannot be written or taken over; the text says which and why."""


_CONNECTION = re.compile(r"[0-9a-f]{32}")
_SUFFIX = ".jsonl"
_FRAMES = ".frames"
_BESIDE = ".new"


def journal_path(paths: Paths, connection: str) -> Path:
    """Where the journal of a connection is.  Raises ValueError for anything but 32 hex digits."""
    if not _CONNECTION.fullmatch(connection):
        raise ValueError("a connection id has 32 hex digits")
    return paths.journals / f"{connection}{_SUFFIX}"


def frames_path(paths: Paths, connection: str) -> Path:
    """Where the frames sent to the client are kept (``workers.resume``); goes with the journal."""
    return journal_path(paths, connection).with_suffix(_FRAMES)


def _replay(data: bytes) -> tuple[ConnectionRecord, int]:
    """The state after the valid records at the start of ``data``, and how many bytes they take."""
    state, position = ConnectionRecord(), 0
    while (end := data.find(b"\n", position)) >= 0:
        try:
            record = Record.decode(data[position:end])
        except (ValueError, RecursionError):
            break
        if record is not None:
            record.apply(state)
        position = end + 1
    return state, position


class Journal:
    """The journal of a connection that this process owns.  ``state`` is what it says by now."""

    def __init__(self, path: Path, fd: int, state: ConnectionRecord, size: int) -> None:
        self.path, self.state = path, state
        self._fd, self._size, self._compact = fd, size, size

    @classmethod
    def create(cls, paths: Paths, opened: Opened, owned: Owned) -> Self:
        """Begin a journal.  Raises JournalError when it exists or cannot be written."""
        path = journal_path(paths, opened.connection)
        beside = path.with_suffix(_BESIDE)
        with _errors(path):
            fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        journal = cls(path, fd, ConnectionRecord(), 0)
        try:
            journal.append(opened, owned)
            with _errors(path):
                os.link(beside, path)  # whole from the first moment, and never over another one
        except JournalError:
            journal.close()
            raise
        finally:
            beside.unlink(missing_ok=True)
        return journal

    @classmethod
    def adopt(cls, paths: Paths, connection: str, owned: Owned) -> Self:
        """Go on with the journal of another owner.  Raises JournalError when there is none."""
        path = journal_path(paths, connection)
        with _errors(path):
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            try:
                state, size = _replay(path.read_bytes())
                if state.connection != connection:
                    raise JournalError(f"{path}: does not begin as a journal of this connection")
                os.ftruncate(fd, size)
                journal = cls(path, fd, state, size)
                journal.append(owned)
            except BaseException:
                os.close(fd)
                raise
        return journal

    def append(self, *records: Record) -> None:
        """Write the records with one system call, then apply them.

        Raises JournalError; then nothing of them is in the file or in ``state``.
        """
        self._write(b"".join(record.encode() for record in records))
        for record in records:
            record.apply(self.state)
        if self._size > max(SIZES.journal, 2 * self._compact):
            self._rewrite()

    def close(self) -> None:
        """Stop writing; the file stays for the next owner."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        """The connection is over: the file goes."""
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        with _errors(self.path):
            try:
                if os.write(self._fd, data) == len(data):
                    self._size += len(data)
                    return
            except OSError:
                self._cut()
                raise
            self._cut()
            raise JournalError(f"{self.path}: the disk is full")

    def _cut(self) -> None:
        # A half written line would take the next record with it.
        os.ftruncate(self._fd, self._size)

    def _rewrite(self) -> None:
        """Replace the file by the present state; on failure the longer file simply stays."""
        data = b"".join(record.encode() for record in self.state.snapshot())
        beside = self.path.with_suffix(_BESIDE)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            fd = os.open(beside, flags, 0o600)
            try:
                if os.write(fd, data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                beside.replace(self.path)
            except OSError:
                os.close(fd)
                raise
        except OSError:
            self._compact = self._size  # not again at every record
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            return
        os.close(self._fd)
        self._fd, self._size, self._compact = fd, len(data), len(data)


@contextlib.contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}") from error


def read_journal(path: Path) -> ConnectionRecord | None:
    """The state that a journal tells; None when it is gone or does not begin as one."""
    try:
        state, _ = _replay(path.read_bytes())
    except OSError:
        return None
    return state if state.connection == path.stem else None


def read_journals(paths: Paths) -> list[ConnectionRecord]:
    """Every connection that has a journal."""
    found = (read_journal(path) for path in sorted(paths.journals.glob(f"*{_SUFFIX}")))
    return [state for state in found if state is not None]


def forget(paths: Paths, connection: str) -> None:
    """A connection is over and its worker is gone: its journal and its leases go."""
    journal_path(paths, connection).unlink(missing_ok=True)
    frames_path(paths, connection).unlink(missing_ok=True)
    Leases(paths).release_all(connection)


def sweep(paths: Paths, alive: Callable[[ConnectionRecord], bool]) -> list[ConnectionRecord]:
    """Remove the journals of connections that are not ``alive``, what is no journal, and stale leases.

    Returns the states of the removed ones; whoever rescues their turns does so *before*.
    """
    removed = list[ConnectionRecord]()
    for connection in {path.stem for path in paths.journals.iterdir()}:
        journal = paths.journals / f"{connection}{_SUFFIX}"
        state = read_journal(journal)
        if state is not None and alive(state):
            continue
        if state is not None:
            removed.append(state)
        for suffix in (_SUFFIX, _FRAMES, _BESIDE):
            journal.with_suffix(suffix).unlink(missing_ok=True)
    Leases(paths).sweep()
    return removed
