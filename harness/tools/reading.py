"""Which lines of a file are shown, and how: pure functions.

A file is what stands between its newlines, so a file that ends with one has a last, empty field.  It is
counted, because a model that appends to a file must know whether that newline is there.
"""

from __future__ import annotations

import dataclasses
import re

from harness.limits import SIZES

__all__ = ["Window", "is_binary", "numbered", "take_window", "tokens", "whole_file_names"]

_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")
_BINARY_ENDINGS = re.compile(
    r"\.(?:exe|dll|so|dylib|a|o|obj|lib|bin|class|jar|war|py[co]|wasm|zip|tar|gz|tgz|bz2|xz|zst|7z|rar|iso|dmg"
    r"|deb|rpm|docx?|xlsx?|pptx?|od[tsp]|pdf|png|jpe?g|gif|bmp|tiff?|webp|ico|psd|mp[34]|avi|mov|mkv|webm|wav"
    r"|flac|ogg|m4a|[ot]tf|woff2?|eot|sqlite|db|parquet|pickle|pkl|np[yz])\Z",
    re.IGNORECASE,
)
#: Instructions for the model: half of them would be worse than none.
_WHOLE = frozenset(("SKILL.md", "AGENTS.md", "CLAUDE.md"))


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """The fields of a file from ``first`` (counted from 1) and how many there are in all."""

    lines: tuple[str, ...]
    first: int
    total: int

    @property
    def beyond(self) -> bool:
        """Whether the window begins behind the last field."""
        return self.first > self.total

    @property
    def complete(self) -> bool:
        return self.first == 1 and len(self.lines) == self.total


def is_binary(path: str, data: bytes) -> bool:
    """By its name, or by what its first bytes are."""
    if _BINARY_ENDINGS.search(path):
        return True
    sample = data[: SIZES.binary_sample]
    if b"\0" in sample:
        return True
    strange = sum((byte < 0x20 and byte not in _TEXT_CONTROLS) or byte == 0x7F for byte in sample)
    return strange * 100 > len(sample) * SIZES.binary_percent


def whole_file_names(path: str) -> bool:
    """Whether the file is always read whole."""
    *folders, name = path.split("/")
    return name in _WHOLE or (name.endswith(".md") and "skills" in folders)


def take_window(text: str, offset: int | None, limit: int | None, most: int | None) -> Window:
    """The asked-for lines.  A negative offset counts from the end, 0 is the first line.

    A file without a newline at its end is given one more place to count back from, so that -1 is always
    the place behind the last newline.
    """
    fields = [line.removesuffix("\r") for line in text.split("\n")]
    total = len(fields)
    first = offset or 1
    if first < 0:
        first = max(1, total + (fields[-1] != "") + 1 + first)
    wanted = total if limit is None else limit
    if most is not None:
        wanted = min(wanted, most)
    return Window(tuple(fields[first - 1 : first - 1 + wanted]), first, total)


def numbered(window: Window) -> str:
    """The lines with a number at the first and at every tenth one of the file.

    A number at each line would cost a model several tokens for every line that it reads.
    """
    return "\n".join(
        f"{number}→{line}" if number == window.first or number % SIZES.read_anchor == 0 else line
        for number, line in enumerate(window.lines, window.first)
    )


def tokens(text: str) -> int:
    """A rough estimate: English and code have about four bytes a token."""
    return len(text.encode(errors="replace")) // SIZES.bytes_per_token
