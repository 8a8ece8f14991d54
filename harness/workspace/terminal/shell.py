"""The user's shell: which it is, how it is started, and what a login with it brings along.

A command runs as ``SHELL -c SCRIPT -- COMMAND``.  The script evaluates the command with both of its
outputs in one stream, so that their order is the order of writing, and with the functions and aliases of
a login shell, which were taken down once: a login shell for every command would cost its start-up files
every time.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from harness.limits import LIMITS
from harness.workspace.terminal.environment import TASK_VARIABLE

__all__ = ["Login", "Shell", "resolve_shell", "take_login"]

_DIRECTORIES = ("/bin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin")
_KINDS = ("bash", "zsh")


@dataclasses.dataclass(frozen=True, slots=True)
class Shell:
    """A shell that speaks the language of commands."""

    path: str
    kind: str

    def argv(self, command: str, snapshot_fd: int | None) -> list[str]:
        """The arguments that run a command, after the snapshot that a descriptor holds."""
        return [self.path, *self._options(), "-c", self._script(snapshot_fd), "--", command]

    def _options(self) -> list[str]:
        return ["-O", "extglob"] if self.kind == "bash" else ["-o", "nonomatch"]

    def _script(self, fd: int | None) -> str:
        lines = []
        if fd is not None:
            expand = "shopt -s expand_aliases" if self.kind == "bash" else "setopt aliases"
            # A descriptor opened by name starts at the beginning, also for the next command.
            lines += [f"{expand} 2>/dev/null", f". /dev/fd/{fd} 2>/dev/null", f"exec {fd}<&-"]
        # What the snapshot's functions and the command see as arguments is nothing.
        lines += ["__command=$1", "set --", 'eval "$__command" 2>&1']
        return "; ".join(lines)


@dataclasses.dataclass(frozen=True, slots=True)
class Login:
    """What a login shell sets: variables, and a script of functions and aliases."""

    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    script: bytes = b""


def resolve_shell(environ: Mapping[str, str]) -> Shell:
    """The user's bash or zsh, else a bash that is there, else /bin/sh in a bash's place."""
    search = environ.get("PATH")
    wanted = shutil.which(environ.get("SHELL") or "bash", path=search) or ""
    candidates = (wanted, shutil.which("bash", path=search) or "", *(f"{d}/bash" for d in _DIRECTORIES))
    for path in map(Path, candidates):
        if path.is_absolute() and path.name in _KINDS and os.access(path, os.X_OK):
            return Shell(str(path), path.name)
    return Shell("/bin/sh", "sh")


#: Variables that belong to the asking shell itself, not to the login.
_OWN = frozenset(("_", "SHLVL", "PWD", "OLDPWD", "PS1", TASK_VARIABLE))


async def take_login(shell: Shell, environ: Mapping[str, str]) -> Login:
    """Start a login shell once and take down what it knows; nothing if that fails or takes too long."""
    if shell.kind not in _KINDS:
        return Login()
    # Start-up files may talk: what counts stands behind a mark that they cannot know.
    mark = secrets.token_hex(16)
    try:
        process = _start_login(shell, environ, mark)
    except OSError:
        return Login()
    loop = asyncio.get_running_loop()
    reading = loop.run_in_executor(None, process.communicate)
    try:
        async with asyncio.timeout(LIMITS.login_shell):
            output, _ = await asyncio.shield(reading)
    except TimeoutError:
        return Login()
    finally:
        if not reading.done():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            reading.add_done_callback(lambda f: f.cancelled() or f.exception())
    return _parse(output, mark)


def _start_login(shell: Shell, environ: Mapping[str, str], mark: str) -> subprocess.Popen[bytes]:
    dump = "declare -f; alias -p" if shell.kind == "bash" else "functions; alias -L"
    script = f"printf '%s\\0' {mark}; env -0; printf '%s\\0' {mark}; {dump}"
    return subprocess.Popen(
        [shell.path, "-l", "-c", script],
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _parse(output: bytes, mark: str) -> Login:
    parts = output.split(mark.encode() + b"\0")
    if len(parts) != 3:
        return Login()
    pairs = (entry.decode("utf-8", "surrogateescape").partition("=") for entry in parts[1].split(b"\0"))
    variables = {
        name: value for name, equals, value in pairs if equals and name.isidentifier() and name not in _OWN
    }
    return Login(variables, parts[2])
