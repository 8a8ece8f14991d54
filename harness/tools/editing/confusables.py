"""Typography that looks like ASCII: why a text that a model copied from a screen is not in the file.

`fold` rewrites a file's bytes as a model tends to write them and remembers where each byte came from, so
that a match in the folded text can be told, or applied, in the real one.
"""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Iterator

__all__ = ["Folded", "fold", "lines_with", "occurs_in"]

_ASCII = {
    "“": b'"',
    "”": b'"',
    "‘": b"'",
    "’": b"'",
    "—": b"--",
    "–": b"-",
    "…": b"...",
    "\u00a0": b" ",
}
_TABLE = {character.encode(): ascii_text for character, ascii_text in _ASCII.items()}
# Longest first is not needed: no sequence is the beginning of another, and UTF-8 sequences never overlap.
_PATTERN = re.compile(b"|".join(re.escape(sequence) for sequence in _TABLE))


def occurs_in(data: bytes) -> bool:
    return _PATTERN.search(data) is not None


def lines_with(data: bytes, start: int, end: int) -> list[int]:
    """Numbers of the lines touched by ``data[start:end]`` in which such a character stands."""
    first = data.count(b"\n", 0, start)
    begin = data.rfind(b"\n", 0, start) + 1
    stop = data.find(b"\n", end)
    region = data[begin : stop if stop >= 0 else len(data)]
    return [first + 1 + number for number, line in enumerate(region.split(b"\n")) if occurs_in(line)]


@dataclasses.dataclass(frozen=True, slots=True)
class Folded:
    """Folded bytes with the way back; ``places`` are (folded start, folded length, start, length)."""

    data: bytes
    places: tuple[tuple[int, int, int, int], ...]

    def find(self, needle: bytes) -> Iterator[tuple[int, int, bool]]:
        """Non-overlapping matches as (start, end, whole) in the real bytes.

        A match is not whole when it begins or ends inside what one character was folded to: two hyphens
        for a dash, of which one was asked for.
        """
        at = self.data.find(needle)
        while at >= 0:
            end = at + len(needle)
            start_real, start_whole = self._back(at, up=False)
            end_real, end_whole = self._back(end, up=True)
            yield start_real, end_real, start_whole and end_whole
            at = self.data.find(needle, end)

    def _back(self, position: int, *, up: bool) -> tuple[int, bool]:
        number = bisect.bisect_right(self.places, position, key=lambda place: place[0]) - 1
        if number < 0:
            return position, True
        folded, folded_length, real, length = self.places[number]
        if position == folded:
            return real, True
        if position >= folded + folded_length:
            return position - (folded + folded_length) + real + length, True
        return (real + length if up else real), False


def fold(data: bytes) -> Folded:
    parts = list[bytes]()
    places = list[tuple[int, int, int, int]]()
    done = size = 0
    for found in _PATTERN.finditer(data):
        before = data[done : found.start()]
        replacement = _TABLE[found[0]]
        size += len(before)
        places.append((size, len(replacement), found.start(), len(found[0])))
        size += len(replacement)
        parts += (before, replacement)
        done = found.end()
    parts.append(data[done:])
    return Folded(b"".join(parts), tuple(places))
