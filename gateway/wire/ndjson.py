"""Newline-delimited JSON: bytes in pieces of any size become whole lines.

Splitting is done on bytes and never on text: a character cut at the edge of a read must not be
decoded alone.  The work is linear in the input however small the reads are: only new bytes are
searched for the line feed, and a line is put together once.
"""

from __future__ import annotations

import dataclasses

from gateway.wire.limits import SIZES

__all__ = ["LineSplitter", "Overlong"]

_BOM = b"\xef\xbb\xbf"


@dataclasses.dataclass(frozen=True, slots=True)
class Overlong:
    """A line above the limit, dropped.  ``head`` are its first bytes: enough to find a JSON-RPC id."""

    size: int  #: bytes, without the line feed
    head: bytes


class LineSplitter:
    """Splits a byte stream at LF; one CR before it, empty lines and a leading byte order mark vanish.

    ``limit`` is the longest line in bytes, without its LF.  A longer one is skipped up to its
    line feed, its memory is given back at once, and it is collected in `take_overlong`.
    """

    def __init__(self, limit: int = SIZES.engine_line) -> None:
        self._limit = limit
        self._line = bytearray()  # the unfinished line, or the head of one that is being skipped
        self._skipped = 0  # size so far of the line that is being skipped; 0: none is
        self._overlong: list[Overlong] = []
        self._opening = True  # no line is finished yet: a byte order mark may come

    def feed(self, data: bytes | memoryview) -> list[bytes]:
        """The lines that ``data`` completes, in order, without their endings."""
        if not isinstance(data, bytes):
            data = bytes(data)
        first, *lines = data.split(b"\n")
        if not lines:
            self._extend(first)
            return []
        tail = lines.pop()
        finished = self._finish(first)
        if len(data) > self._limit:  # otherwise only the first line can exceed the limit
            lines = [self._within_limit(line) for line in lines]
        if b"\r" in data:
            lines = [line.removesuffix(b"\r") for line in lines]
        lines.insert(0, finished)
        if tail:
            self._extend(tail)
        return [line for line in lines if line]

    def take_overlong(self) -> list[Overlong]:
        """The lines dropped since the last call."""
        overlong, self._overlong = self._overlong, []
        return overlong

    def rest(self) -> bytes:
        """What stands after the last line feed (of a line being skipped: its head)."""
        return bytes(self._line)

    def _extend(self, piece: bytes) -> None:
        if self._skipped:
            self._skipped += len(piece)
            return
        self._line += piece
        if len(self._line) > self._limit:
            self._skipped = len(self._line)
            self._line = self._line[: SIZES.overlong_head]

    def _finish(self, piece: bytes) -> bytes:
        """The unfinished line with its last piece; empty when it is too long."""
        opening, self._opening = self._opening, False
        if self._skipped or self._line:
            self._extend(piece)
            if self._skipped:
                self._overlong.append(Overlong(self._skipped, bytes(self._line)))
                self._line, self._skipped = bytearray(), 0
                return b""
            piece, self._line = bytes(self._line), bytearray()
        line = self._within_limit(piece).removesuffix(b"\r")
        return line.removeprefix(_BOM) if opening else line

    def _within_limit(self, line: bytes) -> bytes:
        if len(line) <= self._limit:
            return line
        self._overlong.append(Overlong(len(line), line[: SIZES.overlong_head]))
        return b""
