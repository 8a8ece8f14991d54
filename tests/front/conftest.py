from __future__ import annotations

import asyncio
from collections.abc import Callable

import uvloop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Asynchronous tests of the front run on both loops: they differ in how they treat a socket's end."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
