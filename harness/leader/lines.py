"""The lines of a bridge's client, out of pieces of any size.

Sans-I/O, and linear in the length of a line: its pieces are kept apart until it is whole, for a line of many
megabytes that is joined and searched again with every piece takes a bridge half a minute.

`gateway.wire.ndjson.LineSplitter` does more, and what it imports takes as long as all of a bridge's start.
"""

from __future__ import annotations

__all__ = ["LineReader"]


class LineReader:
    """Bytes in, lines out.  A line of more than ``limit`` bytes is passed over, up to its end."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []  # of a line without its end
        self._size = 0
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that are whole now, without their ends; None, at once, for one that is too long."""
        *ends, rest = data.split(b"\n")
        found: list[bytes | None] = []
        for piece in ends:
            self._add(piece, found)
            if not self._skipping:
                found.append(b"".join(self._pieces))
            self._clear()
            self._skipping = False
        self._add(rest, found)
        return found

    def _add(self, piece: bytes, found: list[bytes | None]) -> None:
        if self._skipping or not piece:
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            self._clear()
            self._skipping = True
            found.append(None)

    def _clear(self) -> None:
        self._pieces, self._size = [], 0
