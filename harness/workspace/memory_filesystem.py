"""A tree of files in memory with links, permission bits and times, behaving like the host's.

What tools do to files can so be tried on every outcome, also those that a host refuses to produce on
demand: a full disk, a link that appears between two calls.  ``on_step`` is told each step of an action
before it is done and may raise or change the tree.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
from collections.abc import Callable

from harness.limits import SIZES
from harness.workspace.filesystem import (
    ABSENT,
    Entry,
    Expected,
    FileContent,
    FileKind,
    PathChangedError,
    Stat,
    os_error,
)

__all__ = ["MemoryFileSystem"]

_DEVICE = 1
_NAME_BYTES = 255
_READ, _WRITE, _SEARCH = 0o400, 0o200, 0o100


@dataclasses.dataclass(slots=True)
class _Node:
    inode: int
    mode: int
    mtime_ns: int
    data: bytes = b""
    target: str | None = None  # of a link
    children: dict[str, _Node] | None = None  # of a directory

    @property
    def kind(self) -> FileKind:
        if self.children is not None:
            return FileKind.DIRECTORY
        return FileKind.FILE if self.target is None else FileKind.SYMLINK

    def stat(self) -> Stat:
        size = len(self.target or "") or len(self.data)
        return Stat(self.kind, size, self.mode, self.mtime_ns, _DEVICE, self.inode)


class MemoryFileSystem:
    """A `FileSystem` without a host; its owner's permission bits count, there is one user."""

    blocking = False

    def __init__(self, files: dict[str, str | bytes] | None = None) -> None:
        self._inodes = itertools.count(2)
        self._clock = itertools.count(1_000_000_000, 1_000_000)
        self._root = _Node(1, 0o755, 0, children={})
        self.on_step: Callable[[str, str], None] = lambda _step, _path: None
        for path, content in (files or {}).items():
            self.put(path, content)

    # -- looking -------------------------------------------------------------------------------------

    def stat(self, path: str) -> Stat:
        return self._find(path).stat()

    def lstat(self, path: str) -> Stat:
        return self._find(path, follow=False).stat()

    def readlink(self, path: str) -> str:
        target = self._find(path, follow=False).target
        if target is None:
            raise os_error(errno.EINVAL, path)
        return target

    def listdir(self, path: str) -> list[Entry]:
        node = self._find(path)
        if node.children is None:
            raise os_error(errno.ENOTDIR, path)
        self._permit(node, _READ, path)
        return [Entry(name, child.kind) for name, child in node.children.items()]

    # -- acting --------------------------------------------------------------------------------------

    def read(self, path: str, limit: int | None = None) -> FileContent:
        self.on_step("read", path)
        parent, name = self._parent(path)
        node = parent if not name else self._child(parent, name, path)
        self._refuse_link(node, path)
        if node.children is not None:
            raise os_error(errno.EISDIR, path)
        self._permit(node, _READ, path)
        data = node.data if limit is None else node.data[:limit]
        return FileContent(data, node.stat(), len(data) < len(node.data))

    def replace_atomic(
        self, path: str, data: bytes, *, mode: int | None = None, expected: Expected = None
    ) -> Stat:
        self.on_step("open", path)
        parent, name = self._parent(path)
        old = self._check_target(parent, name, path, expected)
        if old is not None:
            self._permit(old, _WRITE, path)
        self._permit(parent, _WRITE | _SEARCH, path)
        self.on_step("write", path)
        written = _Node(next(self._inodes), 0o644, next(self._clock), bytes(data))
        self.on_step("rename", path)
        old = self._check_target(parent, name, path, expected)
        written.mode = mode if mode is not None else (old.mode if old else 0o644)
        assert parent.children is not None
        parent.children[name] = written
        return written.stat()

    def mkdirs(self, path: str) -> None:
        node = self._root
        for name in _names(path):
            assert node.children is not None
            child = node.children.get(name)
            if child is None:
                self._permit(node, _WRITE | _SEARCH, path)
                child = self._directory()
                node.children[name] = child
            self._refuse_link(child, path)
            if child.children is None:
                raise os_error(errno.ENOTDIR, path)
            node = child

    def remove(self, path: str) -> None:
        self.on_step("remove", path)
        parent, name = self._parent(path)
        if self._child(parent, name, path).children is not None:
            raise os_error(errno.EISDIR, path)
        self._permit(parent, _WRITE | _SEARCH, path)
        assert parent.children is not None
        del parent.children[name]

    # -- what a test does behind the tools' back -----------------------------------------------------

    def put(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        """Write in place like any other program: the same file, a later time."""
        parent, name = self._made_parent(path)
        data = content.encode() if isinstance(content, str) else content
        node = parent.get(name)
        if node is None or node.kind is not FileKind.FILE:
            parent[name] = _Node(next(self._inodes), mode, next(self._clock), data)
        else:
            node.data, node.mtime_ns = data, next(self._clock)

    def symlink(self, path: str, target: str) -> None:
        parent, name = self._made_parent(path)
        parent[name] = _Node(next(self._inodes), 0o777, next(self._clock), target=target)

    def chmod(self, path: str, mode: int) -> None:
        self._find(path).mode = mode

    def rename(self, source: str, destination: str) -> None:
        from_parent, from_name = self._made_parent(source)
        to_parent, to_name = self._made_parent(destination)
        to_parent[to_name] = from_parent.pop(from_name)

    # -- inside --------------------------------------------------------------------------------------

    def _directory(self) -> _Node:
        return _Node(next(self._inodes), 0o755, next(self._clock), children={})

    def _made_parent(self, path: str) -> tuple[dict[str, _Node], str]:
        *parents, name = _names(path)
        children = self._root.children
        for part in parents:
            assert children is not None
            children = children.setdefault(part, self._directory()).children
        assert children is not None
        return children, name

    def _find(self, path: str, *, follow: bool = True, hops: int = 0) -> _Node:
        """Walk to the node; a link on the way is followed, the last one only with ``follow``."""
        trail: list[_Node] = []
        node, names = self._root, _names(path)[::-1]
        while names:
            name = names.pop()
            if name == "..":
                trail, node = trail[:-1], (trail[-1] if trail else self._root)
                continue
            child = self._child(node, name, path)
            if child.target is None or not (names or follow):
                trail.append(node)
                node = child
                continue
            hops += 1
            if hops > SIZES.symlink_hops:
                raise os_error(errno.ELOOP, path)
            if child.target.startswith("/"):
                node, trail = self._root, []
            names.extend(_names(child.target)[::-1])
        return node

    def _child(self, node: _Node, name: str, path: str) -> _Node:
        if len(name.encode("utf-8", "surrogateescape")) > _NAME_BYTES:
            raise os_error(errno.ENAMETOOLONG, path)
        if node.children is None:
            raise os_error(errno.ENOTDIR, path)
        self._permit(node, _SEARCH, path)
        if name not in node.children:
            raise os_error(errno.ENOENT, path)
        return node.children[name]

    def _parent(self, path: str) -> tuple[_Node, str]:
        """The directory that holds a canonical path's last name; a link on the way is refused."""
        names = _names(path)
        node = self._root
        for name in names[:-1]:
            node = self._child(node, name, path)
            self._refuse_link(node, path)
        if node.children is None:
            raise os_error(errno.ENOTDIR, path)
        return node, names[-1] if names else ""

    def _check_target(self, parent: _Node, name: str, path: str, expected: Expected) -> _Node | None:
        try:
            old = self._child(parent, name, path)
        except FileNotFoundError:
            old = None
        if old is not None:
            self._refuse_link(old, path)
            if old.children is not None:
                raise os_error(errno.EISDIR, path)
        if expected is ABSENT and old is not None:
            raise PathChangedError(path, "a file has appeared there")
        if isinstance(expected, Stat) and old is None:
            raise PathChangedError(path, "the file has gone meanwhile")
        if isinstance(expected, Stat) and old is not None and old.stat() != expected:
            raise PathChangedError(path, "the file was changed meanwhile")
        return old

    @staticmethod
    def _refuse_link(node: _Node, path: str) -> None:
        if node.target is not None:
            raise PathChangedError(path, "a link has appeared on the way")

    @staticmethod
    def _permit(node: _Node, bits: int, path: str) -> None:
        if node.mode & bits != bits:
            raise os_error(errno.EACCES, path)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]
