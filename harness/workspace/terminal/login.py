"""The login shell's word, taken once and handed to every command through a descriptor."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping

from harness.workspace.terminal.shell import Login, Shell, take_login

__all__ = ["LoginSnapshot"]


class LoginSnapshot:
    """Taken when it is first asked for, or earlier with `begin`; a failed one is empty and stays so."""

    def __init__(self, shell: Shell, environ: Mapping[str, str]) -> None:
        self._shell, self._environ = shell, environ
        self._taking: asyncio.Task[Login] | None = None
        #: Holds the script of functions and aliases; None before `get`, or when there is none.
        self.descriptor: int | None = None
        self._closed = False

    def begin(self) -> None:
        if self._taking is None:
            self._taking = asyncio.get_running_loop().create_task(take_login(self._shell, self._environ))

    async def get(self) -> Login:
        self.begin()
        assert self._taking is not None
        login = await asyncio.shield(self._taking)
        if login.script.strip() and self.descriptor is None and not self._closed:
            self.descriptor = _held(login.script)
        return login

    async def close(self) -> None:
        self._closed = True
        if self._taking is not None and not self._taking.done():
            self._taking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._taking
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def _held(script: bytes) -> int | None:
    """A descriptor of a file that has no name and that every reader opens at its beginning.

    Functions may hold what a person would not write into a file under /tmp.  Elsewhere than on Linux
    opening ``/dev/fd/N`` shares the position, and the second command would find nothing.
    """
    if not hasattr(os, "memfd_create"):
        return None
    try:
        fd = os.memfd_create("login")
    except OSError:
        return None
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(script)
    return fd
