"""What a new user does: a first run with no account, turns with ``ask``, ``doctor``, ``top``."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SHARED
from tests.e2e.conftest import running, session_folder
from tests.e2e.gateway import Gateway

pytestmark = pytest.mark.grok


@pytest.fixture(scope="module")
def first_run(engine_binary: Path) -> Iterator[Gateway]:
    """No login, no model: an empty GROK_HOME, and what `up` makes of it."""
    with session_folder() as folder:
        (folder / "nothing").mkdir()
        yield from running(Gateway(folder, engine_binary, folder / "nothing", GROK_GATEWAY_TEST_ID=SHARED))


async def test_three_turns_at_once_with_real_tools_on_real_files(first_run: Gateway) -> None:
    names = [secrets.token_hex(8) for _ in range(3)]
    for name in names:
        (first_run.work / name).write_text(f"content of {name}\n")
    turns = await asyncio.gather(*(first_run.run("ask", f"run ls\nread {name}") for name in names))
    for name, turn in zip(names, turns, strict=True):
        assert turn.returncode == 0, turn.stderr
        assert all(other in turn.stdout for other in names)
        assert f"content of {name}" in turn.stdout
        assert turn.stderr.count("●") == 2
        assert "the offline model" in turn.stderr
        assert "restart leader" in turn.stderr


async def test_a_turn_goes_on_when_its_worker_is_killed(first_run: Gateway) -> None:
    marker = first_run.work / secrets.token_hex(8)
    turn = asyncio.create_task(first_run.run("ask", f"run touch {marker.name}; sleep 3; echo slept"))
    async with asyncio.timeout(60):
        while not marker.exists():
            await asyncio.sleep(0.05)
    (bridge,) = first_run.bridges()
    os.kill(first_run.workers()[first_run.worker_of(bridge.pid)], signal.SIGKILL)
    done = await turn
    assert done.returncode == 0, done.stderr
    assert "slept" in done.stdout
    assert "reconnecting" in done.stderr


async def test_what_is_refused_does_not_happen(first_run: Gateway) -> None:
    turn = await first_run.run("ask", "write hello to refused.txt")
    assert turn.returncode == 1
    assert "no terminal to ask at" in turn.stderr
    assert not (first_run.work / "refused.txt").exists()


async def test_doctor_finds_a_running_instance_well(first_run: Gateway) -> None:
    done = await first_run.run("doctor", "--json")
    findings = {one["check"]: one["result"] for one in json.loads(done.stdout)["findings"]}
    assert [findings[check] for check in ("engine", "port", "processes", "leader", "secret")] == ["ok"] * 5
    assert findings["model"] == "warn"


async def test_top_without_a_terminal_prints_once(first_run: Gateway) -> None:
    done = await first_run.run("top")
    assert done.returncode == 0
    for name in ("gateway", "worker:worker_00", "worker:worker_01", "watchdog", "offline-model", "leader"):
        assert name in done.stdout
    assert "MiB" in done.stdout
