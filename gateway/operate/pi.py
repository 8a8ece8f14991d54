"""``grok-gateway pi install|uninstall|status``: Grok as a model of the Pi coding agent.

The extension is part of this installation and is used from its place: Pi keeps its path in its
``settings.json``, by ``pi install`` and ``pi remove``.  Where this instance listens, and where its secret
and its list of models are, goes to ``grok-ws.json`` beside that; all other keys there are the user's.

Exit codes of `status`: 0 Pi has this extension and the address of this instance, 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.engine_home import user_home
from gateway.operate.instance import OperateError
from gateway.paths import Paths
from gateway.settings import Settings
from gateway.wire.jsonfile import JsonFileError, read_object, replace_object
from gateway.wire.limits import LIMITS

__all__ = ["EXTENSION", "add_arguments", "main"]

#: The name in the extension's package.json, by which other copies of it are known.
PACKAGE = "grok-gateway-pi"
EXTENSION = Path(__file__).resolve().parents[2] / "workers/pi/extension"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("install", "uninstall", "status"))
    parser.add_argument("--pi", metavar="PATH", default="pi", help="the pi command")


def main(args: argparse.Namespace) -> int:
    """Raises OperateError."""
    actions = {"install": _install, "uninstall": _uninstall, "status": _status}
    return actions[args.action](args.pi)


def _install(pi: str) -> int:
    if not (EXTENSION / "index.ts").is_file():
        raise OperateError(f"{EXTENSION} is missing; the installation is damaged, install grok-gateway again")
    command, addresses = _command(pi), _addresses()
    settings = _read(_settings_file())
    _remove_copies(command, but=EXTENSION)
    _run(command, "install", str(EXTENSION))
    if EXTENSION not in _copies():
        raise OperateError(f"`{command} install` has not entered {EXTENSION} in {_registry()}")
    if any(settings.get(key) != value for key, value in addresses.items()):
        _write(_settings_file(), settings | addresses)
    print(f"Pi has the extension {EXTENSION}")
    print(f"  gateway   {addresses['url']}, in {_settings_file()}")
    print("Try: pi --list-models grok, then pi --model grok/ID (in a running Pi: /reload, then /model)")
    return 0


def _uninstall(pi: str) -> int:
    if _copies():
        _remove_copies(_command(pi), but=None)
        print("Pi does not load the extension any more.")
    else:
        print("Pi does not have the extension.")
    settings = _read(_settings_file())
    kept = {key: value for key, value in settings.items() if key not in _addresses()}
    if not kept:
        _settings_file().unlink(missing_ok=True)
    elif kept != settings:
        _write(_settings_file(), kept)
        print(f"Your own settings stay in {_settings_file()}.")
    return 0


def _status(pi: str) -> int:
    addresses, settings, copies = _addresses(), _read(_settings_file()), _copies()
    print(f"pi         {shutil.which(pi) or f'not found ({pi})'}")
    print(f"extension  {', '.join(map(str, copies)) or 'not installed: grok-gateway pi install'}")
    wrong = [key for key, value in addresses.items() if settings.get(key) != value]
    for key, value in addresses.items():
        note = f"   (this instance: {value}; grok-gateway pi install)" if key in wrong else ""
        print(f"{key:<10} {settings.get(key, '-')}{note}")
    return 0 if copies == [EXTENSION] and not wrong else 1


# -- Pi --------------------------------------------------------------------------------------------
def _agent_dir() -> Path:
    named = os.environ.get("PI_CODING_AGENT_DIR")
    return Path(named).expanduser() if named else user_home(os.environ) / ".pi/agent"


def _registry() -> Path:
    return _agent_dir() / "settings.json"


def _copies() -> list[Path]:
    """Folders of this extension, here or elsewhere, that Pi loads."""
    packages = _read(_registry()).get("packages")
    sources = [p.get("source") if isinstance(p, dict) else p for p in packages or []]
    folders = [(_agent_dir() / Path(s).expanduser()).resolve() for s in sources if isinstance(s, str)]
    return [f for f in folders if f == EXTENSION or _is_copy(f)]


def _is_copy(folder: Path) -> bool:
    if folder.exists():
        with contextlib.suppress(OSError, ValueError, AttributeError):
            return bool(json.loads((folder / "package.json").read_text("utf-8")).get("name") == PACKAGE)
        return False
    return folder.parts[-3:] == EXTENSION.parts[-3:]  # of an environment that was deleted


def _remove_copies(command: str, *, but: Path | None) -> None:
    for folder in _copies():
        if folder != but:
            _run(command, "remove", str(folder))


def _command(pi: str) -> str:
    if (command := shutil.which(pi)) is None:
        raise OperateError(
            f"there is no command {pi!r}. Install Pi (npm install -g @earendil-works/pi-coding-agent, "
            "Node.js 22 or newer), or name it: grok-gateway pi install --pi PATH"
        )
    return command


def _run(command: str, *arguments: str) -> None:
    """``pi ARGUMENTS``, whose own words are kept for errors."""
    try:
        done = subprocess.run(
            [command, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMITS.ready,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OperateError(f"`{command} {' '.join(arguments)}`: {error}") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-1000:]
        raise OperateError(f"`{command} {' '.join(arguments)}` failed (exit {done.returncode}): {said}")


# -- files -----------------------------------------------------------------------------------------
def _settings_file() -> Path:
    return _agent_dir() / "grok-ws.json"


def _addresses() -> dict[str, str]:
    paths = Paths.from_environment()
    port = Settings.load(paths, os.environ).port
    return {
        "url": f"ws://127.0.0.1:{port}/pi",
        "secretFile": str(paths.secret),
        "modelsFile": str(paths.models_file),
    }


def _read(file: Path) -> dict[str, Any]:
    try:
        return read_object(file)
    except JsonFileError as error:
        raise OperateError(str(error)) from error


def _write(file: Path, data: Mapping[str, Any]) -> None:
    try:
        replace_object(file, data)
    except JsonFileError as error:
        raise OperateError(str(error)) from error
