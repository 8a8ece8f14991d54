"""One word of a shell command as bash would read it: what is fixed about it and what is not.

The grammar says where a word begins and ends; what the quotes and escapes in it amount to is decided here,
from its own characters.  ``r'm'``, ``r\\m``, ``$'\\x72m'`` and ``"rm"`` are all the word ``rm``.  A part that
only the running shell knows (a variable, a substitution, a brace list) ends the fixed part: ``static`` is
what stands before it.
"""

from __future__ import annotations

import dataclasses

__all__ = ["Word", "ansi_c", "names", "read_word"]


def names(text: str) -> frozenset[str]:
    """A table of names, written as they are read."""
    return frozenset(text.split())


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """``text`` is the fixed part; with ``dynamic`` something unknown follows it.

    ``plain``: written without any quote or escape.  ``glob``: an unquoted ``*``, ``?`` or ``[``, so that it
    stands for names of files.  ``written``: as it stands in the script.
    """

    text: str
    dynamic: bool = False
    plain: bool = True
    glob: bool = False
    written: str = ""

    @property
    def fixed(self) -> bool:
        """Whether the shell passes exactly this text on."""
        return not self.dynamic and not self.glob


_SIMPLE_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}
_DIGITS = {"x": (16, 2), "u": (16, 4), "U": (16, 8)}


def ansi_c(body: str) -> str | None:
    """What ``$'body'`` stands for; None for an escape that bash versions read differently."""
    out: list[str] = []
    at = 0
    while at < len(body):
        if body[at] != "\\":
            out.append(body[at])
            at += 1
            continue
        mark = body[at + 1 : at + 2]
        if mark in _SIMPLE_ESCAPES:
            out.append(_SIMPLE_ESCAPES[mark])
            at += 2
            continue
        base, most, start = (
            (8, 3, at + 1) if mark in tuple("01234567") else (*_DIGITS.get(mark, (0, 0)), at + 2)
        )
        digits = _leading_digits(body[start : start + most], base) if base else ""
        if not digits:
            return None
        code = int(digits, base)
        if code == 0 or code > 0x10FFFF or (code > 0x7F and mark not in ("u", "U")):
            return None  # cuts the word short, or makes a byte that is no character by itself
        out.append(chr(code))
        at = start + len(digits)
    return "".join(out)


def _leading_digits(text: str, base: int) -> str:
    allowed = "0123456789abcdefABCDEF"[: 8 if base == 8 else 22]
    count = 0
    while count < len(text) and text[count] in allowed:
        count += 1
    return text[:count]


class _Reader:
    """Goes over the characters of one word once."""

    def __init__(self, written: str) -> None:
        self.source = written
        self.at = 0
        self.out: list[str] = []
        self.dynamic = self.glob = self.brace = False
        self.plain = True

    def read(self) -> Word | None:
        while self.at < len(self.source) and not self.dynamic:
            if not self._step(self.source[self.at]):
                return None
        return Word("".join(self.out), self.dynamic, self.plain, self.glob, self.source)

    def _step(self, char: str) -> bool:
        follows = self.source[self.at + 1 : self.at + 2]
        if char == "'":
            self.plain = False
            return self._quoted(self.source.find("'", self.at + 1))
        if char == '"':
            self.plain = False
            self.at += 1
            return self._double()
        if char == "\\":
            self.plain = False
            if not follows:
                return False
            self.out.append("" if follows == "\n" else follows)
            self.at += 2
        elif char == "$" and follows == "'":
            self.plain = False
            return self._ansi()
        elif char == "$" and follows == '"':
            self.at += 1  # a translated text: which one, the locale decides
            self.dynamic = True
        elif (
            self._expands(char, follows)
            or (char in "<>" and follows == "(")
            or (char == "{" and self._brace_list())
        ):
            self.dynamic = True
        elif char in " \t\n;&|<>()":
            return char in "()" and self.glob and self._take(char)  # inside an extended glob
        else:
            if char in "*?[" or (char in "@!+" and follows == "("):
                self.glob = True
            self._take(char)
        return True

    @staticmethod
    def _expands(char: str, follows: str) -> bool:
        """Whether something begins that bash replaces, within double quotes as well."""
        variable = bool(follows) and (follows.isalnum() or follows in "_({@*#?!-$[")
        return char == "`" or (char == "$" and variable)

    def _take(self, char: str) -> bool:
        self.out.append(char)
        self.at += 1
        return True

    def _quoted(self, end: int) -> bool:
        if end < 0:
            return False
        self.out.append(self.source[self.at + 1 : end])
        self.at = end + 1
        return True

    def _double(self) -> bool:
        while self.at < len(self.source):
            char, follows = self.source[self.at], self.source[self.at + 1 : self.at + 2]
            if char == '"':
                self.at += 1
                return True
            if self._expands(char, follows):
                self.dynamic = True
                return True
            if char == "\\" and follows and follows in '$`"\\\n':
                self.out.append("" if follows == "\n" else follows)
                self.at += 2
            else:
                self._take(char)
        return False

    def _ansi(self) -> bool:
        end = self.at + 2
        while end < len(self.source) and self.source[end] != "'":
            end += 2 if self.source[end] == "\\" else 1
        if end >= len(self.source):
            return False
        text = ansi_c(self.source[self.at + 2 : end])
        if text is None:
            self.dynamic = True
            return True
        self.out.append(text)
        self.at = end + 1
        return True

    def _brace_list(self) -> bool:
        """Whether a brace here opens a list that bash expands; ``{}`` alone is no list."""
        depth, several = 0, False
        for at in range(self.at, len(self.source)):
            char = self.source[at]
            depth += (char == "{") - (char == "}")
            several = several or char == "," or self.source.startswith("..", at)
            if depth == 0:
                return several
        return False


def read_word(written: str) -> Word | None:
    """The word; None when its characters do not make one (the grammar and bash would disagree)."""
    return _Reader(written).read()
