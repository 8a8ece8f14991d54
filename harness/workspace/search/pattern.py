"""The expressions of ``rg`` for Python's engine.

Both engines agree on most of the syntax.  Where they do not, a pattern is rewritten, so that a model
meets the same language with ``rg`` and without it; what ``rg`` refuses (looking around, references back)
is refused here too, and so is the little that cannot be rewritten.
"""

from __future__ import annotations

import functools
import itertools
import re
import sys
import unicodedata
from collections.abc import Mapping

__all__ = ["PatternError", "compile_pattern"]


class PatternError(ValueError):
    """A pattern that cannot be used, why, and where (-3: the group that is put around all of it)."""

    def __init__(self, why: str, at: int = -3) -> None:
        super().__init__(why)
        self.at = at


_POSIX: Mapping[str, str] = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": "\\x00-\\x7f",
    "blank": "\\t ",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\t\\n\\v\\f\\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_CATEGORIES: Mapping[str, str] = {
    "letter": "L",
    "uppercaseletter": "Lu",
    "lowercaseletter": "Ll",
    "titlecaseletter": "Lt",
    "modifierletter": "Lm",
    "otherletter": "Lo",
    "uppercase": "Lu",
    "lowercase": "Ll",
    "mark": "M",
    "number": "N",
    "decimalnumber": "Nd",
    "digit": "Nd",
    "letternumber": "Nl",
    "othernumber": "No",
    "punctuation": "P",
    "punct": "P",
    "symbol": "S",
    "mathsymbol": "Sm",
    "currencysymbol": "Sc",
    "separator": "Z",
    "spaceseparator": "Zs",
    "other": "C",
    "control": "Cc",
    "cntrl": "Cc",
    "format": "Cf",
}
_SAME_ESCAPES = frozenset("dDsSwWbBAnrtfv")
_GROUP_FLAGS = re.compile(r"\(\?([imsuxU]*)(?:-([imsuxU]+))?(:|\))")
_GROUP_NAME = re.compile(r"\(\?P?<([A-Za-z_]\w*)>")
_REPEAT = re.compile(r"\{\s*(\d+)\s*(?:,\s*(\d*)\s*)?\}")
_NO_NEWLINE = 'the literal "\\n" is not allowed without the multiline mode'
_NO_LOOKING = "look-around, including look-ahead and look-behind, is not supported"


def compile_pattern(pattern: str, *, ignore_case: bool, multiline: bool) -> re.Pattern[str]:
    """The pattern in Python's dialect; without ``multiline`` it is meant for one line at a time."""
    flags = re.MULTILINE
    if multiline:
        flags |= re.DOTALL
    if ignore_case:
        flags |= re.IGNORECASE
    try:
        return re.compile(_Translator(pattern, multiline).translated(), flags)
    except (re.error, OverflowError) as error:
        raise PatternError(str(error)) from None


