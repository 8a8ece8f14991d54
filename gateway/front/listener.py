"""The listening socket: taken over from the watchdog, else bound; kept in the watchdog's hands.

A plain bind: with SO_REUSEPORT any process of this user could join the port silently, and the kernel
would reset the connections that wait for a listener that dies.  The watchdog holds a duplicate, so
the port stays open while no front runs: connections wait in the backlog of the next front.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from pathlib import Path

from gateway.wire import control
from gateway.wire.control import Channel, ControlError, Packet
from gateway.wire.limits import LIMITS, SIZES

__all__ = ["HOST", "Escrow", "PortError", "adopt", "bind", "take"]

#: The one address that is served.  Clients are told 127.0.0.1, never `localhost`, which may be ::1.
HOST = "127.0.0.1"

log = logging.getLogger("front.listener")


class PortError(Exception):
    """The port cannot be had; the text says why and what to do."""


def bind(port: int) -> socket.socket:
    """A new listening socket.  Raises PortError."""
    sock = socket.socket()
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # past TIME_WAIT, not past a listener
        sock.bind((HOST, port))
        sock.listen(SIZES.backlog)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise PortError(
                f"port {port} is in use by another program: stop it, or choose another port with "
                "GROK_GATEWAY_PORT or `port` in config.toml"
            ) from error
        raise PortError(f"cannot listen on {HOST}:{port}: {error.strerror}") from error
    return sock


def adopt(fd: int, port: int) -> socket.socket | None:
    """Take over a descriptor; None (and closed) unless it listens on our port."""
    sock = socket.socket(fileno=fd)
    sock.set_inheritable(False)
    with contextlib.suppress(OSError):
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and sock.getsockname() == (HOST, port):
            return sock
    sock.close()
    return None


def take(watchdog: Path, port: int) -> socket.socket | None:
    """Ask the watchdog for the listening socket of an earlier front; None: there is none.  Blocks."""
    try:
        answer = control.ask(watchdog, Packet("take", {"port": port}), LIMITS.escrow)
    except ControlError as error:
        log.info("no listening socket from the watchdog: %s", error)
        return None
    if answer.op != "listener" or len(answer.fds) != 1:
        answer.close_fds()
        return None
    return adopt(answer.fds[0], port)


class Escrow:
    """Gives the watchdog a duplicate of the listening socket, and again whenever it is back."""

    def __init__(self, watchdog: Path, port: int, listener: socket.socket) -> None:
        self._watchdog = watchdog
        self._keep = Packet("keep", {"port": port}, fds=(listener.fileno(),))
        self._channel: Channel | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._attend())

    async def close(self, *, release: bool) -> None:
        """``release``: the service stops, nobody should wait in a backlog that no front will serve."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._channel is not None:
            if release:
                with contextlib.suppress(ControlError):
                    await self._channel.request(Packet("release"), LIMITS.escrow)
            self._channel.close()

    async def _attend(self) -> None:
        while True:
            lost = asyncio.Event()

            def on_closed(channel: Channel, lost: asyncio.Event = lost) -> None:
                self._channel = None
                lost.set()

            with contextlib.suppress(OSError):
                self._channel = control.connect(self._watchdog, _received, on_closed)
                if self._channel.send_now(self._keep):
                    await lost.wait()
            await asyncio.sleep(LIMITS.reconnect)


def _received(channel: Channel, packet: Packet) -> None:
    packet.close_fds()
    if packet.op == "kept":
        log.info("the watchdog keeps a duplicate of the listening socket")
