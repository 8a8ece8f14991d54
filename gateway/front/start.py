"""Start of a front: lock, port, loop; and its reload.

A reload executes the same command again in this process.  The listening socket and the instance lock
stay open across it and are named by ``--inherit LISTENER,LOCK``: no connection is refused, and no
other front can slip in between.
"""

from __future__ import annotations

import argparse
import fcntl
import functools
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from gateway.front import listener
from gateway.front.front import Ending, Front, Keeper
from gateway.front.listener import PortError
from gateway.paths import PathError, Paths
from gateway.secret import SecretError, ensure_secret
from gateway.settings import SettingError, Settings
from gateway.wire.handoff import LeaderInfo
from gateway.wire.journal import journal_path

__all__ = ["main"]

log = logging.getLogger("front")

MakeKeeper = Callable[[Paths, Settings, Callable[[LeaderInfo], None]], Keeper]


class SecondFrontError(Exception):
    """Another front of this instance runs."""


def lock(file: Path) -> int:
    """The descriptor of the instance lock, held.  Raises SecondFrontError."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise SecondFrontError(f"another front of this home runs (it holds {file})") from None
    return fd


def listen(paths: Paths, port: int, inherited: int | None) -> socket.socket:
    """The inherited socket, else the watchdog's, else a new one.  Raises PortError."""
    if inherited is not None and (sock := listener.adopt(inherited, port)):
        return sock
    return listener.take(paths.watchdog_socket, port) or listener.bind(port)


def main(make_keeper: MakeKeeper) -> int:
    """Run a front; 0 after an orderly end, 1 when it cannot start (and has touched no leader)."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    parser = argparse.ArgumentParser(prog="python -m gateway.front")
    parser.add_argument("--inherit", type=_descriptors, default=(None, None), help=argparse.SUPPRESS)
    inherited, locked = parser.parse_args().inherit
    try:
        paths = Paths.from_environment()
        settings = Settings.load(paths)
        paths.create()
        locked = lock(paths.front_lock) if locked is None else _kept(locked)
        ensure_secret(paths.secret)
        sock = listen(paths, settings.port, inherited)
    except (PathError, SettingError, SecretError, SecondFrontError, PortError, OSError) as error:
        log.error("%s", error)
        return 1
    how = uvloop.run(_serve(paths, settings, sock, make_keeper))
    if how.reload:
        _execute_again(sock.fileno(), locked)
    return 0


async def _serve(paths: Paths, settings: Settings, sock: socket.socket, make_keeper: MakeKeeper) -> Ending:
    keeper = functools.partial(make_keeper, paths, settings)
    return await Front(paths, settings, sock, keeper, functools.partial(_journaled, paths)).run()


def _descriptors(text: str) -> tuple[int, int]:
    listening, _, locked = text.partition(",")
    return int(listening), int(locked)


def _kept(fd: int) -> int:
    """An inherited descriptor goes to no child but the next reload's program."""
    os.set_inheritable(fd, False)
    return fd


def _execute_again(listening: int, locked: int) -> None:
    for fd in (listening, locked):
        os.set_inheritable(fd, True)
    # The default action of a second HUP would end the new program before it has its handler.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    arguments = [argument for argument in sys.orig_argv if not argument.startswith("--inherit")]
    command = [*arguments, f"--inherit={listening},{locked}"]
    os.execv(sys.executable, command)  # noqa: S606 (no shell: our own command line)


def _journaled(paths: Paths, conn: str) -> bool:
    return journal_path(paths, conn).exists()
