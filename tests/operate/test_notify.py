"""sd_notify by hand."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from gateway.operate.notify import Notifier
from gateway.wire.limits import LIMITS


@pytest.mark.parametrize("abstract", [False, True])
def test_message(short_tmp: Path, abstract: bool) -> None:
    name = f"@gateway-test-{os.getpid()}" if abstract else str(short_tmp / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0") if abstract else name)
        notifier = Notifier({"NOTIFY_SOCKET": name})
        assert notifier.active
        notifier.send(READY=1, STATUS="all well")
        assert manager.recv(200) == b"READY=1\nSTATUS=all well"


def test_without_a_manager_nothing_happens(short_tmp: Path) -> None:
    assert not Notifier({}).active
    Notifier({}).send(READY=1)
    Notifier({"NOTIFY_SOCKET": str(short_tmp / "nobody")}).send(READY=1)


@pytest.mark.parametrize(
    ("usec", "interval"),
    [
        ("30000000", 10.0),
        ("2000000", 2 / 3),
        ("", LIMITS.systemd_watchdog / 3),
        ("x", LIMITS.systemd_watchdog / 3),
    ],
)
def test_fed_at_a_third(usec: str, interval: float) -> None:
    assert Notifier({"WATCHDOG_USEC": usec}).interval == pytest.approx(interval)
