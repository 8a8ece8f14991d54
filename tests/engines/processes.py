"""Find the processes of one test by what they carry in their environment or arguments."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["carriers", "children", "describe", "parent", "state"]


def carriers(text: str) -> list[int]:
    """Pids whose environment or arguments contain ``text``; zombies and this process are none."""
    wanted = text.encode()
    found = []
    for pid in _pids():
        if pid == os.getpid() or state(pid) in ("", "Z", "X"):
            continue
        if wanted in _read(pid, "environ") or wanted in _read(pid, "cmdline"):
            found.append(pid)
    return found


def children(pid: int) -> list[int]:
    """Pids of the direct children."""
    return [p for p in _pids() if parent(p) == pid]


def state(pid: int) -> str:
    """The kernel's letter (R, S, T, Z, …), "" when there is no such process."""
    fields = _stat_fields(pid)
    return fields[0] if fields else ""


def describe(pid: int) -> str:
    """One line for people."""
    command = _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    return (
        f"{pid} (parent {parent(pid)}, state {state(pid)}): {command or _read(pid, 'comm').decode().strip()}"
    )


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def parent(pid: int) -> int:
    """Pid of the parent, 0 when there is no such process."""
    fields = _stat_fields(pid)
    return int(fields[1]) if fields else 0


def _stat_fields(pid: int) -> list[str]:
    # The command's name may hold blanks and parentheses: the fields start behind its last one.
    return _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it ended meanwhile
        return b""
