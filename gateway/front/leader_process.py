"""The leader as a process: find the ones of this instance, judge them, start one, end them.

Evidence, none of which alone is trusted: the pid in the lock file, the process that listens at the
socket (SO_PEERCRED), the uid, the arguments (``agent leader`` with the exact pair ``--leader-socket
PATH``, or that path in the environment of a leader that a bridge started) and the start time, taken
before the rest is read and compared again before a signal goes out through a pidfd.  A process that
shows no such arguments is a stranger, whatever the lock file says, and is never signalled.

`judge` decides on the evidence alone; the rest gathers it or acts.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from gateway.engine import leader_arguments
from gateway.wire.limits import LIMITS, SIZES
from gateway.wire.process import Identity, peer_identity, spawn

__all__ = [
    "Evidence",
    "Leader",
    "LeaderError",
    "LeaderLog",
    "Verdict",
    "end_leaders",
    "judge",
    "listener",
    "lock_pid",
    "look",
    "start",
    "wait_listening",
]

_SOCKET_OPTION = "--leader-socket"
_SOCKET_VARIABLE = "GROK_LEADER_SOCKET"
#: Set by grok for what its tools run.
_TOOL_VARIABLE = "GROK_AGENT"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class LeaderError(Exception):
    """A leader did not come up; the text names the stage, the exit code and its last words."""


@dataclasses.dataclass(frozen=True, slots=True)
class Leader:
    """A process of this user whose arguments say that it is the leader of our socket."""

    identity: Identity
    command: tuple[str, ...]  #: what stands before our arguments: the executable, or interpreter and script
    ours: bool  #: it has the arguments of `leader_arguments`; one that a bridge started has others
    home: str | None = None  #: its GROK_HOME


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about a leader socket."""

    leaders: tuple[Leader, ...] = ()
    lock_pid: int = 0  #: 0: no lock file, or nonsense in it
    listener: Identity | None = None  #: None: nobody listens


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """One leader to adopt at most, the others to end."""

    adopt: Leader | None = None
    end: tuple[Leader, ...] = ()


def judge(evidence: Evidence) -> Verdict:
    """Adopt the leader that holds the lock and the socket (or is about to listen) and has our arguments.

    A leader that a bridge started is ended although it works: without ``--no-auto-update`` it ends
    itself at the next upgrade, and without ``--permission-mode default`` a setting of the user's
    would let tools run unasked.  So is one that nobody can reach, since another holds the socket.
    """
    adopt = None
    end = []
    for leader in evidence.leaders:
        reachable = evidence.listener in (None, leader.identity)
        if leader.ours and leader.identity.pid == evidence.lock_pid and reachable:
            adopt = leader
        else:
            end.append(leader)
    return Verdict(adopt, tuple(end))


# -- evidence ---------------------------------------------------------------------------------------
def look(path: Path) -> Evidence:
    """Gather the evidence about the leader socket ``path`` (10 ms for a few hundred processes)."""
    return Evidence(tuple(_leaders(path)), lock_pid(path), listener(path))


def lock_pid(path: Path) -> int:
    """The pid in the lock file beside the socket; 0 if there is none."""
    try:
        text = path.with_suffix(".lock").read_bytes()[:16].strip()
        return int(text) if text.isdigit() else 0
    except OSError:
        return 0


