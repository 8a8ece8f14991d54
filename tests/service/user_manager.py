"""A real ``systemd --user`` of a test's own, in its own namespaces and its own control group.

``unshare`` gives it a pid namespace (all ends with its first process), a mount namespace (its own
``/run``, which says "booted with systemd", and its own view of the control groups) and a control group
to rule over.  Commands enter by ``nsenter``.  Needs root, as everything that mounts does.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["UserManager", "impossible"]

SYSTEMD = Path("/lib/systemd/systemd")

INIT = """
set -e
mount --make-rprivate /
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system
trap '' TERM
/lib/systemd/systemd --user --log-target=console --show-status=no &
echo started
wait $!
"""


def impossible() -> str:
    """Why such a manager cannot run here, "" when it can."""
    if os.getuid() != 0:
        return "not root"
    for program in ("unshare", "nsenter", "systemctl"):
        if shutil.which(program) is None:
            return f"no {program}"
    if not SYSTEMD.exists():
        return f"no {SYSTEMD}"
    root = control_groups()
    if root is None:
        return "no control groups of version 2"
    try:
        with own_group(root, "probe") as group:
            script = f"echo $$ > {group}/cgroup.procs && exec unshare --mount --pid --fork --cgroup true"
            tried = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=20)
    except OSError as error:
        return f"no control group of our own: {error}"
    return "" if tried.returncode == 0 else f"unshare: {tried.stderr.strip()}"


def control_groups() -> Path | None:
    """Where control groups of version 2 are mounted."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            return Path(before.split()[4])
    return None


@contextlib.contextmanager
def own_group(root: Path, name: str) -> Iterator[Path]:
    """A control group, removed afterwards with all below it."""
    group = root / f"gateway-test-{name}-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        deadline = time.monotonic() + 5
        for folder in [*sorted((p for p in group.rglob("*") if p.is_dir()), reverse=True), group]:
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError):  # busy until its last process has been reaped
                    folder.rmdir()
                    break
                time.sleep(0.05)


class UserManager:
    """The manager; `start` may be called again after `stop`, as after a reboot."""

    def __init__(self, folder: Path, group: Path, **environ: str) -> None:
        self.home, self.runtime = folder / "home", folder / "xdg"
        self.log = folder / "systemd.log"
        self.home.mkdir()
        self.runtime.mkdir(mode=0o700)
        self.group = group
        kept = ("PATH", "LANG", "GROK_GATEWAY_TEST_ID")
        self.base = {name: os.environ[name] for name in kept if name in os.environ} | {
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.runtime),
        }
        self.environ = self.base | environ  #: of commands: what a login shell would have
        self._unshare: subprocess.Popen[bytes] | None = None
        self._first = 0

    def start(self) -> None:
        """Start it and wait until it answers."""
        inner = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--cgroup", "--kill-child"]
        script = f'echo $$ > {self.group}/cgroup.procs; exec "$@"'
        self._unshare = subprocess.Popen(
            ["sh", "-c", script, "sh", *inner, "bash", "-c", INIT],
            env=self.base,
            stdin=subprocess.DEVNULL,
            stdout=self.log.open("ab"),
            stderr=subprocess.STDOUT,
        )
        self.until(lambda: self._enterable() and self.systemctl("is-system-running").returncode in (0, 1))

    def _enterable(self) -> bool:
        assert self._unshare
        file = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
        children = file.read_text().split()
        self._first = int(children[0]) if children else 0
        return bool(children)

    def stop(self) -> None:
        """End it and everything below it, as a power cut does."""
        if self._unshare is not None:
            if self._first:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._first, signal.SIGKILL)
            self._unshare.wait(10)
            self._unshare = None

    def run(self, *argv: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command inside."""
        enter = ["nsenter", "-t", str(self._first), "-m", "-p", "-C", "--"]
        return subprocess.run(
            [*enter, *argv],
            env=self.environ,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def systemctl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run("systemctl", "--user", "--no-pager", *arguments)

    def show(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return self.systemctl("show", unit, "--property", name, "--value").stdout.strip()

    def until(self, condition: object, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():  # type: ignore[operator]
            assert time.monotonic() < deadline, self.log.read_text("utf-8", "replace")[-3000:]
            time.sleep(0.1)
