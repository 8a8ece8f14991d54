"""Break a bridge's connection to its leader, as the leader does now and then under load."""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path

__all__ = ["hang_up"]

_PIDFD_GETFD = 438  # of all architectures


def hang_up(bridge: int, leader_socket: Path) -> None:
    """Shut the bridge's connection down from outside: to the bridge, the leader has hung up."""
    pidfd = os.pidfd_open(bridge)
    try:
        for name in os.listdir(f"/proc/{bridge}/fd"):
            if (sock := _borrow(pidfd, int(name))) is None:
                continue
            with sock:
                if sock.family == socket.AF_UNIX and _peer(sock) == str(leader_socket):
                    sock.shutdown(socket.SHUT_RDWR)
                    return
    finally:
        os.close(pidfd)
    raise AssertionError(f"process {bridge} has no connection to {leader_socket}")


def _borrow(pidfd: int, number: int) -> socket.socket | None:
    """A duplicate of another process's descriptor, None unless it is a socket."""
    duplicate = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, pidfd, number, 0)
    if duplicate < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    try:
        return socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        return None


def _peer(sock: socket.socket) -> str:
    try:
        return str(sock.getpeername())
    except OSError:
        return ""
