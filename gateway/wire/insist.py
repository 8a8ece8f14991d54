"""Ask again: the first request on a new bridge may never be answered.

Measured on Grok: of bridges that connect twenty at a time, up to one in forty gets no answer to its first
request, whatever that is; every later one is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["insist"]

T = TypeVar("T")


async def insist(
    ask: Callable[[], Coroutine[Any, Any, T]],
    pause: float,
    silent: Callable[[float], bool] = lambda since: True,
) -> T:
    """The first answer to ``ask``, which is called again after ``pause`` seconds, then twice that, and so on.

    ``silent(since)``: whether no sign has come since then (seconds of the loop); otherwise it is waited for
    once more before it is called again.  Bounded by the first call's own limit.  Raises what the first call
    that fails raises.
    """
    loop, calls = asyncio.get_running_loop(), set[asyncio.Task[T]]()
    try:
        while True:
            asked = loop.time()
            calls.add(loop.create_task(ask()))
            while not (done := await _first_of(calls, pause)) and not silent(asked):
                asked = loop.time()
            if done:
                return done.pop().result()
            pause *= 2
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def _first_of(calls: set[asyncio.Task[T]], seconds: float) -> set[asyncio.Task[T]]:
    done, _ = await asyncio.wait(calls, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    return done
