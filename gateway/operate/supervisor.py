"""supervisord: start it, ask it, tell it what to do, know it again.

One instance has one supervisord, found through its Unix socket in the run folder.  Its configuration
is `supervisord.conf`, whose ``%(ENV_…)s`` values are `launch_environment`.  Requests go over
XML-RPC with a time limit (supervisor's own transport has none, and a stopped process accepts
connections for ever).
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import importlib.resources
import os
import resource
import socket
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.paths import Paths
from gateway.settings import Settings
from gateway.wire.limits import LIMITS, SIZES
from gateway.wire.process import Identity, peer_identity

__all__ = [
    "Component",
    "NotRunningError",
    "Supervisor",
    "SupervisorError",
    "data_file",
    "launch",
    "launch_environment",
    "log_tail",
]

#: supervisord's fault codes that callers tell apart (supervisor.xmlrpc.Faults, slow to import)
_SHUTDOWN_STATE, _ALREADY_STARTED, _NOT_RUNNING = 6, 60, 70


class SupervisorError(Exception):
    """supervisord does not do what it was asked; the text says what and why."""


class NotRunningError(SupervisorError):
    """This instance has no supervisord, or it is about to end."""


def data_file(name: str) -> Path:
    """``supervisord.conf`` or ``grok-gateway.service``: from the wheel, else from the checkout."""
    packaged = Path(str(importlib.resources.files("gateway.operate"))) / "data" / name
    if packaged.is_file():
        return packaged
    root = Path(__file__).resolve().parents[2]
    for candidate in (root / name, root / "systemd" / name):
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"{packaged}: missing; the installation is damaged, install grok-gateway again")


@dataclasses.dataclass(frozen=True, slots=True)
class Component:
    """One supervised program."""

    name: str  #: supervisord's: ``gateway``, ``worker:worker_00``, …
    pid: int  #: 0 while none runs
    state: str  #: supervisord's word
    uptime_s: int
    error: str  #: why it could not be started, "" otherwise
    ever_started: bool

    @property
    def log_name(self) -> str:
        """The name that `Paths.log` knows."""
        return self.name.rpartition(":")[2]

    @property
    def alive(self) -> bool:
        """Whether it has a process that is meant to serve."""
        return self.state in ("STARTING", "RUNNING")


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class _Transport(xmlrpc.client.Transport):
    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__()
        self._path, self._seconds = path, seconds

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        # A new connection each time: a kept one may belong to a supervisord that is gone.
        return _Connection(self._path, self._seconds)


class Supervisor:
    """The supervisord of one instance.  Every method blocks at most ``timeout`` seconds and raises
    SupervisorError, or its subclass NotRunningError when there is no supervisord."""

    def __init__(self, paths: Paths, timeout: float = LIMITS.control) -> None:
        self._socket = paths.supervisor_socket
        self._timeout = timeout

    def identity(self) -> Identity | None:
        """Its process, None when none listens.  A stopped one is found too."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(self._timeout)
            try:
                sock.connect(str(self._socket))
            except OSError:
                return None
            return peer_identity(sock)[0]

    def components(self) -> list[Component]:
        """All programs, in supervisord's order (by name)."""
        return [_component(info) for info in self._call("getAllProcessInfo")]

    def component(self, name: str) -> Component:
        """One program."""
        return _component(self._call("getProcessInfo", name))

    def start(self, name: str) -> None:
        """Begin to start a program; one that runs already is left alone."""
        with contextlib.suppress(_AlreadyError):
            self._call("startProcess", name, False)

    def stop(self, name: str) -> None:
        """Begin to stop a program; one that does not run is left alone."""
        with contextlib.suppress(_AlreadyError):
            self._call("stopProcess", name, False)

    def signal(self, name: str, number: str) -> None:
        """Send a signal (``"HUP"``) to a running program."""
        self._call("signalProcess", name, number)

    def shutdown(self) -> None:
        """Begin to stop everything, supervisord last."""
        with contextlib.suppress(NotRunningError):
            self._call("shutdown")

    def answers(self) -> bool:
        """Whether it does its work: a stopped or stuck one does not answer."""
        try:
            self._call("getState")
        except SupervisorError:
            return False
        return True

    def shutting_down(self) -> bool:
        """Whether it stops everything, or is gone already."""
        try:
            self._call("getState")
        except NotRunningError:
            return True
        except SupervisorError:
            return False
        return False

    def _call(self, method: str, *arguments: Any) -> Any:
        proxy = xmlrpc.client.ServerProxy(
            "http://localhost/RPC2", transport=_Transport(self._socket, self._timeout)
        )
        try:
            return getattr(proxy.supervisor, method)(*arguments)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode == _SHUTDOWN_STATE:
                raise NotRunningError("supervisord is shutting down") from None
            if fault.faultCode in (_ALREADY_STARTED, _NOT_RUNNING):
                raise _AlreadyError(fault.faultString) from None
            raise SupervisorError(f"supervisord refuses {method}: {fault.faultString}") from None
        except TimeoutError:
            raise SupervisorError(f"supervisord does not answer within {self._timeout:g} s") from None
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotRunningError("the gateway is not running") from None
        except (OSError, http.client.HTTPException, xmlrpc.client.Error) as error:
            raise SupervisorError(f"supervisord: {error}") from error


