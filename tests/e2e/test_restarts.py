"""Restarts under load: connections wait instead of being refused, work goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal

import aiohttp
import pytest

from tests.e2e.client import RpcError
from tests.e2e.gateway import Gateway
from tests.engines.fake import FakeEngine, do
from tests.engines.scripted_model import steps


async def test_no_connection_is_refused_while_fronts_die(fake: Gateway) -> None:
    """Hundreds of connects while the front is killed five times: each is answered."""
    stop = asyncio.Event()
    answered = 0

    async def knock() -> None:
        nonlocal answered
        while not stop.is_set():
            # A connection whose head the dying front had already read may be cut; it is never refused.
            with contextlib.suppress(aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                async with aiohttp.ClientSession() as http, http.get(f"{fake.http}/healthz") as answer:
                    assert answer.status == 200
                    answered += 1

    async def connect() -> None:
        while not stop.is_set():
            _, writer = await asyncio.open_connection("127.0.0.1", fake.port)  # raises when refused
            writer.close()
            await asyncio.sleep(0.005)

    knockers = [asyncio.create_task(knock()) for _ in range(4)]
    connecting = asyncio.create_task(connect())
    client, session = await fake.session()
    for _ in range(5):
        front = fake.pid("front")
        os.kill(front, signal.SIGKILL)
        await fake.gone(front)
        await fake.until("front", 1)
        await fake.ready()
    stop.set()
    await asyncio.wait_for(asyncio.gather(*knockers, connecting), 60)
    assert answered >= 100
    assert (await client.prompt(session, "never noticed"))["stopReason"] == "end_turn"
    await client.close()


async def test_restarts_of_a_front_under_load(fake: Gateway) -> None:
    """Clients work from before the first to after the last; none of their turns fails."""
    clients = [await fake.session() for _ in range(4)]
    leader, workers = fake.pid("leader"), fake.workers()
    stop = asyncio.Event()

    async def work(client, session) -> int:
        turns = 0
        while not stop.is_set():
            result = await client.prompt(session, do({"say": "x", "chunks": 2, "delay": 0.1}))
            assert result["stopReason"] == "end_turn"
            turns += 1
        return turns

    working = [asyncio.create_task(work(*pair)) for pair in clients]
    for n in range(6):
        done = await fake.run(*(("restart", "gateway") if n % 2 else ("reload",)))
        assert done.returncode == 0, done.stdout + done.stderr
    stop.set()
    assert min(await asyncio.wait_for(asyncio.gather(*working), 60)) >= 6
    assert fake.pid("leader") == leader
    assert fake.workers() == workers
    for client, _ in clients:
        await client.close()


@pytest.mark.parametrize("load", ["normal", "none", "null", "late"])
async def test_sessions_come_back_however_an_engine_replays(
    fake: Gateway, fake_engine: FakeEngine, load: str
) -> None:
    """With and without a replay, before or after the answer: the client sees none of it, and goes on."""
    client, session = await fake.session()
    await client.prompt(session, "before")
    fake_engine.set(leader={"load": load})
    since = len(client.messages)
    os.kill(fake.pid("leader"), signal.SIGKILL)
    await client.wait_for(lambda m: m.get("method") == "gateway/leader_restarted")
    assert (await client.prompt(session, "after"))["stopReason"] == "end_turn"
    assert client.text(session, since) == "after"
    assert not any("isReplay" in str(message) for message in client.messages[since:])
    await client.close()


async def test_a_session_that_an_engine_lost_is_an_error_not_a_hang(
    fake: Gateway, fake_engine: FakeEngine
) -> None:
    client, session = await fake.session()
    fake_engine.set(leader={"load": "missing"})
    os.kill(fake.pid("leader"), signal.SIGKILL)
    await client.wait_for(lambda m: m.get("method") == "gateway/leader_restarted")
    with pytest.raises(RpcError):
        await client.prompt(session, "gone")
    assert await client.new_session(fake.work)
    await client.close()


@pytest.mark.grok
async def test_components_restart_in_the_middle_of_a_turn(real: Gateway) -> None:
    """Front, watchdog and the other worker restart while a turn streams; the text arrives whole."""
    client, bridge = await real.with_own_worker()
    session = await client.new_session(real.work)
    text = " ".join(str(n) for n in range(400))
    turn = await client.start_prompt(session, steps({"text": text, "chunks": 200, "delay": 0.03}))
    other = next(name for name in real.workers() if name != real.worker_of(bridge))
    os.kill(real.pid("watchdog"), signal.SIGKILL)
    for arguments in (("restart", "gateway"), ("restart", f"worker:{other[-2:]}"), ("reload",)):
        done = await real.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (await client.answer_to(turn))["stopReason"] == "end_turn"
    assert client.text(session) == text
    await real.until("watchdog", 1)
    await client.close()


async def test_logs_stay_within_their_bound(shared_fake: Gateway, knobs: FakeEngine) -> None:
    """Chatty engines fill no disk, and a line is never merged with another program's."""
    from gateway.wire.limits import SIZES

    nonce = secrets.token_hex(8)
    knobs.set(bridge={"stderr": f"{nonce} chatty\n" * 200_000})
    for _ in range(4):
        client, session = await shared_fake.session()
        await client.prompt(session, "x")
        await client.close()
    for file in shared_fake.paths.logs.iterdir():
        assert file.stat().st_size <= SIZES.log * 1.1, file
    kept = len(list(shared_fake.paths.logs.glob("worker_00.log*")))
    assert kept <= SIZES.log_backups + 1
