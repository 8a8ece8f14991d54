"""The filesystem as tools see it: a small protocol, and the resolution of links both kinds share.

A path here is an absolute string with ``/``; names that are no UTF-8 carry surrogate escapes, as
`os.fsdecode` makes them.  Two families of methods:

- ``stat``, ``lstat``, ``listdir`` and ``readlink`` look, and follow links like the calls of the same
  names.
- ``read``, ``replace_atomic``, ``mkdirs`` and ``remove`` act, and only on a *canonical* path: one in
  which `canonical` left no link.  A link that sits on the way now was put there after the path was
  resolved, so the call raises `PathChangedError` instead of following it.  Checking first and opening
  by name afterwards would leave a gap between the two.

Failures are the usual `OSError` classes.
"""

from __future__ import annotations

import dataclasses
import enum
import errno
import os
from typing import Final, Protocol

from harness.limits import SIZES

__all__ = [
    "ABSENT",
    "Absent",
    "Entry",
    "Expected",
    "FileContent",
    "FileKind",
    "FileSystem",
    "PathChangedError",
    "Stat",
    "canonical",
    "os_error",
]


class FileKind(enum.StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


@dataclasses.dataclass(frozen=True, slots=True)
class Stat:
    """What is known of a file without reading it; two equal values mean that nothing was changed."""

    kind: FileKind
    size: int
    mode: int  # permission bits only
    mtime_ns: int
    device: int
    inode: int

    @property
    def is_dir(self) -> bool:
        return self.kind is FileKind.DIRECTORY

    @property
    def is_file(self) -> bool:
        return self.kind is FileKind.FILE


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory; ``kind`` is that of the name itself, a link is a link."""

    name: str
    kind: FileKind


@dataclasses.dataclass(frozen=True, slots=True)
class FileContent:
    """Bytes and the state of the very file they came from; ``truncated``: the limit cut the rest off."""

    data: bytes
    stat: Stat
    truncated: bool = False


class Absent(enum.Enum):
    """The type of `ABSENT`: the writer found no file there and means to create one."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
#: What a writer expects to find: a state it has read, nothing at all, or (None) it does not care.
Expected = Stat | Absent | None


class PathChangedError(OSError):
    """The path or the file is no longer what it was when it was resolved or read."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(errno.ESTALE, what, path)


def os_error(number: int, path: str) -> OSError:
    """The error the host would raise; `OSError` itself picks the class by the number."""
    return OSError(number, os.strerror(number), path)


class FileSystem(Protocol):
    """A host's files, or a tree in memory."""

    @property
    def blocking(self) -> bool:
        """True when calls may wait for a disk, so that they belong into a thread."""

    def stat(self, path: str) -> Stat:
        """State of what the path leads to."""

    def lstat(self, path: str) -> Stat:
        """State of the name itself."""

    def readlink(self, path: str) -> str: ...

    def listdir(self, path: str) -> list[Entry]:
        """Entries in no particular order, without ``.`` and ``..``."""

    def read(self, path: str, limit: int | None = None) -> FileContent:
        """A regular file's first ``limit`` bytes; anything else than a file or directory is EINVAL."""

    def replace_atomic(
        self, path: str, data: bytes, *, mode: int | None = None, expected: Expected = None
    ) -> Stat:
        """Put ``data`` there in one step: readers, and a reader after a crash, see old or new, never half.

        Permissions of a file that is replaced are kept unless ``mode`` is given.  The parent directory
        must exist.  With ``expected``, a file in another state raises `PathChangedError`.
        """

    def mkdirs(self, path: str) -> None:
        """Create the directory and its parents where they are missing."""

    def remove(self, path: str) -> None:
        """Remove a file or link, no directory."""


def canonical(fs: FileSystem, path: str, *, strict: bool = False) -> str:
    """The path with every link followed, also a dangling one.

    What does not exist or may not be looked at is kept as written, so that a file about to be created has
    a canonical path too; ``strict`` raises instead.  ``..`` is applied after the links before it, as the
    kernel does: taking it off the text first would lead ``link/../x`` elsewhere.
    """
    pending = path.split("/")[::-1]
    done: list[str] = []
    hops = 0
    while pending:
        name = pending.pop()
        if name in ("", "."):
            continue
        if name == "..":
            del done[-1:]
            continue
        here = "/" + "/".join([*done, name])
        try:
            target = fs.readlink(here) if fs.lstat(here).kind is FileKind.SYMLINK else None
        except OSError:
            if strict:
                raise
            target = None
        if target is None:
            done.append(name)
            continue
        hops += 1
        if hops > SIZES.symlink_hops:
            if strict:
                raise os_error(errno.ELOOP, path)
            done.append(name)
            continue
        if target.startswith("/"):
            done.clear()
        pending.extend(target.split("/")[::-1])
    return "/" + "/".join(done)
