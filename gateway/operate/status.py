"""What runs and how it is: asked of everybody at once, put together by pure functions.

`take` does the asking; `report` makes the document of ``status --json`` from it, `blocker` says what
still stands between an instance and readiness, `render` prints for people.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.operate.supervisor import Component, Supervisor, log_tail
from gateway.paths import Paths
from gateway.wire.control import ControlError, Packet, ask
from gateway.wire.limits import LIMITS, SIZES

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Blocker", "Snapshot", "blocker", "healthy", "render", "report", "take"]

Fields = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """The answers of one moment; None where nobody answered."""

    components: Sequence[Component]
    front: Fields | None = None
    watchdog: Fields | None = None
    workers: Mapping[str, Fields | None] = dataclasses.field(default_factory=dict)  #: by component name
    log_tails: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  #: of those that do not run or answer

    def answers(self, name: str) -> bool:
        """Whether this component answers; one that nobody asks counts as answering."""
        if name == "gateway":
            return self.front is not None
        if name == "watchdog":
            return self.watchdog is not None
        return self.workers.get(name, {}) is not None

    def restarts(self) -> Mapping[str, int]:
        """Restarts by component; empty while the watchdog does not answer."""
        counted: Mapping[str, int] = (self.watchdog or {}).get("restarts", {})
        return counted


@dataclasses.dataclass(frozen=True, slots=True)
class Blocker:
    """Why something is not ready.  ``final``: waiting does not help."""

    reason: str
    final: bool = False


def take(paths: Paths, supervisor: Supervisor) -> Snapshot:
    """Ask supervisord, then all components side by side, each at most ``LIMITS.status`` seconds.

    Raises SupervisorError, NotRunningError among it.
    """
    components = supervisor.components()
    sockets = {"gateway": paths.front_socket, "watchdog": paths.watchdog_socket}
    for component in components:
        if component.name.startswith("worker:"):
            sockets[component.name] = paths.worker_socket(component.log_name)
    with ThreadPoolExecutor(len(sockets)) as pool:
        answers = dict(zip(sockets, pool.map(_status_of, sockets.values()), strict=True))
    silent = [c for c in components if not c.alive or answers.get(c.name, {}) is None]
    return Snapshot(
        components,
        front=answers.pop("gateway"),
        watchdog=answers.pop("watchdog"),
        workers=answers,
        log_tails={c.name: log_tail(paths.log(c.log_name)) for c in silent if c.ever_started},
    )


def _status_of(socket: Path) -> Fields | None:
    try:
        answer = ask(socket, Packet("status"), LIMITS.status)
    except ControlError:
        return None
    answer.close_fds()
    return answer.fields


def report(snapshot: Snapshot, endpoint: str) -> dict[str, Any]:
    """The document of ``status --json``.  ``endpoint`` stands in while the front does not answer."""
    front = snapshot.front or {}
    clients = [
        {"worker": name.rpartition(":")[2], **client}
        for name, fields in snapshot.workers.items()
        for client in (fields or {}).get("clients", ())
    ]
    return {
        "engine": front.get("engine"),
        "endpoint": front.get("endpoint", endpoint),
        "components": [_component(snapshot, one) for one in _wanted(snapshot.components)],
        "leader": front.get("leader") or {"state": "unknown", "reason": "the front does not answer"},
        "clients": clients[: SIZES.status_clients],
    }


def _wanted(components: Sequence[Component]) -> list[Component]:
    """All but the offline model where it is not chosen."""
    return [c for c in components if c.name != "offline-model" or c.state != "STOPPED"]


def _component(snapshot: Snapshot, component: Component) -> dict[str, Any]:
    watchdog = snapshot.watchdog or {}
    hung = watchdog.get("hung", {}).get(component.name)
    entry = {
        "name": component.name,
        "pid": component.pid,
        "state": "HUNG" if hung else component.state,
        "uptime_s": component.uptime_s,
        "restarts": snapshot.restarts().get(component.name, 0),
    }
    reason = hung or _reason(snapshot, component)
    return entry | {"reason": reason} if reason else entry


def _reason(snapshot: Snapshot, component: Component) -> str:
    if component.alive:
        return "" if snapshot.answers(component.name) else f"no answer within {LIMITS.status:g} s"
    return snapshot.log_tails.get(component.name, "") or component.error


def healthy(document: Fields) -> bool:
    """Whether all that should run does, and the leader is ready."""
    components = document["components"]
    return (
        all(one["state"] == "RUNNING" and "reason" not in one for one in components)
        and document["leader"].get("state") == "ready"
    )


def blocker(
    snapshot: Snapshot, names: Collection[str], *, leader: bool, before: Mapping[str, int]
) -> Blocker | None:
    """What keeps these components (and the ``leader``) from being ready, None when they are.

    ``before``: the restarts of each component when the waiting began.
    """
    restarts = snapshot.restarts()
    for component in snapshot.components:
        if component.name not in names:
            continue
        why = _reason(snapshot, component)
        if component.state != "RUNNING" or not snapshot.answers(component.name):
            # What fails after its start is never FATAL for supervisord, which starts it again at once.
            more = restarts.get(component.name, 0) - before.get(component.name, 0)
            if component.state == "FATAL" or more > SIZES.start_retries:
                words = snapshot.log_tails.get(component.name) or why
                return Blocker(f"{component.name} does not stay up: {words}", final=True)
            return Blocker(f"{component.name} is {component.state}: {why or 'starting'}")
        worker = snapshot.workers.get(component.name)
        if worker is not None and worker.get("state") != "ready":
            return Blocker(f"{component.name} is {worker.get('state')}")
        if worker is not None and not _joined(snapshot.front, worker):
            # The next worker to be restarted would find nobody to hand its clients over to.
            return Blocker(f"{component.name} is not known to the front yet")
    if leader:
        known = (snapshot.front or {}).get("leader", {})
        if known.get("state") != "ready":
            why = known.get("reason") or "no reason given"
            return Blocker(f"the leader is {known.get('state')}: {why}", final=known.get("state") == "broken")
    return None


def _joined(front: Fields | None, worker: Fields) -> bool:
    """Whether the front, if there is one, gives clients to this worker."""
    seats = (front or {}).get("workers")
    if seats is None:
        return True
    return any(s.get("pid") == worker.get("pid") and s.get("state") == "ready" for s in seats)


def render(document: Fields, console: Console) -> None:
    """The component table, the leader and the clients, for people."""
    from rich.table import Table  # 60 ms that --json does not need

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("component", "state", "pid", "up", "restarts", ""):
        table.add_column(column)
    for one in document["components"]:
        good = one["state"] == "RUNNING" and "reason" not in one
        state = f"[{'green' if good else 'red'}]{one['state']}[/]"
        pid = str(one["pid"] or "")
        table.add_row(
            one["name"], state, pid, _age(one["uptime_s"]), str(one["restarts"]), one.get("reason", "")
        )
    leader = document["leader"]
    good = leader.get("state") == "ready"
    table.add_row(
        "leader",
        f"[{'green' if good else 'red'}]{leader.get('state')}[/]",
        str(leader.get("pid") or ""),
        _age(int(leader.get("uptime_s") or 0)),
        "",
        "adopted" if good and leader.get("adopted") else str(leader.get("reason") or ""),
    )
    console.print(table)
    clients = len(document["clients"])
    console.print(f"{clients} client{'' if clients == 1 else 's'} at {document['endpoint']}", highlight=False)


def _age(seconds: int) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s" if seconds else ""
