"""What the file tools share: reading with a bound, writing once and telling of it, and what was seen.

Nothing of the host is touched here but through the session.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib

from harness.limits import SIZES
from harness.outcome import FaultKind, ToolFault
from harness.registry.contract import CallContext
from harness.workspace.filesystem import ABSENT, PathChangedError, Stat
from harness.workspace.paths import PathHints, ResolvedPath

__all__ = [
    "NOTHING",
    "Found",
    "SeenFiles",
    "TooLargeError",
    "find",
    "hinted",
    "host_fault",
    "is_denied",
    "is_ignored",
    "place_of",
    "put",
    "reason",
    "respect_gitignore_schema",
]

_PERMISSION = (errno.EACCES, errno.EPERM, errno.EROFS)


class TooLargeError(Exception):
    """A file that is not taken into memory."""


class SeenFiles:
    """What the model knows of files: a digest of each one's bytes as they were last read or written.

    A time or a size would not do: a formatter may rewrite a file within one tick of the clock, and a
    checkout back and forth leaves the content as it was.
    """

    def __init__(self) -> None:
        self._digests: dict[str, bytes] = {}

    def saw(self, path: ResolvedPath, data: bytes) -> None:
        self._digests[path.real] = _digest(data)

    def changed(self, path: ResolvedPath, data: bytes) -> bool:
        """Whether the file was seen and is another one now."""
        seen = self._digests.get(path.real)
        return seen is not None and seen != _digest(data)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """A file's bytes and state, both None when there is none."""

    data: bytes | None
    stat: Stat | None


#: No file.
NOTHING = Found(None, None)


async def find(context: CallContext, path: ResolvedPath) -> Found:
    """The whole file; `OSError` and `TooLargeError` are the caller's to word."""
    try:
        content = await context.session.read(path, SIZES.file_bytes)
    except FileNotFoundError:
        return NOTHING
    if content.truncated:
        raise TooLargeError
    return Found(content.data, content.stat)


async def put(context: CallContext, path: ResolvedPath, found: Found, data: bytes) -> bool:
    """Write in place of what was found and tell of it; False: somebody else wrote meanwhile."""
    try:
        await context.session.write_atomic(path, data, expected=found.stat or ABSENT)
    except PathChangedError:
        return False
    except FileExistsError as error:
        if found.stat is None and not await _is_file(context, path):
            raise host_fault(error) from error
        return False
    except OSError as error:
        raise host_fault(error) from error
    context.resources.get(SeenFiles).saw(path, data)
    previous = None if found.data is None else found.data.decode(errors="surrogateescape")
    context.notify(
        context.session.record_write(context.call_id, path, data.decode(errors="surrogateescape"), previous)
    )
    return True


async def _is_file(context: CallContext, path: ResolvedPath) -> bool:
    try:
        return (await context.session.stat(path)).is_file
    except OSError:
        return False


async def is_ignored(context: CallContext, path: ResolvedPath) -> bool:
    """Whether git ignores the file and the session minds."""
    return bool(context.params.get("respect_gitignore")) and await context.session.ignored(path)


def place_of(context: CallContext, path: ResolvedPath, *, exists: bool) -> str:
    """The absolute path for a client: where the links led, or the name that was asked for."""
    if context.session.display_cwd is not None:
        return path.shown
    return path.real if exists else path.path


def is_denied(error: OSError) -> bool:
    return error.errno in _PERMISSION


def reason(error: OSError) -> str:
    """The host's own words for an error, without the path, which the text around it names."""
    return f"{error.strerror} (errno {error.errno})" if error.strerror else str(error)


def host_fault(error: OSError) -> ToolFault:
    kind = FaultKind.PERMISSION_DENIED if is_denied(error) else FaultKind.EXECUTION
    return ToolFault(kind, reason(error))


def respect_gitignore_schema() -> dict[str, object]:
    """The configuration parameter that several tools share."""
    return {"type": "boolean", "description": "refuse, or do not show, what git ignores"}


def hinted(hints: PathHints | None) -> str:
    """What may have been meant by a path that does not exist, as sentences to append."""
    if hints is None:
        return ""
    text = f" The working directory is {hints.cwd}."
    if hints.corrected:
        return f"{text} Did you mean {hints.corrected}?"
    if hints.similar:
        return f"{text} Similar names there: {', '.join(hints.similar)}."
    return text
