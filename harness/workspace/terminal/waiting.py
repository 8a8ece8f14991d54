"""Waiting for the first or for all of several ends, with a limit and a way to be called off."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

__all__ = ["first_done"]


async def first_done(
    futures: Sequence[asyncio.Future[Any]],
    *,
    seconds: float | None,
    cancelled: asyncio.Event | None = None,
    every: bool = True,
) -> bool:
    """True when ``every`` one (or any one) is done; False after ``seconds`` or when called off.

    The futures are only looked at: neither a time-out nor a cancelled caller touches them.
    """
    if _done(futures, every):
        return True
    if cancelled is not None and cancelled.is_set():
        return False
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()

    def look(_: object = None) -> None:
        if _done(futures, every) and not over.done():
            over.set_result(None)

    def stop(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    watch = loop.create_task(cancelled.wait()) if cancelled is not None else None
    timer = loop.call_later(seconds, stop) if seconds is not None else None
    for future in futures:
        future.add_done_callback(look)
    if watch is not None:
        watch.add_done_callback(stop)
    try:
        await over
    finally:
        for future in futures:
            future.remove_done_callback(look)
        if timer is not None:
            timer.cancel()
        if watch is not None:
            watch.cancel()
    return _done(futures, every)


def _done(futures: Sequence[asyncio.Future[Any]], every: bool) -> bool:
    return all(f.done() for f in futures) if every else any(f.done() for f in futures)
