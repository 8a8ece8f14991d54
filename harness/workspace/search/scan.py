"""Searching one file, printed as ``rg`` prints it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator

from harness.limits import SIZES
from harness.workspace.search.request import Mode, SearchRequest

__all__ = ["Matcher", "Scanner"]

#: The regular expression of a request.
Matcher = re.Pattern[str]
_CODECS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_MAY_CROSS = re.compile(r"\n|\.|\\[nsDWPxu]|\[\^|\\U")
_OMITTED = " [... omitted end of long line]"


class Scanner:
    """Prints the matches of file after file; ``write`` takes whole lines."""

    def __init__(self, request: SearchRequest, matcher: Matcher, write: Callable[[str], None]) -> None:
        self._request, self._matcher, self._write = request, matcher, write
        self._printed = False
        self.matched = False

    def scan(self, name: str, data: bytes, *, named: bool) -> None:
        """A file with a NUL is no text: skipped on the way, but told of when it was named."""
        text = _decode(data)
        zero = data.find(b"\0") if text is None else -1
        if zero >= 0 and not named:
            return
        if text is None:
            text = data.decode("utf-8", "surrogateescape")
        match self._request.mode:
            case Mode.FILES_WITH_MATCHES:
                if self._found(text):
                    self._line(name)
            case Mode.COUNT:
                if count := self._count(text):
                    self._line(f"{name}:{count}")
            case _:
                self._content(name, text, zero)

    def _line(self, text: str) -> None:
        self.matched = True
        self._write(text + "\n")

    def _found(self, text: str) -> bool:
        return next(self._matches(text), None) is not None

    def _count(self, text: str) -> int:
        """Lines with a match; where a match may span lines, matches."""
        return sum(1 for _ in self._matches(text))

    def _matches(self, text: str) -> Iterator[tuple[int, int]]:
        """For each matching line, or in multiline mode for each match, its first and last line."""
        if self._request.multiline and _crosses_lines(self._matcher.pattern):
            yield from self._spans(text)
            return
        if self._matcher.search(text) is None and not _line_anchored(self._matcher.pattern):
            return  # nothing in the whole is nothing in a line, and far quicker to know
        for number, line in enumerate(_lines(text)):
            if self._matcher.search(line):
                yield number, number

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        starts = [0, *(found.end() for found in re.finditer("\n", text))]
        for found in self._matcher.finditer(text):
            start, end = found.span()
            if start == len(text) and (not text or text.endswith("\n")):
                return  # an empty match behind the last line is in none
            last = max(start, end - 1)
            yield bisect_right(starts, start) - 1, bisect_right(starts, last) - 1

    def _content(self, name: str, text: str, zero: int) -> None:
        spans = list(self._matches(text))
        if not spans:
            return
        if zero >= 0:
            self._line(f'{name}: binary file matches (found "\\0" byte around offset {zero})')
            return
        lines = _lines(text)
        matching = {number for first, last in spans for number in range(first, last + 1)}
        before, after = self._request.before, self._request.after
        if self._printed:
            self._line("")
        self._printed = True
        self._line(name)
        previous = -1
        for number in sorted(_with_context(matching, before, after, len(lines))):
            if (before or after) and previous >= 0 and number > previous + 1:
                self._line("--")
            mark = ":" if number in matching else "-"
            self._line(f"{number + 1}{mark}{_clipped(lines[number])}")
            previous = number


def _with_context(matching: set[int], before: int, after: int, count: int) -> set[int]:
    if not before and not after:
        return matching
    return {
        near for number in matching for near in range(max(0, number - before), min(count, number + after + 1))
    }


def _decode(data: bytes) -> str | None:
    """The text, or None for what has a NUL and no mark that explains it."""
    for mark, codec in _CODECS:
        if data.startswith(mark):
            errors = "surrogateescape" if codec == "utf-8" else "replace"
            text = data[len(mark) :].decode(codec, errors)
            return text if codec != "utf-8" or "\0" not in text else None
    return None if b"\0" in data else data.decode("utf-8", "surrogateescape")


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1] == "":
        del lines[-1]
    return lines


def _clipped(line: str) -> str:
    """``rg`` counts bytes to tell a long line and characters to cut it."""
    if len(line) * 4 < SIZES.grep_line or len(line.encode("utf-8", "surrogateescape")) <= SIZES.grep_line:
        return line
    return line[: SIZES.grep_line] + _OMITTED


def _crosses_lines(pattern: str) -> bool:
    """Whether a match may hold a newline, as far as that can be told from the pattern's text."""
    return _MAY_CROSS.search(pattern) is not None


def _line_anchored(pattern: str) -> bool:
    """Whether a match in a line need not be one in the whole text."""
    return "\\A" in pattern or "\\Z" in pattern
