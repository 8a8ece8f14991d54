"""A kill by pattern that would hit the shell which runs it.

``pkill -f`` compares its pattern with the whole command line of every process.  The shell that carries a
command has all of that command in its own command line: a pattern that also stands elsewhere in the
command ends the shell before the rest of it runs, and the model sees nothing but a signal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.workspace.terminal.shelltext import Word, scan, words

__all__ = ["self_matching_kill"]

#: Shorter patterns occur everywhere; refusing them would refuse what works.
_SHORTEST = 3
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
#: What may stand before the program of a statement.
_KEYWORDS = "then do else elif if while until { !"
_BEFORE = frozenset(f"sudo command builtin exec nohup time env {_KEYWORDS}".split())
#: Options of pkill and pgrep whose value is a word of its own.
_VALUED = frozenset("dgGPstuUF")
_NAMED = "signal delimiter pgroup group parent session terminal euid uid pidfile ns nslist"
_VALUED_LONG = frozenset(f"--{name}" for name in _NAMED.split())
_KILL = re.compile(r"(?<![\w-])kill(?![\w-])")


def self_matching_kill(command: str) -> tuple[str, str] | None:
    """(program, pattern) of the first ``pkill -f`` or ``pgrep -f`` that matches its own command line."""
    for start, end in scan(command).statements:
        found = _full_match(words(command, start, end))
        if found is None:
            continue
        program, pattern = found
        if program == "pgrep" and not _KILL.search(command):
            continue  # it only lists
        literal = pattern.text or ""
        if literal in command[: pattern.start] or literal in command[pattern.end :]:
            return program, literal
    return None


def _full_match(statement: Sequence[Word]) -> tuple[str, Word] | None:
    """Program and literal pattern of a statement that matches whole command lines."""
    rest = list(statement)
    while rest and (rest[0].text in _BEFORE or _ASSIGNMENT.match(rest[0].text or "")):
        rest.pop(0)
    if not rest or rest[0].text not in ("pkill", "pgrep"):
        return None
    program, full, pattern = rest.pop(0).text or "", False, None
    while rest:
        word = rest.pop(0)
        if word.text is None:
            pattern = pattern or word
        elif word.text.startswith("--"):
            full = full or word.text == "--full"
            if word.text in _VALUED_LONG and rest:
                rest.pop(0)
        elif word.text.startswith("-") and len(word.text) > 1:
            full = full or "f" in word.text
            if word.text[-1] in _VALUED and rest:
                rest.pop(0)
        else:
            pattern = pattern or word
    if not full or pattern is None or pattern.text is None or len(pattern.text) < _SHORTEST:
        return None
    return program, pattern
