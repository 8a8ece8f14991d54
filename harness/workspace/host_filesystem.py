"""The host's files.

Acting on a path walks to its directory component by component with ``O_NOFOLLOW`` and then works by
name *inside that directory's descriptor*.  Opening by the whole path would follow a link that another
process puts in between the look and the act; the descriptor stays what it was.

A write goes to a new file beside the old one, which takes its place by a rename.  Where the directory
takes no new file although the old one is writable (a directory of another user, a file mounted alone),
the old one is written in place: not atomic, but the only way there is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator

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

__all__ = ["HostFileSystem"]

# A descriptor of a directory that only needs to be searched, not read, where the system knows that.
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO without a writer must not wait; O_NOCTTY: nor may a terminal become ours.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_IN_PLACE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LINK = (errno.ELOOP, errno.EMLINK)  # what open says of a link with O_NOFOLLOW; some BSDs say the second
_NO_NEW_FILE = (errno.EACCES, errno.EPERM, errno.EROFS)  # of the directory; the file may be mounted alone
_NO_RENAME = (errno.EBUSY, errno.EXDEV, errno.EPERM)  # a mounted file, a sticky directory
_CHUNK = 1 << 20
_SET_ID = stat.S_ISUID | stat.S_ISGID


class HostFileSystem:
    """A `FileSystem` on this machine; its calls may wait for a disk."""

    blocking = True

    # -- looking -------------------------------------------------------------------------------------

    def stat(self, path: str) -> Stat:
        return _stat(os.stat(path))

    def lstat(self, path: str) -> Stat:
        return _stat(os.lstat(path))

    def readlink(self, path: str) -> str:
        return os.readlink(path)  # noqa: PTH115 - a Path would tidy up what the link says

    def listdir(self, path: str) -> list[Entry]:
        with os.scandir(path) as entries:
            return [Entry(entry.name, _entry_kind(entry)) for entry in entries]

    # -- acting --------------------------------------------------------------------------------------

    def read(self, path: str, limit: int | None = None) -> FileContent:
        with _parent(path) as (parent, name):
            try:
                fd = os.open(name, _READ, dir_fd=parent)
            except OSError as error:
                if error.errno in _LINK:
                    raise _link(path) from None
                raise _named(error, path) from None
        try:
            found = os.fstat(fd)
            if stat.S_ISDIR(found.st_mode):
                raise os_error(errno.EISDIR, path)
            if not stat.S_ISREG(found.st_mode):
                raise os_error(errno.EINVAL, path)
            data, truncated = _read_up_to(fd, limit)
            return FileContent(data, _stat(found), truncated)
        finally:
            os.close(fd)

    def replace_atomic(
        self, path: str, data: bytes, *, mode: int | None = None, expected: Expected = None
    ) -> Stat:
        with _parent(path) as (parent, name):
            old = _target(parent, name, path, expected)
            if old is not None and not os.access(name, os.W_OK, dir_fd=parent, effective_ids=True):
                # The rename would ask the directory's permission only.
                raise os_error(errno.EACCES, path)
            # The content must not be readable by more people than the old one, not even for a moment.
            first = 0o666 if old is None and mode is None else 0o600
            temporary = f".{secrets.token_hex(8)}.tmp"
            try:
                fd = os.open(temporary, _CREATE, first, dir_fd=parent)
            except OSError as error:
                if old is not None and error.errno in _NO_NEW_FILE:
                    return _write_in_place(parent, name, path, data, mode)
                raise _named(error, path) from None
            try:
                with contextlib.closing(_Descriptor(fd)):
                    _write_all(fd, data)
                    _take_over(parent, name, fd, old, mode)
                    os.fsync(fd)
                _target(parent, name, path, expected)
                written = _put_in_place(parent, temporary, name, path, expected)
            except BaseException as error:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=parent)
                if not isinstance(error, OSError) or isinstance(error, PathChangedError):
                    raise
                if old is not None and error.errno in _NO_RENAME:
                    return _write_in_place(parent, name, path, data, mode)
                raise _named(error, path) from None
            return written

    def mkdirs(self, path: str) -> None:
        with _walk(_names(path), path, create=True):
            pass

    def remove(self, path: str) -> None:
        with _parent(path) as (parent, name):
            try:
                os.unlink(name, dir_fd=parent)
            except OSError as error:
                raise _named(error, path) from None


class _Descriptor:
    """A file descriptor for `contextlib.closing`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        os.close(self._fd)


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


@contextlib.contextmanager
def _parent(path: str) -> Iterator[tuple[int, str]]:
    """The directory of a canonical path's last name, held open, and that name."""
    *parents, name = _names(path) or ["."]
    with _walk(parents, path) as fd:
        yield fd, name


@contextlib.contextmanager
def _walk(names: list[str], path: str, *, create: bool = False) -> Iterator[int]:
    fd = os.open("/", _DIRECTORY)
    try:
        for name in names:
            deeper = _step(fd, name, path, create)
            os.close(fd)
            fd = deeper
        yield fd
    finally:
        os.close(fd)


