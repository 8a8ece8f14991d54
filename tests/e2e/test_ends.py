"""Nothing outlives the gateway: not after `down`, not after a kill of any of its processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.gateway import Gateway
from tests.engines.fake import FakeEngine, do
from tests.engines.processes import describe
from tests.engines.scripted_model import steps

#: Seconds within which a killed process's children must be gone.
ORPHANS = 60


@pytest.mark.grok
async def test_supervisord_killed_ends_everything_and_up_works_again(real: Gateway) -> None:
    client, session = await real.session()
    arguments = {"command": "sleep 300", "description": "d"}
    script = steps({"tools": [{"name": "run_terminal_command", "args": arguments}]})
    await client.start_prompt(session, script)
    await client.wait_for(lambda m: "interaction_resolved" in str(m))
    os.kill(real.pid("supervisord"), signal.SIGKILL)
    left = await asyncio.to_thread(real.carriers_after, ORPHANS)
    assert not left, [describe(pid) for pid in left]
    await asyncio.wait_for(client.closed, 60)
    await asyncio.to_thread(real.up)
    assert len(real.processes("leader")) == len(real.processes("front")) == 1
    client, session = await real.session()
    assert (await client.prompt(session, steps({"text": "again"})))["stopReason"] == "end_turn"
    await client.close()


@pytest.mark.grok
async def test_down_in_the_middle_of_turns_closes_with_1001(real: Gateway) -> None:
    clients = [await real.session() for _ in range(6)]
    for client, session in clients:
        await client.start_prompt(session, steps({"text": "long", "chunks": 4, "delay": 30}))
    await asyncio.to_thread(real.down)
    for client, _ in clients:
        code, _ = await asyncio.wait_for(client.closed, 60)
        assert code == 1001


async def test_down_with_fifty_sockets_is_quick_enough(fake: Gateway) -> None:
    clients = await asyncio.gather(*(fake.client() for _ in range(50)))
    await asyncio.to_thread(fake.down)
    codes = {(await asyncio.wait_for(client.closed, 60))[0] for client in clients}
    assert codes == {1001}


@pytest.mark.parametrize("setsid", [False, True])
async def test_stubborn_grandchildren_of_a_bridge_end_with_it(
    fake: Gateway, fake_engine: FakeEngine, setsid: bool
) -> None:
    """Two levels that ignore TERM and hold the pipes open, with and without a session of their own."""
    children = {"children": 1, "children_setsid": setsid, "ignore_term": True, "ignore_eof": True}
    fake_engine.set(bridge=children)
    client, session = await fake.session()
    family = {p.pid for p in fake.processes() if p.role == "bridge"}
    assert len(family) >= 3
    assert (await client.prompt(session, "hello"))["stopReason"] == "end_turn"
    fake_engine.set()
    await client.close()
    if setsid:  # a session of its own leaves the group: only the end of the instance sweeps it
        await asyncio.to_thread(fake.down)
    else:
        await fake.until("bridge", 1)  # the front's control bridge is older than the knobs


@pytest.mark.parametrize("role", ["worker", "front"])
async def test_a_killed_parent_leaves_no_bridge(fake: Gateway, role: str) -> None:
    client = await fake.client()
    victim = next(p.parent for p in fake.bridges()) if role == "worker" else fake.pid("front")
    children = {p.pid for p in fake.processes("bridge") if p.parent == victim}
    assert children
    os.kill(victim, signal.SIGKILL)
    await fake.gone(*children, timeout=ORPHANS)
    if role == "front":
        await client.close()


async def test_a_bridge_that_ignores_eof_and_term_is_killed(shared_fake: Gateway, knobs: FakeEngine) -> None:
    knobs.set(bridge={"ignore_eof": True, "ignore_term": True})
    before = {p.pid for p in shared_fake.bridges()}
    client = await shared_fake.client()
    (bridge,) = {p.pid for p in shared_fake.bridges()} - before
    knobs.set(bridge={"ignore_eof": True})  # still: the knob is read again while it waits
    await client.close()
    await shared_fake.gone(bridge, timeout=ORPHANS)


async def test_a_leader_that_ignores_term_is_killed_by_down(
    make_gateway: Callable[..., Gateway], fake_engine: FakeEngine
) -> None:
    fake_engine.set(leader={"ignore_term": True})
    gateway = make_gateway(fake_engine.path).up()
    leader = gateway.pid("leader")
    await asyncio.to_thread(gateway.down)
    await gateway.gone(leader, timeout=0.1)


@pytest.mark.grok
async def test_supervisord_terminated_is_down(real: Gateway) -> None:
    client = await real.client()
    os.kill(real.pid("supervisord"), signal.SIGTERM)
    left = await asyncio.to_thread(real.carriers_after, ORPHANS)
    assert not left, [describe(pid) for pid in left]
    code, _ = await asyncio.wait_for(client.closed, 60)
    assert code == 1001


@pytest.mark.grok
async def test_up_in_the_foreground_ends_at_ctrl_c(
    make_gateway: Callable[..., Gateway], engine_binary: Path, grok_home: Path
) -> None:
    from tests.e2e.gateway import COMMAND

    gateway = make_gateway(engine_binary, grok_home)
    process = subprocess.Popen(
        [*COMMAND, "up", "--foreground"],
        env=gateway.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        await gateway.ready()
        process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(process.wait, 20) in (0, 130, -signal.SIGINT)
        assert not await asyncio.to_thread(gateway.carriers_after, ORPHANS)
    finally:
        process.kill()
        process.communicate()


async def test_a_vanished_client_leaves_its_turn_but_no_bridge(
    make_gateway: Callable[..., Gateway], fake_engine: FakeEngine, short_tmp: Path
) -> None:
    """The turn goes on while the client may come back; afterwards nothing of it is left but the leader."""
    gateway = make_gateway(fake_engine.path, scale=0.02).up()  # it is waited for 1.2 s
    client, session = await gateway.session()
    marker = short_tmp / "done"
    await client.start_prompt(session, do({"say": "x"}, {"sleep": 0.3}, {"tool": "t", "marker": str(marker)}))
    await client.wait_for(lambda m: m.get("method") == "session/update")
    (bridge,) = gateway.bridges()
    await client.abort()
    await gateway.gone(bridge.pid, timeout=ORPHANS)
    assert marker.exists()
    async with asyncio.timeout(ORPHANS):
        while any(client.connection in file.name for file in gateway.paths.journals.iterdir()):
            await asyncio.sleep(0.05)
    assert len(gateway.processes("leader")) == 1
