"""What git would ignore: ``.gitignore`` files, ``info/exclude`` and the user's own list.

Patterns are dulwich's; the order in which they are asked is here, because files are read through the
session's filesystem and change while it lives.  The index is not consulted: a tracked file that matches a
pattern counts as ignored, since the pattern says that tools had better leave it alone.
"""

from __future__ import annotations

import io
import posixpath
from collections.abc import Iterator, Mapping

from dulwich.ignore import IgnoreFilter, Pattern, read_ignore_patterns

from harness.limits import SIZES
from harness.workspace.filesystem import FileSystem, Stat, canonical
from harness.workspace.paths import below
from harness.workspace.repository import Repository, find_repository, git_configs, git_setting

__all__ = ["IgnoreRules"]

_BOM = b"\xef\xbb\xbf"


class IgnoreRules:
    """The rules of one checkout.

    Compiled patterns are kept with the state of the file they came from.  `refresh` starts a new look;
    within one look each file is looked at once, or a walk would ask the disk for the same thing at
    every entry.
    """

    def __init__(self, fs: FileSystem, repository: Repository, env: Mapping[str, str]) -> None:
        self.root = repository.root
        self._fs = fs
        configs = git_configs(fs, repository, env)
        self._ignore_case = (git_setting(configs, "core", "ignorecase") or "").lower() == "true"
        exclude = posixpath.join(repository.common, "info/exclude")
        own = _own_list(git_setting(configs, "core", "excludesfile"), env)
        #: The weaker first; a directory's own file is stronger than both.
        self._shared = [path for path in (own, exclude) if path]
        self._compiled: dict[str, tuple[Stat | None, list[Pattern]]] = {}
        self._looked_at: set[str] = set()

    @classmethod
    def of(cls, fs: FileSystem, directory: str, env: Mapping[str, str]) -> IgnoreRules | None:
        """The rules that hold in a directory; None outside of any checkout."""
        repository = find_repository(fs, directory)
        return None if repository is None else cls(fs, repository, env)

    def refresh(self) -> None:
        self._looked_at.clear()

    def ignored(self, path: str, is_dir: bool | None = None) -> bool:
        """Whether a canonical path is ignored, by itself or by a directory above it.

        A path need not exist: unless ``is_dir`` says otherwise, one that does not is taken for a file.
        """
        if path == self.root or not below(path, self.root):
            return False
        relative = path[len(self.root.rstrip("/")) + 1 :]
        names = relative.split("/")
        for depth in range(1, len(names)):
            if self.excludes("/".join(names[:depth]), True):
                return True
        return self.excludes(relative, self._is_dir(path) if is_dir is None else is_dir)

    def excludes_path(self, path: str, is_dir: bool) -> bool:
        """`excludes` for a canonical path, which may lie outside."""
        return below(path, self.root) and self.excludes(path[len(self.root.rstrip("/")) + 1 :], is_dir)

    def excludes(self, relative: str, is_dir: bool) -> bool:
        """The rules' word on this one entry; what it lies in is taken for not ignored.

        The last pattern that matches in the nearest file decides.  A pattern below an ignored directory
        is never reached: git does not look into it.
        """
        for start, patterns in self._sources(relative):
            name = relative[start:].encode("utf-8", "surrogateescape")
            for pattern in reversed(patterns):
                if pattern.matches(name, is_dir):
                    return pattern.is_exclude
        return False

    def _sources(self, relative: str) -> Iterator[tuple[int, list[Pattern]]]:
        """Pattern lists for an entry, the nearest first, with where their part of the path starts."""
        end = len(relative)
        while True:
            end = relative.rfind("/", 0, end)
            directory = relative[: max(end, 0)]
            patterns = self._patterns(posixpath.join(self.root, directory, ".gitignore"))
            if patterns:
                yield end + 1, patterns
            if end < 0:
                break
        for path in reversed(self._shared):
            yield 0, self._patterns(path)

    def _patterns(self, path: str) -> list[Pattern]:
        known = self._compiled.get(path)
        if known is not None and path in self._looked_at:
            return known[1]
        self._looked_at.add(path)
        try:
            state = self._fs.stat(path) if path in self._shared else self._fs.lstat(path)
        except OSError:
            state = None
        if known is None or known[0] != state:
            known = (state, self._load(path) if state is not None and state.is_file else [])
            self._compiled[path] = known
        return known[1]

    def _load(self, path: str) -> list[Pattern]:
        try:
            if path in self._shared:
                path = canonical(self._fs, path)  # a user's list may be a link, one in the checkout not
            data = self._fs.read(path, SIZES.ignore_file).data
        except OSError:
            return []
        lines = read_ignore_patterns(io.BytesIO(data.removeprefix(_BOM)))
        return IgnoreFilter(lines, self._ignore_case, path=path).patterns

    def _is_dir(self, path: str) -> bool:
        try:
            return self._fs.lstat(path).is_dir
        except OSError:
            return False


def _own_list(setting: str | None, env: Mapping[str, str]) -> str | None:
    home = env.get("HOME", "")
    if setting:
        if setting.startswith("~/"):
            return posixpath.join(home, setting[2:]) if home else None
        return setting if setting.startswith("/") else None
    xdg = env.get("XDG_CONFIG_HOME") or (posixpath.join(home, ".config") if home else "")
    return posixpath.join(xdg, "git/ignore") if xdg else None
