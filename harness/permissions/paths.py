"""Paths against the patterns of rules.

A pattern is a glob in which ``*`` and ``?`` stop at ``/`` and ``**`` does not; it is tried on the absolute
path and on the path below the session's folder, both with and without ``./``.  The path is looked at as it
was written and as the links in it lead: a deny or ask holds when either matches, an allow only when both do,
for otherwise a link would be a way out of what was allowed.
"""

from __future__ import annotations

import dataclasses
import functools
import posixpath
import re

from harness.workspace.filesystem import FileSystem, canonical
from harness.workspace.paths import Base, absolute, resolve

__all__ = ["Paths", "Place", "pattern_of"]


@functools.lru_cache(maxsize=4096)
def pattern_of(glob: str) -> re.Pattern[str]:
    """A glob for paths as a regular expression."""
    out, at = [], 0
    while at < len(glob):
        char = glob[at]
        if glob.startswith("**/", at):
            out.append("(?:[^/]*/)*" if at == 0 or glob[at - 1] == "/" else ".*/")
            at += 3
        elif glob.startswith("**", at):
            out.append(".*")
            at += 2
        elif char == "*":
            out.append("[^/]*")
            at += 1
        elif char == "?":
            out.append("[^/]")
            at += 1
        elif char == "[" and (end := glob.find("]", at + 2)) > 0:
            inside = glob[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            out.append("(?!/)[" + ("^" + inside[1:] if inside[0] in "!^" else inside) + "]")
            at = end + 1
        else:
            out.append(re.escape(char))
            at += 1
    try:
        return re.compile("".join(out), re.DOTALL)
    except re.error:  # a range such as [z-a]: then only the text itself is meant
        return re.compile(re.escape(glob))


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """One path: as written (made absolute, ``..`` taken away) and as the links lead; None = unknown."""

    lexical: str
    real: str | None


@dataclasses.dataclass(frozen=True)
class Paths:
    """How paths of one call are understood.

    ``cwd`` is where it runs; patterns stay relative to ``base``, the session's folder (empty: the same).
    """

    fs: FileSystem
    cwd: str
    home: str
    base: str = ""

    @property
    def _base(self) -> str:
        return self.base or self.cwd

    def place(self, written: str) -> Place:
        """What a tool makes of a path that a model wrote: the same cleaning and repairs."""
        found = resolve(self.fs, written, Base(self.cwd, self.home))
        return Place(_normal(found.path), self._known(found.path) and found.real)

    def operand(self, word: str) -> Place:
        """What a command makes of a word: nothing is repaired."""
        path = absolute(word, Base(self.cwd, self.home))
        return Place(_normal(path), self._known(path))

    def _known(self, path: str) -> str | None:
        """Where the links lead; None for a loop, or for a name that may not be looked at."""
        try:
            return canonical(self.fs, path, strict=True)
        except (FileNotFoundError, NotADirectoryError):
            return canonical(self.fs, path)
        except (OSError, ValueError):
            return None

    def expanded(self, text: str) -> str:
        return self.home + text[1:] if text == "~" or text.startswith("~/") else text

    def _forms(self, path: str) -> list[str]:
        forms = [path]
        for base in dict.fromkeys((self._base, self._known(self._base) or self._base)):
            if path == base or path.startswith(base.rstrip("/") + "/"):
                below = path[len(base.rstrip("/")) + 1 :] or "."
                forms += [below, f"./{below}"]
        return forms

    def _globs(self, glob: str) -> list[str]:
        """A pattern with ``~`` or ``//`` in front, as other agents write home and root."""
        if glob.startswith("~"):
            return [glob, self.expanded(glob)]
        return [glob, glob[1:]] if glob.startswith("//") else [glob]

    def _matches(self, glob: str, path: str) -> bool:
        forms = self._forms(path)
        return any(pattern_of(g).fullmatch(form) for g in self._globs(glob) for form in forms)

    def restricted(self, glob: str, place: Place) -> bool:
        """Whether a deny or ask with this pattern holds for the place."""
        return self._matches(glob, place.lexical) or (
            place.real is not None and self._matches(glob, place.real)
        )

    def allowed(self, glob: str, place: Place) -> bool:
        """Whether an allow with this pattern covers the place."""
        return (
            place.real is not None and self._matches(glob, place.lexical) and self._matches(glob, place.real)
        )

    def holds(self, glob: str, place: Place) -> bool:
        """Whether something *below* the place may match: of ``rm -r src`` under a rule for ``src/**``."""
        for g in self._globs(glob):
            head = re.split(r"[*?\[]", g, maxsplit=1)[0]
            anchored = posixpath.normpath(posixpath.join(self._base, head)) if head else ""
            for path in (place.lexical, place.real or place.lexical):
                if anchored and (anchored + "/").startswith(path.rstrip("/") + "/"):
                    return True
        return False


def _normal(path: str) -> str:
    """Without ``.`` and ``..``; `posixpath.normpath` alone keeps two slashes at the beginning."""
    return "/" + posixpath.normpath(path).lstrip("/")
