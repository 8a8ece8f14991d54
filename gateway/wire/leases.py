"""Session leases: which connection has which session attached, in the whole instance.

A session that two connections have attached is nobody's: Grok asks only one of them before a tool runs,
and a second load may take the first one's hooks away.  So before a session is attached its lease is taken:
a file ``Paths.leases/<hash of the session id>`` that names the connection.  Files are changed under one
flock, which the kernel frees whatever happens to its holder.

A lease counts while its connection has a journal; there is nothing to clean up after a kill.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from gateway.paths import Paths
from gateway.wire.filelock import locked

__all__ = ["LeaseError", "Leases"]


class LeaseError(Exception):
    """The leases cannot be read or changed now; trying again may help."""


class Leases:
    """The leases of one instance, for any process of it."""

    def __init__(self, paths: Paths) -> None:
        self._folder = paths.leases
        self._journals = paths.journals

    def take(self, session_id: str, connection: str) -> str | None:
        """Take the session for the connection, which has a journal.

        Returns None when it is taken (or was already), else the connection that has it.
        Raises LeaseError.
        """
        with self._locked():
            holder = self._holder(self._file(session_id))
            if holder not in (None, connection):
                return holder
            self._put(session_id, connection)
            return None

    def release(self, session_id: str, connection: str) -> None:
        """Give the session back; nothing happens when somebody else has it.  Raises LeaseError."""
        with self._locked():
            file = self._file(session_id)
            if _named(file) == connection:
                file.unlink(missing_ok=True)

    def release_all(self, connection: str) -> None:
        """Give back every session of the connection.  Raises LeaseError."""
        with self._locked():
            for file in self._files():
                if _named(file) == connection:
                    file.unlink(missing_ok=True)

    def holder(self, session_id: str) -> str | None:
        """The connection that has the session attached, None if none has."""
        return self._holder(self._file(session_id))

    def sweep(self) -> None:
        """Remove the leases that do not count.  Raises LeaseError."""
        with self._locked():
            for file in self._files():
                if self._holder(file) is None:
                    file.unlink(missing_ok=True)

    def _holder(self, file: Path) -> str | None:
        connection = _named(file)
        if connection is not None and (self._journals / f"{connection}.jsonl").exists():
            return connection
        return None

    def _put(self, session_id: str, connection: str) -> None:
        file = self._file(session_id)
        beside = file.with_suffix(".new")
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, json.dumps({"session": session_id, "connection": connection}).encode())
        finally:
            os.close(fd)
        beside.replace(file)

    def _file(self, session_id: str) -> Path:
        # Any string may be a session's id; a path component holds 255 bytes and no slash.
        digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
        return self._folder / digest[:32]

    def _files(self) -> list[Path]:
        return [file for file in self._folder.iterdir() if file.name != _LOCK]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with locked(self._folder / _LOCK):
                yield
        except OSError as error:
            raise LeaseError(f"{self._folder}: {error.strerror}") from error


_LOCK = "lock"


def _named(file: Path) -> str | None:
    """The connection that a lease names, whether it counts or not."""
    try:
        connection = json.loads(file.read_bytes())["connection"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return connection if isinstance(connection, str) else None
