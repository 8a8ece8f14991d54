"""The real Pi against a real gateway on the real engine, with the scripted model behind it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import make_gateway, real, shared
from tests.e2e.gateway import Gateway
from tests.pi.pi import CLI, NODE, PiProcess, environment

__all__ = ["make_gateway", "real", "shared"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.access(NODE, os.X_OK) and CLI.exists():
        return
    text = (
        f"NO REAL PI: {CLI} is not there; `make test` installs it, GROK_GATEWAY_TEST_PI names another folder"
    )
    if os.environ.get("CI") == "true":
        pytest.exit(text, 1)
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=text))


@pytest.fixture
async def start_pi(
    tmp_path: Path, make_gateway: Callable[..., Gateway]
) -> AsyncIterator[Callable[..., Awaitable[PiProcess]]]:
    """``await start_pi(gateway, *arguments, home=, **environment)``: a Pi in RPC mode with grok chosen.

    It ends before the gateways do.
    """
    made: list[PiProcess] = []

    async def start(gateway: Gateway, *arguments: str, home: Path | None = None, **more: str) -> PiProcess:
        env = environment(gateway, home or tmp_path / f"pi{len(made)}", **more)
        chosen = arguments if "--model" in arguments else ("--model", "grok/scripted", *arguments)
        made.append(PiProcess(env, gateway.work, *chosen))
        return await made[-1].start()

    yield start
    for pi in made:
        assert await pi.close() == 0


@pytest.fixture
async def pi(start_pi: Callable[..., Awaitable[PiProcess]], shared: Gateway) -> PiProcess:
    """A Pi on the shared instance."""
    return await start_pi(shared)
