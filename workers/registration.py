"""What a connection shares with the rest of the instance: its journal, its sessions' leases, the audit log.

It answers what the screen, the proxy and the lent tools ask about other connections.
"""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path

from gateway.wire.audit import AuditLog, Decision
from gateway.wire.journal import Journal, JournalError
from gateway.wire.leases import LeaseError, Leases
from gateway.wire.records import ConnectionRecord, Counted, Record

__all__ = ["Registration"]

log = logging.getLogger(__name__)


class Registration:
    """One connection's part of what all processes of an instance know."""

    def __init__(self, connection_id: str, journal: Journal, leases: Leases, audit: AuditLog) -> None:
        self.id = connection_id
        self._journal, self._leases, self._audit = journal, leases, audit
        self._count: Counted | None = None

    @property
    def state(self) -> ConnectionRecord:
        """What the journal says by now."""
        return self._journal.state

    # -- journal and audit log -----------------------------------------------------------------

    def count(self, sent: int) -> None:
        """A frame of the client is being dealt with.

        Counted together with what comes of it, in one write: if the worker is killed, either both are
        known or the client sends it again.
        """
        self._count = Counted(self.state.received + 1, sent)

    def counted(self) -> None:
        """The frame has been dealt with."""
        if self._count is not None:
            self.record()

    def record(self, *records: Record) -> bool:
        """Write to the journal; False when it cannot be written (a full disk)."""
        count, self._count = self._count, None
        try:
            self._journal.append(*((count,) if count is not None else ()), *records)
        except JournalError as error:
            log.error("%s", error)
            return False
        return True

    def audit(self, decision: Decision) -> None:
        """Write the end of a gate down."""
        self._audit.write(decision, time.time())

    # -- sessions ------------------------------------------------------------------------------

    def take_session(self, session_id: str) -> bool:
        """Reserve a session (or any name) for this connection; False: another living one has it."""
        try:
            return self._leases.take(session_id, self.id) is None
        except LeaseError as error:
            log.error("%s", error)
            return False

    def release_session(self, session_id: str) -> None:
        """This connection has the session no longer."""
        with contextlib.suppress(LeaseError):  # a lease without a journal does not count
            self._leases.release(session_id, self.id)

    def elsewhere(self, session_id: str) -> bool:
        """Another living connection has the session."""
        return self._leases.holder(session_id) not in (None, self.id)

    def directory(self, path: str) -> bool:
        """There is a folder with this path."""
        try:
            return Path(path).is_dir()
        except (OSError, ValueError):
            return False

    def leave(self) -> None:
        """Another worker goes on: all of it stays, and nothing is written here any more."""
        self._journal.close()

    def end(self) -> None:
        """The connection is over: nothing of it stays."""
        with contextlib.suppress(LeaseError):
            self._leases.release_all(self.id)
        self._journal.remove()
