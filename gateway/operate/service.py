"""``service install|uninstall|status``: the gateway as a systemd user service.

The unit starts ``grok-gateway up --foreground``, which becomes supervisord.  Its environment comes
from ``service.env`` in the config folder: captured at installation, since systemd's user manager has
neither the login PATH nor the variables of this shell.  Secrets are not captured; lines that the user
adds to the file (an API key) stay there.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gateway.operate.supervisor import data_file
from gateway.wire.limits import LIMITS

if TYPE_CHECKING:
    from gateway.operate.instance import Instance

__all__ = [
    "UNIT",
    "ServiceError",
    "answers",
    "install",
    "lingering",
    "render_unit",
    "status",
    "uninstall",
    "unit_file",
]

UNIT = "grok-gateway.service"

#: Variables whose value at installation the service keeps.
_CAPTURED = (
    "PATH",
    "LANG",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "GROK_HOME",
    "GROK_GATEWAY_HOME",
    "GROK_GATEWAY_PORT",
    "GROK_GATEWAY_WORKERS",
    "GROK_GATEWAY_ENGINE",
    "GROK_GATEWAY_GROK",
    "GROK_GATEWAY_GUARD_SCALE",
    "PI_GROK_BINARY",
)
#: Variables that the engine would use but that are secret.
_SECRET = ("XAI_API_KEY", "GROK_CODE_XAI_API_KEY")

Say = Callable[[str], None]


class ServiceError(Exception):
    """systemd did not do what was asked; the text says what and why."""


# -- commands --------------------------------------------------------------------------------------
def install(instance: Instance, say: Say) -> int:
    """Write environment file and unit, enable and start the service."""
    from gateway.operate.instance import prepare
    from gateway.settings import Settings

    paths = instance.paths
    _require_systemd()
    active = _systemctl("is-active", UNIT).stdout.strip() in ("active", "activating", "reloading")
    if not active and (running := instance.supervisor.identity()) is not None:
        raise ServiceError(
            f"this instance runs outside systemd (supervisord, pid {running.pid}); "
            "end it with `grok-gateway down`, then install the service"
        )
    prepare(paths, Settings.load(paths, os.environ), os.environ, may_install=True, say=say)
    _write(paths.service_environment, render_environment(os.environ, _read(paths.service_environment)))
    unit = unit_file()
    _write(unit, render_unit(data_file(UNIT).read_text(), command(), paths.service_environment))
    say(f"unit         {unit}")
    say(f"environment  {paths.service_environment}")
    _must("daemon-reload")
    _must("enable", UNIT)
    _must("restart" if active else "start", UNIT)
    instance.wait_all_ready()
    say(f"{UNIT} is enabled and running: it starts with your login and after failures")
    kept = _read(paths.service_environment)
    for name in _SECRET:
        if os.environ.get(name) and f"{name}=" not in kept:
            say(f"{name} is set in this shell but not for the service: add it to the environment file")
    say(_linger_advice(lingering()))
    return 0


def uninstall(instance: Instance, say: Say) -> int:
    """Stop and disable the service, remove the unit and its environment file."""
    _require_systemd()
    unit = unit_file()
    if not unit.exists():
        say(f"not installed ({unit} does not exist)")
        return 0
    _must("disable", "--now", UNIT)
    unit.unlink(missing_ok=True)
    instance.paths.service_environment.unlink(missing_ok=True)
    _must("daemon-reload")
    say(f"{UNIT} is stopped and removed; settings, secret and logs stay")
    return 0


def status(instance: Instance, say: Say) -> int:
    """Say how the service stands; 0 when it is active, 3 when it is not."""
    _require_systemd()
    if not unit_file().exists():
        say("not installed; `grok-gateway service install` does that")
        return 3
    shown = _systemctl("show", UNIT, "-p", "ActiveState,SubState,UnitFileState,NRestarts,StatusText,MainPID")
    fields = dict(line.split("=", 1) for line in shown.stdout.splitlines() if "=" in line)
    say(f"state     {fields.get('ActiveState')} ({fields.get('SubState')}), {fields.get('UnitFileState')}")
    say(f"pid       {fields.get('MainPID')}, restarted {fields.get('NRestarts')} times")
    say(f"says      {fields.get('StatusText')}")
    say(_linger_advice(lingering()))
    return 0 if fields.get("ActiveState") == "active" else 3


# -- files -----------------------------------------------------------------------------------------
def unit_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the unit belongs."""
    config = environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(config) / "systemd/user" / UNIT


