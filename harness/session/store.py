"""The sessions below ``<home>/sessions``: found, listed, opened, deleted.

Each has the folder ``<its working folder, percent-encoded>/<its id>``, in the layout of the original; what
is in it is `harness.session.journal`'s.  Folders are 0700 and files 0600: histories hold what users typed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
import uuid
from pathlib import Path
from urllib.parse import quote

from harness.limits import SIZES
from harness.session.history import Entry
from harness.session.journal import Journal
from harness.session.summary import Summary, read_summary

__all__ = ["Store"]

_SAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Store:
    """See the module."""

    def __init__(self, home: Path) -> None:
        self._root = home / "sessions"

    def folder(self, cwd: str, session_id: str) -> Path:
        """Where a session is kept, whether or not it is."""
        return self._root / _folder_name(cwd) / session_id

    def create(self, session_id: str, cwd: str) -> Journal:
        """For a new session.  Raises OSError."""
        now = int(time.time() * 1000)
        folder = self.folder(cwd, session_id)
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        if folder.parent.name != quote(cwd, safe=""):
            (folder.parent / ".cwd").write_text(cwd, "utf-8", "surrogateescape")
        return Journal(folder, Summary(session_id, cwd, now, now))

    def find(self, session_id: str, cwd: str) -> Summary | None:
        """A kept session.  Names that are no ids lead nowhere."""
        if not _is_id(session_id):
            return None
        found = _read(self.folder(cwd, session_id))
        return found if found is not None and found.id == session_id and found.cwd == cwd else None

    def open(self, summary: Summary) -> Journal:
        """A session that was found.  Raises OSError, BlockingIOError when another process has it."""
        return Journal(self.folder(summary.cwd, summary.id), summary)

    def entries(self, summary: Summary) -> list[Entry]:
        """The history of a session that is not open here, as far as it has been settled."""
        path = self.folder(summary.cwd, summary.id) / "updates.jsonl"
        try:
            data = path.read_bytes()
        except OSError:
            return []
        return [json.loads(line) for line in data.split(b"\n")[:-1] if line.startswith(b"{")]

    def all(self, cwd: str | None = None) -> list[Summary]:
        """Sessions in which something was said, the last used first."""
        folders = [self._root / _folder_name(cwd)] if cwd is not None else _folders(self._root)
        found = (_read(folder) for parent in folders for folder in _folders(parent))
        kept = [s for s in found if s is not None and s.messages and (cwd is None or s.cwd == cwd)]
        return sorted(kept, key=lambda s: s.updated_ms, reverse=True)

    def delete(self, session_id: str, cwd: str | None = None) -> None:
        """Remove a session that is not open here."""
        if not _is_id(session_id):
            return
        parents = [self._root / _folder_name(cwd)] if cwd is not None else _folders(self._root)
        for parent in parents:
            if (parent / session_id).is_dir():
                shutil.rmtree(parent / session_id, ignore_errors=True)


def _folder_name(cwd: str) -> str:
    name = quote(cwd, safe="", errors="surrogateescape")
    if len(name) <= SIZES.path_component:
        return name
    digest = hashlib.sha256(cwd.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return f"{_SAFE.sub('-', Path(cwd).name)[:64]}-{digest}"


def _folders(parent: Path) -> list[Path]:
    try:
        return [path for path in parent.iterdir() if path.is_dir()]
    except OSError:
        return []


def _read(folder: Path) -> Summary | None:
    try:
        return read_summary(json.loads((folder / "summary.json").read_bytes()))
    except (OSError, ValueError):
        return None


def _is_id(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
