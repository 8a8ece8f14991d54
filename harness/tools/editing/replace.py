"""The decision table of an exact replacement, on bytes.

Bytes, not text: decoding with replacement characters and encoding again would rewrite every byte that is
no UTF-8 somewhere else in the file.  UTF-8 makes this safe, because a valid sequence is found in bytes
exactly where it stands as characters.

A file with CRLF is matched as if its lines ended with LF and is written back with CRLF throughout: models
write LF.  Lone carriage returns are ordinary bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from enum import StrEnum

from harness.tools.editing.confusables import fold, occurs_in

__all__ = ["Decision", "Rules", "Span", "Verdict", "decide", "is_text", "view"]


class Verdict(StrEnum):
    """What becomes of a request; the first two rows write, the others change nothing."""

    CREATE = "create"
    REPLACE = "replace"
    NOT_TEXT = "not_text"
    SAME = "same"
    NOT_EMPTY = "not_empty"
    MISSING = "missing"
    NO_MATCH = "no_match"
    MANY = "many"
    OVERLAP = "overlap"


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """How lenient the table is.  ``overwrite``: an empty old text replaces a file that is not empty.

    ``folded``: where the text is not found, it is looked for with typography written as ASCII.
    """

    replace_all: bool = False
    overwrite: bool = False
    folded: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """One replaced place: offsets in the view of the new file, and what stood there before."""

    start: int
    end: int
    old: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """``data`` are the file's new bytes; ``body`` is their view with LF, to which ``spans`` belong."""

    verdict: Verdict
    data: bytes = b""
    body: bytes = b""
    spans: tuple[Span, ...] = ()
    matches: int = 0
    folded: bool = False
    line_ends_unified: bool = False


def decide(current: bytes | None, old: str, new: str, rules: Rules) -> Decision:
    """What the request does to a file with these bytes (None: there is no file)."""
    if not (is_text(old) and is_text(new)):
        return Decision(Verdict.NOT_TEXT)
    if old == new:
        return Decision(Verdict.SAME)
    if not old:
        return _create(current, new, rules)
    if current is None:
        return Decision(Verdict.MISSING)
    return _replace(current, old.encode(), new.encode(), rules)


def is_text(text: str) -> bool:
    """Whether UTF-8 can hold it; JSON can smuggle in half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def view(data: bytes) -> tuple[bytes, bool]:
    """The bytes as they are matched, and whether the file has CRLF."""
    if b"\r\n" not in data:
        return data, False
    return data.replace(b"\r\n", b"\n"), True


def _create(current: bytes | None, new: str, rules: Rules) -> Decision:
    if current and not rules.overwrite:
        return Decision(Verdict.NOT_EMPTY)
    data = new.encode()
    return Decision(Verdict.CREATE, data, data, (Span(0, len(data), b""),))


def _replace(current: bytes, old: bytes, new: bytes, rules: Rules) -> Decision:
    body, crlf = view(current)
    places = list(_occurrences(body, old))
    folded = False
    if not places and rules.folded and occurs_in(body):
        found = list(fold(body).find(fold(old).data))
        if not all(whole for _, _, whole in found):
            return Decision(Verdict.OVERLAP, matches=len(found))
        places = [(start, end) for start, end, _ in found]
        folded = bool(places)
    if not places:
        return Decision(Verdict.NO_MATCH)
    if len(places) > 1 and not rules.replace_all:
        return Decision(Verdict.MANY, matches=len(places))
    if crlf:
        new = new.replace(b"\r\n", b"\n")
    body, spans = _put(body, places, new)
    data = body.replace(b"\n", b"\r\n") if crlf else body
    unified = crlf and current.count(b"\n") > current.count(b"\r\n")
    return Decision(Verdict.REPLACE, data, body, spans, len(places), folded, unified)


def _occurrences(body: bytes, old: bytes) -> Iterator[tuple[int, int]]:
    at = body.find(old)
    while at >= 0:
        yield at, at + len(old)
        at = body.find(old, at + len(old))


def _put(body: bytes, places: list[tuple[int, int]], new: bytes) -> tuple[bytes, tuple[Span, ...]]:
    parts = list[bytes]()
    spans = list[Span]()
    done = size = 0
    for start, end in places:
        parts += (body[done:start], new)
        size += start - done
        spans.append(Span(size, size + len(new), body[start:end]))
        size += len(new)
        done = end
    parts.append(body[done:])
    return b"".join(parts), tuple(spans)
