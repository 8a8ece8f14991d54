"""What `status` makes of the answers, and what counts as ready."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from gateway.operate.status import Snapshot, blocker, healthy, render, report
from gateway.operate.supervisor import Component
from gateway.wire.limits import SIZES

GATEWAY, WATCHDOG, WORKER = "gateway", "watchdog", "worker:worker_00"
READY_FRONT = {"engine": "grok", "endpoint": "ws://127.0.0.1:1/ws", "leader": {"state": "ready", "pid": 9}}


def component(name: str, state: str = "RUNNING", **changes: Any) -> Component:
    values = {"pid": 1, "uptime_s": 2, "error": "", "ever_started": True} | changes
    return Component(name=name, state=state, **values)


def snapshot(**changes: Any) -> Snapshot:
    values: dict[str, Any] = {
        "components": [component(GATEWAY), component(WATCHDOG), component(WORKER)],
        "front": READY_FRONT,
        "watchdog": {"hung": {}, "restarts": {}},
        "workers": {WORKER: {"state": "ready", "clients": [{"id": "a"}]}},
    }
    return Snapshot(**(values | changes))


def entry(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in document["components"] if one["name"] == name)


def test_healthy_instance() -> None:
    document = report(snapshot(), "")
    assert document == {
        "engine": "grok",
        "endpoint": "ws://127.0.0.1:1/ws",
        "components": [
            {"name": name, "pid": 1, "state": "RUNNING", "uptime_s": 2, "restarts": 0}
            for name in (GATEWAY, WATCHDOG, WORKER)
        ],
        "leader": {"state": "ready", "pid": 9},
        "clients": [{"worker": "worker_00", "id": "a"}],
    }
    assert healthy(document)


FATAL = component(WORKER, "FATAL", pid=0, error="Exited too quickly")
DEGRADED = [
    ({"front": None}, GATEWAY, "RUNNING", "no answer within 1 s"),
    ({"watchdog": None}, WATCHDOG, "RUNNING", "no answer within 1 s"),
    ({"workers": {WORKER: None}}, WORKER, "RUNNING", "no answer within 1 s"),
    ({"watchdog": {"hung": {WORKER: "no answer for 16 s"}}}, WORKER, "HUNG", "no answer for 16 s"),
    ({"components": [FATAL], "log_tails": {WORKER: "last words"}}, WORKER, "FATAL", "last words"),
    ({"components": [FATAL]}, WORKER, "FATAL", "Exited too quickly"),
    ({"components": [component(WORKER, "STOPPED")]}, WORKER, "STOPPED", None),
    ({"components": [component(WORKER, "STARTING")]}, WORKER, "STARTING", None),
]


@pytest.mark.parametrize(("changes", "name", "state", "reason"), DEGRADED)
def test_degraded_instance(changes: dict[str, Any], name: str, state: str, reason: str | None) -> None:
    document = report(snapshot(**changes), "")
    assert (entry(document, name)["state"], entry(document, name).get("reason")) == (state, reason)
    assert not healthy(document)


@pytest.mark.parametrize("state", ["absent", "starting", "lost", "backoff", "broken"])
def test_without_a_leader_nothing_is_healthy(state: str) -> None:
    document = report(snapshot(front=READY_FRONT | {"leader": {"state": state}}), "")
    assert not healthy(document)


def test_front_that_does_not_answer() -> None:
    document = report(snapshot(front=None), "ws://127.0.0.1:7/ws")
    assert document["endpoint"] == "ws://127.0.0.1:7/ws"
    assert document["leader"]["state"] == "unknown"
    assert document["clients"] == [{"worker": "worker_00", "id": "a"}]  # the workers are asked themselves


def test_offline_model_counts_only_where_it_is_chosen() -> None:
    components = snapshot().components
    stopped = report(snapshot(components=[*components, component("offline-model", "STOPPED", pid=0)]), "")
    assert (len(stopped["components"]), healthy(stopped)) == (3, True)
    fatal = report(snapshot(components=[*components, component("offline-model", "FATAL", pid=0)]), "")
    assert (len(fatal["components"]), healthy(fatal)) == (4, False)


def test_list_of_clients_is_bounded() -> None:
    many = [{"id": str(number)} for number in range(SIZES.status_clients + 5)]
    document = report(snapshot(workers={WORKER: {"state": "ready", "clients": many}}), "")
    assert len(document["clients"]) == SIZES.status_clients


LEADER_BROKEN = READY_FRONT | {"leader": {"state": "broken", "reason": "exit code 3"}}
LEADER_STARTING = READY_FRONT | {"leader": {"state": "starting"}}
OBSTACLES = [
    ({}, None, False),
    ({"front": None}, "gateway is RUNNING: no answer within 1 s", False),
    ({"components": [component(GATEWAY, "STARTING")]}, "gateway is STARTING: starting", False),
    ({"components": [FATAL], "log_tails": {WORKER: "words"}}, f"{WORKER} does not stay up: words", True),
    (
        {
            "components": [component(WORKER, "EXITED", pid=0)],
            "log_tails": {WORKER: "words"},
            "watchdog": {"restarts": {WORKER: SIZES.start_retries + 1}},
        },
        f"{WORKER} does not stay up: words",
        True,
    ),
    ({"workers": {WORKER: {"state": "starting"}}}, f"{WORKER} is starting", False),
    ({"front": LEADER_STARTING}, "the leader is starting: no reason given", False),
    ({"front": LEADER_BROKEN}, "the leader is broken: exit code 3", True),
]


@pytest.mark.parametrize(("changes", "reason", "final"), OBSTACLES)
def test_obstacle(changes: dict[str, Any], reason: str | None, final: bool) -> None:
    found = blocker(snapshot(**changes), (GATEWAY, WATCHDOG, WORKER), leader=True, before={})
    assert (found and found.reason, bool(found and found.final)) == (reason, final)


def test_restarts_of_earlier_days_are_no_loop() -> None:
    starting = snapshot(components=[component(WORKER, "STARTING")], watchdog={"restarts": {WORKER: 99}})
    found = blocker(starting, (WORKER,), leader=False, before={WORKER: 98})
    assert found
    assert not found.final


def test_only_what_is_waited_for_is_an_obstacle() -> None:
    broken = snapshot(front=LEADER_BROKEN, workers={WORKER: None})
    assert blocker(broken, (GATEWAY,), leader=False, before={}) is None
    assert blocker(broken, (WORKER,), leader=False, before={}) is not None


def test_table_for_people() -> None:
    output = io.StringIO()
    changes = {"watchdog": {"hung": {WORKER: "no answer for 16 s"}, "restarts": {GATEWAY: 3}}}
    render(report(snapshot(**changes), ""), Console(file=output, width=120))
    lines = output.getvalue().splitlines()
    assert lines[1].split() == [GATEWAY, "RUNNING", "1", "2", "s", "3"]
    assert lines[3].split()[:3] == [WORKER, "HUNG", "1"]
    assert lines[3].rstrip().endswith("no answer for 16 s")
    assert lines[4].split() == ["leader", "ready", "9"]
    assert lines[5] == "1 client at ws://127.0.0.1:1/ws"
