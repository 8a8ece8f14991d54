"""The service under a real ``systemd --user``: install, start, failures, stop, start at login."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.operate.service import UNIT
from gateway.paths import Paths
from tests.conftest import find_free_port
from tests.engines.fake import FakeEngine
from tests.engines.processes import carriers, describe
from tests.service.user_manager import UserManager, control_groups, impossible, own_group

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]


class Service:
    """The gateway's commands inside the user manager."""

    def __init__(self, manager: UserManager) -> None:
        self.manager = manager
        self.paths = Paths.from_environment(manager.environ)

    def command(self, *arguments: str) -> str:
        """Run ``grok-gateway``; it must succeed."""
        done = self.manager.run(sys.executable, "-m", "gateway.operate.cli", *arguments)
        assert done.returncode == 0, (
            f"{arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}{self.logs()}"
        )
        return done.stdout

    def pids(self) -> dict[str, int]:
        """Components by name, and the leader, as `status` says."""
        document = json.loads(self.command("status", "--json"))
        return {one["name"]: one["pid"] for one in document["components"]} | {
            "leader": document["leader"]["pid"]
        }

    def main_pid(self) -> int:
        """supervisord, as this test's namespace numbers it."""
        return self.outside(int(self.manager.show(UNIT, "MainPID")))

    @staticmethod
    def outside(inside: int) -> int:
        """The pid that we see for one inside the namespace."""
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                numbers = (entry / "status").read_text().partition("NSpid:")[2].split("\n")[0].split()
            except OSError:
                continue
            if len(numbers) == 2 and int(numbers[1]) == inside:
                return int(numbers[0])
        raise AssertionError(f"no process {inside} inside")

    def healthy(self) -> bool:
        return self.manager.run(sys.executable, "-m", "gateway.operate.cli", "status").returncode == 0

    def restarts(self) -> int:
        return int(self.manager.show(UNIT, "NRestarts"))

    def active(self) -> bool:
        return self.manager.show(UNIT, "ActiveState") == "active"

    def processes(self) -> list[str]:
        """Whatever carries this instance's folder, the test itself and systemd left out."""
        found = [describe(pid) for pid in carriers(str(self.paths.state))]
        return [text for text in found if "systemd --user" not in text]

    def logs(self) -> str:
        files = [*sorted(self.paths.logs.glob("*.log")), self.manager.log]
        return "\n".join(
            f"--- {f.name}\n{f.read_text('utf-8', 'replace')[-1500:]}" for f in files if f.exists()
        )


@pytest.fixture
def manager(short_tmp: Path) -> Iterator[UserManager]:
    if why := impossible():
        text = f"NO systemd --user: {why}"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    root = control_groups()
    assert root
    with own_group(root, short_tmp.name) as group:
        manager = UserManager(
            short_tmp,
            group,
            GROK_GATEWAY_HOME=str(short_tmp / "gw"),
            GROK_GATEWAY_PORT=str(find_free_port()),
            GROK_GATEWAY_WORKERS="2",
            GROK_GATEWAY_GROK=str(FakeEngine(short_tmp).path),
            PYTHONPATH=str(ROOT),
        )
        # The unit's environment file does not carry it; an installed package needs no such thing.
        manager.base["PYTHONPATH"] = str(ROOT)
        try:
            manager.start()
            yield manager
        finally:
            manager.stop()


@pytest.fixture
def service(manager: UserManager) -> Service:
    service = Service(manager)
    service.command("service", "install")
    return service


def test_install_start_crash_reboot_uninstall(service: Service) -> None:
    """One life of the service: its parts follow from each other, and each start takes seconds."""
    manager = service.manager
    # installed and ready: systemd was told by the watchdog, after the front answered
    assert service.active()
    assert manager.show(UNIT, "UnitFileState") == "enabled"
    assert manager.show(UNIT, "WatchdogUSec") == "30s"
    first = service.pids()
    manager.until(lambda: "components running" in manager.show(UNIT, "StatusText"))
    assert "active (running), enabled" in service.command("service", "status")

    # supervisord killed: the rest goes with it, and all comes back
    os.kill(service.main_pid(), signal.SIGKILL)
    manager.until(lambda: service.restarts() == 1 and service.active())
    manager.until(service.healthy)
    second = service.pids()
    assert not set(first.values()) & set(second.values())

    # `down` is an orderly end: no restart, nothing left
    service.command("down")
    manager.until(lambda: manager.show(UNIT, "ActiveState") == "inactive")
    assert service.processes() == []
    assert manager.systemctl("start", UNIT).returncode == 0
    manager.until(service.healthy)

    # stopped by systemd: nothing left either
    assert manager.systemctl("stop", UNIT).returncode == 0
    assert manager.show(UNIT, "Result") == "success"
    assert service.processes() == []

    # it starts with the manager
    manager.stop()
    manager.start()
    manager.until(lambda: service.active() and service.healthy())

    # gone without a trace, settings and secret stay
    service.command("service", "uninstall")
    assert manager.show(UNIT, "LoadState") == "not-found"
    assert service.processes() == []
    assert service.paths.secret.exists()
    assert not service.paths.service_environment.exists()


def test_systemd_is_fed_only_while_supervisord_works(service: Service) -> None:
    manager = service.manager
    unit = manager.home / ".config/systemd/user" / f"{UNIT}.d/short.conf"
    unit.parent.mkdir()
    unit.write_text("[Service]\nWatchdogSec=6\n")
    manager.systemctl("daemon-reload")
    assert manager.systemctl("restart", UNIT).returncode == 0
    manager.until(service.healthy)
    pids = service.pids()

    # a hung front costs the front only: the tree is fed on
    front = service.outside(pids["gateway"])
    os.kill(front, signal.SIGSTOP)
    manager.until(lambda: not Path(f"/proc/{front}").exists())
    assert service.restarts() == 0
    manager.until(service.healthy)
    after = service.pids()
    assert {name for name in pids if pids[name] != after[name]} == {"gateway"}

    # a hung supervisord supervises nothing: systemd starts the service anew
    os.kill(service.main_pid(), signal.SIGSTOP)
    manager.until(lambda: service.restarts() == 1 and service.active())
    manager.until(service.healthy)


def test_install_refuses_an_instance_outside_systemd(manager: UserManager) -> None:
    service = Service(manager)
    service.command("up")
    done = manager.run(sys.executable, "-m", "gateway.operate.cli", "service", "install")
    assert done.returncode == 1
    assert "grok-gateway down" in done.stderr
    assert not (manager.home / ".config/systemd/user" / UNIT).exists()
    service.command("down")