class _Translator:
    def __init__(self, pattern: str, multiline: bool) -> None:
        self._text = pattern
        self._multiline = multiline
        self._at = 0
        self._out = list[str]()
        #: Where the last thing that can be repeated starts in the output; None: nothing can.
        self._atom: int | None = None
        #: For each open group: where it starts (-1: not a group of the pattern), and what closes it.
        self._open = list[tuple[int, str]]()

    def translated(self) -> str:
        while self._at < len(self._text):
            try:
                self._step()
            except PatternError as error:
                raise PatternError(str(error), min(self._at, len(self._text) - 1)) from None
        if any(start >= 0 for start, _ in self._open):
            raise PatternError("unclosed group")
        return "".join(self._out) + "".join(closing for _, closing in self._open)

    def _step(self) -> None:
        match self._text[self._at]:
            case "\n" if not self._multiline:
                raise PatternError(_NO_NEWLINE)
            case "\\":
                if not self._multiline and self.rest.startswith("\\n"):
                    raise PatternError(_NO_NEWLINE)
                self._put(_escape(self))
            case "[":
                self._put(_Class(self).translated())
            case "(":
                self._group()
            case ")":
                self._close()
            case "|":
                self._at += 1
                self._out.append("|")
                self._atom = None
            case "*" | "+" | "?":
                self._repeat(self._text[self._at])
            case "{":
                found = _REPEAT.match(self._text, self._at)
                if found is None:
                    raise PatternError("unclosed counted repetition")
                self._repeat(found[0])
            case character:
                self._at += 1
                self._put(re.escape(character) if character in "}]" else character)

    def _put(self, text: str) -> None:
        self._atom = len(self._out)
        self._out.append(text)

    def _repeat(self, written: str) -> None:
        if self._atom is None:
            raise PatternError("repetition operator missing expression")
        self._at += len(written)
        lazy = self._text[self._at : self._at + 1] == "?"
        self._at += lazy
        atom = "".join(self._out[self._atom :])
        del self._out[self._atom :]
        # A group of its own: Python reads a second operator as "possessive" or as an error.
        self._out.append(f"(?:{atom}{written.replace(' ', '')}{'?' if lazy else ''})")
        self._atom = len(self._out) - 1

    def _group(self) -> None:
        text, at = self._text, self._at
        start = len(self._out)
        if not text.startswith("(?", at):
            self._begin("(", "(", start)
        elif text.startswith(("(?=", "(?!", "(?<=", "(?<!"), at):
            raise PatternError(_NO_LOOKING)
        elif named := _GROUP_NAME.match(text, at):
            self._begin(named[0], f"(?P<{named[1]}>", start)
        elif flagged := _GROUP_FLAGS.match(text, at):
            opening = _flags(flagged[1] or "", flagged[2] or "")
            if flagged[3] == ":":
                self._begin(flagged[0], opening, start)
            else:
                self._at += len(flagged[0])
                self._rest_of_group(opening)
        else:
            raise PatternError("unrecognized flag or group")

    def _begin(self, written: str, opening: str, start: int) -> None:
        self._at += len(written)
        self._out.append(opening)
        self._open.append((start, _closing(opening)))
        self._atom = None

    def _rest_of_group(self, opening: str) -> None:
        """Flags hold to the end of the group they stand in; Python wants that as a group."""
        self._out.append(opening)
        if self._open:
            start, closing = self._open.pop()
            self._open.append((start, _closing(opening) + closing))
        else:
            self._open.append((-1, _closing(opening)))
        self._atom = None

    def _close(self) -> None:
        if not self._open or self._open[-1][0] < 0:
            raise PatternError("unopened group")
        start, closing = self._open.pop()
        self._at += 1
        self._out.append(closing)
        self._atom = start

    # -- for the parts -------------------------------------------------------------------------------
    @property
    def rest(self) -> str:
        return self._text[self._at :]

    def take(self, count: int = 1) -> str:
        taken = self._text[self._at : self._at + count]
        self._at += count
        return taken


def _closing(opening: str) -> str:
    """Where blanks are skipped, a comment before the end must not swallow it."""
    return "\n)" if "x" in opening.partition("-")[0] else ")"


def _flags(on: str, off: str) -> str:
    if "U" in on + off:
        raise PatternError("the flag U is not supported without rg")
    kept_on, kept_off = on.replace("u", ""), off.replace("u", "")
    return f"(?{kept_on}{'-' if kept_off else ''}{kept_off}:"


def _escape(source: _Translator, *, in_class: bool = False) -> str:
    """One escape, read behind its backslash."""
    source.take()
    kind = source.take()
    if kind == "":
        raise PatternError("incomplete escape sequence, reached end of pattern prematurely")
    if kind in "pP":
        return _property(source, negated=kind == "P", in_class=in_class)
    if kind in "xuU":
        return _code(source, kind)
    if kind == "a":
        return "\\x07"
    if not in_class and kind in "z<>":
        return {"z": "\\Z", "<": "\\b(?=\\w)", ">": "\\b(?<=\\w)"}[kind]
    if in_class and kind in "bBA":
        raise PatternError(f"\\{kind} has no meaning in a character class")
    if kind in _SAME_ESCAPES:
        return f"\\{kind}"
    if kind.isdigit():
        raise PatternError("backreferences are not supported")
    if kind.isalpha():
        raise PatternError(f"unrecognized escape sequence \\{kind}")
    return re.escape(kind)


