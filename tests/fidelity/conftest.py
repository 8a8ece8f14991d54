"""All plays of a run go on beside each other in one thread; each test takes the outcome of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import secrets
import threading
from collections.abc import Iterator

import pytest

from tests.conftest import MARKER, SHARED
from tests.fidelity.engines import ENGINES, MissingEngineError
from tests.fidelity.rounds import Outcome, play_both
from tests.fidelity.scenario import Scenario

#: Plays at the same time: most of a play is waiting.
JOBS = int(os.environ.get("GROK_GATEWAY_TEST_FIDELITY_JOBS", "3"))


class Rounds:
    """Plays scenarios on both engines; `outcome` waits for one."""

    def __init__(self) -> None:
        self.seed = secrets.token_hex(4)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fidelity", daemon=True)
        self._thread.start()
        self._gate = asyncio.Semaphore(JOBS)
        self._futures: dict[int, concurrent.futures.Future[Outcome]] = {}

    def begin(self, scenarios: list[Scenario]) -> None:
        for scenario in scenarios:
            if scenario.number not in self._futures:
                self._futures[scenario.number] = asyncio.run_coroutine_threadsafe(
                    self._play(scenario), self._loop
                )

    def outcome(self, scenario: Scenario) -> Outcome:
        self.begin([scenario])
        return self._futures[scenario.number].result(280)

    async def _play(self, scenario: Scenario) -> Outcome:
        async with self._gate:
            return await play_both(scenario, ["grok", "harness"], self.seed, {MARKER: SHARED})

    def close(self) -> None:
        for future in self._futures.values():
            future.cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)


@pytest.fixture(scope="session")
def rounds() -> Iterator[Rounds]:
    try:
        ENGINES["grok"].check()
    except MissingEngineError as error:
        # Skipped, nothing would be compared, and nobody would know.
        pytest.fail(str(error))
    rounds = Rounds()
    yield rounds
    rounds.close()
