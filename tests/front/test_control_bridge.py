from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.engine import bridge_arguments
from gateway.front.control_bridge import PROBE, BridgeStartError, ControlBridge, NoAnswerError
from gateway.front.leader_process import LeaderLog, end_leaders, start, wait_listening
from gateway.wire.acp import INITIALIZE
from gateway.wire.process import Identity
from tests.engines.fake import FakeEngine

Open = Callable[..., Awaitable[tuple[ControlBridge, dict[str, Any]]]]


@pytest.fixture
def engine(short_tmp: Path) -> FakeEngine:
    return FakeEngine(short_tmp)


@pytest.fixture
async def leader(engine: FakeEngine, short_tmp: Path) -> AsyncIterator[Identity]:
    socket = short_tmp / "leader.sock"
    process = start([str(engine.path)], socket, {}, short_tmp, LeaderLog(short_tmp / "leader.log"))
    leader = Identity.of(process.pid)
    assert leader is not None
    await wait_listening(leader, socket, lambda: None)
    yield leader
    end_leaders(socket)
    process.wait()


@pytest.fixture
async def open_bridge(leader: Identity, engine: FakeEngine, short_tmp: Path) -> AsyncIterator[Open]:
    opened = list[ControlBridge]()

    async def call(**options: Any) -> tuple[ControlBridge, dict[str, Any]]:
        argv = [str(engine.path), *bridge_arguments(short_tmp / "leader.sock")]
        options = {"link": False, "env": {}, "cwd": short_tmp, **options}
        bridge, result = await ControlBridge.open(options.pop("argv", argv), **options)
        opened.append(bridge)
        return bridge, result

    yield call
    for bridge in opened:
        await bridge.close()


async def test_initialize_then_probes(open_bridge: Open) -> None:
    bridge, result = await open_bridge()
    assert result["protocolVersion"] == 1
    for _ in range(3):
        assert await bridge.probe() == {}, "an error is an answer too"


def test_no_session_is_named() -> None:
    assert "session" not in f"{INITIALIZE}{PROBE}".lower()


async def test_noise_and_endless_lines_do_no_harm(open_bridge: Open, engine: FakeEngine) -> None:
    engine.set(bridge={"noise": ["a warning\n", '{"id":"gw-control-2"}\n', "\n", "null\n"], "pieces": 3})
    bridge, _ = await open_bridge()
    await bridge.probe()


async def test_silence_is_a_miss_and_a_late_answer_is_dropped(open_bridge: Open, engine: FakeEngine) -> None:
    bridge, _ = await open_bridge()
    engine.set(leader={"delay": {PROBE: 0.3}})
    with pytest.raises(NoAnswerError, match=f"no answer to {PROBE} within 0.05 s"):
        await bridge.probe(0.05)
    engine.set()
    assert await bridge.probe() == {}


async def test_a_lost_bridge_names_how_it_ended(open_bridge: Open, engine: FakeEngine) -> None:
    bridge, _ = await open_bridge()
    engine.set(bridge={"die_on": {PROBE: 9}})
    with pytest.raises(NoAnswerError, match="its bridge ended with exit code 9"):
        await bridge.probe()
    assert bridge.ended.is_set()
    with pytest.raises(NoAnswerError, match="its bridge ended"):
        await bridge.probe()


async def test_one_that_reads_nothing_does_not_block_us(open_bridge: Open, leader: Identity) -> None:
    bridge, _ = await open_bridge()
    bridge._process.send_signal(signal.SIGSTOP)
    os.write(bridge._input.fileno(), b" " * 2**20)  # as much as the pipe takes
    with pytest.raises(NoAnswerError, match="reads nothing"):
        await bridge.probe(0.1)
    await bridge.close()
    assert bridge._process.returncode == -signal.SIGKILL


async def test_one_that_ends_at_once_tells_its_last_words(open_bridge: Open, engine: FakeEngine) -> None:
    engine.set(bridge={"exit_at_once": {"code": 4, "stderr": "Error: cannot do it\n"}})
    with pytest.raises(
        NoAnswerError, match="initialize: its bridge ended with exit code 4, its last words: Error: cannot"
    ):
        await open_bridge()


async def test_one_that_cannot_be_started_says_nothing_about_the_leader(
    open_bridge: Open, short_tmp: Path
) -> None:
    for argv, link in (([str(short_tmp / "missing")], False), ([str(short_tmp / "missing")], True)):
        with pytest.raises(BridgeStartError, match=r"missing.*No such file"):
            await open_bridge(argv=argv, link=link)


async def test_it_runs_from_a_link_that_vanishes(
    open_bridge: Open, engine: FakeEngine, short_tmp: Path
) -> None:
    argv = [str(engine.path), *bridge_arguments(short_tmp / "leader.sock")]
    bridge, _ = await open_bridge(argv=argv, link=True)
    assert not [entry for entry in short_tmp.iterdir() if entry.name.startswith("control-")]
    command = Path(f"/proc/{bridge._process.pid}/cmdline").read_text()
    assert f"{short_tmp}/control-" in command
    assert await bridge.probe() == {}


async def test_a_cancelled_opening_leaves_nothing(
    open_bridge: Open, engine: FakeEngine, short_tmp: Path, leader: Identity
) -> None:
    engine.set(leader={"hang_on": ["initialize"]})
    for moment in (0, 0.01, 0.2):
        task = asyncio.create_task(open_bridge(link=True))  # type: ignore[arg-type]
        await asyncio.sleep(moment)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not [entry for entry in short_tmp.iterdir() if entry.name.startswith("control-")]
        assert not _bridges(short_tmp)


async def test_one_that_was_taken_speaks_to_its_new_owner_only(open_bridge: Open) -> None:
    bridge, _ = await open_bridge()
    probe = asyncio.create_task(bridge.probe())
    await asyncio.sleep(0)
    lines, ended = asyncio.Queue[bytes](), asyncio.Event()
    bridge.take(lines.put_nowait, ended.set)
    assert bridge.ended.is_set()
    with pytest.raises(NoAnswerError):
        await probe
    padding = "x" * 2**18  # more than the pipe takes at once
    params = {"padding": padding}
    bridge.write(json.dumps({"jsonrpc": "2.0", "id": 5, "method": "session/list", "params": params}).encode())
    async with asyncio.timeout(60):
        while json.loads(await lines.get()).get("id") != 5:
            pass
        assert not ended.is_set()
        bridge._process.kill()
        await ended.wait()
    bridge.write(b"{}")  # nobody reads it


@pytest.mark.parametrize("knobs", [{"ignore_eof": True}, {"ignore_eof": True, "ignore_term": True}])
async def test_closing_is_bounded(
    open_bridge: Open, engine: FakeEngine, short_tmp: Path, knobs: dict[str, bool]
) -> None:
    engine.set(bridge=knobs)
    bridge, _ = await open_bridge()
    async with asyncio.timeout(60):
        await bridge.close()
    assert not _bridges(short_tmp)


def _bridges(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and Identity.of(int(entry.name)):
            try:
                argv = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"stdio" in argv and bytes(folder) in argv:
                found.append(int(entry.name))
    return found