def _code(source: _Translator, kind: str) -> str:
    if source.rest.startswith("{"):
        end = source.rest.find("}")
        digits = source.take(end + 1)[1:-1] if end > 0 else ""
    else:
        digits = source.take({"x": 2, "u": 4, "U": 8}[kind])
    try:
        return re.escape(chr(int(digits, 16)))
    except (ValueError, OverflowError):
        raise PatternError("invalid hexadecimal escape") from None


def _property(source: _Translator, *, negated: bool, in_class: bool) -> str:
    if source.rest.startswith("{"):
        end = source.rest.find("}")
        name = source.take(end + 1)[1:-1] if end > 0 else ""
    else:
        name = source.take()
    if name.startswith("^"):
        negated, name = not negated, name[1:]
    name = re.sub(r"^(?:gc|general_category)[=:]", "", name, flags=re.IGNORECASE)
    plain = re.sub(r"[\s_-]", "", name).lower()
    category = _CATEGORIES.get(plain, name)
    ranges = _ranges(category, negated)
    if not ranges:
        raise PatternError(f"the Unicode property {name!r} is not supported without rg")
    return ranges if in_class else f"[{ranges}]"


@functools.cache
def _ranges(category: str, negated: bool) -> str:
    """The characters of a general category as ranges of a class; empty for an unknown one."""
    runs = _category_runs()
    if not any(of.startswith(category) for _, _, of in runs):
        return ""
    picked = [(start, end) for start, end, of in runs if of.startswith(category) != negated]
    return "".join(f"\\U{start:08x}-\\U{end:08x}" for start, end in picked)


@functools.cache
def _category_runs() -> list[tuple[int, int, str]]:
    """(first, last, general category) of every run of equal characters: one pass over a million."""
    runs = list[tuple[int, int, str]]()
    first = 0
    categories = (unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1))
    for category, run in itertools.groupby(categories):
        end = first + sum(1 for _ in run)
        runs.append((first, end - 1, category))
        first = end
    return runs


class _Class:
    """A bracketed class; one inside another is added to it."""

    def __init__(self, source: _Translator) -> None:
        self._source = source

    def translated(self) -> str:
        negated, body = self._body()
        return f"[{'^' if negated else ''}{body}]"

    def _body(self) -> tuple[bool, str]:
        source = self._source
        source.take()
        negated = source.rest.startswith("^")
        source.take(int(negated))
        parts = list[str]()
        while source.rest.startswith("]") and not parts:
            parts.append(re.escape(source.take()))
        while not source.rest.startswith("]"):
            if not source.rest:
                raise PatternError("unclosed character class")
            parts.append(self._item())
        source.take()
        return negated, "".join(parts)

    def _item(self) -> str:
        source = self._source
        if source.rest.startswith("[:"):
            name, end, _ = source.rest[2:].partition(":]")
            if end and name.removeprefix("^") in _POSIX:
                source.take(len(name) + 4)
                return _POSIX[name] if not name.startswith("^") else _complement(_POSIX[name[1:]])
        if source.rest.startswith("["):
            negated, body = self._body()
            return _complement(body) if negated else body
        if source.rest.startswith(("&&", "--", "~~")):
            raise PatternError(f"{source.rest[:2]} between classes is not supported without rg")
        if source.rest.startswith("\\"):
            return _escape(source, in_class=True)
        character = source.take()
        if character == "-":
            return "-" if source.rest[:1] not in ("", "]") else "\\-"
        return re.escape(character) if character in "^&~|[" else character


def _complement(body: str) -> str:
    """What a class leaves out, as ranges: a negated class cannot stand inside another in Python."""
    inside = re.compile(f"[{body}]")
    parts = list[str]()
    start: int | None = None
    for code in range(sys.maxunicode + 2):
        if code <= sys.maxunicode and not inside.match(chr(code)):
            start = code if start is None else start
        elif start is not None:
            parts.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    return "".join(parts)
