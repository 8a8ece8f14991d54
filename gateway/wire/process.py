"""Processes: start them, know them again, see them end, end them.

A pid alone never identifies a process: it is reused.  `Identity` adds the create time, and a pidfd
pins the process while it is inspected or signalled.  Children are started by `subprocess.Popen`
(vfork; uvloop's own spawn forks and is four times slower) from the main thread only: parent-death
signals are bound to the *thread* that forked, and a child of a finished thread would be killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import secrets
import select
import shutil
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from gateway.wire.limits import LIMITS

__all__ = [
    "Exit",
    "Identity",
    "VanishingLink",
    "end_group",
    "peer_identity",
    "spawn",
    "wait_exit",
]

_TICKS = os.sysconf("SC_CLK_TCK")
_SETPRIV = shutil.which("setpriv")


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """One process for good: ``created`` is its start in seconds since the machine booted.

    Not since the epoch, as `psutil.Process.create_time` gives it: that value jumps when the clock
    is set, and every living process would then count as gone.
    """

    pid: int
    created: float

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """The living process with this pid, None if there is none (a zombie is none)."""
        try:
            # The command's name may hold blanks and parentheses: fields start behind its last one.
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        if not fields or fields[0] in b"ZX":
            return None
        return cls(pid, int(fields[19]) / _TICKS)

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return Identity.of(self.pid) == self

    def pidfd(self) -> int | None:
        """A pidfd of this very process (the caller closes it), None if it is gone.

        Opened first and verified afterwards: between a check and the open the pid could be reused.
        """
        try:
            fd = os.pidfd_open(self.pid)
        except OSError:
            return None
        if self.alive():
            return fd
        os.close(fd)
        return None

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to this very process; False if it is gone."""
        fd = self.pidfd()
        if fd is None:
            return False
        try:
            signal.pidfd_send_signal(fd, number)
            return True
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)

    def wait(self, seconds: float) -> bool:
        """Block until the process has ended (True) or ``seconds`` have passed (False)."""
        fd = self.pidfd()
        if fd is None:
            return True
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            return bool(poll.poll(max(0.0, seconds) * 1000))
        finally:
            os.close(fd)

    def end(self, patience: float = LIMITS.terminate) -> bool:
        """TERM, then KILL after ``patience`` seconds; True once it is gone.  Blocks."""
        if not self.signal(signal.SIGTERM) or self.wait(patience):
            return True
        self.signal(signal.SIGKILL)
        return self.wait(patience)


class Exit:
    """Calls ``on_exit()`` once on the running loop when a process ends (seen through its pidfd)."""

    def __init__(self, identity: Identity, on_exit: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_exit = on_exit
        self._fd = identity.pidfd()
        if self._fd is None:
            self._loop.call_soon(on_exit)
        else:
            self._loop.add_reader(self._fd, self._ended)

    def _ended(self) -> None:
        self.cancel()
        self._on_exit()

    def cancel(self) -> None:
        """Stop watching."""
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None


class VanishingLink:
    """A hard link of a program that vanishes as soon as a process runs it.

    A bridge that finds no leader starts one from its own binary, unsupervised and with other flags; of
    a file that is gone it cannot.  Raises OSError when the link cannot be made.
    """

    def __init__(self, program: Path, prefix: str) -> None:
        self.path = program.with_name(f"{prefix}-{secrets.token_hex(8)}")
        self.path.hardlink_to(program)
        self._looks: asyncio.TimerHandle | None = None

    def watch(self, pid: int) -> None:
        """Remove the link once ``pid`` runs it (setpriv comes first); on the running loop."""
        self._looks = None
        try:
            runs = Path(f"/proc/{pid}/exe").readlink() == self.path
        except OSError:
            runs = True  # it has ended
        if runs:
            self.remove()
        else:
            loop = asyncio.get_running_loop()
            self._looks = loop.call_later(LIMITS.exec_look, self.watch, pid)

    def remove(self) -> None:
        """Remove the link now, if it is still there."""
        if self._looks is not None:
            self._looks.cancel()
            self._looks = None
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def peer_identity(sock: socket.socket) -> tuple[Identity | None, int]:
    """Who called ``listen`` at the other end of a Unix socket: (process, uid), by SO_PEERCRED."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", raw)
    return Identity.of(pid), uid


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None = None,
    stdin: int | IO[Any] = subprocess.DEVNULL,
    stdout: int | IO[Any] = subprocess.DEVNULL,
    stderr: int | IO[Any] = subprocess.DEVNULL,
    die_with_parent: bool = True,
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own.  Raises OSError when it cannot be executed.

    ``die_with_parent`` asks the kernel to KILL it when this process dies (a child that reads its
    stdin ends at EOF besides; both cover the moment that the other misses).
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("children are started from the main thread: PDEATHSIG is bound to the thread")
    command = list(argv)
    if die_with_parent and _SETPRIV:
        # setpriv would report a missing program as its own exit 127; say it as an OSError instead.
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(2, "No such file or not executable", command[0])
        command = [_SETPRIV, "--pdeathsig", "KILL", "--", *command]
    return subprocess.Popen(
        command,
        env=dict(env),
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        close_fds=True,
    )


async def wait_exit(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a child without a thread; True when it has ended (and is reaped) within ``seconds``."""
    if process.poll() is not None:
        return True
    ended = asyncio.Event()
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return process.poll() is not None
    loop = asyncio.get_running_loop()
    loop.add_reader(fd, ended.set)
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
    except TimeoutError:
        return process.poll() is not None
    finally:
        loop.remove_reader(fd)
        os.close(fd)
    return process.poll() is not None


async def end_group(process: subprocess.Popen[bytes], patience: float = LIMITS.terminate) -> None:
    """End a child and everything in its process group: TERM, KILL after ``patience`` seconds, reap."""
    if not await _ended_after(process, signal.SIGTERM, patience):
        await _ended_after(process, signal.SIGKILL, patience)
    with contextlib.suppress(ProcessLookupError, PermissionError):  # group members that outlived it
        os.killpg(process.pid, signal.SIGKILL)


async def _ended_after(process: subprocess.Popen[bytes], number: signal.Signals, seconds: float) -> bool:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
    return await wait_exit(process, seconds)
