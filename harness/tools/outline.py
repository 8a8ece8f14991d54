"""A directory as an indented outline that fits a bound: pure functions.

Directories are opened level by level while the text fits.  One that does not fit is summed up in a line
and the next are tried all the same, so that a huge folder does not hide its small neighbours.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Sequence

from harness.limits import SIZES

__all__ = ["Folder", "Outline", "grow", "outline"]

_INDENT = "  "
_NO_EXTENSION = "no-ext"


@dataclasses.dataclass(slots=True)
class Folder:
    """A directory with what is in it; ``files`` counts all the way down, by extension."""

    name: str
    depth: int
    entries: list[tuple[str, Folder | None]] = dataclasses.field(default_factory=list)
    files: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    opened: bool = False

    def in_order(self) -> list[tuple[str, Folder | None]]:
        return sorted(self.entries, key=lambda entry: (entry[0].lower(), entry[0]))


@dataclasses.dataclass(frozen=True, slots=True)
class Outline:
    """The text; ``complete``: nothing is summed up or left out; ``cut``: not even the first level fits."""

    text: str
    complete: bool
    cut: bool


def grow(entries: Iterable[tuple[str, bool]]) -> Folder:
    """The tree of (path below the top, is a directory); parents come before what is in them."""
    top = Folder("", 0)
    folders = {"": top}
    for path, is_dir in entries:
        parent, _, name = path.rpartition("/")
        folder = folders.get(parent)
        if folder is None:
            continue
        child = Folder(name, folder.depth + 1) if is_dir else None
        folder.entries.append((name, child))
        if child is not None:
            folders[path] = child
            continue
        kind = _kind(name)
        while True:
            folders[parent].files[kind] += 1
            if not parent:
                break
            parent = parent.rpartition("/")[0]
    return top


def outline(header: str, top: Folder, limit: int = SIZES.list_text) -> Outline:
    """The header line and the tree below it, which takes at most ``limit`` characters."""
    first = _lines(top)
    size = _length(first)
    if size > limit:
        return Outline(_cut(header, first, limit), complete=False, cut=True)
    top.opened = True
    waiting = collections.deque(folder for _, folder in top.in_order() if folder is not None)
    complete = True
    while waiting:
        folder = waiting.popleft()
        lines = _lines(folder)
        more = _length(lines) - _length(_summary(folder))
        if size + more > limit:
            complete = False
            continue
        size += more
        folder.opened = True
        waiting.extend(child for _, child in folder.in_order() if child is not None)
    return Outline("\n".join([header, *(_written(top) or [""])]), complete, cut=False)


def _lines(folder: Folder) -> list[str]:
    """What opening the folder shows: its entries, the folders among them summed up."""
    lines = list[str]()
    for name, child in folder.in_order():
        lines.append(_entry(folder, name, child))
        if child is not None:
            lines += _summary(child)
    return lines


def _written(folder: Folder) -> list[str]:
    lines = list[str]()
    for name, child in folder.in_order():
        lines.append(_entry(folder, name, child))
        if child is not None:
            lines += _written(child) if child.opened else _summary(child)
    return lines


def _entry(folder: Folder, name: str, child: Folder | None) -> str:
    return f"{_INDENT * (folder.depth + 1)}- {name}{'/' if child is not None else ''}"


def _summary(folder: Folder) -> list[str]:
    if not folder.files:
        return []
    count = folder.files.total()
    kinds = sorted(folder.files.items(), key=lambda item: (-item[1], item[0].lstrip(".")))
    shown = [f"{number} *{kind}" for kind, number in kinds[: SIZES.list_extensions]]
    if len(kinds) > SIZES.list_extensions:
        shown.append("...")
    what = "file" if count == 1 else "files"
    return [f"{_INDENT * (folder.depth + 1)}[{count} {what} in subtree: {', '.join(shown)}]"]


def _kind(name: str) -> str:
    """``.py`` of ``a.PY``; the part behind the last dot, as long as something stands before it."""
    stem, dot, ending = name.rpartition(".")
    return f".{ending.lower()}" if dot and stem and ending else _NO_EXTENSION


def _cut(header: str, lines: Sequence[str], room: int) -> str:
    shown = list[str]()
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    return "\n".join([header, *shown, f"{_INDENT * 2}..."])


def _length(lines: Sequence[str]) -> int:
    return sum(len(line) + 1 for line in lines)
