"""Find the processes of one test by what they carry in their environment or arguments."""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["carriers", "children", "describe", "parent", "pids", "state"]


def carriers(text: str, among: Iterable[int] | None = None) -> list[int]:
    """Pids whose environment or arguments contain ``text``; zombies and this process are none.

    ``among``: look at these pids only.
    """
    wanted = text.encode()
    found = []
    for pid in pids() if among is None else among:
        if pid == os.getpid() or not (wanted in _read(pid, "environ") or wanted in _read(pid, "cmdline")):
            continue
        if state(pid) not in ("", "Z", "X"):
            found.append(pid)
    return found


def children(pid: int) -> list[int]:
    """Pids of the direct children."""
    return [p for p in pids() if parent(p) == pid]


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


def pids() -> list[int]:
    """All processes that are there."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def parent(pid: int) -> int:
    """Pid of the parent, 0 when there is no such process."""
    fields = _stat_fields(pid)
    return int(fields[1]) if fields else 0


def _stat_fields(pid: int) -> list[str]:
    # The command's name may hold blanks and parentheses: the fields start behind its last one.
    return _read(pid, "stat").decode(errors="replace").rpartition(")")[2].split()


def _read(pid: int, name: str) -> bytes:
    # Each test reads these of every process on the machine, often: `open` would take six times as long.
    try:
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # it ended meanwhile
        return b""
    parts = []
    try:
        while data := os.read(descriptor, 65536):
            parts.append(data)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return b"".join(parts)
