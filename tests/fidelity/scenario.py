"""What a scenario is: a number, a name, and a script that plays it against one engine.

A script may draw words and numbers from its `Play`; both engines get the same ones, every run gets others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tests.fidelity.normaliser import Rule

if TYPE_CHECKING:
    from tests.fidelity.play import Play

__all__ = ["SCENARIOS", "Scenario", "scenario"]

Script = Callable[["Play"], Awaitable[None]]


@dataclasses.dataclass(frozen=True)
class Scenario:
    """``part``: whose behaviour it shows; ``differs``: why the engines are meant to differ here, if they are.

    ``rules`` are this scenario's own additions to the normaliser's list; ``distinct`` kinds of lines whose number is
    a matter of time.
    """

    number: int
    name: str
    part: str
    script: Script
    env: dict[str, str]
    differs: str = ""
    rules: tuple[Rule, ...] = ()
    distinct: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.number:02d}-{self.name.replace(' ', '-')}"


SCENARIOS: dict[int, Scenario] = {}


def scenario(
    number: int,
    name: str,
    part: str,
    env: dict[str, str] | None = None,
    differs: str = "",
    rules: tuple[Rule, ...] = (),
    distinct: tuple[str, ...] = (),
) -> Callable[[Script], Script]:
    """Register a script."""

    def register(script: Script) -> Script:
        if number in SCENARIOS:
            raise ValueError(f"two scenarios with the number {number}")
        SCENARIOS[number] = Scenario(number, name, part, script, env or {}, differs, rules, distinct)
        return script

    return register