def _step(fd: int, name: str, path: str, create: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=fd)
    except FileNotFoundError as error:
        if not create:
            raise _named(error, path) from None
    except OSError as error:
        # With O_PATH a link is "no directory", without it "too many links".
        if error.errno in (errno.ENOTDIR, *_LINK) and _is_link(fd, name):
            raise _link(path) from None
        raise _named(error, path) from None
    try:
        os.mkdir(name, dir_fd=fd)
    except FileExistsError:
        pass  # somebody was faster; what it is, the next look says
    except OSError as error:
        raise _named(error, path) from None
    return _step(fd, name, path, create=False)


def _is_link(fd: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _target(parent: int, name: str, path: str, expected: Expected) -> os.stat_result | None:
    """State of the file that is to be replaced; raises where it may not be."""
    try:
        old = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        if isinstance(expected, Stat):
            raise PathChangedError(path, "the file has gone meanwhile") from None
        return None
    except OSError as error:
        raise _named(error, path) from None
    if stat.S_ISLNK(old.st_mode):
        raise _link(path)
    if stat.S_ISDIR(old.st_mode):
        raise os_error(errno.EISDIR, path)
    if not stat.S_ISREG(old.st_mode):
        raise os_error(errno.EINVAL, path)
    if expected is ABSENT:
        raise PathChangedError(path, "a file has appeared there")
    if isinstance(expected, Stat) and _stat(old) != expected:
        raise PathChangedError(path, "the file was changed meanwhile")
    return old


def _take_over(parent: int, name: str, fd: int, old: os.stat_result | None, mode: int | None) -> None:
    """Give the new file what the old one had: owner, permissions, extended attributes."""
    if old is None:
        if mode is not None:
            os.fchmod(fd, mode)
        return
    bits = stat.S_IMODE(old.st_mode) if mode is None else mode
    if (old.st_uid, old.st_gid) != (os.geteuid(), os.fstat(fd).st_gid):
        try:
            os.fchown(fd, old.st_uid, old.st_gid)
        except OSError:
            bits &= ~_SET_ID  # with another owner these bits would lend another person's rights
    os.fchmod(fd, bits)
    if not hasattr(os, "listxattr"):
        return
    with contextlib.suppress(OSError):  # after fchmod: it would change the mask of an access list
        source = f"/proc/self/fd/{parent}/{name}"
        for attribute in os.listxattr(source, follow_symlinks=False):
            with contextlib.suppress(OSError):
                os.setxattr(fd, attribute, os.getxattr(source, attribute, follow_symlinks=False))


def _put_in_place(parent: int, temporary: str, name: str, path: str, expected: Expected) -> Stat:
    """Rename over the old file; a file meant to be new is linked, which fails where one has appeared."""
    written = _stat(os.stat(temporary, dir_fd=parent, follow_symlinks=False))
    if expected is ABSENT:
        try:
            os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
        except FileExistsError:
            raise PathChangedError(path, "a file has appeared there") from None
        except OSError:
            pass  # a filesystem without hard links: the look just before has to do
        else:
            os.unlink(temporary, dir_fd=parent)
            return written
    os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    return written


def _write_in_place(parent: int, name: str, path: str, data: bytes, mode: int | None) -> Stat:
    try:
        fd = os.open(name, _IN_PLACE, dir_fd=parent)
    except OSError as error:
        if error.errno in _LINK:
            raise _link(path) from None
        raise _named(error, path) from None
    with contextlib.closing(_Descriptor(fd)):
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise os_error(errno.EINVAL, path)
        _write_all(fd, data)
        os.ftruncate(fd, len(data))  # afterwards: a full disk leaves the old end instead of nothing
        if mode is not None:
            os.fchmod(fd, mode)
        os.fsync(fd)
        return _stat(os.fstat(fd))


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _read_up_to(fd: int, limit: int | None) -> tuple[bytes, bool]:
    """By reading, not by the size: what ``/proc`` holds has none, and a log grows meanwhile."""
    parts: list[bytes] = []
    left = limit
    while left is None or left > 0:
        part = os.read(fd, _CHUNK if left is None else min(left, _CHUNK))
        if not part:
            return b"".join(parts), False
        parts.append(part)
        if left is not None:
            left -= len(part)
    return b"".join(parts), bool(os.read(fd, 1))


def _stat(found: os.stat_result) -> Stat:
    return Stat(
        kind=_kind(found.st_mode),
        size=found.st_size,
        mode=stat.S_IMODE(found.st_mode),
        mtime_ns=found.st_mtime_ns,
        device=found.st_dev,
        inode=found.st_ino,
    )


def _kind(mode: int) -> FileKind:
    if stat.S_ISREG(mode):
        return FileKind.FILE
    if stat.S_ISDIR(mode):
        return FileKind.DIRECTORY
    return FileKind.SYMLINK if stat.S_ISLNK(mode) else FileKind.OTHER


def _entry_kind(entry: os.DirEntry[str]) -> FileKind:
    if entry.is_symlink():
        return FileKind.SYMLINK
    if entry.is_dir(follow_symlinks=False):
        return FileKind.DIRECTORY
    return FileKind.FILE if entry.is_file(follow_symlinks=False) else FileKind.OTHER


def _link(path: str) -> PathChangedError:
    return PathChangedError(path, "a link has appeared on the way")


def _named(error: OSError, path: str) -> OSError:
    """The same failure, told of the path the caller knows rather than of a name beside a descriptor."""
    return os_error(error.errno or errno.EIO, path)
