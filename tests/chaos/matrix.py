"""The cells of the kill matrix: who is struck, when, and how.

Cells that are equal to another one by construction are not run twice; `dropped` names them and the
cell that covers them.
"""

from __future__ import annotations

import dataclasses
import itertools

__all__ = ["CONTROL", "MOMENTS", "SELECTION", "VICTIMS", "WAYS", "Cell", "cells", "dropped"]

VICTIMS = ("front", "worker", "bridge", "leader", "supervisord", "client", "watchdog")
MOMENTS = (
    "idle",
    "session_new",
    "streaming",
    "hook",
    "permission",
    "question",
    "command",
    "background",
    "two_sessions",
)
WAYS = ("KILL", "TERM", "STOP")


@dataclasses.dataclass(frozen=True, order=True)
class Cell:
    """``way`` STOP: stopped for four seconds, then continued."""

    victim: str
    moment: str
    way: str

    def __str__(self) -> str:
        return f"{self.victim}-{self.moment}-{self.way}"

    @classmethod
    def parse(cls, text: str) -> Cell:
        """The inverse of ``str``.  Raises ValueError for a cell that does not exist."""
        victim, moment, way = text.split("-")
        cell = cls(victim, moment, way)
        if cell not in cells(embedded=True):
            raise ValueError(f"no such cell: {text}")
        return cell


def dropped(*, embedded: bool = False) -> dict[tuple[str, str], str]:
    """(victim, way): why it is not run."""
    found = {("supervisord", "TERM"): "this is `down`, which ends every cell"}
    if not embedded:  # the leader of the embedded engine ends in order
        found["leader", "TERM"] = "grok ends at once on TERM, as on KILL: no answer, no clean-up"
    return found


def cells(*, embedded: bool = False) -> list[Cell]:
    """Every cell that is run."""
    left_out = dropped(embedded=embedded)
    everything = itertools.product(VICTIMS, MOMENTS, WAYS)
    return [Cell(v, m, w) for v, m, w in everything if (v, w) not in left_out]


#: What `make test` runs: one cell for each victim, at the moment that is worst for it.
SELECTION = [
    Cell("worker", "hook", "KILL"),
    Cell("bridge", "command", "KILL"),
    Cell("leader", "streaming", "KILL"),
    Cell("front", "permission", "KILL"),
    Cell("supervisord", "hook", "KILL"),
    Cell("client", "hook", "STOP"),
    Cell("worker", "two_sessions", "TERM"),
]

#: Without the guard each of these lets a forbidden tool run: the matrix sees what it is there for.  In
#: the second the blow changes nothing: the client is there and says nothing.
CONTROL = [Cell("worker", "hook", "KILL"), Cell("watchdog", "hook", "KILL")]
