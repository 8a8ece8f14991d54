"""Every scenario on the real engine and on the embedded one, in the same run, with random contents."""

from __future__ import annotations

import pytest

from tests.fidelity.conftest import Rounds
from tests.fidelity.mutations import unseen
from tests.fidelity.rounds import Outcome
from tests.fidelity.scenario import Scenario
from tests.fidelity.scenarios import load

SCENARIOS = load()
#: The forty, without the opening and without those that are meant to differ.
FORTY = [scenario for scenario in SCENARIOS if 1 <= scenario.number <= 40]


@pytest.fixture(scope="module", autouse=True)
def all_begin(request: pytest.FixtureRequest, rounds: Rounds) -> None:
    """Start what this run selected, longest first: the flood alone takes half a minute."""
    wanted = {
        item.callspec.params["scenario"].number
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    }
    chosen = [scenario for scenario in SCENARIOS if scenario.number in wanted]
    rounds.begin(sorted(chosen, key=lambda scenario: scenario.number != 16))


@pytest.mark.grok
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.label)
def test_the_same_is_seen(scenario: Scenario, rounds: Rounds) -> None:
    outcome = rounds.outcome(scenario)
    for recording in outcome.recordings:
        assert not recording.failure, f"{recording.engine}: {recording.failure}\nseed {rounds.seed}"
    assert not outcome.unexplained, "\n".join(map(str, outcome.unexplained[:40])) + f"\nseed {rounds.seed}"


@pytest.mark.grok
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.label)
def test_the_comparison_sees_every_change(scenario: Scenario, rounds: Rounds) -> None:
    """Deleting, changing or swapping anything that the normaliser does not name makes a difference."""
    original = rounds.outcome(scenario).recordings[0]
    assert unseen(scenario, original) == []


@pytest.mark.grok
@pytest.mark.parametrize("scenario", [SCENARIOS[-1]], ids=["all"])
def test_nearly_all_are_identical(scenario: Scenario, rounds: Rounds) -> None:
    outcomes = [rounds.outcome(each) for each in FORTY]
    different = [f"{o.scenario.label}: {o.verdict}" for o in outcomes if not _by_timing_alone(o)]
    assert len(different) <= len(FORTY) * 0.05, "\n".join(different)


def _by_timing_alone(outcome: Outcome) -> bool:
    """Whether nothing differs but the place of lines that have no fixed one."""
    timing = [deviation for deviation in outcome.scenario.differs if deviation.timing]
    return all(any(t.covers(d.kind, d.place) for t in timing) for d in outcome.differences)
