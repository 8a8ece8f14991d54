"""Processes of one instance that still run: found without a supervisor's help, and ended.

A pid file may be stale and a pid may belong to a stranger by now, so a process is ours only by what
the kernel says about it: our uid, its exact argv items, and the run folder in its environment.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gateway.paths import Paths
from gateway.wire.limits import LIMITS
from gateway.wire.process import Identity

if TYPE_CHECKING:
    import psutil

__all__ = ["ENGINE", "Remain", "end", "end_engine", "find", "wait_gone"]

#: Python modules and the components that they are
_MODULES = {
    "supervisor.supervisord": "supervisord",
    "gateway.front": "gateway",
    "workers": "worker",
    "gateway.operate.watchdog": "watchdog",
    "harness.model.offline": "offline-model",
}

#: names of processes that belong to the engine, not to the gateway
ENGINE = ("leader", "bridge")


@dataclasses.dataclass(frozen=True, slots=True)
class Remain:
    """A process of this instance."""

    name: str  #: ``supervisord``, ``gateway``, ``worker``, …, ``leader``, ``bridge``
    identity: Identity

    def __str__(self) -> str:
        return f"{self.name} (pid {self.identity.pid})"


def find(paths: Paths) -> list[Remain]:
    """Every process of this instance except the caller."""
    import psutil  # 50 ms that most commands do not need

    found = list[Remain]()
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            if process.uids().real != os.getuid():
                continue
            name = _name(paths, process)
        except psutil.Error:
            continue
        if name and (identity := Identity.of(process.pid)):
            found.append(Remain(name, identity))
    return found


def _name(paths: Paths, process: psutil.Process) -> str | None:
    argv = process.cmdline()
    if _has_pair(argv, "--leader-socket", str(paths.leader_socket)):
        return "bridge" if "stdio" in argv else "leader"
    for module, name in _MODULES.items():
        if _has_pair(argv, "-m", module):
            ours = process.environ().get("GROK_GATEWAY_RUN_DIR") == str(paths.run)
            return name if ours else None
    return None


def _has_pair(argv: Sequence[str], option: str, value: str) -> bool:
    return (option, value) in itertools.pairwise(argv)


def wait_gone(identities: Iterable[Identity], seconds: float) -> list[Identity]:
    """Wait until all have ended; those that have not after ``seconds`` are returned."""
    deadline = time.monotonic() + seconds
    return [identity for identity in identities if not identity.wait(deadline - time.monotonic())]


def end(remains: Iterable[Remain], patience: float = LIMITS.terminate) -> list[Remain]:
    """End them all: TERM, KILL after ``patience`` seconds.  What is left is returned.

    Processes that the leader started (commands of tools) end with it, whether or not it is given the
    time to do so itself: otherwise a command would go on with nobody to stop it.
    """
    remains = list(remains)
    commands = [child for one in remains if one.name == "leader" for child in _descendants(one.identity)]
    for one in remains:
        one.identity.signal(signal.SIGTERM)
    stubborn = wait_gone([one.identity for one in remains], patience)
    for identity in [*stubborn, *commands]:
        identity.signal(signal.SIGKILL)
    left = set(wait_gone([*stubborn, *commands], patience))
    return [one for one in remains if one.identity in left]


def end_engine(paths: Paths) -> list[Remain]:
    """End what shows no argument of ours: a leader that a bridge started, and what the commands of an
    ended leader left in sessions of their own.  What is left is returned."""
    from gateway.front.leader_process import end_leaders  # psutil: 50 ms that most commands do not need

    return [Remain("engine", one) for one in end_leaders(paths.leader_socket)]


def _descendants(identity: Identity) -> list[Identity]:
    import psutil

    try:
        children = psutil.Process(identity.pid).children(recursive=True)
    except psutil.Error:
        return []
    return [known for child in children if (known := Identity.of(child.pid))]
