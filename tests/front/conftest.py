from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests of the front run on both loops, which differ in how they treat a socket's end.

    Not those of the whole process: it brings its own loop.  Nor those of the keeper, which start engines
    and kill them: what it has of the loop, children and their bridges, has tests of its own.
    """
    factories = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
    if item.path.name in ("test_front.py", "test_leader_keeper.py"):
        del factories["asyncio"]
    return factories
