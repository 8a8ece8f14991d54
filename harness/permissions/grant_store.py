"""Remembered grants on disk: one file a project, outside of it, replaced whole.

The project is the root of the git checkout a session works in, or its folder where there is none, so that
a grant given at the root holds in a subfolder and never in another project.  Several engines may write at
once: each reads, changes and replaces under a lock.  A file that cannot be read grants nothing, and is not
overwritten.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from harness.limits import LIMITS, SIZES
from harness.permissions.grants import Grants, dump, load

__all__ = ["GrantError", "GrantStore", "project_root"]


class GrantError(Exception):
    """Grants cannot be read or written; the text says where and why."""


def project_root(cwd: str) -> str:
    """The folder whose grants hold for a session: the nearest one with a ``.git``, else its own."""
    here = Path(os.path.realpath(cwd))
    for folder in (here, *here.parents):
        if (folder / ".git").exists():
            return str(folder)
    return str(here)


class GrantStore:
    """The grants of one project below a GROK_HOME."""

    def __init__(self, grok_home: Path, root: str) -> None:
        name = quote(root, safe="")
        if len(os.fsencode(name)) > SIZES.path_component:
            # another project whose name begins alike must not share the file: then nothing is remembered
            self.file: Path | None = None
        else:
            self.file = grok_home / "sessions" / name / "permission.toml"

    def read(self) -> Grants:
        """Raises GrantError for a file that is there and cannot be used."""
        if self.file is None:
            return Grants()
        try:
            with self.file.open("rb") as stream:
                data = stream.read(SIZES.config_file + 1)
            if len(data) > SIZES.config_file:
                raise ValueError("it is too long")
            return load(data.decode("utf-8"))
        except FileNotFoundError:
            return Grants()
        except (OSError, ValueError) as error:
            raise GrantError(f"{self.file} cannot be read: {error}") from error

    def change(self, change: Callable[[Grants], Grants]) -> Grants:
        """Apply a change to what the file holds now and write it.  Raises GrantError."""
        if self.file is None:
            raise GrantError("the path of the project is too long to be remembered")
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(self.file.with_name(".permission.lock")):
                before = self.read()
                after = change(before)
                if after != before:
                    self._write(dump(after))
                return after
        except OSError as error:
            raise GrantError(f"{self.file} cannot be written: {error}") from error

    def _write(self, text: str) -> None:
        assert self.file is not None
        beside = self.file.with_name(f".permission.{secrets.token_hex(4)}")
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "w", encoding="utf-8") as stream:  # noqa: PTH123 (a descriptor, not a path)
                stream.write(text)
                stream.flush()
                os.fsync(fd)
            beside.replace(self.file)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + LIMITS.grants_lock
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError("another process holds the lock") from None
                time.sleep(LIMITS.grants_look)
        yield
    finally:
        os.close(fd)
