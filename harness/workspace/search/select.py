"""Which files a search looks into, in the order of their names."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Iterator, Mapping
from typing import Protocol

from dulwich.ignore import IgnoreFilter, Pattern, read_ignore_patterns

from harness.limits import SIZES
from harness.workspace.filesystem import Entry, FileKind, FileSystem, canonical
from harness.workspace.ignore import IgnoreRules
from harness.workspace.paths import below
from harness.workspace.search.filetypes import FILE_TYPES
from harness.workspace.search.globs import Overrides
from harness.workspace.search.request import SearchRequest

__all__ = ["UnknownTypeError", "select"]

#: Ignore files of search tools, the stronger first; both are stronger than git's.
_SEARCH_IGNORES = (".rgignore", ".ignore")


class UnknownTypeError(ValueError):
    """A file type that has no globs."""


class _Rules(Protocol):
    def excludes_path(self, path: str, is_dir: bool) -> bool: ...


def select(fs: FileSystem, env: Mapping[str, str], request: SearchRequest) -> Iterator[tuple[str, bool]]:
    """(path as it is printed, named by the request itself) of every file.

    A path that is named is taken whatever rules say: somebody wants to see just that one.
    """
    types = Overrides(_globs_of(request.file_type)) if request.file_type else None
    overrides = Overrides(request.globs)
    top = canonical(fs, request.path)
    kind = fs.stat(top).kind
    if kind is not FileKind.DIRECTORY:
        if kind is FileKind.FILE:
            yield request.path, True
        return
    walk = _Walk(fs, env, request, overrides, types, top)
    for relative in walk.files("", ()):
        yield posixpath.join(request.path, relative), False


def _globs_of(name: str) -> tuple[str, ...]:
    if name == "all":
        return tuple(glob for globs in FILE_TYPES.values() for glob in globs)
    try:
        return FILE_TYPES[name]
    except KeyError:
        raise UnknownTypeError(f"unrecognized file type: {name}") from None


class _Walk:
    def __init__(
        self,
        fs: FileSystem,
        env: Mapping[str, str],
        request: SearchRequest,
        overrides: Overrides,
        types: Overrides | None,
        top: str,
    ) -> None:
        self._fs, self._request, self._top = fs, request, top
        self._overrides, self._types = overrides, types
        self._git: _Rules | None = IgnoreRules.of(fs, top, env)
        self._above = self._search_ignores_above(top)
        #: Where globs are rooted: they were written by somebody who thinks of the working directory.
        self._cwd = canonical(fs, request.cwd)

    def files(self, folder: str, own: tuple[_OwnRules, ...]) -> Iterator[str]:
        path = posixpath.join(self._top, folder) if folder else self._top
        try:
            entries = self._fs.listdir(path)
        except OSError:
            if not folder:
                raise
            return  # gone meanwhile, or not ours to read
        own = (*own, *self._search_ignores(path, entries))
        for entry in sorted(entries, key=lambda entry: entry.name.encode("utf-8", "surrogateescape")):
            name = posixpath.join(folder, entry.name)
            is_dir = entry.kind is FileKind.DIRECTORY
            if not is_dir and entry.kind is not FileKind.FILE:
                continue  # links are not followed, and a pipe would never end
            if not self._takes(posixpath.join(path, entry.name), entry.name, is_dir, own):
                continue
            if is_dir:
                yield from self.files(name, own)
            else:
                yield name

    def _takes(self, path: str, name: str, is_dir: bool, own: tuple[_OwnRules, ...]) -> bool:
        relative = path[len(self._cwd.rstrip("/")) + 1 :] if below(path, self._cwd) else path[1:]
        wanted = self._overrides.wants(relative, is_dir)
        if wanted is not None:
            return wanted
        if self._types is not None and not is_dir and not self._types.wants(name, False):
            return False
        if name.startswith(".") and not self._request.hidden:
            return False
        for source in _SEARCH_IGNORES:
            for rules in reversed((*self._above, *own)):
                said = rules.says(source, path, is_dir)
                if said is not None:
                    return not said
        return self._git is None or not self._git.excludes_path(path, is_dir)

    def _search_ignores(self, path: str, entries: list[Entry]) -> tuple[_OwnRules, ...]:
        present = [entry.name for entry in entries if entry.name in _SEARCH_IGNORES]
        return (_OwnRules(self._fs, path, present),) if present else ()

    def _search_ignores_above(self, top: str) -> tuple[_OwnRules, ...]:
        found = list[_OwnRules]()
        folder = top
        while folder != "/":
            folder = posixpath.dirname(folder)
            present = [name for name in _SEARCH_IGNORES if self._is_file(posixpath.join(folder, name))]
            if present:
                found.append(_OwnRules(self._fs, folder, present))
        return tuple(reversed(found))

    def _is_file(self, path: str) -> bool:
        try:
            return self._fs.stat(path).is_file
        except OSError:
            return False


class _OwnRules:
    """The ignore files for search tools in one directory."""

    def __init__(self, fs: FileSystem, folder: str, names: list[str]) -> None:
        self._folder = folder.rstrip("/")
        self._patterns = {name: self._load(fs, posixpath.join(folder, name)) for name in names}

    @staticmethod
    def _load(fs: FileSystem, path: str) -> list[Pattern]:
        try:
            data = fs.read(canonical(fs, path), SIZES.ignore_file).data
        except OSError:
            return []
        return IgnoreFilter(read_ignore_patterns(io.BytesIO(data)), path=path).patterns

    def says(self, source: str, path: str, is_dir: bool) -> bool | None:
        """Whether it excludes the path; None when no pattern fits."""
        patterns = self._patterns.get(source)
        if not patterns:
            return None
        relative = path[len(self._folder) + 1 :].encode("utf-8", "surrogateescape")
        for pattern in reversed(patterns):
            if pattern.matches(relative, is_dir):
                return pattern.is_exclude
        return None
