"""JSON text with spans: read strictly, changed by splicing, never printed again as a whole.

`Reader` is the standard library's C scanner with three things on top: it refuses what is no JSON
(``NaN``), it notes what two readers may take differently (a member that stands twice) or what Grok
drops (a number beyond a double), and it tells where the members of an object stand.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import re
from collections.abc import Iterable
from typing import Any, NoReturn

from gateway.wire.limits import SIZES

__all__ = [
    "Reader",
    "Span",
    "depth",
    "dump",
    "members",
    "repaired",
    "set_member",
    "shown",
    "spans_in_bytes",
    "splice",
    "structure",
]

#: A string; an unterminated one is taken to the end, so that no start is tried twice (linear cost).
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_SEPARATORS = b",:[{"
_ALL_BUT_SEPARATORS = bytes(set(range(256)) - set(_SEPARATORS))
_SURROGATE_HINT = re.compile(rb"\\u[dD][89a-fA-F]")
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE = re.compile(rb"%b(?!%b)|(?<!%b)%b" % (_HIGH, _LOW, _HIGH, _LOW))
_BLANK = re.compile(r"[ \t\n\r]*")
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """A member of a JSON object: its value, and where it stands in the bytes (half-open)."""

    value: Any
    key: int  #: start of the key
    start: int  #: start of the value
    end: int  #: end of the value


def splice(data: bytes, edits: Iterable[tuple[int, int, bytes]]) -> bytes:
    """``data`` with each ``data[start:end]`` replaced; the spans do not overlap."""
    parts, position = list[bytes](), 0
    for start, end, raw in sorted(edits):
        parts += (data[position:start], raw)
        position = end
    parts.append(data[position:])
    return b"".join(parts)


def structure(data: bytes) -> int:
    """How many values a JSON text has, about: parsing costs that much, not the length of its strings.

    Counting ends above ``SIZES.structure``.
    """
    count = len(data.translate(None, _ALL_BUT_SEPARATORS))
    if count <= SIZES.structure:
        return count
    count = position = 0  # perhaps most of them stand inside of strings
    for string in _STRING.finditer(data):
        count += 1 + len(data[position : string.start()].translate(None, _ALL_BUT_SEPARATORS))
        position = string.end()
        if count > SIZES.structure:
            return count
    return count + len(data[position:].translate(None, _ALL_BUT_SEPARATORS))


class Reader:
    """Strict JSON with spans: the standard library's C scanner, walked by hand at one level."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.id_twice = False
        self.problem = ""  #: the first thing that Grok would not read as we do
        self._scan = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_float=self._float,
            parse_int=self._int,
            parse_constant=self._constant,
        ).raw_decode

    def value(self, index: int) -> tuple[Any, int]:
        """The value at ``index`` and its end.  Raises ValueError, RecursionError."""
        return self._scan(self.text, index)

    def blank(self, index: int) -> int:
        """The first index at or after ``index`` that is no white space."""
        return _end(_BLANK.match(self.text, index))

    def object(self, index: int, found: dict[str, Span]) -> int:
        """Put the members of the object at ``index`` into ``found``, spans in characters; its end.

        Raises like `value`; what came before the trouble is in ``found`` then.
        """
        index = self.blank(index + 1)
        if self.text[index : index + 1] == "}":
            return index + 1
        while True:
            key_at = index
            if self.text[index : index + 1] != '"':
                raise json.JSONDecodeError("Expecting a member name", self.text, index)
            key, index = self.value(index)
            index = self.blank(index)
            if self.text[index : index + 1] != ":":
                raise json.JSONDecodeError("Expecting ':'", self.text, index)
            start = self.blank(index + 1)
            problem = self.problem
            value, end = self.value(start)
            if key == "id":  # Grok never sees a client's id: what only Grok cannot read is no problem
                self.problem = problem
            if key in found:
                self.id_twice = self.id_twice or key == "id"
                self._note(f"the member {shown(key)} stands twice")
            found[key] = Span(value, key_at, start, end)
            index = self.blank(end)
            mark = self.text[index : index + 1]
            if mark == "}":
                return index + 1
            if mark != ",":
                raise json.JSONDecodeError("Expecting ',' or '}'", self.text, index)
            index = self.blank(index + 1)

    def _note(self, problem: str) -> None:
        self.problem = self.problem or problem

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            (twice, _), *_ = collections.Counter(name for name, _ in pairs).most_common(1)
            self._note(f"the member {shown(twice)} stands twice")
        return result

    def _float(self, digits: str) -> float:
        number = float(digits)
        if math.isinf(number):
            self._note("a number is beyond the range of a double")
        return number

    def _int(self, digits: str) -> int | float:
        return int(digits) if len(digits) <= 300 else self._float(digits)

    def _constant(self, name: str) -> NoReturn:
        raise json.JSONDecodeError(f"{name} is not JSON", self.text, 0)


