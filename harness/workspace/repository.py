"""Where a git checkout is, found by its files alone: no program is started for it."""

from __future__ import annotations

import dataclasses
import io
import posixpath
from collections.abc import Mapping
from typing import BinaryIO

from dulwich.config import ConfigFile

from harness.limits import SIZES
from harness.workspace.filesystem import FileSystem, canonical

__all__ = ["Repository", "find_repository", "git_configs", "git_setting"]


@dataclasses.dataclass(frozen=True, slots=True)
class Repository:
    """``common`` holds what all worktrees share; in a plain checkout it is ``git_dir``."""

    root: str
    git_dir: str
    common: str

    @property
    def is_worktree(self) -> bool:
        return self.common != self.git_dir

    @property
    def main_root(self) -> str:
        return posixpath.dirname(self.common) if self.is_worktree else self.root


def find_repository(fs: FileSystem, path: str) -> Repository | None:
    """The checkout that the directory is in, going up; canonical paths."""
    here = canonical(fs, path)
    while True:
        git_dir = _git_dir(fs, here)
        if git_dir is not None:
            shared = _line(fs, posixpath.join(git_dir, "commondir"))
            common = canonical(fs, posixpath.join(git_dir, shared)) if shared else git_dir
            return Repository(here, git_dir, common)
        if here == "/":
            return None
        here = posixpath.dirname(here)


def _git_dir(fs: FileSystem, root: str) -> str | None:
    """``.git`` itself, or where the file of that name points (worktrees, submodules)."""
    candidate = canonical(fs, posixpath.join(root, ".git"))
    pointer = _line(fs, candidate)
    if pointer is not None and pointer.startswith("gitdir:"):
        candidate = canonical(fs, posixpath.join(root, pointer.removeprefix("gitdir:").strip()))
    try:
        fs.lstat(posixpath.join(candidate, "HEAD"))  # an empty directory of that name is no checkout
    except OSError:
        return None
    return candidate


def _line(fs: FileSystem, path: str) -> str | None:
    try:
        data = fs.read(path, SIZES.git_pointer).data
    except OSError:
        return None
    return data.decode("utf-8", "surrogateescape").partition("\n")[0].strip()


def git_configs(fs: FileSystem, repository: Repository, env: Mapping[str, str]) -> list[ConfigFile]:
    """Git's configuration files, the strongest first."""
    home = env.get("HOME", "")
    xdg = env.get("XDG_CONFIG_HOME") or (posixpath.join(home, ".config") if home else "")
    paths = [
        posixpath.join(repository.common, "config"),
        posixpath.join(home, ".gitconfig") if home else "",
        posixpath.join(xdg, "git/config") if xdg else "",
        "/etc/gitconfig",
    ]
    found = (_config(fs, path) for path in paths if path)
    return [config for config in found if config is not None]


def _config(fs: FileSystem, path: str) -> ConfigFile | None:
    def opened(other: object) -> BinaryIO:
        name = other.decode() if isinstance(other, bytes) else str(other)
        return io.BytesIO(fs.read(canonical(fs, name), SIZES.git_config).data)

    try:
        return ConfigFile.from_file(opened(path), config_dir=posixpath.dirname(path), file_opener=opened)
    except (OSError, ValueError):  # missing, or not in git's grammar: git itself would refuse to work
        return None


def git_setting(configs: list[ConfigFile], section: str, name: str) -> str | None:
    for config in configs:
        try:
            return config.get((section.encode(),), name.encode()).decode("utf-8", "surrogateescape")
        except KeyError:
            continue
    return None
