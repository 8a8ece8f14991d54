"""Which engine runs: find the native grok binary, check it, choose the model, say why.

Without a usable grok the embedded engine answers (``harness``, a program of this installation): a first run
needs neither an account nor a network.

The command that users know may be a link, npm's node launcher or a package manager's shell wrapper.
The gateway needs the native executable behind it: a launcher in between would be a second process,
and a launcher cannot be pinned.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from gateway import __version__
from gateway.engine_home import (
    OWN_MODEL_HOW,
    OWN_MODEL_NOTE,
    EngineError,
    model_choice,
    offline_note,
    user_home,
)
from gateway.paths import Paths
from gateway.settings import Settings
from gateway.wire.limits import LIMITS, SIZES

__all__ = [
    "GROK_VERSION",
    "HARNESS",
    "Engine",
    "EngineError",
    "EngineMissingError",
    "bridge_arguments",
    "check_version",
    "install",
    "installed_binary",
    "is_elf",
    "kind_of",
    "leader_arguments",
    "native_executable",
    "resolve",
]

#: The version that `install` fetches, the one that the gateway is tested with.
GROK_VERSION = "1.0.41"
ELF_MAGIC = b"\x7fELF"
_PACKAGE = "@xai-official/grok"
_VERSION = re.compile(r"^grok\S* (\d+\.\d+\.\d+\S*)", re.MULTILINE)
#: ``exec node "$basedir/../@xai-official/grok/bin/grok" "$@"``: what npm, pnpm and yarn write.
_SHELL_TARGET = re.compile(r'\$basedir/([^"\s]+)"')
_ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64"}

HOW_TO_GET_GROK = (
    f"install it (npm install -g {_PACKAGE}), or let `grok-gateway up --engine grok` fetch version "
    f'{GROK_VERSION}, or name its file: GROK_GATEWAY_GROK, or grok = "…" in config.toml'
)
_THEN = "then `grok-gateway restart leader`"


class EngineMissingError(EngineError):
    """Grok is wanted, and none is installed anywhere: `install` would help."""


EngineKind = Literal["grok", "harness"]

#: The embedded engine.  ``-P``: the folder that a leader starts in is nobody's module path.
HARNESS = (sys.executable, "-P", "-m", "harness")


@dataclasses.dataclass(frozen=True, slots=True)
class Engine:
    """A command with ``agent leader`` and ``agent --leader stdio``."""

    kind: EngineKind
    command: tuple[str, ...]  #: the native executable, or a script that plays one; or the embedded engine
    native: bool  #: an ELF file: it is pinned
    version: str
    home: Path | None  #: value of GROK_HOME; None: the engine's own default
    offline: bool  #: the offline model answers, in a private home
    note: str  #: which model answers and how to change that, for people
    why: str  #: why this engine was chosen, for people

    @property
    def binary(self) -> Path:
        """The executable file."""
        return Path(self.command[0])


def kind_of(command: Sequence[str]) -> EngineKind:
    """Which engine a command runs."""
    return "harness" if tuple(command[-2:]) == HARNESS[-2:] else "grok"


def leader_arguments(socket: str | Path) -> tuple[str, ...]:
    """Arguments of a leader: no end with its last client, no eager relay, no update by itself."""
    return (
        "--permission-mode",
        "default",
        "agent",
        "leader",
        "--no-exit-on-disconnect",
        "--relay-on-demand",
        "--no-auto-update",
        "--leader-socket",
        str(socket),
    )


def bridge_arguments(socket: str | Path) -> tuple[str, ...]:
    """Arguments of a bridge.  ``--leader`` is explicit: the user's config may say ``use_leader = false``."""
    return (
        "--permission-mode",
        "default",
        "agent",
        "--leader",
        "stdio",
        "--leader-socket",
        str(socket),
    )


def resolve(settings: Settings, paths: Paths, environ: Mapping[str, str] = os.environ) -> Engine:
    """Choose the engine.  Runs ``--version`` (blocks 0.1 s, at most ``LIMITS.version``).

    ``auto`` is grok where one works, else the embedded engine; a grok that the settings name must work.
    Raises EngineError, or EngineMissingError when ``engine = "grok"`` and no grok is installed.
    """
    if settings.engine == "harness":
        return _harness(paths, environ, 'engine = "harness" in the settings')
    problems = []
    for command, origin in _candidates(settings, paths, environ):
        try:
            return _grok(command, origin, paths, environ)
        except EngineError as error:
            if settings.grok:
                raise
            problems.append(str(error))
    if settings.engine == "auto":
        found = "; ".join(problems) or "no grok found"
        return _harness(paths, environ, f"{found}; for Grok Build {HOW_TO_GET_GROK}; {_THEN}")
    if problems:
        raise EngineError("; ".join(problems))
    raise EngineMissingError(f"no grok found: {HOW_TO_GET_GROK}")


