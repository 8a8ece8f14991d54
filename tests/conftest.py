"""Fixtures that every room of the tests may use.

Nothing of a test may outlive it: each run marks its environment with ``GROK_GATEWAY_TEST_ID``, so a
process that still carries the mark afterwards was leaked.  Instances for several tests have `SHARED`
as their mark.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.grok import write_offline_config
from tests.engines.processes import carriers, describe, pids
from tests.engines.scripted_model import ScriptedModel

ROOT = Path(__file__).resolve().parent.parent
MARKER = "GROK_GATEWAY_TEST_ID"
SHARED = f"shared-{os.getpid()}-{secrets.token_hex(4)}"
#: Where ``make test`` installs the pinned engine.
INSTALLED_GROK = ROOT / ".cache/grok/node_modules/@xai-official/grok/bin/grok-native"
#: In place of an executable: the embedded engine.
EMBEDDED = Path("harness")
#: Seconds that a process may take to vanish after its test has ended.
GRACE = 10.0
#: Folders whose files take longest, longest first.
SLOW = ("service", "chaos", "e2e", "pi", "operate")


def pytest_configure(config: pytest.Config) -> None:
    # Inherited from xdist's controller, a tag would blame one worker for the processes of another.
    os.environ.pop(MARKER, None)
    mark = f"{os.getpid()}-{secrets.token_hex(4)}"
    afterwards = subprocess.Popen(
        [sys.executable, "-m", "tests.engines.afterwards", mark, SHARED],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is not for it
    )
    config.add_cleanup(afterwards.communicate)
    os.environ[MARKER] = mark
    for name in [n for n in os.environ if n.startswith("GROK_GATEWAY_")]:
        if not name.startswith("GROK_GATEWAY_TEST_"):
            del os.environ[name]  # a developer's own instance must not leak into the tests
    for name in ("XAI_API_KEY", "GROK_CODE_XAI_API_KEY", "GROK_HOME", "PI_GROK_BINARY"):
        os.environ.pop(name, None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A long file that came last would keep one of xdist's workers busy while the others have no more."""
    if on_embedded():
        for item in items:
            if mark := item.get_closest_marker("original"):
                item.add_marker(pytest.mark.skip(reason=f"not on the embedded engine: {mark.args[0]}"))
    rank = {ROOT / "tests" / name: place for place, name in enumerate(SLOW)}
    items.sort(key=lambda item: rank.get(item.path.parent, len(rank)))


def on_embedded() -> bool:
    """Whether whole gateways run on the embedded engine."""
    return os.environ.get("GROK_GATEWAY_TEST_ENGINE") == "harness"


@pytest.fixture(scope="session")
def grok_binary() -> Path:
    """The real engine: ``GROK_GATEWAY_TEST_GROK``, else the one that ``make test`` installed."""
    named = os.environ.get("GROK_GATEWAY_TEST_GROK")
    binary = Path(named) if named else INSTALLED_GROK
    if not os.access(binary, os.X_OK):
        text = (
            f"NO REAL GROK: {binary} is not executable; "
            "`make test` installs it, GROK_GATEWAY_TEST_GROK names another"
        )
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    return binary


@pytest.fixture(scope="session")
def engine_binary(request: pytest.FixtureRequest) -> Path:
    """The engine behind whole gateways: the real one, or the embedded one that
    ``GROK_GATEWAY_TEST_ENGINE=harness`` chooses."""
    if on_embedded():
        return EMBEDDED
    binary: Path = request.getfixturevalue("grok_binary")
    return binary


@pytest.fixture(scope="session")
def model() -> Iterator[ScriptedModel]:
    """The scripted model, one for the run: scripts are told apart by their keys."""
    server = ScriptedModel().start()
    yield server
    server.stop()


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A folder whose path is short enough for Unix sockets (107 bytes at most)."""
    folder = Path(tempfile.mkdtemp(prefix="gg", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def grok_home(short_tmp: Path, model: ScriptedModel) -> Path:
    """A GROK_HOME for a real engine that talks to the scripted model and to nobody else."""
    home = short_tmp / "grok-home"
    write_offline_config(home, model.url)
    return home


@pytest.fixture
def free_port() -> int:
    """A port that was free a moment ago."""
    return find_free_port()


def find_free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a process of its own behind (and end that process)."""
    before = set(pids())
    yield
    deadline = time.monotonic() + GRACE
    while left := carriers(os.environ[MARKER], set(pids()) - before):
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    if left:
        text = "\n".join(describe(pid) for pid in left)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        pytest.fail(f"processes outlived the test:\n{text}")
