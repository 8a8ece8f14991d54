"""sd_notify: tell systemd that the service is ready, alive or stopping."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

from gateway.wire.limits import LIMITS

__all__ = ["Notifier"]


class Notifier:
    """Sends to ``$NOTIFY_SOCKET``; without that variable every call does nothing."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # "@name" is an abstract socket: its first byte is NUL
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._watchdog = environ.get("WATCHDOG_USEC", "")

    @property
    def active(self) -> bool:
        """Whether a service manager listens."""
        return bool(self._address)

    @property
    def interval(self) -> float:
        """Seconds between two signs of life: a third of what the unit allows."""
        allowed = int(self._watchdog) / 1e6 if self._watchdog.isdigit() else LIMITS.systemd_watchdog
        return allowed / 3

    def send(self, **fields: object) -> None:
        """``send(READY=1, STATUS="…")``.  A manager that does not listen is none of our business."""
        if not self._address:
            return
        message = "\n".join(f"{name}={value}" for name, value in fields.items())
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock,
        ):
            sock.sendto(message.encode(), self._address)
