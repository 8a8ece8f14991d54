"""The leader as a worker sees it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator

import pytest

from gateway.wire.handoff import LeaderInfo, LeaderState
from gateway.wire.process import Identity
from workers.leader import LeaderWatch


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that can play a leader."""
    made = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    yield made
    for process in made:
        process.kill()
        process.wait()


def info(process: subprocess.Popen[bytes], generation: str = "00000001") -> LeaderInfo:
    identity = Identity.of(process.pid)
    assert identity is not None
    return LeaderInfo("ready", generation=generation, pid=identity.pid, created=identity.created)


async def watch(losses: list[str]) -> LeaderWatch:
    leader = LeaderWatch()
    leader.on_lost.add(losses.append)
    return leader


async def test_the_workers_own_eyes_see_the_leader_end(processes: list[subprocess.Popen[bytes]]) -> None:
    losses = list[str]()
    leader = await watch(losses)
    leader.said(info(processes[0]))
    assert (await leader.ready()).pid == processes[0].pid
    processes[0].kill()
    async with asyncio.timeout(60):
        while not losses:
            await asyncio.sleep(0.01)
    assert leader.info is None
    leader.said(info(processes[1], "00000002"))
    assert (await leader.ready()).generation == "00000002"
    assert len(losses) == 1
    leader.close()


@pytest.mark.parametrize("state", ["absent", "starting", "lost", "backoff"])
async def test_a_front_that_knows_of_no_leader_takes_none_away(
    processes: list[subprocess.Popen[bytes]], state: LeaderState
) -> None:
    losses = list[str]()
    leader = await watch(losses)
    leader.said(info(processes[0]))
    leader.said(LeaderInfo(state, reason="the front has just started"))
    assert leader.info is not None
    leader.said(info(processes[0]))  # adopted
    assert losses == []
    leader.close()


async def test_another_leader_takes_the_place_of_the_one_in_use(
    processes: list[subprocess.Popen[bytes]],
) -> None:
    losses = list[str]()
    leader = await watch(losses)
    leader.said(info(processes[0]))
    leader.said(info(processes[1], "00000002"))
    assert len(losses) == 1
    assert leader.info is not None
    assert leader.info.pid == processes[1].pid
    leader.close()


async def test_a_leader_that_has_ended_already_is_not_taken() -> None:
    losses = list[str]()
    leader = await watch(losses)
    process = subprocess.Popen(["sleep", "60"])
    gone = info(process)
    process.kill()
    process.wait()
    leader.said(gone)
    assert leader.info is None
    assert losses == []


async def test_an_open_circuit_is_told_while_there_is_no_leader() -> None:
    reasons = list[str]()
    leader = LeaderWatch()
    leader.on_broken.add(reasons.append)
    leader.said(LeaderInfo("backoff", reason="it exits at once"))
    assert leader.reason == "it exits at once"
    leader.said(LeaderInfo("broken", reason="five starts in a minute"))
    assert reasons == ["five starts in a minute"]
