"""Names that a terminal makes up: ids of tasks, paths of logs, and what stands in the way of a start."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

from harness.workspace.terminal.book import TaskKind
from harness.workspace.terminal.events import Command

__all__ = ["cannot_start", "log_path", "spellings", "time_ordered_id"]

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def spellings(name: str) -> Iterator[str]:
    """The name itself, then ``name-2``, ``name-3``, …"""
    yield name
    number = 2
    while True:
        yield f"{name}-{number}"
        number += 1


def log_path(directory: str, command: Command, used: Collection[str]) -> str:
    """Where a command's log goes; two logs that are kept at once never share a file."""
    name = command.call_id
    if not _PLAIN.fullmatch(name):  # a model made it up: it must not lead elsewhere
        name = "call-" + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:32]
    if command.kind is TaskKind.MONITOR:
        name = f"monitor-{name}"
    paths = (str(Path(directory, f"{spelled}.log")) for spelled in spellings(name))
    return next(path for path in paths if path not in used)


def time_ordered_id() -> str:
    """A UUID of version 7: ids of tasks sort by their start."""
    stamp = int(time.time() * 1000) & (1 << 48) - 1
    value = stamp << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)
    return str(uuid.UUID(int=value))


def cannot_start(command: Command, error: Exception) -> str:
    """Why a shell did not start, for the model."""
    if isinstance(error, FileNotFoundError) and not Path(command.cwd).is_dir():
        return f"the working directory {command.cwd} does not exist"
    if isinstance(error, ValueError):
        return f"the command cannot be passed to a shell: {error}"
    return f"the shell could not be started: {error}"