def command() -> list[str]:
    """The absolute command line of this very installation."""
    script = Path(sys.executable).with_name("grok-gateway")
    return [str(script)] if script.exists() else [sys.executable, "-m", "gateway.operate.cli"]


def render_unit(template: str, argv: list[str], environment: Path) -> str:
    """The unit with its placeholders filled in, quoted for systemd."""
    program, *rest = (word.replace("%", "%%") for word in argv)
    # systemd expands $NAME in arguments, but not in the program's own path
    words = [program, *(word.replace("$", "$$") for word in rest)]
    return template.replace("@COMMAND@", " ".join(map(_quoted, words))).replace(
        "@ENVIRONMENT@", str(environment).replace("%", "%%")
    )


def render_environment(environ: Mapping[str, str], before: str) -> str:
    """The environment file: captured variables, then the lines of the old one that the user added."""
    captured = [f"{name}={_quoted(environ[name])}" for name in _CAPTURED if environ.get(name)]
    added = [
        line
        for line in before.splitlines()
        if (match := re.match(r"([A-Za-z_]\w*)=", line)) and match[1] not in _CAPTURED
    ]
    head = "# Written by `grok-gateway service install`; your own lines are kept."
    return "\n".join([head, *captured, *added]) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


def _write(file: Path, text: str) -> None:
    """Replace a file as a whole, 0600: an API key may have been added."""
    draft = file.with_name(file.name + ".new")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.unlink(missing_ok=True)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as stream:
            stream.write(text)
        draft.replace(file)
    except OSError as error:
        raise ServiceError(f"cannot write {file}: {error.strerror}") from error


# -- systemd ---------------------------------------------------------------------------------------
def _environ() -> dict[str, str]:
    """With the runtime folder of the user manager, which ssh and cron do not always set."""
    environ = dict(os.environ)
    runtime = f"/run/user/{os.getuid()}"
    if not environ.get("XDG_RUNTIME_DIR") and Path(runtime).is_dir():
        environ["XDG_RUNTIME_DIR"] = runtime
    return environ


def _systemctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    limit = LIMITS.systemd_job
    try:
        return subprocess.run(
            ["systemctl", "--user", "--no-pager", *arguments],
            env=_environ(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except FileNotFoundError:
        raise ServiceError(f"there is no systemd here (no systemctl). {_WITHOUT}") from None
    except subprocess.TimeoutExpired:
        raise ServiceError(f"systemctl {' '.join(arguments)} did not end within {limit:g} s") from None


_WITHOUT = "The gateway runs without it: `grok-gateway up`, which any start-up script may call"


def _require_systemd() -> None:
    asked = _systemctl("show-environment")
    if asked.returncode:
        raise ServiceError(f"no systemd user manager answers: {asked.stderr.strip()}. {_WITHOUT}")


def answers() -> bool:
    """Whether a systemd user manager answers."""
    try:
        _require_systemd()
    except ServiceError:
        return False
    return True


def _must(*arguments: str) -> None:
    done = _systemctl(*arguments)
    if done.returncode:
        raise ServiceError(
            f"systemctl --user {' '.join(arguments)}: {done.stderr.strip()}\n"
            f"more: systemctl --user status {UNIT}; grok-gateway logs"
        )


def lingering() -> Literal["yes", "no", "unknown"]:
    """Whether the user's services outlive the last logout and start at boot."""
    user = pwd.getpwuid(os.getuid()).pw_name
    if (Path("/var/lib/systemd/linger") / user).exists():
        return "yes"
    if shutil.which("loginctl") is None:
        return "unknown"
    asked = subprocess.run(
        ["loginctl", "show-user", user, "--property=Linger"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMITS.systemd_job,
    )
    answers: dict[str, Literal["yes", "no"]] = {"Linger=yes": "yes", "Linger=no": "no"}
    return answers.get(asked.stdout.strip(), "unknown")


def _linger_advice(state: Literal["yes", "no", "unknown"]) -> str:
    if state == "yes":
        return "linger    yes: the service starts at boot and outlives your logout"
    return f"linger    {state}: to start at boot and outlive your logout, run: loginctl enable-linger"
