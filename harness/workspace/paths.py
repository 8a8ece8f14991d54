"""From what a model wrote to the one file it means.

Three steps, each of which a wrong result can be blamed on: `clean` takes off what models wrap around
paths, `absolute` puts the text below the session's directory, `resolve` follows the links and repairs a
name whose blank is not the keyboard's.  Nothing here refuses a path outside of the workspace: whether it
may be touched is a question for permissions and containment, and `ResolvedPath.real` is what they judge.
`confine` is for the file services of a client, which may not leave a root at all.
"""

from __future__ import annotations

import dataclasses
import errno
import posixpath

from harness.limits import SIZES
from harness.workspace.filesystem import FileSystem, canonical, os_error

__all__ = [
    "Base",
    "PathHints",
    "ResolvedPath",
    "absolute",
    "below",
    "clean",
    "confine",
    "hints",
    "name_too_long",
    "resolve",
]

_QUOTES = "\"'"
_ESCAPES = ("\\n", "\\r", "\\t")
# Blanks that systems put into file names (a screenshot's time of day) and models write as plain ones.
_BLANKS = str.maketrans({"\u00a0": " ", "\u202f": " "})
_LEAF_AT_LEAST = 2
_STEM_AT_LEAST = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Base:
    """What relative paths are relative to.

    ``display`` is the directory a forked session is told it works in, while it works in ``cwd``.
    """

    cwd: str
    home: str | None = None
    display: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ResolvedPath:
    """Where a path a model wrote leads; act on ``real``, show ``shown``."""

    given: str  # as the model wrote it
    path: str  # absolute, links not followed
    real: str  # canonical: every link followed
    shown: str  # absolute for outputs, uncleaned, so that a model recognises its own spelling
    repaired: bool = False  # found only by taking an unusual blank for a plain one
    directory: bool = False  # written with a slash at its end

    def __str__(self) -> str:
        return self.real


@dataclasses.dataclass(frozen=True, slots=True)
class PathHints:
    """Help for a path that does not exist, as facts; the tool words them."""

    cwd: str
    corrected: str | None = None  # the same path with the missing directory put in
    similar: tuple[str, ...] = ()  # names in the same directory


def clean(text: str) -> str:
    """Without blanks and quotes around it, and without escapes that were meant for a line's end.

    Quotes go also when only one end has them; the escapes only when both have, because a name that ends
    in a backslash and an ``n`` exists.
    """
    outer = text.strip()
    inner = outer.strip(_QUOTES)
    if outer[:1] in _QUOTES and outer[-1:] in _QUOTES and len(outer) > 1:
        while inner.endswith(_ESCAPES):
            inner = inner[:-2]
    return inner.strip()


def absolute(text: str, base: Base) -> str:
    """The cleaned text below the base; ``~name`` stays a name."""
    if base.home and (text == "~" or text.startswith("~/")):
        text = base.home + text[1:]
    if not text.startswith("/"):
        return posixpath.join(base.cwd, text)
    if base.display is not None and below(text, base.display):
        return base.cwd + text[len(base.display.rstrip("/")) :]
    return text


def below(path: str, root: str) -> bool:
    """Whether the path is the root or under it, by its text."""
    root = root.rstrip("/")
    return path == root or path.startswith(root + "/")


def resolve(fs: FileSystem, text: str, base: Base) -> ResolvedPath:
    """Never raises for what the disk holds: the act on the result tells a loop or a missing right."""
    cleaned = clean(text)
    path = absolute(_rooted(fs, cleaned, base), base)
    real = canonical(fs, path)
    found = _folded_name(fs, real)
    shown = text if text.startswith("/") else posixpath.join(base.display or base.cwd, text)
    return ResolvedPath(
        given=text,
        path=path,
        real=found or real,
        shown=shown,
        repaired=found is not None,
        directory=cleaned.endswith("/"),
    )


def _rooted(fs: FileSystem, text: str, base: Base) -> str:
    """Put back the slash of an absolute path that lost it.

    Only where the first name does not exist below the base: with ``/app`` as the base, ``app/main.py``
    may well be ``/app/app/main.py``.
    """
    for root in (base.display, base.cwd):
        if root is None or not below(f"/{text}", root) or root == "/":
            continue
        first = posixpath.join(base.cwd, text.partition("/")[0])
        if not _exists(fs, first):
            return f"/{text}"
    return text


def _folded_name(fs: FileSystem, real: str) -> str | None:
    """The one file whose name differs in the kind of its blanks only; None when there are several."""
    parent, name = posixpath.split(real)
    folded = name.translate(_BLANKS)
    if " " not in folded or _exists(fs, real):
        return None
    try:
        names = [entry.name for entry in fs.listdir(parent)]
    except OSError:
        return None
    found = [other for other in names if other.translate(_BLANKS) == folded]
    return posixpath.join(parent, found[0]) if len(found) == 1 else None


def _exists(fs: FileSystem, path: str) -> bool:
    try:
        fs.lstat(path)
    except OSError:
        return False
    return True


def name_too_long(path: str) -> bool:
    return any(len(_bytes(name)) > SIZES.path_component for name in path.split("/"))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def hints(fs: FileSystem, path: ResolvedPath, base: Base) -> PathHints:
    """What a missing path may have meant."""
    shown = base.display or base.cwd
    corrected = _with_directory(fs, path.path, base)
    if corrected is not None:
        return PathHints(shown, corrected=corrected)
    parent, leaf = posixpath.split(path.real)
    try:
        names = sorted(entry.name for entry in fs.listdir(parent))
    except OSError:
        return PathHints(shown)
    similar = [name for name in names if _alike(name.lower(), leaf.lower())]
    return PathHints(shown, similar=tuple(similar[: SIZES.path_similar]))


def _with_directory(fs: FileSystem, path: str, base: Base) -> str | None:
    """A path beside the session's directory that exists inside of it."""
    parent = posixpath.dirname(base.cwd)
    if parent == base.cwd or below(path, base.cwd) or not below(path, parent):
        return None
    rest = path[len(parent.rstrip("/")) :].lstrip("/")
    candidate = posixpath.join(base.cwd, rest)
    if not rest or not _exists(fs, candidate):
        return None
    return posixpath.join(base.display or base.cwd, rest)


def _alike(name: str, leaf: str) -> bool:
    """One contains the other; short ones do not count, everything contains an ``a``."""
    if len(leaf) >= _LEAF_AT_LEAST and leaf in name:
        return True
    stem = posixpath.splitext(name)[0]
    return len(stem) >= _STEM_AT_LEAST and stem in leaf


def confine(fs: FileSystem, root: str, path: str) -> str:
    """The canonical path, or `PermissionError` when it leads out of the root.

    A path that does not exist is judged by where it would be created: its links, dangling ones too, are
    followed as far as it exists.
    """
    if not path:
        raise os_error(errno.ENOENT, path)
    inside = canonical(fs, root)
    # By its text first: a detour that leaves the root and comes back shows what exists outside.
    lexical = posixpath.normpath(posixpath.join(root, path))
    real = canonical(fs, posixpath.join(root, path))
    if not (below(lexical, root) or below(lexical, inside)) or not below(real, inside):
        raise os_error(errno.EACCES, path)
    return real
