"""The audit log: who answered each gate, what, after how long and why.

JSON lines in ``Paths.audit_log``, 0600, written by all workers and the front at once: one ``write`` with
O_APPEND a record, so lines never mix.  Above ``SIZES.log`` the file becomes ``audit.jsonl.1`` and so on,
under a lock; a process that finds its open file renamed opens the new one.

No prompt, no tool input and no text of a client or a model gets in: the fields are names and words of
the gateway.
"""

from __future__ import annotations

import dataclasses
import datetime
import logging
import os
import re
from pathlib import Path
from typing import Literal

from gateway.wire.filelock import locked
from gateway.wire.jsonrpc import dump
from gateway.wire.limits import SIZES

__all__ = ["AuditLog", "Decision"]

_log = logging.getLogger(__name__)

#: Tool names and ids as engines make them; anything else in a name may be text of a model.
_NAME = re.compile(r"[A-Za-z0-9_.:/-]*")


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """The end of one gate."""

    connection: str
    session_id: str
    kind: str  #: pre_tool_use, post_tool_use, stop, …; permission, question, plan
    tool: str  #: the tool's name, "" if the gate is about none
    tool_use_id: str
    by: Literal["client", "guard", "gateway"]  #: guard: a limit passed; gateway: somebody was lost
    answer: str  #: allow, deny, continue, reject, cancelled, …
    ms: int  #: since the gate opened
    why: str = ""  #: a reason of the gateway's own, "" when the client answered

    def encode(self, now: float) -> bytes:
        """The line for a moment in seconds since the epoch, its end included."""
        time = datetime.datetime.fromtimestamp(now, datetime.UTC).isoformat(timespec="milliseconds")
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("session_id", "kind", "tool", "tool_use_id", "answer"):
            fields[name] = _name(fields[name])
        fields["why"] = fields["why"][: SIZES.audit_text]
        return dump({"time": time, **fields}) + b"\n"


def _name(text: str) -> str:
    text = text[: SIZES.audit_text]
    return text if _NAME.fullmatch(text) else "(not a name)"


class AuditLog:
    """The audit log of an instance, for one of its processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self.failed = 0  #: records that could not be written

    def write(self, decision: Decision, now: float) -> None:
        """Append one record; ``now`` in seconds since the epoch.

        Never raises: a gate is answered whether or not that can be written down.
        """
        line = decision.encode(now)
        try:
            self._open()
            if os.fstat(self._fd).st_size + len(line) > SIZES.log:
                self._rotate()
            if os.write(self._fd, line) != len(line):
                raise OSError(None, "the disk is full", str(self._path))
        except OSError as error:
            if not self.failed:
                _log.error("%s: %s; decisions of gates are not recorded", self._path, error.strerror)
            self.failed += 1

    def close(self) -> None:
        """Close the file; a later record opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        """Have the file open that has the name now."""
        if self._fd >= 0 and not self._is_current():
            self.close()
        if self._fd < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(self._path, flags, 0o600)

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._fd), self._path.stat())
        except FileNotFoundError:
            return False

    def _rotate(self) -> None:
        try:
            with locked(self._path.with_suffix(".lock")):
                if self._is_current():  # else another process has just done it
                    names = [self._path, *(self._backup(n) for n in range(1, SIZES.log_backups + 1))]
                    for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
                        if newer.exists():
                            newer.replace(older)
        except TimeoutError:
            return  # its holder is stopped: the file grows a little further
        self._open()

    def _backup(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
