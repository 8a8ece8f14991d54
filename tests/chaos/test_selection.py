"""A short selection of the kill matrix; `make chaos` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.cell import run_cell
from tests.chaos.matrix import SELECTION, Cell, cells
from tests.engines.scripted_model import ScriptedModel


@pytest.mark.grok
@pytest.mark.timeout(240)
@pytest.mark.parametrize("cell", SELECTION, ids=str)
async def test_cell(cell: Cell, model: ScriptedModel, grok_binary: Path) -> None:
    result = await run_cell(cell, model, grok_binary)
    assert not result.problems, "\n".join([*result.problems, result.logs])


def test_every_selected_cell_exists() -> None:
    assert set(SELECTION) <= set(cells())
