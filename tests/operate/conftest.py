"""A supervised instance whose front and workers are stand-ins; supervisord and watchdog are real."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.operate.instance import Instance
from gateway.operate.remains import find
from gateway.operate.status import report
from gateway.operate.supervisor import Component, launch_environment
from gateway.paths import Paths
from gateway.settings import Settings
from gateway.wire.process import Identity
from tests.conftest import SHARED, find_free_port

STAND_IN = Path(__file__).with_name("stand_in.py")
WATCHDOG = Path(__file__).with_name("quick_watchdog.py")


class Stage:
    """One instance and what tests do with it."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.folder = folder
        python = folder / "python"
        # What supervisord.conf calls Python.  A component that is to fail does so within milliseconds.
        python.write_text(
            "#!/bin/sh\n"
            f'case "$2" in gateway.operate.watchdog) program={WATCHDOG};; *) program={STAND_IN};; esac\n'
            f"for name; do :; done; ailment={folder}/$name.fails\n"
            'if [ -f "$ailment" ]; then . "$ailment"; exit 1; fi\n'
            f'exec {sys.executable} "$program" "$@"\n'
        )
        python.chmod(0o755)
        self.environ = {
            **os.environ,
            "GROK_GATEWAY_HOME": str(folder / "gw"),
            "GROK_GATEWAY_PORT": str(find_free_port()),
            "GROK_GATEWAY_WORKERS": "2",
            "PYTHONPATH": str(STAND_IN.parents[2]),
            **environ,
        }
        self.paths = Paths.from_environment(self.environ)
        self.paths.create()
        self.settings = Settings.load(self.paths, self.environ)
        self.instance = Instance(self.paths)
        self.supervisor = self.instance.supervisor
        self.environment = launch_environment(self.paths, self.settings, False, self.environ) | {
            "GROK_GATEWAY_PYTHON": str(python)
        }

    def start(self) -> Stage:
        self.instance.start(self.settings, self.environment, print)
        return self

    def break_(self, name: str, words: str, after: float = 0) -> None:
        """From its next start on, a component (last word of its command) fails after some seconds."""
        (self.folder / f"{name}.fails").write_text(f"sleep {after}\necho '{words}'\n")

    def repair(self, name: str) -> None:
        (self.folder / f"{name}.fails").unlink()

    def component(self, name: str) -> Component:
        return self.supervisor.component(name)

    def identity(self, name: str) -> Identity:
        """The process of a component."""
        identity = Identity.of(self.component(name).pid)
        assert identity, name
        return identity

    def leader(self) -> Identity | None:
        return next((one.identity for one in find(self.paths) if one.name == "leader"), None)

    def report(self) -> dict[str, Any]:
        return report(self.instance.snapshot(), "")

    def entry(self, name: str) -> dict[str, Any]:
        """The component's entry in `status --json`."""
        return next(one for one in self.report()["components"] if one["name"] == name)

    def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        """Wait for a condition; the logs are in the failure."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.05)

    def logs(self) -> str:
        return "\n".join(
            f"--- {file.name}\n{file.read_text()[-2000:]}" for file in sorted(self.paths.logs.glob("*.log"))
        )


@pytest.fixture
def stage(short_tmp: Path) -> Iterator[Stage]:
    """Not started yet."""
    stage = Stage(short_tmp)
    yield stage
    assert stage.instance.stop() == []


@pytest.fixture
def running(stage: Stage) -> Stage:
    return stage.start()


@pytest.fixture(scope="module")
def unbroken() -> Iterator[Stage]:
    """One instance for all tests of a module that break nothing."""
    folder = Path(tempfile.mkdtemp(prefix="gg", dir="/tmp"))
    # It outlives a test: without the test's tag nobody takes it for a leak.
    stage = Stage(folder, GROK_GATEWAY_TEST_ID=SHARED)
    try:
        yield stage.start()
    finally:
        left = stage.instance.stop()
        shutil.rmtree(folder, ignore_errors=True)
    assert left == []