def _grok(command: Path, origin: str, paths: Paths, environ: Mapping[str, str]) -> Engine:
    """The engine behind a command.  Raises EngineError."""
    binary = native_executable(command, user_home(environ))
    version = check_version(binary, environ)
    home, offline = model_choice(paths, environ)
    typed = "grok" if shutil.which("grok", path=environ.get("PATH")) == str(command) else str(command)
    note = offline_note(f"run `{typed} login`") if offline else OWN_MODEL_NOTE
    why = f"grok {version}: {origin}"
    return Engine("grok", (str(binary),), is_elf(binary), version, home, offline, note, why)


def _harness(paths: Paths, environ: Mapping[str, str], reason: str) -> Engine:
    """The embedded engine.  Raises EngineError for a configuration that cannot be read."""
    home, offline = model_choice(paths, environ, login=False)
    note = offline_note(OWN_MODEL_HOW) if offline else OWN_MODEL_NOTE
    why = f"the embedded engine {__version__} ({reason})"
    return Engine("harness", HARNESS, False, __version__, home, offline, note, why)


def _candidates(settings: Settings, paths: Paths, environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Commands to try, best first, each with its origin in words."""
    if settings.grok:
        found = shutil.which(os.path.expanduser(settings.grok), path=environ.get("PATH"))  # noqa: PTH111
        if found is None:
            raise EngineError(f"grok = {settings.grok!r}: no such executable file; {HOW_TO_GET_GROK}")
        yield Path(found), f"{found} (named in the settings)"
        return
    if found := shutil.which("grok", path=environ.get("PATH")):
        yield Path(found), f"{found} (found in PATH)"
    for command, origin in (
        (user_home(environ) / "bin/grok", "the user's own installation"),
        (installed_binary(paths), "installed by the gateway"),
    ):
        if os.access(command, os.X_OK):
            yield command, f"{command} ({origin})"


# -- from the command to the native executable -----------------------------------------------------
def is_elf(path: Path) -> bool:
    """Whether this is a native executable; a script is not."""
    try:
        with path.open("rb") as file:
            return file.read(len(ELF_MAGIC)) == ELF_MAGIC
    except OSError:
        return False


def native_executable(command: Path, home: Path) -> Path:
    """The ELF file behind a command; the command itself when it is a script of its own.

    ``home`` is the user's GROK_HOME: npm's launcher prefers the binary there.  Raises EngineError.
    """
    try:
        real = command.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise EngineError(f"{command} cannot be followed: {error}") from error
    if is_elf(real):
        return real
    scripts = (real, *_shell_targets(real))
    package = next((found for script in scripts if (found := _package_of(script))), None)
    if package is None:
        return real
    for candidate in (home / "bin/grok", package / "bin/grok-native", *_platform_binaries(package)):
        if is_elf(candidate):
            return candidate.resolve()
    raise EngineError(
        f"{command} is npm's launcher, but its native binary is not unpacked (npm did not run the "
        f"package's install script): run `node {package / 'bin/postinstall.js'}`"
    )


def _package_of(script: Path) -> Path | None:
    """The folder of the npm package that holds this file, if it is grok's."""
    for folder in script.parents[:3]:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if json.loads((folder / "package.json").read_bytes()).get("name") == _PACKAGE:
                return folder
    return None


def _shell_targets(script: Path) -> tuple[Path, ...]:
    """The files that a package manager's shell wrapper may run (an interpreter of its own is one)."""
    try:
        with script.open("rb") as file:
            text = file.read(SIZES.launcher).decode(errors="replace")
    except OSError:
        return ()
    return tuple((script.parent / target).resolve() for target in _SHELL_TARGET.findall(text))


def _platform_binaries(package: Path) -> Iterator[Path]:
    machine = platform.machine()
    name = f"grok-linux-{_ARCHITECTURES.get(machine, machine)}"
    yield package.parent / name / "bin/grok"
    yield package / "node_modules/@xai-official" / name / "bin/grok"


# -- is it grok? ------------------------------------------------------------------------------------
def check_version(binary: Path, environ: Mapping[str, str]) -> str:
    """Run ``--version``.  Raises EngineError that names the stage, the exit code and the last output."""
    # Grok creates its home even for --version: not the user's.
    with tempfile.TemporaryDirectory(prefix="grok-gateway-") as home:
        env = {"HOME": home, "GROK_HOME": home, "PATH": environ.get("PATH", os.defpath)}
        try:
            code, output = _run([str(binary), "--version"], env, LIMITS.version)
        except OSError as error:
            raise EngineError(f"{binary} cannot be executed: {error.strerror}") from error
    shown = " ".join(output.split())[-SIZES.log_line :].strip() or "nothing"
    if code is None:
        raise EngineError(
            f"{binary} did not end within {LIMITS.version:g} s after --version; it printed: {shown}"
        )
    if code != 0:
        raise EngineError(f"{binary} --version ended with {_code(code)}; it printed: {shown}")
    found = _VERSION.search(output)
    if found is None:
        raise EngineError(f"{binary} is not Grok Build: --version printed: {shown}")
    return found[1]


def _code(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def _run(
    argv: list[str], env: Mapping[str, str], seconds: float, cwd: Path | None = None
) -> tuple[int | None, str]:
    """Run to the end: exit code (None: it took too long and was killed) and the tail of its output.

    Not `subprocess.run`: a wrong binary may print without end, or leave a child that holds the pipe.
    """
    process = subprocess.Popen(
        argv,
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    pipe, pidfd = process.stdout.fileno(), os.pidfd_open(process.pid)
    deadline = time.monotonic() + seconds
    output = bytearray()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    poll.register(pidfd, select.POLLIN)
    code: int | None = None
    try:
        while (left := deadline - time.monotonic()) > 0 and (events := dict(poll.poll(left * 1000))):
            if pipe in events:
                data = os.read(pipe, SIZES.read)
                output += data
                del output[: -SIZES.stderr_tail]
                if not data:
                    poll.unregister(pipe)
            elif pidfd in events:  # and nothing is left to read
                code = process.wait()
                break
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        os.close(pidfd)
    return code, output.decode(errors="replace")


# -- fetch it ---------------------------------------------------------------------------------------
def installed_binary(paths: Paths) -> Path:
    """Where `install` puts the native binary."""
    return paths.engine_install / "node_modules" / _PACKAGE / "bin/grok-native"


def install(paths: Paths, environ: Mapping[str, str] = os.environ) -> Path:
    """Fetch grok from npm into the state folder; returns the native binary.  Blocks for minutes at most.

    Raises EngineError, with what npm said.
    """
    npm, node = (shutil.which(name, path=environ.get("PATH")) for name in ("npm", "node"))
    if npm is None or node is None:
        raise EngineError(
            "no npm found to fetch grok with: install Node.js 20 or newer (it brings npm), or install grok "
            "another way and name its file: GROK_GATEWAY_GROK"
        )
    prefix = paths.engine_install
    try:
        prefix.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Both write into GROK_HOME (a second copy of the binary, a config.toml): not into the user's.
        with tempfile.TemporaryDirectory(prefix="grok-home-", dir=prefix) as home:
            # The launcher is only replaced by the native binary for npm, as this variable tells.
            env = {**environ, "GROK_HOME": home, "npm_config_user_agent": "npm/0.0.0"}
            package = f"{_PACKAGE}@{GROK_VERSION}"
            fetch = [npm, "install", "--prefix", str(prefix), "--no-audit", "--no-fund", "--ignore-scripts"]
            _must([*fetch, package], env, "npm install", prefix)
            # npm 11 does not run install scripts that nobody approved, and says so only in passing.
            script = prefix / "node_modules" / _PACKAGE / "bin/postinstall.js"
            _must([node, str(script)], env, "the package's install script", prefix)
    except OSError as error:
        raise EngineError(f"grok cannot be installed in {prefix}: {error.strerror}") from error
    binary = installed_binary(paths)
    if not is_elf(binary):
        raise EngineError(f"npm installed {package}, but {binary} is missing: this platform has no build")
    return binary


def _must(argv: list[str], env: Mapping[str, str], stage: str, folder: Path) -> None:
    code, output = _run(argv, env, LIMITS.install, folder)
    if code != 0:
        how = f"did not end within {LIMITS.install:g} s" if code is None else f"ended with {_code(code)}"
        raise EngineError(f"{stage} {how} in {folder}; its last words: {output.strip()}")
