"""The part of an output that is kept in memory: its beginning, its end, and exact counts of the rest."""

from __future__ import annotations

import codecs
import collections

__all__ = ["CUT_MARK", "OutputRing"]

#: Stands between the two kept parts.
CUT_MARK = "... (output truncated) ..."


class OutputRing:
    """Takes bytes as they come and keeps at most ``limit`` characters.

    Up to the limit everything is kept.  The first character too many freezes the first half as the head,
    and from then on only the last half-limit of characters is kept beside it.  Counted in characters, as a
    model does; ``total_bytes`` counts what the command really wrote.
    """

    def __init__(self, limit: int) -> None:
        self.total_bytes = 0
        self.total_chars = 0
        self._limit = max(2, limit)
        self._half = self._limit // 2
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._head: str | None = None
        self._pieces = collections.deque[str]()
        self._held = 0

    @property
    def truncated(self) -> bool:
        return self._head is not None

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """Take the next bytes; ``final`` ends a character that was cut off."""
        self.total_bytes += len(data)
        text = self._decode(data, final)
        if not text:
            return
        self.total_chars += len(text)
        self._pieces.append(text)
        self._held += len(text)
        if self._head is None and self._held > self._limit:
            whole = "".join(self._pieces)
            self._head = whole[: self._half]
            self._keep(whole)
        elif self._head is not None:
            self._trim()

    def _keep(self, text: str) -> None:
        self._pieces.clear()
        self._pieces.append(text[-self._half :])
        self._held = len(self._pieces[0])

    def _trim(self) -> None:
        # Whole pieces go first; the oldest is cut only when it is large, so that a byte at a time costs
        # no copy of everything that is kept.
        while self._held - len(self._pieces[0]) >= self._half:
            self._held -= len(self._pieces.popleft())
        if self._held > 2 * self._limit or len(self._pieces) > self._limit:
            self._keep("".join(self._pieces))

    def tail(self) -> str:
        """All of it while nothing was cut, else the last half-limit of characters."""
        text = "".join(self._pieces)
        if self._head is not None:
            self._keep(text)
            return self._pieces[0]
        return text

    def render(self) -> str:
        """What is kept, with a mark between the parts when something is missing."""
        if self._head is None:
            return self.tail()
        return f"{self._head.rstrip()}\n\n{CUT_MARK}\n\n{self.tail().lstrip()}"
