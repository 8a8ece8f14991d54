"""Asking again."""

from __future__ import annotations

import asyncio

import pytest

from gateway.wire.insist import insist


async def test_a_lost_first_request_is_asked_again() -> None:
    asked = 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        if asked < 3:
            await asyncio.sleep(60)
        return asked

    assert await insist(ask, 0.001) == 3


async def test_a_late_answer_to_an_earlier_request_counts() -> None:
    first = asyncio.get_running_loop().create_future()
    calls = [first, asyncio.get_running_loop().create_future()]
    asked = 0

    async def ask() -> str:
        nonlocal asked
        asked += 1
        if asked == 2:
            first.set_result("late")
        return await calls[min(asked, 2) - 1]

    assert await insist(ask, 0.001) == "late"


async def test_the_first_answer_is_enough() -> None:
    asked = 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        return asked

    assert await insist(ask, 60) == 1


async def test_a_failure_is_raised_and_nothing_goes_on() -> None:
    async def ask() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await insist(ask, 0.001)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelled_it_leaves_nothing() -> None:
    task = asyncio.create_task(insist(lambda: asyncio.sleep(60), 0.001))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert asyncio.all_tasks() == {asyncio.current_task()}
