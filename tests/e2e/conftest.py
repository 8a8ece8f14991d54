"""Whole instances of the gateway, for tests from the outside.

``shared`` is one instance on the real engine for all tests that break nothing; ``make_gateway`` makes
one for a test that kills, fills or misconfigures something.  Both end with ``down`` and with a look
for what is left.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SHARED
from tests.e2e.gateway import Gateway
from tests.e2e.pi_client import PiClient, PiSession
from tests.engines.fake import FakeEngine
from tests.engines.grok import write_offline_config
from tests.engines.scripted_model import ScriptedModel


@pytest.fixture(scope="session")
def shared(engine_binary: Path, model: ScriptedModel) -> Iterator[Gateway]:
    """A running instance on the real engine; tests leave it as they found it."""
    with session_folder() as folder:
        write_offline_config(folder / "grok-home", model.url)
        yield from running(Gateway(folder, engine_binary, folder / "grok-home", GROK_GATEWAY_TEST_ID=SHARED))


@pytest.fixture(scope="session")
def shared_fake() -> Iterator[Gateway]:
    """The same on the fault-injecting engine with no fault."""
    with session_folder() as folder:
        yield from running(Gateway(folder, FakeEngine(folder).path, GROK_GATEWAY_TEST_ID=SHARED))


@pytest.fixture
def knobs(shared_fake: Gateway) -> Iterator[FakeEngine]:
    """The engine of ``shared_fake``; what a test sets for its *bridges* ends with the test."""
    engine = FakeEngine(shared_fake.folder)
    yield engine
    engine.set()


@contextlib.contextmanager
def session_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="gs", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def running(gateway: Gateway) -> Iterator[Gateway]:
    try:
        yield gateway.up()
    finally:
        gateway.down()


@pytest.fixture
def make_gateway(short_tmp: Path) -> Iterator[Callable[..., Gateway]]:
    """``make_gateway(engine, grok_home=None, **options)``: an instance that is not started yet."""
    made: list[Gateway] = []

    def make(engine: Path, grok_home: Path | None = None, **options: Any) -> Gateway:
        folder = short_tmp / f"i{len(made)}"
        folder.mkdir()
        made.append(Gateway(folder, engine, grok_home, **options))
        return made[-1]

    yield make
    failures = []
    for gateway in made:
        try:
            gateway.down()
        except Exception as error:
            failures.append(error)
            gateway.kill_all()
    if failures:
        raise failures[0]


@pytest.fixture
def real(make_gateway: Callable[..., Gateway], engine_binary: Path, grok_home: Path) -> Gateway:
    """A running instance of its own on the real engine."""
    return make_gateway(engine_binary, grok_home).up()


@pytest.fixture
def fake_engine(short_tmp: Path) -> FakeEngine:
    return FakeEngine(short_tmp)


@pytest.fixture
def fake(make_gateway: Callable[..., Gateway], fake_engine: FakeEngine) -> Gateway:
    """A running instance of its own on the fault-injecting engine."""
    return make_gateway(fake_engine.path).up()


@pytest.fixture
async def pi_of(shared: Gateway, tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[PiClient]]]:
    """``await pi_of(session=None, **options)``: a Pi on the shared instance, a session on screen."""
    made: list[PiClient] = []

    async def make(session: PiSession | None = None, **options: Any) -> PiClient:
        client = PiClient(shared.url.replace("/ws", "/pi"), shared.secret, tmp_path, **options)
        made.append(client)
        await client.connect()
        await client.show(session or PiSession(shared.work))
        return client

    yield make
    for client in made:
        await client.close()
