"""Globs as ``rg --glob`` takes them: the patterns of an ignore file, with alternatives in braces."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["GlobError", "Overrides", "compile_glob"]


class GlobError(ValueError):
    """A glob that cannot be read."""


def compile_glob(glob: str) -> tuple[re.Pattern[str], bool]:
    """The expression for a path relative to the root, and whether only directories are meant.

    A glob without a slash fits at any depth, one with a slash is rooted.
    """
    only_dirs = glob.endswith("/") and glob != "/"
    body = glob.rstrip("/") if only_dirs else glob
    anchored = "/" in body
    body = body.removeprefix("/")
    expression = _Translator(body).expression()
    prefix = "" if anchored else "(?:.*/)?"
    return re.compile(rf"{prefix}{expression}\Z", re.DOTALL), only_dirs


class Overrides:
    """Globs of a request: the last one that fits decides; one without ``!`` makes all others unwanted."""

    def __init__(self, globs: Iterable[str]) -> None:
        self._globs = [
            (*compile_glob(glob.removeprefix("!").removeprefix("\\")), not glob.startswith("!"))
            for glob in globs
            if glob.strip("!")
        ]
        self._selective = any(wanted for _, _, wanted in self._globs)

    def wants(self, relative: str, is_dir: bool) -> bool | None:
        """True: take it whatever else says no; False: leave it; None: others decide."""
        for expression, only_dirs, wanted in reversed(self._globs):
            if (is_dir or not only_dirs) and expression.match(relative):
                return wanted
        return None if is_dir or not self._selective else False


class _Translator:
    def __init__(self, glob: str) -> None:
        self._glob = glob
        self._at = 0
        self._depth = 0

    def expression(self) -> str:
        parts = list[str]()
        while self._at < len(self._glob):
            parts.append(self._next())
        if self._depth:
            raise GlobError(f"unclosed alternate group in {self._glob!r}")
        return "".join(parts)

    def _next(self) -> str:
        glob, at = self._glob, self._at
        self._at += 1
        match glob[at]:
            case "*":
                return self._stars(at)
            case "?":
                return "[^/]"
            case "[":
                return self._set(at)
            case "{":
                self._depth += 1
                return "(?:"
            case "}" if self._depth:
                self._depth -= 1
                return ")"
            case "," if self._depth:
                return "|"
            case "\\":
                if self._at == len(glob):
                    raise GlobError(f"dangling backslash in {glob!r}")
                self._at += 1
                return re.escape(glob[at + 1])
            case character:
                return re.escape(character)

    def _stars(self, at: int) -> str:
        glob = self._glob
        end = at
        while end < len(glob) and glob[end] == "*":
            end += 1
        self._at = end
        whole = end - at == 2 and (at == 0 or glob[at - 1] in "/{,")
        if not whole or (end < len(glob) and glob[end] not in "/},"):
            return "[^/]*"
        if glob[end : end + 1] == "/":
            self._at = end + 1
            return "(?:.*/)?"
        return ".*" if at == 0 else ".+"

    def _set(self, at: int) -> str:
        glob = self._glob
        start = at + 1
        negated = glob[start : start + 1] in ("!", "^")
        start += negated
        end = glob.find("]", start + 1)
        if end < 0:
            raise GlobError(f"unclosed character class in {glob!r}")
        self._at = end + 1
        body = re.sub(r"([\\\[\]^&~|])", r"\\\1", glob[start:end])
        try:
            re.compile(f"[{body}]")
        except re.error as error:
            raise GlobError(f"invalid range in {glob!r}") from error
        return f"(?!/)[{'^' if negated else ''}{body}]"