def members(raw: bytes) -> dict[str, Span]:
    """The members of a JSON object, spans in bytes.  Raises ValueError when ``raw`` is not one."""
    text = raw.decode("utf-8")
    reader = Reader(text)
    start = reader.blank(0)
    if text[start : start + 1] != "{":
        raise ValueError("not a JSON object")
    spans = dict[str, Span]()
    end = reader.object(start, spans)
    if reader.blank(end) != len(text):
        raise ValueError("more than one JSON value")
    return spans if text.isascii() else spans_in_bytes(text, spans)


def set_member(raw: bytes, name: str, value_raw: bytes) -> bytes:
    """The JSON object ``raw`` with member ``name`` set; every other byte stays."""
    spans = members(raw)
    if span := spans.get(name):
        return splice(raw, [(span.start, span.end, value_raw)])
    at = raw.rindex(b"}")
    comma = b"," if spans else b""
    return raw[:at] + comma + dump(name) + b":" + value_raw + raw[at:]


def repaired(line: bytes, keep: Span | None) -> bytes:
    """A valid ``line`` with each lone surrogate replaced by U+FFFD, the same object if it has none.

    The length stays.  ``keep`` is the id, which is echoed as it came.
    """
    if not _SURROGATE_HINT.search(line):
        return line
    # Escaped backslashes are set aside (valid JSON has no NUL): the one in front of a "u" is an escape.
    masked = line.replace(b"\\\\", b"\0\0")
    fixed = _LONE.sub(rb"\\ufffd", masked).replace(b"\0\0", b"\\\\")
    if keep:
        fixed = splice(fixed, [(keep.start, keep.end, line[keep.start : keep.end])])
    return line if fixed == line else fixed


def _end(match: re.Match[Any] | None) -> int:
    assert match, "a pattern that matches nothing always matches"
    return match.end()


def depth(value: Any) -> int:
    """Levels of containers in a parsed value; counting ends above ``SIZES.depth``."""
    level, levels = [value], 0
    while level and levels <= SIZES.depth:
        levels += 1
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
    return levels


def spans_in_bytes(text: str, spans: dict[str, Span]) -> dict[str, Span]:
    """Spans in characters of ``text`` as spans in bytes of its UTF-8."""
    offsets, done, size = dict[int, int](), 0, 0
    for index in sorted({i for span in spans.values() for i in (span.key, span.start, span.end)}):
        size += len(text[done:index].encode())
        offsets[index], done = size, index
    return {
        name: Span(span.value, offsets[span.key], offsets[span.start], offsets[span.end])
        for name, span in spans.items()
    }


def shown(name: str) -> str:
    """A client's word for an error text: printable ASCII in quotes, shortened."""
    return json.dumps(name if len(name) <= 64 else name[:64] + "…")


def dump(value: Any) -> bytes:
    """Compact JSON in ASCII (which holds any string, lone surrogates too)."""
    return _ENCODER.encode(value).encode()
