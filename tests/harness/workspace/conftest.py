"""The same tests on both kinds of files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from harness.workspace.filesystem import FileSystem
from harness.workspace.host_filesystem import HostFileSystem
from harness.workspace.memory_filesystem import MemoryFileSystem


class Tree(Protocol):
    """What tests do behind the back of the code they test, and the filesystem it uses."""

    fs: FileSystem
    root: str

    def put(self, path: str, content: str | bytes, mode: int = 0o644) -> None: ...
    def symlink(self, path: str, target: str) -> None: ...
    def chmod(self, path: str, mode: int) -> None: ...
    def rename(self, source: str, destination: str) -> None: ...
    def get(self, path: str) -> bytes: ...
    def names(self, path: str) -> list[str]: ...


class MemoryTree:
    def __init__(self) -> None:
        self.fs = MemoryFileSystem()
        self.root = "/work/tree"
        self.fs.mkdirs(self.root)

    def _at(self, path: str) -> str:
        return os.path.join(self.root, path)

    def put(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        self.fs.put(self._at(path), content, mode)

    def symlink(self, path: str, target: str) -> None:
        self.fs.symlink(self._at(path), target)

    def chmod(self, path: str, mode: int) -> None:
        self.fs.chmod(self._at(path), mode)

    def rename(self, source: str, destination: str) -> None:
        self.fs.rename(self._at(source), self._at(destination))

    def get(self, path: str) -> bytes:
        return self.fs.read(self._at(path)).data

    def names(self, path: str) -> list[str]:
        return sorted(entry.name for entry in self.fs.listdir(self._at(path)))


class HostTree:
    def __init__(self, root: Path) -> None:
        self.fs = HostFileSystem()
        self.root = str(root.resolve())
        self._root = Path(self.root)

    def _made(self, path: str) -> Path:
        full = self._root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        return full

    def put(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        full = self._made(path)
        full.write_bytes(content.encode() if isinstance(content, str) else content)
        full.chmod(mode)

    def symlink(self, path: str, target: str) -> None:
        full = self._made(path)
        full.unlink(missing_ok=True)
        full.symlink_to(target)

    def chmod(self, path: str, mode: int) -> None:
        (self._root / path).chmod(mode)

    def rename(self, source: str, destination: str) -> None:
        (self._root / source).rename(self._made(destination))

    def get(self, path: str) -> bytes:
        return (self._root / path).read_bytes()

    def names(self, path: str) -> list[str]:
        return sorted(entry.name for entry in (self._root / path).iterdir())


@pytest.fixture(params=["memory", "host"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Tree:
    return MemoryTree() if request.param == "memory" else HostTree(tmp_path)


@pytest.fixture
def memory() -> MemoryTree:
    return MemoryTree()


MakeTree = Callable[[], Tree]
