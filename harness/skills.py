"""Which skills the model has been told of, so that each is announced once.

A skill is a file with instructions for a kind of work; the model reads it when the work comes up.  What it
needs beforehand is a line a skill.  The listing has a budget: descriptions are shortened first, then left
out, then the last entries go; those count as announced, because telling them later would not find more room.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from harness.limits import SIZES

__all__ = ["Skill", "SkillTracker", "listing"]


@dataclasses.dataclass(frozen=True, slots=True)
class Skill:
    """``path`` is canonical: one file under two names is one skill."""

    name: str
    description: str
    path: str


class SkillTracker:
    """The skills of one session, found at its start or on its way."""

    state_key = "announced_skills"

    def __init__(self) -> None:
        self._skills = dict[str, Skill]()
        self._announced = set[str]()

    @property
    def skills(self) -> tuple[Skill, ...]:
        return tuple(self._skills.values())

    @property
    def announced(self) -> frozenset[str]:
        return frozenset(self._announced)

    def add(self, found: Iterable[Skill]) -> tuple[Skill, ...]:
        """Take in what is new by path and by name, and return that."""
        paths = {skill.path for skill in self._skills.values()}
        new = list[Skill]()
        for skill in found:
            if skill.name not in self._skills and skill.path not in paths:
                self._skills[skill.name] = skill
                paths.add(skill.path)
                new.append(skill)
        return tuple(new)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._skills.pop(name, None)

    def announce(self, window_tokens: int | None = None) -> str:
        """The listing of everything that has not been announced; empty when there is nothing."""
        pending = [skill for skill in self._skills.values() if skill.name not in self._announced]
        self._announced.update(skill.name for skill in pending)
        return listing(pending, window_tokens)

    def forget_announced(self) -> None:
        """A compaction took the listings out of the conversation: announce all again."""
        self._announced.clear()

    def restore(self, state: Iterable[str]) -> None:
        """A resumed conversation holds the listings of these names already."""
        self._announced.update(state)

    def state(self) -> list[str]:
        return sorted(self._announced)


def listing(skills: Sequence[Skill], window_tokens: int | None = None, budget: int | None = None) -> str:
    """One line a skill within the budget of characters that the model's window leaves."""
    if budget is None:
        known = window_tokens is not None
        budget = (
            SIZES.skill_listing_per_token * (window_tokens or 0) if known else SIZES.skill_listing_unknown
        )
    for described in (SIZES.skill_entry, SIZES.skill_description_floor):
        lines = [_line(skill, described) for skill in skills]
        if _length(lines) <= budget:
            return "\n".join(lines)
    lines = [_line(skill, 0) for skill in skills]
    while lines and _length(lines) > budget:
        lines.pop()
    return "\n".join(lines)


def _line(skill: Skill, described: int) -> str:
    """One entry, its description cut so that the whole stays within an entry's bytes."""
    head = f"- {skill.name}"
    room = min(described, SIZES.skill_entry - len(f"{head}:  ({skill.path})".encode()))
    description = _cut(" ".join(skill.description.split()), room)
    return f"{head}: {description} ({skill.path})" if description else f"{head} ({skill.path})"


def _cut(text: str, size: int) -> str:
    """A text within so many bytes; what would be shorter than the floor says nothing and is left out."""
    if len(text.encode()) <= size:
        return text
    if size < SIZES.skill_description_floor:
        return ""
    return text.encode()[: size - 3].decode(errors="ignore").rstrip() + "…"


def _length(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)
