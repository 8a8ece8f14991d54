"""What a shell command line says, without running it: its background operators and its statements.

One pass over the text with a stack of what is open (quotes, substitutions, arithmetic, here-documents),
because a pattern that looks for ``&`` would meet those in ``"a & b"``, ``2>&1``, ``$((a & b))``, comments
and here-documents, which mean nothing of the kind.  It is no parser: text that a shell would refuse gets
some answer, and never an exception.
"""

from __future__ import annotations

import dataclasses
import re

__all__ = ["Scan", "Word", "background_operator", "scan", "words"]


@dataclasses.dataclass(frozen=True, slots=True)
class Scan:
    """``operators``: offsets of ``&`` that put something into the background.  ``statements``: [start, end)
    of the text between two separators, in order; comments and here-documents are in none of them."""

    operators: tuple[int, ...]
    statements: tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Word:
    """One word of a statement: ``text`` with its quotes removed, None where a shell would compute it."""

    start: int
    end: int
    text: str | None


def background_operator(command: str) -> int | None:
    """Offset of the first ``&`` that leaves something running behind, None if there is none.

    A command whose last statement is the ``wait`` builtin ends with what it started.
    """
    found = scan(command)
    if not found.operators:
        return None
    last = next((s for s in reversed(found.statements) if command[slice(*s)].strip()), None)
    if last is not None and command[slice(*last)].split(maxsplit=1)[0] == "wait":
        return None
    return found.operators[0]


def scan(command: str) -> Scan:
    """Scan a whole command line."""
    scanner = _Scanner(command)
    scanner.run()
    return Scan(tuple(scanner.operators), tuple(scanner.statements))


