"""Planned restarts of workers: clients are handed over, nothing of theirs is lost."""

from __future__ import annotations

import asyncio
import contextlib

from tests.e2e.client import ClosedError
from tests.e2e.gateway import Gateway


async def test_restart_of_one_worker_leaves_the_other_alone(fake: Gateway) -> None:
    pairs = [await fake.with_own_worker() for _ in range(4)]
    owners = {client: fake.worker_of(bridge) for client, bridge in pairs}
    before = fake.workers()
    done = await fake.run("restart", "worker:00")
    assert done.returncode == 0, done.stdout + done.stderr
    after = fake.workers()
    assert after["worker_00"] != before["worker_00"]
    assert after["worker_01"] == before["worker_01"]
    for client, owner in owners.items():
        if owner == "worker_00":
            assert (await asyncio.wait_for(client.closed, 60))[0] == 1012
        else:
            assert await client.call("session/list", {})
            await client.close()


async def test_rolling_restart_of_the_workers_is_never_without_one(fake: Gateway) -> None:
    before = fake.workers()
    restart = asyncio.create_task(fake.run("restart", "workers"))
    connected = 0
    while not restart.done():
        client = await fake.connect()  # fails if no worker took it
        connected += 1
        with contextlib.suppress(ClosedError):  # it may itself be asked to come back (1012)
            await client.prompt(await client.new_session(fake.work), "x")
        await client.close()
    assert restart.result().returncode == 0, restart.result().stdout
    assert connected
    after = fake.workers()
    assert set(after) == set(before)
    assert not set(after.values()) & set(before.values())


async def test_a_client_is_told_to_come_back_with_1012_and_finds_its_session(fake: Gateway) -> None:
    client, bridge = await fake.with_own_worker()
    session = await client.new_session(fake.work)
    await client.prompt(session, "remember")
    name = fake.worker_of(bridge)
    assert (await fake.run("restart", f"worker:{name[-2:]}")).returncode == 0
    assert (await asyncio.wait_for(client.closed, 60))[0] == 1012
    again = await fake.connect(resume=client)
    assert again.connection == client.connection
    assert (await again.prompt(session, "and on"))["stopReason"] == "end_turn"
    assert not any("isReplay" in str(message) for message in again.messages)
    await again.close()
