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


async def insist(ask: Callable[[], Coroutine[Any, Any, T]], pause: float) -> T:
    """The first answer to ``ask``, which is called again after ``pause`` seconds, then twice that, and so on.

    Bounded by the first call's own limit.  Raises what the first call that fails raises.
    """
    calls = set[asyncio.Task[T]]()
    try:
        while True:
            calls.add(asyncio.create_task(ask()))
            done, _ = await asyncio.wait(calls, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return done.pop().result()
            pause *= 2
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
