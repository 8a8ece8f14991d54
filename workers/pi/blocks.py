"""The content blocks of one assistant message, and the events that make them in Pi.

Sans-I/O.  At most one block is open.  When Grok repeats a model call after an error it sends the text again
from the start, as another stream; what is on screen already is not shown twice.  The notice of the error
may overtake the last words of the stream that broke, so a repetition begins with the first word of the
next stream.  Where the repeated text differs, what is on screen stays, the rest follows, and `texts` holds
what the block should have been.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal

__all__ = ["Block", "BlockType", "Blocks", "Event"]

BlockType = Literal["text", "thinking"]

#: Members of a ``turn/event`` beside turn and seq.
Event = dict[str, Any]


@dataclasses.dataclass(slots=True, eq=False)
class Block:
    """``text`` is what Pi has been sent; ``right``, where it is not None, what it should be."""

    type: BlockType
    text: str = ""
    right: str | None = None
    open: bool = True


@dataclasses.dataclass(slots=True)
class _Said:
    """Text of one kind in the present model call."""

    block: Block
    start: int  #: where it begins in its block
    text: str = ""
    again: int | None = None  #: a repetition has come so far; None: none runs


class Blocks:
    """See the module."""

    def __init__(self) -> None:
        self._blocks = list[Block]()
        self._said = dict[BlockType, _Said]()
        self._stream: Any = None  # name of the present model call's stream
        self._broken: Any = None  # and of the one that it repeats
        self._repeats = False  # the next stream is a repetition

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def text(self) -> str:
        """All text blocks, as they should be."""
        return "\n\n".join(_right(b) for b in self._blocks if b.type == "text" and _right(b))

    def model(self, kind: BlockType, text: str, stream: Any = None) -> list[Event]:
        """Text of the model; ``stream`` tells its attempts to answer apart."""
        if stream is not None and stream == self._broken:
            return []  # it comes again
        if stream != self._stream:
            self._next_stream(stream)
        said = self._said.get(kind)
        if said is not None and said.again is not None:
            text, differs = _beyond(said, text)
            if differs:
                return self._diverge(said, kind, text)
        if not text:
            return []
        events = self._append(kind, text)
        block = self._blocks[-1]
        if said is None or said.block is not block:
            said = self._said[kind] = _Said(block, len(block.text) - len(text))
        said.text += text
        return events

    def note(self, text: str) -> list[Event]:
        """A line of our own, as thinking text on a line of its own."""
        last = self._blocks[-1] if self._blocks else None
        glued = last is not None and last.open and last.type == "thinking" and not last.text.endswith("\n")
        return self._append("thinking", "\n" + text if glued and last and last.text else text)

    def broken(self) -> None:
        """Grok begins the model call anew: the next stream repeats it."""
        self._repeats = True

    def _next_stream(self, stream: Any) -> None:
        if self._repeats:
            self._broken, self._repeats = self._stream, False
            for said in self._said.values():
                said.again = 0
        else:
            self.call_ended()
        self._stream = stream

    def call_ended(self) -> None:
        """The model call is over: what comes next is no repetition of it."""
        for said in self._said.values():
            if said.again is not None and said.again < len(said.text):  # the repetition was shorter
                said.block.right = said.block.text[: said.start + said.again]
        self._said = {}

    def close(self) -> list[Event]:
        """Close the open block, if one is."""
        if not self._blocks or not self._blocks[-1].open:
            return []
        self._blocks[-1].open = False
        return [{"op": "end", "i": len(self._blocks) - 1}]

    def texts(self) -> dict[str, str]:
        """By index, the blocks that have to be replaced."""
        return {str(i): _right(b) for i, b in enumerate(self._blocks) if _right(b) != b.text}

    def missing(self, known: Iterable[Mapping[str, Any]]) -> list[Event]:
        """Events for somebody who has these blocks already: ``{type, chars}``, UTF-16 units each."""
        counts = [int(block.get("chars") or 0) for block in known]
        events = list[Event]()
        for index, block in enumerate(self._blocks):
            if index >= len(counts):
                events.append({"op": "start", "i": index, "type": block.type})
            rest = _after(block.text, counts[index] if index < len(counts) else 0)
            if rest:
                events.append({"op": "delta", "i": index, "text": rest})
            if not block.open and index >= len(counts) - 1:
                events.append({"op": "end", "i": index})
        return events

    def _append(self, kind: BlockType, text: str) -> list[Event]:
        events = list[Event]()
        if not self._blocks or not self._blocks[-1].open or self._blocks[-1].type != kind:
            events += self.close()
            events.append({"op": "start", "i": len(self._blocks), "type": kind})
            self._blocks.append(Block(kind))
        block = self._blocks[-1]
        block.text += text
        if block.right is not None:
            block.right += text
        events.append({"op": "delta", "i": len(self._blocks) - 1, "text": text})
        return events

    def _diverge(self, said: _Said, kind: BlockType, text: str) -> list[Event]:
        """The repetition says something else from here on."""
        block, same = said.block, said.again or 0
        right = block.text[: said.start + same] + text
        said.again = None
        if block is not self._blocks[-1] or not block.open:
            block.right = block.text[: said.start + same]
            del self._said[kind]
            return self.model(kind, text, self._stream)
        events = self._append(kind, "\n" + text)
        block.right = right
        said.text = said.text[:same] + text
        return events


def _right(block: Block) -> str:
    return block.text if block.right is None else block.right


def _beyond(said: _Said, text: str) -> tuple[str, bool]:
    """What a piece of a repetition adds, and whether it differs from what was said first."""
    at = said.again or 0
    expected = said.text[at : at + len(text)]
    same = 0
    while same < len(expected) and expected[same] == text[same]:
        same += 1
    said.again = at + same
    if same < len(expected):
        return text[same:], True
    if said.again == len(said.text):
        said.again = None
    return text[same:], False


def _after(text: str, units: int) -> str:
    """``text`` without its first UTF-16 units."""
    if text.isascii():
        return text[units:]
    return text.encode("utf-16-le", "surrogatepass")[2 * units :].decode("utf-16-le", "replace")
