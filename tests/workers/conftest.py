"""Workers run on uvloop; plain asyncio must do as well.  Whole workers bring their own loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    factories = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
    if item.path.name == "test_worker.py":
        del factories["asyncio"]
    return factories
