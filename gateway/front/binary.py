"""The pinned binary: one private copy of the engine that no upgrade can touch.

Grok replaces its file at an upgrade, and a newer bridge evicts an older leader.  So the leader and
all bridges run from one copy in the state folder, named after the identity of the file that was
copied; a new file on disk takes effect at the next planned restart.  A bridge runs a hard link of
the copy that is unlinked once it is initialized: with ``/proc/self/exe`` deleted it cannot start a
leader of its own, which nobody would supervise.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import stat
from pathlib import Path

from gateway.engine import ELF_MAGIC

__all__ = ["BinaryError", "pin", "pin_running", "sweep"]

_FICLONE = 0x40049409
_COPY_STEP = 16 * 2**20


class BinaryError(Exception):
    """The binary cannot be pinned; the text says what happened, where and what to do."""


def pin(source: Path, folder: Path) -> Path:
    """The copy of ``source`` (an ELF file) in ``folder``; made unless it is there.

    Blocks while copying (0.1 s for 166 MB; nothing where the file system shares blocks).  Raises
    BinaryError.
    """
    try:
        with source.open("rb") as file:
            before = os.fstat(file.fileno())
            if file.read(len(ELF_MAGIC)) != ELF_MAGIC:
                raise BinaryError(f"{source} is not a native executable")
            target = folder / f"engine-{_content_id(before)}"
            if not _is_copy(target, before):
                _copy(file.fileno(), before, source, target)
            return target
    except OSError as error:
        raise BinaryError(f"{source} cannot be read: {error.strerror}") from error


def pin_running(pid: int, folder: Path) -> Path:
    """The copy that a running leader was started from; made from ``/proc/PID/exe`` if it was removed.

    Raises BinaryError.
    """
    running = Path(f"/proc/{pid}/exe")
    with contextlib.suppress(OSError):
        path = running.readlink()
        if path.parent == folder and path.samefile(running):
            return path
    return pin(running, folder)


def sweep(folder: Path, keep: Path | None = None) -> None:
    """Remove every other copy, every link and what killed processes left half done.

    For the moment before a leader starts: no bridge is usable then, so no link is needed, and a
    process that runs a removed copy goes on.
    """
    with contextlib.suppress(OSError):
        for entry in tuple(folder.iterdir()):
            if entry != keep:
                entry.unlink(missing_ok=True)


def _content_id(status: os.stat_result) -> str:
    """An upgrade writes a new file: inode, size and time tell versions apart without reading 166 MB."""
    text = f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_copy(target: Path, source: os.stat_result) -> bool:
    try:
        status = target.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == source.st_size and bool(status.st_mode & 0o100)


def _copy(source: int, before: os.stat_result, name: Path, target: Path) -> None:
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700)
        try:
            _clone(source, fd, before.st_size)
        finally:
            os.close(fd)
        after = os.fstat(source)
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            raise BinaryError(f"{name} changed while it was copied; an upgrade seems to be under way")
        partial.rename(target)
    except OSError as error:
        raise BinaryError(_why(error, name, target.parent, before.st_size)) from error
    finally:
        partial.unlink(missing_ok=True)


def _clone(source: int, target: int, size: int) -> None:
    with contextlib.suppress(OSError):  # not every file system shares blocks
        fcntl.ioctl(target, _FICLONE, source)
        return
    done = 0
    while done < size:
        step = os.sendfile(target, source, done, min(_COPY_STEP, size - done))
        if step == 0:
            raise OSError(errno.EIO, "the file ended early")
        done += step


def _why(error: OSError, source: Path, folder: Path, size: int) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"no space for the {size / 2**20:.0f} MiB copy of {source} in {folder}: free some, "
            "or move the gateway's folders with GROK_GATEWAY_HOME"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{folder} is not writable ({error.strerror}): the copy of {source} cannot be made there"
    return f"{source} cannot be copied to {folder}: {error.strerror}"
