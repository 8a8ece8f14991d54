"""A short selection of the kill matrix; `make chaos` runs all of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.cell import FAIL_OPEN, UNGUARDED, run_cell
from tests.chaos.matrix import CONTROL, SELECTION, Cell, cells
from tests.engines.scripted_model import ScriptedModel


@pytest.mark.grok
@pytest.mark.timeout(240)
@pytest.mark.parametrize("cell", SELECTION, ids=str)
async def test_cell(cell: Cell, model: ScriptedModel, engine_binary: Path) -> None:
    result = await run_cell(cell, model, engine_binary)
    assert not result.problems, "\n".join([*result.problems, result.logs])


@pytest.mark.grok
@pytest.mark.original("it denies what nobody answers, with or without the guard")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("cell", CONTROL, ids=str)
async def test_without_the_guard_a_forbidden_tool_runs(
    cell: Cell, model: ScriptedModel, engine_binary: Path
) -> None:
    """The control run: it must fail, else the matrix proves nothing."""
    result = await run_cell(cell, model, engine_binary, **UNGUARDED)
    assert any(FAIL_OPEN in problem for problem in result.problems), result.problems


def test_every_selected_cell_exists() -> None:
    assert set(SELECTION) <= set(cells())
