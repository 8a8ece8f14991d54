"""All processes that a command started, also those that left it.

The process group reaches what stayed in it.  A child that called ``setsid`` has another group, and once
its parent is gone nothing leads from the command to it; two more traces do: the chain of parents, while
it lasts, and a variable in the environment that every descendant inherits.  What gives up both (an empty
environment *and* a parent that has ended) is a daemon that was meant to stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gateway.wire.process import Identity
from harness.limits import LIMITS
from harness.workspace.terminal.environment import TASK_VARIABLE

__all__ = ["Family", "Relative", "process_table"]


@dataclasses.dataclass(frozen=True, slots=True)
class Relative:
    """One process as the system lists it."""

    identity: Identity
    parent: int
    group: int
    session: int


def process_table() -> dict[int, Relative]:
    """Every living process of this user (zombies live no more)."""
    return dict(_listed()) if _PROC else dict(_asked())


_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc/self/stat").exists()


def _listed() -> Iterator[tuple[int, Relative]]:
    uid = os.getuid()
    for name in os.listdir("/proc"):  # noqa: PTH208 - a tenth of the cost, while a command is to be ended
        if not name.isdecimal() or (uid and not _owned(name, uid)):
            continue
        # The command's name may hold blanks and parentheses: fields start behind its last one.
        fields = (_read(f"/proc/{name}/stat") or b"").rpartition(b")")[2].split(None, 20)
        if len(fields) > 19 and fields[0] not in b"ZX":
            pid, created = int(name), int(fields[19]) / _TICKS
            yield pid, Relative(Identity(pid, created), int(fields[1]), int(fields[2]), int(fields[3]))


def _owned(name: str, uid: int) -> bool:
    try:
        return os.stat(f"/proc/{name}").st_uid == uid
    except OSError:
        return False


def _read(path: str) -> bytes | None:
    """A small file of the kernel's; None if it is gone or not ours to read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(fd, 65536)
        while data and (more := os.read(fd, 65536)):
            data += more
        return data
    except OSError:
        return None
    finally:
        os.close(fd)


def _asked() -> Iterator[tuple[int, Relative]]:
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            pid = process.pid
            identity = Identity(pid, process.create_time())
            yield pid, Relative(identity, process.ppid(), os.getpgid(pid), os.getsid(pid))


def _task_of(pid: int) -> str | None:
    """The task that a process's environment names."""
    if not _PROC:
        return _task_asked(pid)
    prefix = f"{TASK_VARIABLE}=".encode()
    for entry in (_read(f"/proc/{pid}/environ") or b"").split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode("utf-8", "replace")
    return None


def _task_asked(pid: int) -> str | None:
    import psutil

    try:
        value: str | None = psutil.Process(pid).environ().get(TASK_VARIABLE)
    except (psutil.Error, OSError):
        return None
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class Family:
    """The processes of one command: its shell ``root`` (group and session have its pid) and its ``task``."""

    root: Identity
    task: str

    def members(self, *, group_only: bool = False) -> list[Identity]:
        """Who lives; ``group_only``: without those that made a group of their own."""
        table = process_table()
        table.pop(os.getpid(), None)
        # A root that has ended may have given its number to another process by now.
        there = table.get(self.root.pid)
        own = there is None or there.identity == self.root
        found = {
            pid
            for pid, seen in table.items()
            if seen.identity.created >= self.root.created
            and ((own and self.root.pid in (seen.group, seen.session)) or _task_of(pid) == self.task)
        }
        if group_only:
            return [table[pid].identity for pid in found if table[pid].group == self.root.pid]
        children = dict[int, list[Relative]]()
        for seen in table.values():
            children.setdefault(seen.parent, []).append(seen)
        queue = list(found)
        while queue:
            pid = queue.pop()
            for child in children.get(pid, ()):
                number = child.identity.pid
                if number not in found and child.identity.created >= table[pid].identity.created:
                    found.add(number)
                    queue.append(number)
        return [table[pid].identity for pid in found]

    def signal_group(self, number: signal.Signals) -> None:
        """At once, while the root is not reaped: one call that no fork can escape."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.root.pid, number)

    def _in_group(self, member: Identity) -> bool:
        try:
            return os.getpgid(member.pid) == self.root.pid
        except OSError:
            return False

    async def end(self, grace: float, ours: Callable[[], bool]) -> bool:
        """TERM, and KILL after ``grace`` seconds (0: KILL at once); True when nobody is left.

        ``ours`` says whether the root is not reaped yet, so that its number still means its group.  Who
        belongs to the family is asked before the first signal, because with the root the chain of parents
        goes; and again after every round, because a process that is about to be killed may still fork.
        The group hears it first and in one call: a shell whose child alone was ended would go on with the
        next command.
        """
        known = await asyncio.to_thread(self.members)
        first = signal.SIGTERM if grace > 0 else signal.SIGKILL
        apart = [member for member in known if not (ours() and self._in_group(member))]
        if ours():
            self.signal_group(first)
        for member in apart:
            member.signal(first)
        deadline = time.monotonic() + grace
        # Nothing tells of the end of a process that is not our child.
        while time.monotonic() < deadline and any(m.alive() for m in known):  # noqa: ASYNC110
            await asyncio.sleep(LIMITS.kill_look)
        limit = time.monotonic() + LIMITS.kill_reap
        while left := {*await asyncio.to_thread(self.members), *(m for m in known if m.alive())}:
            for member in left:
                member.signal(signal.SIGKILL)
            if time.monotonic() > limit:
                return False
            await asyncio.sleep(LIMITS.kill_look)
        return True
