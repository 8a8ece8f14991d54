"""Where one instance of the gateway keeps its files.

Three folders, each 0700: *config* (``config.toml``, ``secret``), *state* (logs, pinned binaries,
installed engine, model list, audit log) and *run* (Unix sockets, locks, journals).  ``run`` lies in
the state folder, not in ``$XDG_RUNTIME_DIR``: a login shell, a cron job and ``systemd --user`` see
different values of that variable, and two instances of one user would not find each other.  With
``GROK_GATEWAY_HOME`` all three lie in that one folder, which isolates an instance completely.

There is no fallback: without a home folder the caller gets PathError, never a folder in /tmp.
"""

from __future__ import annotations

import dataclasses
import os
import stat
from collections.abc import Mapping
from pathlib import Path

__all__ = ["SUN_PATH_MAX", "PathError", "Paths"]

#: Bytes of a Unix socket's path that the kernel accepts, without the closing NUL.
SUN_PATH_MAX = 107
#: /proc/sys/kernel/pid_max cannot be set higher.
_LARGEST_PID = 2**22


class PathError(Exception):
    """A folder cannot be determined, created or trusted; the text says which and what to do."""


@dataclasses.dataclass(frozen=True, slots=True)
class Paths:
    """The folders of one instance and the files in them (nothing is created by naming them)."""

    config: Path
    state: Path
    run: Path

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Paths:
        """Folders by ``GROK_GATEWAY_HOME``, else by the XDG variables, else below ``$HOME``."""
        if home := environ.get("GROK_GATEWAY_HOME"):
            base = Path(home).expanduser()
            if not base.is_absolute():
                raise PathError(f"GROK_GATEWAY_HOME={home}: must be an absolute path")
            return cls(base / "config", base / "state", base / "run").checked()
        state = _xdg(environ, "XDG_STATE_HOME", ".local/state") / "grok-gateway"
        config = _xdg(environ, "XDG_CONFIG_HOME", ".config") / "grok-gateway"
        return cls(config, state, state / "run").checked()

    def checked(self) -> Paths:
        """Raise PathError when the longest socket path would not fit the kernel's limit."""
        # supervisord binds its socket under a name with its pid behind before it links it here.
        longest = f"{self.supervisor_socket}.{_LARGEST_PID}"
        size = len(os.fsencode(longest))
        if size > SUN_PATH_MAX:
            raise PathError(
                f"{longest}: {size} bytes, a Unix socket's path may have {SUN_PATH_MAX}; "
                "set GROK_GATEWAY_HOME to a shorter folder"
            )
        return self

    def create(self) -> None:
        """Create the folders 0700; refuse one that belongs to somebody else or is open to others."""
        for folder in (
            self.config,
            self.state,
            self.run,
            self.logs,
            self.journals,
            self.binaries,
            self.leases,
        ):
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                status = folder.stat()
            except OSError as error:
                raise PathError(f"cannot create {folder}: {error.strerror}") from error
            if status.st_uid != os.getuid():
                raise PathError(f"{folder} belongs to uid {status.st_uid}, not to you (uid {os.getuid()})")
            if stat.S_IMODE(status.st_mode) & 0o077:
                folder.chmod(0o700)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PathError(f"{folder} is not writable")

    # -- config --
    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def secret(self) -> Path:
        return self.config / "secret"

    @property
    def service_environment(self) -> Path:
        """EnvironmentFile of the systemd unit."""
        return self.config / "service.env"

    # -- state --
    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def binaries(self) -> Path:
        """Pinned copies of the engine's binary and, for moments, hard links of them."""
        return self.state / "bin"

    @property
    def engine_install(self) -> Path:
        """npm prefix of a grok that the gateway installed itself."""
        return self.state / "engine"

    @property
    def offline_home(self) -> Path:
        """The private GROK_HOME that is used with the offline model."""
        return self.state / "offline-home"

    @property
    def models_file(self) -> Path:
        return self.state / "models.json"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.jsonl"

    def log(self, program: str) -> Path:
        """Log of ``gateway``, ``worker_00``, ``watchdog``, ``leader``, ``offline-model``, ``supervisord``."""
        return self.logs / f"{program}.log"

    # -- run --
    @property
    def supervisor_socket(self) -> Path:
        return self.run / "supervisor.sock"

    @property
    def supervisor_pid(self) -> Path:
        return self.run / "supervisord.pid"

    @property
    def restarts(self) -> Path:
        """How often each component was started, kept by the watchdog."""
        return self.run / "restarts.json"

    @property
    def up_lock(self) -> Path:
        """flock held while `up` or `down` is at work."""
        return self.run / "up.lock"

    @property
    def leader_socket(self) -> Path:
        return self.run / "leader.sock"

    @property
    def leader_lock(self) -> Path:
        return self.run / "leader.lock"

    @property
    def front_socket(self) -> Path:
        return self.run / "front.sock"

    @property
    def front_lock(self) -> Path:
        """flock held by the front of this instance; the port alone would not stop a second front
        that takes the listening socket from the watchdog."""
        return self.run / "front.lock"

    @property
    def watchdog_socket(self) -> Path:
        return self.run / "watchdog.sock"

    def worker_socket(self, name: str) -> Path:
        """Control and hand-off socket of ``worker_NN``."""
        return self.run / f"{name}.sock"

    @property
    def journals(self) -> Path:
        return self.run / "journals"

    @property
    def leases(self) -> Path:
        """Which connection has which session attached (``gateway.wire.journal``)."""
        return self.run / "sessions"

    @property
    def offline_port(self) -> Path:
        """Port of the offline model, written by it; it asks for the same one again."""
        return self.run / "offline-model.port"


def _xdg(environ: Mapping[str, str], variable: str, default: str) -> Path:
    value = environ.get(variable, "")
    if value and Path(value).is_absolute():  # the XDG specification ignores relative values
        return Path(value)
    home = environ.get("HOME", "")
    if not home or not Path(home).is_absolute():
        raise PathError(f"neither {variable} nor HOME names a folder; set GROK_GATEWAY_HOME")
    return Path(home) / default
