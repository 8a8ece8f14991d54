"""supervisord and the watchdog at work, with stand-ins for the front and the workers."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys

import pytest

from gateway.operate import remains
from gateway.operate.instance import OperateError
from gateway.operate.status import healthy
from gateway.operate.supervisor import NotRunningError
from gateway.wire.control import Packet, ask
from gateway.wire.limits import SIZES
from gateway.wire.process import Identity
from tests.operate.conftest import Stage


def test_everything_runs_and_says_so(unbroken: Stage) -> None:
    document = unbroken.report()
    assert [one["name"] for one in document["components"]] == [
        "gateway",
        "watchdog",
        "worker:worker_00",
        "worker:worker_01",
    ]
    assert {one["state"] for one in document["components"]} == {"RUNNING"}
    assert document["leader"]["state"] == "ready"
    assert [client["id"] for client in document["clients"]] == ["worker_00", "worker_01"]
    assert healthy(document)


def test_socket_and_logs_are_private(unbroken: Stage) -> None:
    assert stat.S_IMODE(unbroken.paths.supervisor_socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(unbroken.paths.watchdog_socket.stat().st_mode) == 0o600
    logs = {file.name for file in unbroken.paths.logs.glob("*.log")}
    assert {"gateway.log", "watchdog.log", "worker_00.log", "worker_01.log", "supervisord.log"} <= logs
    assert all(stat.S_IMODE(file.stat().st_mode) & 0o077 == 0 for file in unbroken.paths.logs.glob("*.log"))


@pytest.mark.parametrize("victim", ["gateway", "worker:worker_01", "watchdog"])
def test_a_killed_component_comes_back_and_is_counted(running: Stage, victim: str) -> None:
    before = {name: running.identity(name) for name in ("gateway", "watchdog", "worker:worker_01")}
    leader = running.leader()
    assert before[victim].signal(signal.SIGKILL)
    running.until(
        lambda: (
            running.entry(victim) | {"pid": 0, "uptime_s": 0}
            == {
                "name": victim,
                "state": "RUNNING",
                "restarts": 1,
                "pid": 0,
                "uptime_s": 0,
            }
        )
    )
    for name, identity in before.items():
        assert (running.identity(name) == identity) is (name != victim)
    assert running.leader() == leader


@pytest.mark.parametrize("victim", ["gateway", "worker:worker_01"])
def test_kills_in_a_row_are_no_crash_loop(running: Stage, victim: str) -> None:
    """Each as soon as the next process is there: it is started again at once, every time."""
    for killed in range(1, SIZES.start_retries + 4):
        running.identity(victim).signal(signal.SIGKILL)
        running.until(lambda n=killed: running.entry(victim)["restarts"] == n)  # type: ignore[misc]
        running.until(lambda: running.component(victim).state == "RUNNING")
    assert "next try" not in running.paths.log("watchdog").read_text()


@pytest.mark.parametrize("victim", ["gateway", "worker:worker_00"])
def test_only_what_hangs_is_restarted(running: Stage, victim: str) -> None:
    others = {name: running.identity(name) for name in ("gateway", "worker:worker_00", "worker:worker_01")}
    hung = others.pop(victim)
    hung.signal(signal.SIGSTOP)
    running.until(lambda: not hung.alive())
    running.until(
        lambda: running.entry(victim)["state"] == "RUNNING" and "reason" not in running.entry(victim)
    )
    assert {name: running.identity(name) for name in others} == others
    assert "hangs" in running.paths.log("watchdog").read_text()


def test_status_names_the_hung_one(running: Stage) -> None:
    hung = running.identity("worker:worker_00")
    hung.signal(signal.SIGSTOP)
    try:
        entry = running.entry("worker:worker_00")
        assert "no answer" in entry["reason"]
        assert not healthy(running.report())
    finally:
        hung.signal(signal.SIGCONT)


@pytest.mark.parametrize("after", [0, 2])
def test_a_loop_of_errors_gets_a_rest_and_is_tried_again(running: Stage, after: int) -> None:
    """``after``: seconds from each start to its error."""
    running.break_("worker_01", "no such wire", after=after)
    running.identity("worker:worker_01").signal(signal.SIGKILL)
    running.until(lambda: running.component("worker:worker_01").state == "STOPPED")
    assert running.entry("worker:worker_01")["reason"] == "no such wire"
    running.repair("worker_01")
    running.until(lambda: running.component("worker:worker_01").state == "RUNNING")
    assert "again and again" in running.paths.log("watchdog").read_text()


def test_nobody_waits_for_a_front_that_does_not_start(running: Stage) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        ask(running.paths.watchdog_socket, Packet("keep", {"port": port}, fds=(listener.fileno(),)))
    running.break_("gateway.front", "no such port")
    running.identity("gateway").signal(signal.SIGKILL)
    running.until(lambda: running.component("gateway").state == "STOPPED")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_up_that_fails_says_why_and_leaves_nothing(stage: Stage) -> None:
    stage.break_("gateway.front", "port 4711 is taken")
    with pytest.raises(OperateError, match="gateway does not stay up: port 4711 is taken"):
        stage.start()
    assert remains.find(stage.paths) == []
    assert stage.supervisor.identity() is None


def test_port_in_use_is_said_before_anything_is_started(stage: Stage) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", stage.settings.port))
        taken.listen()
        with pytest.raises(
            OperateError, match=rf"port {stage.settings.port} is in use by .*\(pid {os.getpid()}\)"
        ):
            stage.start()
    assert not stage.paths.log("supervisord").exists()


def test_restart_changes_one_process_only(running: Stage) -> None:
    names = ("gateway", "watchdog", "worker:worker_00", "worker:worker_01")
    before = {name: running.identity(name) for name in names}
    leader = running.leader()
    running.instance.restart("gateway")
    running.instance.restart("worker:worker_00")
    changed = {name for name in names if running.identity(name) != before[name]}
    assert changed == {"gateway", "worker:worker_00"}
    assert running.leader() == leader


def test_restart_leader_changes_the_leader_only(running: Stage) -> None:
    front, leader = running.identity("gateway"), running.leader()
    running.instance.restart_leader()
    assert running.leader() not in (None, leader)
    assert running.identity("gateway") == front


def test_reload_keeps_the_process(unbroken: Stage) -> None:
    front, leader = unbroken.identity("gateway"), unbroken.leader()
    restarts = unbroken.entry("gateway")["restarts"]
    unbroken.instance.reload()
    assert unbroken.identity("gateway") == front
    assert unbroken.leader() == leader
    assert unbroken.entry("gateway")["restarts"] == restarts


def test_down_leaves_nothing(running: Stage) -> None:
    running.paths.journals.joinpath("journal").write_text("x")
    leader, supervisord = running.leader(), running.supervisor.identity()
    assert running.instance.stop() == []
    assert leader
    assert supervisord
    assert not leader.alive()
    assert not supervisord.alive()
    assert remains.find(running.paths) == []
    assert list(running.paths.journals.iterdir()) == []
    with pytest.raises(NotRunningError):
        running.supervisor.components()


def test_down_ends_what_does_not_listen(running: Stage) -> None:
    for identity in (running.identity("worker:worker_00"), running.supervisor.identity(), running.leader()):
        assert identity
        identity.signal(signal.SIGSTOP)
    assert running.instance.stop() == []
    assert remains.find(running.paths) == []


def test_death_of_supervisord_ends_everything_and_the_next_up_works(running: Stage) -> None:
    everything = [one.identity for one in remains.find(running.paths)]
    assert len(everything) == 6
    supervisord = running.supervisor.identity()
    assert supervisord
    supervisord.signal(signal.SIGKILL)
    assert remains.wait_gone(everything, 60) == []
    assert "supervisord died" in running.paths.log("watchdog").read_text()
    running.start()
    assert healthy(running.report())


def test_death_of_supervisord_with_a_hung_front(running: Stage) -> None:
    """The front cannot end the leader: the watchdog does, and ends the front, too."""
    everything = [one.identity for one in remains.find(running.paths)]
    running.identity("gateway").signal(signal.SIGSTOP)
    supervisord = running.supervisor.identity()
    assert supervisord
    supervisord.signal(signal.SIGKILL)
    assert remains.wait_gone(everything, 60) == []


def test_up_right_after_the_death_of_supervisord_waits_for_the_old_ones(running: Stage) -> None:
    old = running.identity("gateway")
    supervisord = running.supervisor.identity()
    assert supervisord
    supervisord.signal(signal.SIGKILL)
    running.start()
    assert not old.alive()
    assert healthy(running.report())


def test_listening_socket_in_escrow(unbroken: Stage) -> None:
    path = unbroken.paths.watchdog_socket
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert ask(path, Packet("take", {"port": port})).op == "none"
        assert ask(path, Packet("keep", {"port": port}, fds=(listener.fileno(),))).op == "kept"
    with socket.create_connection(("127.0.0.1", port)):  # waits in the backlog: nobody else listens
        answer = ask(path, Packet("take", {"port": port}))
        assert answer.op == "listener"
        with socket.socket(fileno=answer.fds[0]) as again:
            again.accept()[0].close()
    assert ask(path, Packet("take", {"port": port + 1})).op == "none"
    assert ask(path, Packet("release")).op == "released"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_watchdog_refuses_what_it_does_not_know(unbroken: Stage) -> None:
    answer = ask(unbroken.paths.watchdog_socket, Packet("dance"))
    assert (answer.op, "dance" in answer.fields["reason"]) == ("failed", True)


def test_start_counts_belong_to_one_supervisord(running: Stage) -> None:
    running.identity("worker:worker_00").signal(signal.SIGKILL)
    running.until(lambda: running.entry("worker:worker_00")["restarts"] == 1)
    assert json.loads(running.paths.restarts.read_text())["starts"]["worker:worker_00"] == 2
    running.instance.stop()
    running.start()
    assert running.entry("worker:worker_00")["restarts"] == 0


def test_identity_of_a_stopped_supervisord(unbroken: Stage) -> None:
    supervisord = unbroken.supervisor.identity()
    assert supervisord
    supervisord.signal(signal.SIGSTOP)
    try:
        assert unbroken.supervisor.identity() == supervisord == Identity.of(supervisord.pid)
    finally:
        supervisord.signal(signal.SIGCONT)


def test_logs_are_bounded_and_lose_no_line_at_rotation(stage: Stage) -> None:
    """Both workers write more than one file holds; each line arrives whole, in its own log."""
    size, lines = 1000, 12_000
    for name in ("worker_00", "worker_01"):
        program = f'for n in range({lines}): print(f"{name} {{n}} ".ljust({size - 1}, "."))'
        (stage.folder / f"{name}.fails").write_text(f"{sys.executable} -c '{program}'\nrm \"$ailment\"\n")
    stage.start()  # each worker writes and ends once before it stays
    for name in ("worker_00", "worker_01"):
        log = stage.paths.log(name)
        older = log.with_name(log.name + ".1")
        assert (
            max(log.stat().st_size, older.stat().st_size) <= SIZES.log + SIZES.read
        )  # supervisord looks after each read
        text = older.read_text() + log.read_text()
        assert [line.split(" ", 2)[:2] for line in text.splitlines()] == [
            [name, str(n)] for n in range(lines)
        ]
        assert {len(line) for line in text.splitlines()} == {size - 1}
