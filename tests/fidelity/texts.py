"""What is compared of a text in an engine's own words: its data word for word, of its wording the facts.

The embedded engine says everything in words of its own, so sentences cannot be equal.  Yet a text must
carry the same information.  A text is read line by line:

* A line made of nothing but data (words that this play invented, paths, numbers, ids, punctuation) stays
  as it is, blanks and order included: file contents, command output, listings, matches.
* Other lines are wording.  Of a stretch of them the facts remain, as a sorted set, because a sentence may be
  turned round or name a thing twice: invented words with what is attached to them, paths, numbers,
  ids, and names of tools (they tell the model what to do next).
* Whether there is wording at all remains, too: an empty text is never equal to an explanation.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from tests.fidelity.normaliser import TOOLS

__all__ = ["data_of"]

_TOKEN = re.compile(
    r"<root>(?:<root>|[^\s\"'`<>,;)\]])*"  # a path below the play's folder
    r"|<id[^>]*>|<model>[\w/]*"
    r"|\d+(?:\.\d+){2,}"  # a version: no number, and not the same in both engines
    r"|(?<![\w.])-?\d[\d,]*(?:\.\d+)?"  # a number; what is attached to it is no part of it
    r"|[\w./-]*\w"
)
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_VERSION = re.compile(r"\d+(?:\.\d+){2,}")
_SECONDS = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d+)?(?= ?(?:s|sec|secs|seconds?)\b)")
_LETTERS = re.compile(r"[A-Za-z]")


def data_of(text: str, words: Collection[str]) -> dict[str, Any]:
    """The comparable part of a text; ``words`` are those the play invented."""
    known = re.compile("|".join(sorted(map(re.escape, words), key=len, reverse=True))) if words else None
    parts: list[Any] = []
    stretch: set[str] = set()
    worded = False

    def finish() -> None:
        if stretch:
            parts.append(sorted(stretch))
            stretch.clear()

    for line in _timeless(text).split("\n"):
        tokens = [(m.group(), _fact(m.group(), known)) for m in _TOKEN.finditer(line)]
        facts = [fact for _, fact in tokens if fact]
        if facts and all(fact or not _LETTERS.search(token) for token, fact in tokens):
            finish()
            parts.append(line)
        elif not tokens:
            if parts and isinstance(parts[-1], str) and not stretch:
                parts.append(line)  # blank or a rule of dashes inside data
        else:
            worded = True
            stretch.update(facts)
    finish()
    while parts and isinstance(parts[-1], str) and not parts[-1].strip():
        parts.pop()
    return {"data": parts, "worded": worded}


def _timeless(text: str) -> str:
    """Seconds are read from the clock: that they are told is compared, not how many."""
    return _SECONDS.sub("<id of seconds>", text)


def _fact(token: str, known: re.Pattern[str] | None) -> str:
    """What of a token is a fact; "" when it is wording."""
    if _VERSION.fullmatch(token):
        return ""
    if token.startswith("<") or _NUMBER.fullmatch(token):
        return token.replace(",", "").rstrip(".")
    if known is not None and known.search(token):
        return token.rstrip(".")
    return token if token in TOOLS and "_" in token else ""  # "grep" and "monitor" are words, too
