"""Why nothing matched: the line that comes nearest, and lines whose typography only looks like ASCII."""

from __future__ import annotations

import dataclasses

from harness.tools.editing.confusables import fold, lines_with, occurs_in
from harness.tools.editing.replace import view

__all__ = ["NearestLine", "confusable_lines", "nearest_line"]


@dataclasses.dataclass(frozen=True, slots=True)
class NearestLine:
    number: int
    text: str


def nearest_line(current: bytes, old: str) -> NearestLine | None:
    """The first line with the longest word of the searched text's first line (the last of equally long)."""
    words = old.split("\n", 1)[0].encode(errors="replace").split()
    if not words:
        return None
    word = max(reversed(words), key=len)
    body, _ = view(current)
    at = body.find(word)
    if at < 0:
        return None
    begin = body.rfind(b"\n", 0, at) + 1
    end = body.find(b"\n", at)
    line = body[begin : end if end >= 0 else len(body)]
    return NearestLine(body.count(b"\n", 0, at) + 1, line.decode(errors="replace").rstrip())


def confusable_lines(current: bytes, old: str) -> list[int]:
    """Lines where the searched text stands with other characters that look the same; none: it does not."""
    body, _ = view(current)
    needle = fold(old.encode(errors="replace")).data
    if not needle or not occurs_in(body):
        return []
    found = next(fold(body).find(needle), None)
    if found is None:
        return []
    start, end, _ = found
    return lines_with(body, start, end)
