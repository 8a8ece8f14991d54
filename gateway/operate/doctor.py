"""``grok-gateway doctor [--json]``: look at everything the gateway needs, and say what to do.

Exit codes: 0 nothing is in the way (warnings included), 1 something is.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import stat
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import psutil

from gateway.engine import resolve
from gateway.engine_home import EngineError, user_home
from gateway.operate import remains, service
from gateway.operate.diagnosis import (
    Facts,
    Finding,
    Folder,
    Listener,
    Secret,
    diagnose,
    permissive_rules,
)
from gateway.operate.instance import Instance
from gateway.operate.status import report
from gateway.operate.supervisor import SupervisorError
from gateway.paths import Paths
from gateway.secret import SecretError, read_secret
from gateway.settings import Settings

__all__ = ["add_arguments", "gather", "main"]

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``doctor``."""
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def main(args: argparse.Namespace) -> int:
    """Print the findings; the exit code.  Raises PathError and SettingError, which hide all the rest."""
    findings = diagnose(gather(Paths.from_environment(), os.environ))
    if args.json:
        print(json.dumps({"findings": [dataclasses.asdict(one) for one in findings]}, indent=2))
    else:
        _print(findings)
    return 1 if any(one.result == "fail" for one in findings) else 0


def _print(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    table = Table.grid("", "", Column(overflow="fold"), padding=(0, 2))
    colours = {"ok": "green", "warn": "yellow", "fail": "red"}
    for one in findings:
        colour = colours[one.result]
        table.add_row(f"[{colour}]{one.result}[/]", one.check, _plain(one.text))
        if one.advice:
            table.add_row("", "", f"→ {_plain(one.advice)}")
    Console().print(table, highlight=False)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def gather(paths: Paths, environ: Mapping[str, str]) -> Facts:
    """Look at this machine and this instance.  Changes nothing.  Raises SettingError."""
    instance = Instance(paths)
    settings = instance.settings()
    processes = remains.find(paths)
    try:
        engine, problem = resolve(settings, paths, instance.environment()), ""
    except EngineError as error:
        engine, problem = None, str(error)
    try:
        status: Mapping[str, Any] | None = report(instance.snapshot(), instance.endpoint())
    except SupervisorError:
        status = None
    return Facts(
        uid=os.getuid(),
        python=sys.version_info[:3],
        packages=_packages(),
        compiled_websockets=importlib.util.find_spec("websockets.speedups") is not None,
        programs={name: shutil.which(name) is not None for name in ("setpriv", "npm")},
        engine=engine,
        engine_problem=problem,
        free_bytes=shutil.disk_usage(_existing(paths.binaries)).free,
        folders=[_folder(path) for path in (paths.config, paths.state, paths.run, paths.logs)],
        secret=_secret(paths),
        port=settings.port,
        listeners=_listeners(settings, {one.identity.pid for one in processes}),
        status=status,
        remains=[str(one) for one in processes] if status is None else [],
        journals=sum(1 for _ in paths.journals.glob("*")),
        systemd=service.answers(),
        unit_installed=service.unit_file(environ).exists(),
        linger=service.lingering(),
        proxies=[name for name in _PROXIES if environ.get(name)],
        no_proxy=environ.get("NO_PROXY") or environ.get("no_proxy") or "",
        permissive=_permissive(environ),
    )


def _packages() -> dict[str, str | None]:
    """What the project requires at run time, with the version that is there."""
    try:
        lines = importlib.metadata.requires("grok-gateway") or []
    except importlib.metadata.PackageNotFoundError:
        return {"grok-gateway": None}
    names = [re.split(r"[^\w.-]", line)[0] for line in lines if "extra ==" not in line]
    return {name: _version(name) for name in names}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _folder(path: Path) -> Folder:
    try:
        status = path.stat()
    except OSError:
        return Folder(path, None)
    return Folder(path, stat.S_IMODE(status.st_mode), status.st_uid, os.access(path, os.W_OK | os.X_OK))


def _secret(paths: Paths) -> Secret:
    try:
        mode = stat.S_IMODE(paths.secret.stat().st_mode)
    except OSError:
        return Secret(paths.secret, None)
    try:
        read_secret(paths.secret)
    except SecretError as error:
        return Secret(paths.secret, mode, str(error))
    return Secret(paths.secret, mode)


def _listeners(settings: Settings, ours: set[int]) -> list[Listener]:
    found = list[Listener]()
    for one in psutil.net_connections(kind="tcp"):
        if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == settings.port:
            found.append(Listener(one.laddr.ip, one.pid, _name(one.pid), one.pid in ours))
    return found


def _name(pid: int | None) -> str:
    try:
        return psutil.Process(pid).name() if pid else ""
    except psutil.Error:
        return ""


def _permissive(environ: Mapping[str, str]) -> list[tuple[Path, str]]:
    """The files in which a user can allow everything; one that cannot be read says nothing here."""
    grok, claude = user_home(environ), Path(environ.get("HOME") or "/") / ".claude"
    files = [grok / "config.toml", grok / "managed_config.toml"]
    files += [claude / "settings.json", claude / "settings.local.json"]
    return [(file, rule) for file in files for rule in permissive_rules(_config(file))]


def _config(file: Path) -> Mapping[str, Any]:
    try:
        data = file.read_bytes()
        config = orjson.loads(data) if file.suffix == ".json" else tomllib.loads(data.decode())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}
