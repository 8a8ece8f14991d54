"""Which lines differ between two texts.

`difflib` alone needs seconds for a long file with many equal lines.  What both have in common at the
beginning and the end is taken off first; an edit leaves little in between.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Sequence

from harness.limits import SIZES

__all__ = ["Region", "differences", "patch", "split_lines"]

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


@dataclasses.dataclass(frozen=True, slots=True)
class Region:
    """``old[old_start:old_end]`` became ``new[new_start:new_end]``; indexes count lines from 0."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def split_lines(text: str) -> list[str]:
    """Lines with their ends; `str.splitlines` would also split at form feeds and other characters."""
    return _LINE.findall(text)


def differences(old: Sequence[str], new: Sequence[str]) -> list[Region]:
    """Regions in order; between two of them at least one line is equal."""
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < shorter - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    old_middle, new_middle = old[head : len(old) - tail], new[head : len(new) - tail]
    # Lines that are everywhere cost the most and tell the least; in a huge rest they are left out.
    cheap = len(old_middle) * len(new_middle) > SIZES.diff_cells
    matcher = difflib.SequenceMatcher(None, old_middle, new_middle, autojunk=cheap)
    return [
        Region(head + i1, head + i2, head + j1, head + j2)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    ]


def patch(path: str, old: str, new: str, *, context: int = 3) -> str:
    """A unified diff as git writes it, without an index line."""
    name = path.lstrip("/")
    lines = difflib.unified_diff(split_lines(old), split_lines(new), f"a/{name}", f"b/{name}", n=context)
    return "".join(
        line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines
    )
