"""``grok-gateway top``: components, leader and clients, again and again.

On a terminal the view is redrawn every second until Ctrl-C; otherwise it is printed once.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import psutil
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from gateway.operate.instance import Instance
from gateway.operate.status import report
from gateway.operate.supervisor import NotRunningError
from gateway.paths import Paths
from gateway.wire.limits import LIMITS

__all__ = ["Load", "Meter", "add_arguments", "main", "view"]

Document = Mapping[str, Any]


#: columns of words; all others hold numbers
_WORDS = frozenset({"component", "client", "state", ""})


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """What a process uses: percent of one core since the last look, bytes of memory of its own."""

    cpu: float
    memory: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``top`` has no arguments."""


def main(args: argparse.Namespace) -> int:
    """Show until Ctrl-C.  Raises NotRunningError when the gateway does not run from the start."""
    instance = Instance(Paths.from_environment())
    console, meter, processes = Console(), Meter(), _Processes()
    document = report(instance.snapshot(), instance.endpoint())
    if not console.is_terminal:
        console.print(view(document, processes.loads(document), meter.rates(document, time.monotonic())))
        return 0
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            rates = meter.rates(document, time.monotonic())
            live.update(view(document, processes.loads(document), rates), refresh=True)
            time.sleep(LIMITS.top)
            try:
                document = report(instance.snapshot(), instance.endpoint())
            except NotRunningError as error:
                document = {**document, "components": [], "clients": [], "leader": {"reason": str(error)}}


class Meter:
    """Frames a second of each client, from the totals of two looks."""

    def __init__(self) -> None:
        self._before: tuple[float, dict[str, int]] | None = None

    def rates(self, document: Document, now: float) -> dict[str, float]:
        """By connection id; ``now`` in seconds of any steady clock.  A client seen first has none yet."""
        totals = {str(c["id"]): int(c["sent"]) + int(c["received"]) for c in document["clients"]}
        before, self._before = self._before, (now, totals)
        if before is None or now <= before[0]:
            return {}
        seconds = now - before[0]
        return {c: (n - before[1][c]) / seconds for c, n in totals.items() if n >= before[1].get(c, n + 1)}


class _Processes:
    """Load of processes.  They are kept: psutil measures the CPU between two looks at one object."""

    def __init__(self) -> None:
        self._known = dict[int, psutil.Process]()

    def loads(self, document: Document) -> dict[int, Load]:
        pids = [one.get("pid") for one in (*document["components"], document["leader"])]
        known, self._known = self._known, {}
        loads = dict[int, Load]()
        for pid in filter(None, pids):
            try:
                process = self._known[pid] = known.get(pid) or psutil.Process(pid)
                with process.oneshot():
                    loads[pid] = Load(process.cpu_percent(), process.memory_full_info().uss)
            except psutil.Error:  # it ended, or belongs to somebody else by now
                continue
        return loads


def view(document: Document, loads: Mapping[int, Load], rates: Mapping[str, float]) -> RenderableType:
    """The document of ``status --json`` with loads (by pid) and rates (by connection id), for people."""
    return Group(
        Text(f"{document['endpoint']}   engine {document['engine'] or 'unknown'}"),
        "",
        _components(document, loads),
        "",
        _clients(document, rates),
    )


def _components(document: Document, loads: Mapping[int, Load]) -> Table:
    table = _table("component", "state", "pid", "cpu", "memory", "restarts", "")
    for one in document["components"]:
        good = one["state"] == "RUNNING" and "reason" not in one
        state = _coloured(one["state"], good)
        table.add_row(one["name"], state, *_load(one["pid"], loads), str(one["restarts"]), _reason(one))
    leader = document["leader"]
    state = _coloured(str(leader.get("state", "unknown")), leader.get("state") == "ready")
    table.add_row("leader", state, *_load(leader.get("pid"), loads), "", _reason(leader))
    return table


def _clients(document: Document, rates: Mapping[str, float]) -> Table:
    table = _table("client", "state", "sessions", "requests", "gates", "sent", "received", "frames/s")
    for one in document["clients"]:
        rate = rates.get(str(one["id"]))
        table.add_row(
            escape(_client(one)),
            str(one.get("state", "")),
            str(len(one.get("sessions") or ())),
            str(one.get("requests", "")),
            str(one.get("gates", "")),
            str(one["sent"]),
            str(one["received"]),
            "" if rate is None else f"{rate:.0f}",
        )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column, justify="left" if column in _WORDS else "right")
    return table


def _load(pid: int | None, loads: Mapping[int, Load]) -> tuple[str, str, str]:
    load = loads.get(pid or 0)
    if load is None:
        return (str(pid or ""), "", "")
    return (str(pid), f"{load.cpu:.0f} %", f"{load.memory / 2**20:.0f} MiB")


def _coloured(word: str, good: bool) -> str:
    return f"[{'green' if good else 'red'}]{escape(word)}[/]"


def _client(one: Mapping[str, Any]) -> str:
    """Its own name for itself, else the beginning of its connection id."""
    told = one.get("client")
    name = told.get("name") if isinstance(told, dict) else told
    return str(name or str(one["id"])[:8])


def _reason(one: Mapping[str, Any]) -> str:
    return escape(str(one.get("reason") or ""))
