"""Start, stop and restart: what ``up``, ``down``, ``restart`` and ``reload`` do, without the printing.

Every wait has a bound from the table of limits; every failure is an `OperateError` that says what
happened and where to look.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import os
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.operate import remains
from gateway.operate.status import Snapshot, blocker, take
from gateway.operate.supervisor import (
    Supervisor,
    SupervisorError,
    launch,
    launch_environment,
)
from gateway.paths import Paths
from gateway.secret import ensure_secret
from gateway.settings import Settings
from gateway.wire.control import ControlError, Packet, ask
from gateway.wire.limits import LIMITS
from gateway.wire.process import Identity

if TYPE_CHECKING:
    from gateway.engine import Engine

__all__ = ["Instance", "OperateError", "Prepared", "prepare"]

Say = Callable[[str], None]


class OperateError(Exception):
    """A command failed; the text says what happened, where, and what to do."""


class Instance:
    """One instance of the gateway, seen from the command line."""

    def __init__(self, paths: Paths) -> None:
        self.paths = paths
        self.supervisor = Supervisor(paths)

    # -- state -----------------------------------------------------------------------------------
    def environment(self) -> dict[str, str]:
        """The environment it was started with, ours when it does not run: flags of ``up`` live there."""
        identity = self.supervisor.identity()
        try:
            raw = Path(f"/proc/{identity.pid}/environ").read_bytes() if identity else b""
        except OSError:
            raw = b""
        pairs = (entry.partition("=") for entry in os.fsdecode(raw).split("\0") if entry)
        return {name: value for name, _, value in pairs} or dict(os.environ)

    def settings(self) -> Settings:
        """Its settings.  Raises SettingError."""
        return Settings.load(self.paths, self.environment())

    def endpoint(self) -> str:
        """Where clients connect."""
        return f"ws://127.0.0.1:{self.settings().port}/ws"

    def snapshot(self) -> Snapshot:
        """Everybody's status.  Raises SupervisorError, NotRunningError among it."""
        return take(self.paths, self.supervisor)

    # -- up --------------------------------------------------------------------------------------
    def start(self, settings: Settings, environment: Mapping[str, str], say: Say) -> None:
        """Start supervisord and wait until everything is ready; after a failure nothing is left."""
        self.clear_the_way(settings, say)
        try:
            launch(self.paths, environment)
            self.wait_all_ready()
        except BaseException as error:
            self.stop()
            if isinstance(error, SupervisorError):
                raise OperateError(str(error)) from error
            raise

    def clear_the_way(self, settings: Settings, say: Say) -> None:
        """End what an earlier supervisord left, and see that the port is free."""
        # They end themselves when their supervisord dies; the leader may stay and is adopted.
        left = [one for one in remains.find(self.paths) if one.name not in remains.ENGINE]
        if left:
            say(f"ending what an earlier run left: {', '.join(map(str, left))}")
            remains.wait_gone([one.identity for one in left], LIMITS.supervisor_gone)
            if stubborn := remains.end(one for one in left if one.identity.alive()):
                raise OperateError(f"cannot be ended: {', '.join(map(str, stubborn))}")
        _check_port(settings.port)

    # -- down ------------------------------------------------------------------------------------
    def stop(self) -> list[remains.Remain]:
        """Stop everything, by force where words do not help; what could not be ended is returned."""
        supervisord = self.supervisor.identity()
        if supervisord is not None:
            with contextlib.suppress(SupervisorError):
                Supervisor(self.paths, LIMITS.status).shutdown()
                self._wait_shutdown(supervisord)
        left = remains.end(remains.find(self.paths)) + remains.end_engine(self.paths)
        if not left:
            for folder in (self.paths.journals, self.paths.leases):
                _empty(folder)
        return left

    def _wait_shutdown(self, supervisord: Identity) -> None:
        deadline = time.monotonic() + LIMITS.down
        while time.monotonic() < deadline and not supervisord.wait(LIMITS.progress):
            self.supervisor.identity()  # wakes it: it notices exits only once a second by itself

    # -- restart ---------------------------------------------------------------------------------
    def restart(self, name: str) -> None:
        """Restart one program and wait until it is ready."""
        self.supervisor.stop(name)
        deadline = time.monotonic() + LIMITS.ready
        while self.supervisor.component(name).state in ("RUNNING", "STARTING", "STOPPING"):
            if time.monotonic() > deadline:
                raise OperateError(f"{name} did not stop within {LIMITS.ready:g} s")
            time.sleep(LIMITS.progress)
        self.supervisor.start(name)
        self.wait_ready([name], leader=name == "gateway", deadline=deadline)

    def restart_leader(self) -> None:
        """Restart the engine's leader and wait until it is ready."""
        try:
            answer = ask(self.paths.front_socket, Packet("restart", {"what": "leader"}), LIMITS.ready)
        except ControlError as error:
            raise OperateError(f"the front does not restart the leader: {error}") from error
        if answer.op != "done":
            raise OperateError(f"the leader did not come back: {answer.fields.get('reason', answer.op)}")

    def reload(self) -> None:
        """Let the front start anew in place, its listening socket kept; wait until it is ready."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as witness:
            witness.settimeout(LIMITS.ready)
            try:
                witness.connect(str(self.paths.front_socket))
                self.supervisor.signal("gateway", "HUP")
                witness.recv(1)  # ends with the old program
            except TimeoutError:
                raise OperateError(f"the front did not reload within {LIMITS.ready:g} s") from None
            except OSError as error:
                raise OperateError(f"the front does not answer: {error.strerror}") from error
        self.wait_ready(["gateway"], leader=True)

    @contextlib.contextmanager
    def following_engine(self, say: Say) -> Iterator[None]:
        """Around a restart of the leader, which chooses its engine anew (a login may have come or gone):
        the offline model starts before it when it is wanted now, and stops after it when it is not.

        Raises EngineError when there is no usable engine, before a running leader is given up.
        """
        from gateway.engine import resolve

        environment = self.environment()
        wanted = resolve(Settings.load(self.paths, environment), self.paths, environment).offline
        running = self.supervisor.component("offline-model").alive
        if wanted and not running:
            say("starting the offline model")
            self.supervisor.start("offline-model")
            self.wait_ready(["offline-model"], leader=False)
        yield
        if running and not wanted:
            say("stopping the offline model")
            self.supervisor.stop("offline-model")

    # -- readiness -------------------------------------------------------------------------------
    def wait_all_ready(self) -> None:
        """Wait until everything that starts by itself is ready, and the leader."""
        offline = self.environment().get("GROK_GATEWAY_OFFLINE_MODEL") == "true"
        names = [component.name for component in self.supervisor.components()]
        self.wait_ready([name for name in names if offline or name != "offline-model"])

    def wait_ready(
        self, names: Collection[str], *, leader: bool = True, deadline: float | None = None
    ) -> None:
        """Wait until these components (and the leader) are ready, until ``deadline`` (monotonic) or at
        most ``LIMITS.ready`` seconds.

        Raises OperateError with what stands in the way.
        """
        deadline = deadline or time.monotonic() + LIMITS.ready
        before = self.snapshot().restarts()
        while (obstacle := blocker(self.snapshot(), names, leader=leader, before=before)) is not None:
            if obstacle.final:
                raise OperateError(f"{obstacle.reason}; logs: {self.paths.logs}")
            if time.monotonic() > deadline:
                raise OperateError(
                    f"not ready within {LIMITS.ready:g} s: {obstacle.reason}; logs: {self.paths.logs}"
                )
            time.sleep(LIMITS.progress)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One ``up`` or ``down`` at a time.  Raises OperateError when another one takes too long."""
        fd = os.open(self.paths.up_lock, os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + LIMITS.ready + LIMITS.down
        try:
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise OperateError(
                            "another `up` or `down` of this instance is still at work"
                        ) from None
                    time.sleep(LIMITS.progress)
            yield
        finally:
            os.close(fd)


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """What ``up`` needs before anything is started."""

    settings: Settings
    engine: Engine
    environment: Mapping[str, str]  #: of supervisord


def prepare(
    paths: Paths, settings: Settings, environ: Mapping[str, str], *, may_install: bool, say: Say
) -> Prepared:
    """Folders, secret and engine; an engine that is missing is installed, which is said."""
    from gateway.engine import GROK_VERSION, EngineMissingError, install, resolve

    paths.create()
    ensure_secret(paths.secret)
    try:
        engine = resolve(settings, paths, environ)
    except EngineMissingError as error:
        if not may_install:
            raise OperateError(f"{error} (--no-install: nothing was installed)") from error
        say(f"no grok found: npm installs version {GROK_VERSION} into {paths.engine_install} (166 MB)")
        install(paths, environ)
        engine = resolve(settings, paths, environ)
    return Prepared(settings, engine, launch_environment(paths, settings, engine.offline, environ))


def _check_port(port: int) -> None:
    """A quick word before four failed starts of the front say the same."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
            sock.listen(1)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise OperateError(f"cannot listen on 127.0.0.1:{port}: {error.strerror}") from error
            raise OperateError(
                f"port {port} is in use{_owner(port)}; end that program, or choose another port "
                "with --port or GROK_GATEWAY_PORT"
            ) from error


def _owner(port: int) -> str:
    import psutil

    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp4"):
            listens = connection.status == psutil.CONN_LISTEN and connection.pid
            if listens and connection.laddr and connection.laddr.port == port:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    return ""


def _empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for file in folder.iterdir():
            file.unlink(missing_ok=True)