# What is open.  In the first four `&` can be an operator, in the others it is text or arithmetic.
_TOP, _PARENS, _SUBSTITUTION, _BACKTICK, _DOUBLE, _BRACES, _MATHS = range(7)
_HEREDOC = re.compile(r"<<(-?)[ \t]*((?:'[^']*'|\"[^\"]*\"|\\.|[^\s;&|<>()'\"\\`])+)")
_UNQUOTE = re.compile(r"'([^']*)'|\"([^\"]*)\"|\\(.)")
_SEPARATORS = ";\n|()"
_BLANKS = " \t\n"


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.open = [_TOP]
        self.operators: list[int] = []
        self.statements: list[tuple[int, int]] = []
        self.start = 0
        self.outer: list[int] = []
        self.heredocs: list[tuple[str, bool]] = []

    def run(self) -> None:
        while self.at < len(self.text):
            if self.open[-1] <= _BACKTICK:
                self.code()
            elif self.open[-1] == _DOUBLE:
                self.quoted()
            else:
                self.inner()
        while self.outer:
            self.leave(len(self.text))
        self.cut(len(self.text))

    def code(self) -> None:
        text, at = self.text, self.at
        char = text[at]
        if char == "\\":
            self.at += 2
        elif char == "'":
            self.skip_single()
        elif char == '"':
            self.push(_DOUBLE, 1)
        elif char == "`":
            self.backtick()
        elif char == "$":
            self.dollar()
        elif char == "#" and (at == 0 or text[at - 1] in _BLANKS + ";&|("):
            self.comment()
        elif char == "<" and text.startswith("<<", at):
            self.heredoc_or_string()
        elif char == "&":
            self.ampersand()
        elif char == "(" and text.startswith("((", at) and text.rfind("))") > at:
            self.push(_MATHS, 2)
        else:
            self.separator(char)

    def separator(self, char: str) -> None:
        closes = char == ")" and self.open[-1] == _SUBSTITUTION
        if closes:
            self.leave(self.at)
        elif char in _SEPARATORS:
            self.cut(self.at)
            self.start = self.at + 1
        if char == "(":
            self.open.append(_PARENS)
        elif closes or (char == ")" and self.open[-1] == _PARENS):
            self.open.pop()
        self.at += 1
        if char == "\n" and self.heredocs:
            self.skip_bodies()

    def ampersand(self) -> None:
        text, at = self.text, self.at
        before, after = text[at - 1 : at], text[at + 1 : at + 2]
        if after == "&":
            self.cut(at)
            self.start = self.at = at + 2
        elif after == ">" or before in ("<", ">", "|") or (before == ";" and at > 1):
            # &> and &>>; >& <& |&; the ends ;& and ;;& of a case branch
            self.at += 1
            self.start = self.at if before in ("|", ";") else self.start
        else:
            self.operators.append(at)
            self.cut(at)
            self.start = self.at = at + 1

    def quoted(self) -> None:
        char = self.text[self.at]
        if char == "\\":
            self.at += 2
        elif char == '"':
            self.pop(1)
        elif char == "`":
            self.backtick()
        elif char == "$":
            self.dollar()
        else:
            self.at += 1

    def inner(self) -> None:
        """Inside ``${…}`` and arithmetic: only quotes and their own ends matter."""
        text, at, braces = self.text, self.at, self.open[-1] == _BRACES
        char = text[at]
        if char == "\\":
            self.at += 2
        elif char == "'" and braces and _DOUBLE not in self.open:
            self.skip_single()
        elif char == '"' and not (braces and self.open[-2] == _DOUBLE):
            self.push(_DOUBLE, 1)
        elif char == "$":
            self.dollar()
        elif char == "}" and braces:
            self.pop(1)
        elif text.startswith("))", at) and not braces:
            self.pop(2)
        else:
            self.at += 1

    def dollar(self) -> None:
        text, at = self.text, self.at
        if text.startswith("$((", at) and text.find("))", at) > 0:
            self.push(_MATHS, 3)
        elif text.startswith("$(", at):
            self.enter(_SUBSTITUTION, 2)
        elif text.startswith("${", at):
            self.push(_BRACES, 2)
        elif text.startswith("$'", at) and self.open[-1] != _DOUBLE:
            self.at = at + 2
            while self.at < len(text) and text[self.at] != "'":
                self.at += 2 if text[self.at] == "\\" else 1
            self.at += 1
        else:
            self.at += 2 if text.startswith("$#", at) else 1

    def backtick(self) -> None:
        if self.open[-1] == _BACKTICK:
            self.leave(self.at)
            self.pop(1)
        else:
            self.enter(_BACKTICK, 1)

    def enter(self, what: int, width: int) -> None:
        """A command within a command: the statement around it goes on behind it."""
        self.push(what, width)
        self.outer.append(self.start)
        self.start = self.at

    def leave(self, end: int) -> None:
        self.cut(end)
        self.start = self.outer.pop()

    def push(self, what: int, width: int) -> None:
        self.open.append(what)
        self.at += width

    def pop(self, width: int) -> None:
        self.open.pop()
        self.at += width

    def skip_single(self) -> None:
        end = self.text.find("'", self.at + 1)
        self.at = len(self.text) if end < 0 else end + 1

    def comment(self) -> None:
        self.cut(self.at)
        end = self.text.find("\n", self.at)
        self.start = self.at = len(self.text) if end < 0 else end

    def heredoc_or_string(self) -> None:
        if self.text.startswith("<<<", self.at):
            self.at += 3
        elif found := _HEREDOC.match(self.text, self.at):
            word = _UNQUOTE.sub(lambda m: m[1] or m[2] or m[3] or "", found[2])
            self.heredocs.append((word, bool(found[1])))
            self.at = found.end()
        else:
            self.at += 2

    def skip_bodies(self) -> None:
        """Behind the newline that ends the line with ``<<``; a body without an end is all the rest."""
        pending, self.heredocs = self.heredocs, []
        for word, tabs in pending:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = end + 1
                if (line.lstrip("\t") if tabs else line) == word:
                    break
        self.at = self.start = min(self.at, len(self.text))

    def cut(self, end: int) -> None:
        if end > self.start:
            self.statements.append((self.start, end))
            self.start = end


_WORD = re.compile(r"(?:\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"|[^\s'\"\\])+|[\\'\"]", re.DOTALL)
_PART = re.compile(r"\\(.)|'([^']*)'|\"((?:\\.|[^\"\\])*)\"|([^'\"\\]+)", re.DOTALL)


def words(command: str, start: int, end: int) -> list[Word]:
    """The words of a statement."""
    return [Word(m.start(), m.end(), _literal(m[0])) for m in _WORD.finditer(command, start, end)]


def _literal(word: str) -> str | None:
    parts = list[str]()
    for escaped, single, double, plain in _PART.findall(word):
        if any(mark in (double or plain) for mark in ("$(", "`", "${")):
            return None
        parts.append(escaped or single or re.sub(r"\\([$`\"\\])", r"\1", double) or plain)
    return "".join(parts)
