"""``python -m tests.chaos [--jobs N] [--write docs/chaos.md] [CELL…]``: run the kill matrix.

Cells run side by side, each in its own instance.  Exit 1 when any promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

from tests.chaos.cell import FAIL_OPEN, UNGUARDED, Result, run_cell
from tests.chaos.matrix import CONTROL, SELECTION, Cell, cells
from tests.chaos.report import figures, page, table
from tests.conftest import EMBEDDED, INSTALLED_GROK, MARKER
from tests.engines.scripted_model import ScriptedModel


async def run(wanted: list[Cell], jobs: int, grok: Path, **environment: str) -> list[Result]:
    """Run cells, ``jobs`` at a time, and print each result as it comes."""
    model = ScriptedModel().start()
    free = asyncio.Semaphore(jobs)

    async def one(cell: Cell) -> Result:
        async with free:
            result = await run_cell(cell, model, grok, **environment)
        verdict = "ok" if not result.problems else "; ".join(result.problems)
        print(f"{cell!s:32} {result.seconds:5.1f} s  {verdict}", flush=True)
        if result.logs:
            print(result.logs, file=sys.stderr)
        return result

    try:
        return await asyncio.gather(*(one(cell) for cell in wanted))
    finally:
        model.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description="the kill matrix")
    parser.add_argument("--jobs", type=int, default=max(2, os.cpu_count() or 2))
    parser.add_argument("--rounds", type=int, default=1, help="the whole matrix this often")
    parser.add_argument("--write", type=Path, help="write the page with the table to this file")
    parser.add_argument("--engine", choices=("grok", "harness"), default="grok")
    parser.add_argument("--selection", action="store_true", help="only what `make test` runs")
    parser.add_argument("cells", nargs="*", metavar="CELL", help="victim-moment-WAY; all when none is given")
    arguments = parser.parse_args()
    os.environ.setdefault(MARKER, "chaos")
    grok = Path(os.environ.get("GROK_GATEWAY_TEST_GROK") or INSTALLED_GROK)
    if arguments.engine == "harness":
        grok = EMBEDDED
    embedded = grok == EMBEDDED
    wanted = [Cell.parse(text) for text in arguments.cells]
    wanted = wanted or (SELECTION if arguments.selection else cells(embedded=embedded))
    began = time.monotonic()
    rounds = [asyncio.run(run(wanted, arguments.jobs, grok)) for _ in range(arguments.rounds)]
    minutes = (time.monotonic() - began) / 60
    results = [result for results in rounds for result in results]
    control = None
    if not embedded:
        print("\nControl run, the guard taken out:")
        control = asyncio.run(run(CONTROL, arguments.jobs, grok, **UNGUARDED))
    print(table(results))
    print(figures(results))
    if arguments.write:
        arguments.write.write_text(page(results, arguments.rounds, minutes, control), "utf-8")
    if not all(any(FAIL_OPEN in problem for problem in result.problems) for result in control or ()):
        print("The control run did not fail: the matrix proves nothing.")
        return 1
    return 1 if any(result.problems for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
