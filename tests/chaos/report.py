"""The matrix as a table for people, on the terminal and in docs/chaos.md."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from tests.chaos.cell import FAIL_OPEN, Result
from tests.chaos.matrix import MOMENTS, VICTIMS, WAYS, Cell, dropped
from tests.chaos.scene import hook_limit

__all__ = ["figures", "page", "table"]


def table(results: Iterable[Result]) -> str:
    """Rows: victim and way; columns: moments; a cell: runs without a problem of all runs."""
    runs: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        cell = result.cell
        runs.setdefault((cell.victim, cell.way, cell.moment), []).append(result)
    lines = ["| struck | way | " + " | ".join(MOMENTS) + " |", "|---|---|" + "---|" * len(MOMENTS)]
    for victim in VICTIMS:
        for way in WAYS:
            row = [_entry(runs.get((victim, way, moment), [])) for moment in MOMENTS]
            if any(row):
                lines.append(f"| {victim} | {way} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def _entry(results: list[Result]) -> str:
    good = sum(not result.problems for result in results)
    if not results or good == len(results):
        return "ok" if results else ""
    return f"{good}/{len(results)}"


def figures(results: Iterable[Result]) -> str:
    """Medians of what was measured, by victim and moment."""
    measured: dict[tuple[str, str, str], list[float]] = {}
    for result in results:
        if result.cell.way != "KILL":
            continue
        for name, seconds in result.figures.items():
            if name == "text went on" and not _resumes_a_stream(result.cell):
                continue  # the text of a later step, not of a stream that was cut
            measured.setdefault((result.cell.victim, result.cell.moment, name), []).append(seconds)
    lines = ["| struck (KILL) | moment | what | median s | worst s | runs |", "|---|---|---|---|---|---|"]
    for (victim, moment, name), values in sorted(measured.items()):
        median = statistics.median(values)
        lines.append(f"| {victim} | {moment} | {name} | {median:.2f} | {max(values):.2f} | {len(values)} |")
    return "\n".join(lines)


def _resumes_a_stream(cell: Cell) -> bool:
    return cell.victim in ("worker", "bridge") and cell.moment in ("streaming", "two_sessions")


def page(results: list[Result], rounds: int, minutes: float, control: list[Result] | None) -> str:
    """docs/chaos.md, or docs/chaos-embedded.md.  ``control``: results with the guard taken out; None for
    the embedded engine."""
    broken = [f"- `{r.cell}`: {problem}" for r in results for problem in r.problems]
    left_out = dropped(embedded=control is None)
    not_run = [f"- {victim} {way}: {why}." for (victim, way), why in left_out.items()]
    fail_open = sum(FAIL_OPEN in problem for r in results for problem in r.problems)
    unanswered = sum("unanswered" in problem for r in results for problem in r.problems)
    title, command, engine = "The kill matrix", "make chaos", "Real grok"
    if control is None:
        title, command = f"{title} on the embedded engine", f"{command} CHAOS_ENGINE=harness"
        engine = "The embedded engine"
    return f"""\
# {title}

`{command}` writes this page.  {engine}, {rounds} round(s), {len(results)} cells, {minutes:.0f} minutes.
A hook fails open after {hook_limit():g} s here; each cell waits longer than that before it is judged.

**{fail_open} fail-opens, {unanswered} unanswered requests, {len(broken)} broken promises.**

{_control(control)}

Each cell brings a client to a moment, strikes one process, and then demands: no tool ran that the
client did not allow; every request was answered on its socket or its resume, or the socket closed; no
session works without a client; a client on another worker kept its socket and its turn; a new turn
works on the same sessions; nothing is left after `down`.

{table(results)}

Not run, because equal to another cell:
{chr(10).join(not_run)}

{figures(results)}
{chr(10).join(["", "Broken:", *broken]) if broken else ""}
"""


def _control(control: list[Result] | None) -> str:
    if control is None:
        return (
            "There is no control run with the guard taken out: this engine denies what nobody answers.\n"
            "That the matrix sees a tool that runs unasked is shown on the real grok ([chaos.md](chaos.md))."
        )
    seen = sum(any(FAIL_OPEN in problem for problem in result.problems) for result in control)
    return f"With the guard taken out, {seen} of {len(control)} control cells let a forbidden tool run."
