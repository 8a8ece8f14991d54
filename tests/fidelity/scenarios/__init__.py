"""The scenarios, one file a family.  `load` imports them all and gives them in the order of their numbers."""

from __future__ import annotations

import importlib
import pkgutil

from tests.fidelity.scenario import SCENARIOS, Scenario

__all__ = ["load"]


def load() -> list[Scenario]:
    """Every scenario, by number."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return sorted(SCENARIOS.values(), key=lambda scenario: scenario.number)