class _AlreadyError(SupervisorError):
    """The program is in the wanted state already."""


def _component(info: Mapping[str, Any]) -> Component:
    group, name = info["group"], info["name"]
    running = info["statename"] in ("STARTING", "RUNNING", "STOPPING")
    return Component(
        name=name if group == name else f"{group}:{name}",
        pid=info["pid"],
        state=info["statename"],
        uptime_s=max(0, info["now"] - info["start"]) if running else 0,
        error=info["spawnerr"],
        ever_started=bool(info["start"]),
    )


def launch_environment(
    paths: Paths, settings: Settings, offline: bool, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment of supervisord: ours, and what ``supervisord.conf`` refers to.

    ``offline`` says whether the offline model is wanted.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    descriptors = SIZES.descriptors if hard == resource.RLIM_INFINITY else min(SIZES.descriptors, hard)
    # SUPERVISOR_* of an outer supervisord would be taken for ours.
    inherited = {name: value for name, value in environ.items() if not name.startswith("SUPERVISOR_")}
    return inherited | {
        "GROK_GATEWAY_PYTHON": sys.executable,
        "GROK_GATEWAY_STATE_DIR": str(paths.state),
        "GROK_GATEWAY_RUN_DIR": str(paths.run),
        "GROK_GATEWAY_LOG_DIR": str(paths.logs),
        "GROK_GATEWAY_NUMPROCS": str(settings.workers),
        "GROK_GATEWAY_OFFLINE_MODEL": "true" if offline else "false",
        "GROK_GATEWAY_DESCRIPTORS": str(descriptors),
    }


def command(*, silent: bool) -> list[str]:
    """argv of supervisord in the foreground; ``silent``: its log goes to its file only."""
    argv = [sys.executable, "-m", "supervisor.supervisord", "-n", "-c", str(data_file("supervisord.conf"))]
    return [*argv, "-s"] if silent else argv


def launch(paths: Paths, environment: Mapping[str, str]) -> Identity:
    """Start supervisord in a session of its own and wait until it answers.

    What it says before it has a log goes to ``logs/supervisord-start.log``.  Raises SupervisorError
    with those words.
    """
    said = paths.log("supervisord-start")
    with open(said, "wb", opener=_private) as output:
        process = subprocess.Popen(
            command(silent=True),
            env=dict(environment),
            cwd=paths.state,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            umask=0o077,  # supervisord applies its own only when it turns itself into a daemon
        )
    supervisor = Supervisor(paths)
    deadline = time.monotonic() + LIMITS.ready
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SupervisorError(
                f"supervisord ended with exit code {process.returncode}: {log_tail(said) or 'no message'}"
            )
        identity = supervisor.identity()
        if identity is not None and identity.pid == process.pid and supervisor.answers():
            return identity
        time.sleep(LIMITS.progress)
    process.kill()
    process.wait()
    raise SupervisorError(f"supervisord did not answer within {LIMITS.ready:g} s; see {said}")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def log_tail(file: Path) -> str:
    """The last line with words in a log, "" when there is none."""
    try:
        with file.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - SIZES.stderr_tail))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