def listener(path: Path) -> Identity | None:
    """Who listens at a Unix socket.  Connecting proves nothing more: a stopped process has a backlog too."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        try:
            sock.connect(str(path))
        except OSError:
            return None
        identity, uid = peer_identity(sock)
    return identity if uid == os.getuid() else None


def _leaders(path: Path) -> Iterator[Leader]:
    for identity in _carriers("cmdline", b"leader"):
        argv = _strings(identity.pid, "cmdline")
        if ("agent", "leader") not in itertools.pairwise(argv):
            continue
        environ = _environ(identity.pid)
        if _socket_of(argv, environ) == str(path) and identity.alive():
            arguments = leader_arguments(path)
            ours = argv[-len(arguments) :] == arguments
            command = argv[: -len(arguments)] if ours else ()
            yield Leader(identity, command, ours, environ.get("GROK_HOME"))


def _tools(path: Path) -> Iterator[Identity]:
    """What the tools of a leader at this socket started.

    Grok gives each a session of its own, and they outlive a leader that is killed.  A gateway that
    was started from such a tool inherits the same marks: its processes carry a ``GROK_GATEWAY_``
    variable (no leader of ours passes one on) or are our own ancestors.
    """
    for identity in _carriers("environ", os.fsencode(f"{_SOCKET_VARIABLE}={path}\0")):
        environ = _environ(identity.pid)
        if (
            environ.get(_SOCKET_VARIABLE) == str(path)
            and environ.get(_TOOL_VARIABLE)
            and not any(name.startswith("GROK_GATEWAY_") for name in environ)
            and identity.pid not in {parent.pid for parent in psutil.Process().parents()}
            and identity.alive()
        ):
            yield identity


def _carriers(file: str, text: bytes) -> Iterator[Identity]:
    """This user's processes with ``text`` in that file of /proc.

    A first look only, one read for each process (psutil takes ten times as long, and a lost leader's
    clients wait for this).  What is read after the identity was taken, and before it is found alive,
    is of this very process.
    """
    for pid in psutil.pids():
        if pid != os.getpid() and _is_ours(pid) and text in _read(pid, file):
            identity = Identity.of(pid)
            if identity is not None:
                yield identity


def _is_ours(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return False


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it ended, or it may not be read: not ours
        return b""


def _strings(pid: int, name: str) -> tuple[str, ...]:
    data = _read(pid, name)
    return tuple(os.fsdecode(part) for part in data.removesuffix(b"\0").split(b"\0")) if data else ()


def _environ(pid: int) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in _strings(pid, "environ"))
    return {name: value for name, _, value in pairs}


def _socket_of(argv: Sequence[str], environ: Mapping[str, str]) -> str | None:
    for option, value in itertools.pairwise(argv):
        if option == _SOCKET_OPTION:
            return value
    return environ.get(_SOCKET_VARIABLE)


# -- ending -----------------------------------------------------------------------------------------
def end_leaders(
    path: Path, spare: Identity | None = None, patience: float = LIMITS.terminate
) -> tuple[Identity, ...]:
    """End every leader of this socket but ``spare`` and, unless one is spared, what their tools left.

    Blocks, ``patience`` seconds from TERM to KILL.  Returns what is still alive: nothing, unless the
    kernel holds a process in an uninterruptible wait.
    """
    left = _end((leader.identity for leader in _leaders(path) if leader.identity != spare), patience)
    if spare is None:
        left += _end(_tools(path), min(patience, LIMITS.leftovers))
    return left


def _end(identities: Iterable[Identity], patience: float) -> tuple[Identity, ...]:
    left = tuple(identities)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for identity in left:
            identity.signal(number)
        deadline = time.monotonic() + patience
        left = tuple(i for i in left if not i.wait(deadline - time.monotonic()))
    return left


# -- starting ---------------------------------------------------------------------------------------
class LeaderLog:
    """The leader's output: a file opened O_APPEND, for a pipe to the front would break with the front."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._start = 0

    def open(self) -> int:
        """A descriptor to write to, for the leader (the caller closes it).  Raises OSError."""
        self.trim()
        fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._start = os.fstat(fd).st_size
        return fd

    def trim(self) -> None:
        """Move the content away when it is too long.

        The leader keeps its descriptor, so the file is copied and emptied, not renamed: O_APPEND
        makes it go on at the new end.  A line written in between is lost.
        """
        with contextlib.suppress(OSError):
            if self._file.stat().st_size > SIZES.log:
                shutil.copyfile(self._file, self._file.with_name(f"{self._file.name}.1"))
                os.truncate(self._file, 0)
                self._start = 0

    def last_words(self) -> str:
        """The tail of what the leader wrote since `open`, for an error text."""
        try:
            with self._file.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(min(self._start, size), size - SIZES.stderr_tail))
                text = file.read(SIZES.stderr_tail).decode(errors="replace")
        except OSError:
            return ""
        return " ".join(_ANSI.sub("", text).split())


def start(
    command: Sequence[str], path: Path, env: Mapping[str, str], cwd: Path, log: LeaderLog
) -> subprocess.Popen[bytes]:
    """Start a leader in a session of its own; it outlives this process.  Raises LeaderError."""
    try:
        fd = log.open()
        try:
            return spawn(
                [*command, *leader_arguments(path)],
                env=env,
                cwd=cwd,
                stdout=fd,
                stderr=fd,
                die_with_parent=False,
            )
        finally:
            os.close(fd)
    except OSError as error:
        raise LeaderError(f"the leader cannot be started ({command[0]}): {error.strerror}") from error


async def wait_listening(identity: Identity, path: Path, ended: Callable[[], str | None]) -> None:
    """Wait until this very process holds the lock and listens: the files alone may be leftovers.

    ``ended`` gives the reason once the process is gone; it is raised as LeaderError.
    """
    while lock_pid(path) != identity.pid or listener(path) != identity:
        if (reason := ended()) is not None:
            raise LeaderError(reason)
        await asyncio.sleep(LIMITS.leader_poll)


def describe_exit(code: int | None, words: str) -> str:
    """``ended with exit code 1, its last words: …``; ``code`` None: not our child, nobody was told it."""
    if code is None:
        how = "ended"
    elif code < 0:
        how = f"ended by signal {signal.Signals(-code).name}"
    else:
        how = f"ended with exit code {code}"
    return f"{how}, its last words: {words}" if words else how
