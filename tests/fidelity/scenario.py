"""What a scenario is: a number, a name, and a script that plays it against one engine.

A script may draw words and numbers from its `Play`; both engines get the same ones, every run gets others.
"""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tests.fidelity.normaliser import Rule

if TYPE_CHECKING:
    from tests.fidelity.play import Play

__all__ = ["SCENARIOS", "Deviation", "Scenario", "scenario"]

Script = Callable[["Play"], Awaitable[None]]


@dataclasses.dataclass(frozen=True)
class Deviation:
    """Where the embedded engine is meant to differ: a kind of message and a place, as shell patterns.

    ``timing``: both send it, but where it stands among other lines differs from one play to the next.
    """

    kind: str
    place: str
    reason: str
    timing: bool = False

    def covers(self, kind: str, place: str) -> bool:
        return fnmatch.fnmatchcase(kind, self.kind) and fnmatch.fnmatchcase(place, self.place)


@dataclasses.dataclass(frozen=True)
class Scenario:
    """``part``: whose behaviour it shows; ``differs``: where the engines are meant to differ here.

    ``rules`` are this scenario's own additions to the normaliser's list; ``distinct`` kinds of lines whose
    number is a matter of time; ``led``: played through a leader and its bridges;
    ``meant``: of facts that the script looks at, what they are with either engine.
    """

    number: int
    name: str
    part: str
    script: Script
    env: dict[str, str]
    differs: tuple[Deviation, ...] = ()
    rules: tuple[Rule, ...] = ()
    distinct: tuple[str, ...] = ()
    led: bool = False
    meant: Mapping[str, tuple[Any, Any]] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.number:02d}-{self.name.replace(' ', '-')}"


SCENARIOS: dict[int, Scenario] = {}


def scenario(
    number: int,
    name: str,
    part: str,
    env: dict[str, str] | None = None,
    differs: tuple[Deviation, ...] = (),
    rules: tuple[Rule, ...] = (),
    distinct: tuple[str, ...] = (),
    led: bool = False,
    meant: Mapping[str, tuple[Any, Any]] = MappingProxyType({}),
) -> Callable[[Script], Script]:
    """Register a script."""

    def register(script: Script) -> Script:
        if number in SCENARIOS:
            raise ValueError(f"two scenarios with the number {number}")
        SCENARIOS[number] = Scenario(
            number, name, part, script, env or {}, differs, rules, distinct, led, meant
        )
        return script

    return register
