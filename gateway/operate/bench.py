"""``grok-gateway bench``: what the gateway costs and how fast it recovers, on this machine, now.

It runs an instance of its own with the offline model, and ends it again; the embedded engine is compared
with grok, if there is one.

Exit codes: 0 every figure is within its limit, 1 one is not, or nothing could be measured.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import uvloop

from gateway.engine import EngineError, resolve
from gateway.operate.bench_engines import ENGINE_STAGES
from gateway.operate.bench_figures import STAGES, Figure, measure
from gateway.operate.bench_instance import BenchError, Instance
from gateway.operate.bench_pi import PI_STAGES
from gateway.paths import Paths
from gateway.settings import Settings

__all__ = ["add_arguments", "main"]

ROUNDS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``bench``."""
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="how often each is repeated")
    parser.add_argument(
        "--pi", metavar="PATH", default="pi", help="the pi command; without Pi it is left out"
    )
    parser.add_argument(
        "--only", default="", metavar="WORD", help="only measurements with this in their name"
    )


def main(args: argparse.Namespace) -> int:
    """Measure and print.  Raises EngineError for settings that name no usable engine."""
    paths = Paths.from_environment()
    settings = Settings.load(paths)
    engine = resolve(settings, paths)
    every = {**STAGES, **PI_STAGES, **ENGINE_STAGES}
    stages = {name: stage for name, stage in every.items() if args.only in name}
    home = Path(tempfile.mkdtemp(prefix="ggb", dir="/tmp"))
    try:
        with Instance(home, engine, _grok(settings, paths), args.pi) as instance:
            figures = uvloop.run(measure(instance, stages, max(1, args.rounds), _say))
    except BenchError as error:
        _say(str(error))
        return 1
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if args.json:
        print(json.dumps([{**dataclasses.asdict(f), "good": f.good} for f in figures], indent=2))
    else:
        _print(figures)
    return 0 if all(figure.good for figure in figures) else 1


def _grok(settings: Settings, paths: Paths) -> Path | None:
    """Grok's binary, if there is one."""
    try:
        return resolve(dataclasses.replace(settings, engine="grok"), paths).binary
    except EngineError:
        return None


def _say(text: str) -> None:
    print(f"grok-gateway bench: {text}", file=sys.stderr, flush=True)


def _print(figures: Sequence[Figure]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("figure", "measured", "at most", ""):
        table.add_column(column, no_wrap=True)
    table.add_column("detail")
    for f in figures:
        mark = "[green]ok[/]" if f.good else "[red]above[/]"
        limit = "" if f.limit is None else f"{f.limit:g} {f.unit}"
        table.add_row(f.name, f"{f.value:.3g} {f.unit}", limit, mark if limit else "", f.detail)
    Console().print(table, highlight=False)
