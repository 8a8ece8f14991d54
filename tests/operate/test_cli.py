"""The command line: arguments, exit codes, what it prints."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.operate.cli import DONE, FAILED, NOT_RUNNING, main
from gateway.wire.process import Identity
from tests.engines.fake import FakeEngine
from tests.operate.conftest import Stage


@pytest.fixture
def home(short_tmp: Path, monkeypatch: pytest.MonkeyPatch, free_port: int) -> Path:
    """An instance that was never started, and a HOME without a grok."""
    monkeypatch.setenv("HOME", str(short_tmp / "home"))
    monkeypatch.setenv("GROK_GATEWAY_HOME", str(short_tmp / "gw"))
    monkeypatch.setenv("GROK_GATEWAY_PORT", str(free_port))
    return short_tmp


@pytest.fixture
def ours(running: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """The running instance is the one that commands mean."""
    monkeypatch.setenv("GROK_GATEWAY_HOME", running.environ["GROK_GATEWAY_HOME"])
    return running


@pytest.fixture
def shared(unbroken: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """The same for the instance of several tests."""
    monkeypatch.setenv("GROK_GATEWAY_HOME", unbroken.environ["GROK_GATEWAY_HOME"])
    return unbroken


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dance"],
        ["restart"],
        ["restart", "watchdog"],
        ["restart", "worker"],
        ["restart", "worker:x"],
        ["service"],
        ["service", "start"],
        ["status", "--xml"],
        ["logs", "-n", "many"],
        ["up", "extra"],
    ],
)
def test_usage(home: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: grok-gateway")


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["status", "--json"], ["restart", "gateway"], ["restart", "leader"], ["restart", "worker:0"],
     ["restart", "workers"], ["reload"]],
)  # fmt: skip
def test_not_running(home: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == NOT_RUNNING
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "grok-gateway: the gateway is not running\n")
    assert not (home / "gw").exists()  # looking creates nothing


def test_down_without_an_instance_is_done(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["down"]) == DONE
    assert capsys.readouterr().out == "Not running.\n"


BAD_SETTINGS = [
    ("workers = 1", [], "config.toml: workers = 1: must be a number from 2 to 64"),
    ("port = 'x'", [], "config.toml: port = 'x': must be a number from 1 to 65535"),
    ("colour = 'red'", [], "unknown key 'colour'"),
    ("port = ", [], "not valid TOML"),
    ("[guard]\ndialogMs = 1", [], "guard.check"),
    ("", ["--port", "0"], "--port = '0': must be a number from 1 to 65535"),
    ("", ["--workers", "one"], "--workers = 'one': must be a number from 2 to 64"),
    ("", ["--engine", "gpt"], "--engine = 'gpt': must be one of auto, grok, harness"),
    ("", ["--grok", "/no/such/grok"], "/no/such/grok"),
]


@pytest.mark.parametrize(("config", "flags", "words"), BAD_SETTINGS)
def test_up_refuses_a_bad_setting(
    home: Path, config: str, flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "gw/config").mkdir(parents=True)
    (home / "gw/config/config.toml").write_text(config + "\n")
    assert main(["up", "--no-install", *flags]) == FAILED
    error = capsys.readouterr().err
    assert error.startswith("grok-gateway: ")
    assert words in error
    assert not (home / "gw/state/logs/supervisord.log").exists()


def test_up_without_grok_and_without_installing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(home))
    assert main(["up", "--no-install", "--engine", "grok"]) == FAILED
    error = capsys.readouterr().err
    assert "no grok found" in error
    assert "--no-install" in error


def test_up_without_grok_and_without_npm(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(home))
    assert main(["up", "--engine", "grok"]) == FAILED
    assert "npm" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["file in the way", "no home at all", "path too long"])
def test_up_with_unusable_folders(
    home: Path, way: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if way == "file in the way":
        (home / "gw").write_text("")
    elif way == "path too long":
        monkeypatch.setenv("GROK_GATEWAY_HOME", "/tmp/" + "x" * 100)
    else:
        monkeypatch.delenv("GROK_GATEWAY_HOME")
        monkeypatch.delenv("HOME")
    assert main(["up"]) == FAILED
    error = capsys.readouterr().err
    assert error.startswith("grok-gateway: ")
    assert "Traceback" not in error


def test_secret_is_made_once_and_private(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(home))  # it fails later, for want of an engine
    up = ["up", "--no-install", "--engine", "grok"]
    main(up)
    secret = home / "gw/config/secret"
    first = secret.read_text()
    assert (len(first.strip()), stat.S_IMODE(secret.stat().st_mode)) == (64, 0o600)
    main(up)
    assert secret.read_text() == first
    captured = capsys.readouterr()
    assert first.strip() not in captured.out + captured.err


def test_status_of_a_healthy_instance(shared: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json"]) == DONE
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"engine", "endpoint", "components", "leader", "clients"}
    assert main(["status"]) == DONE
    output = capsys.readouterr().out
    assert all(name in output for name in ("gateway", "watchdog", "worker:worker_00", "leader"))


def test_status_of_a_degraded_instance(ours: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    ours.supervisor.stop("worker:worker_01")
    ours.until(lambda: ours.component("worker:worker_01").state == "STOPPED")
    assert main(["status", "--json"]) == FAILED
    assert "STOPPED" in capsys.readouterr().out


def test_up_when_it_runs_already(shared: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    before = shared.supervisor.identity()
    assert main(["up"]) == DONE
    assert "Already running" in capsys.readouterr().out
    assert shared.supervisor.identity() == before
    assert main(["up", "--foreground"]) == FAILED
    assert "runs already" in capsys.readouterr().err


def test_restart_workers_is_rolling(ours: Stage) -> None:
    before = [ours.identity(name) for name in ("worker:worker_00", "worker:worker_01")]
    assert main(["restart", "workers"]) == DONE
    assert not any(identity.alive() for identity in before)
    # the second was stopped only after the first was up again
    log = ours.paths.log("supervisord").read_text()
    assert log.index("worker_00 entered RUNNING", log.index("stopped: worker_00")) < log.index(
        "stopped: worker_01"
    )


@pytest.mark.parametrize("name", ["worker:1", "worker:01", "worker:worker_01"])
def test_restart_one_worker(shared: Stage, name: str) -> None:
    before = {n: shared.identity(n) for n in ("worker:worker_00", "worker:worker_01", "gateway")}
    assert main(["restart", name]) == DONE
    assert {n for n in before if shared.identity(n) != before[n]} == {"worker:worker_01"}


def test_restart_a_worker_that_is_not_there(shared: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["restart", "worker:7"]) == FAILED
    assert (
        "there is no worker:worker_07; workers are worker:worker_00, worker:worker_01"
        in capsys.readouterr().err
    )


def test_reload_refuses_a_bad_file(shared: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    front = shared.identity("gateway")
    shared.paths.config_file.write_text("workers = 1\n")
    assert main(["reload"]) == FAILED
    assert "workers = 1" in capsys.readouterr().err
    assert shared.identity("gateway") == front
    shared.paths.config_file.unlink()


def test_down_stops_the_instance(ours: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    supervisord = ours.supervisor.identity()
    assert main(["down"]) == DONE
    assert capsys.readouterr().out == "Stopped.\n"
    assert supervisord
    assert not supervisord.alive()
    assert main(["status"]) == NOT_RUNNING


def test_broken_pipe_is_no_traceback(home: Path) -> None:
    logs = home / "gw/state/logs"
    logs.mkdir(parents=True)
    (logs / "gateway.log").write_text("line\n" * 100_000)
    script = f"{sys.executable} -m gateway.operate.cli logs gateway -n 100000 | head -1"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=os.environ)
    assert (done.stdout, done.stderr) == ("line\n", "")


@pytest.mark.parametrize("starters", [3])
def test_several_starters_make_one_instance(home: Path, starters: int) -> None:
    """Whoever comes first starts it; the others find it running."""
    environ = {**os.environ, "GROK_GATEWAY_GROK": str(FakeEngine(home).path), "GROK_GATEWAY_WORKERS": "2"}
    command = [sys.executable, "-m", "gateway.operate.cli"]
    made = [
        subprocess.Popen([*command, "up"], env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for _ in range(starters)
    ]
    outputs = [process.communicate()[0].decode() for process in made]
    try:
        assert [process.returncode for process in made] == [0] * starters, "\n".join(outputs)
        assert sum("Already running" in output for output in outputs) == starters - 1
    finally:
        subprocess.run([*command, "down"], env=environ, check=True, capture_output=True)


def test_foreground_is_supervisord_itself(home: Path) -> None:
    environ = {**os.environ, "GROK_GATEWAY_GROK": str(FakeEngine(home).path), "GROK_GATEWAY_WORKERS": "2"}
    command = [sys.executable, "-m", "gateway.operate.cli"]
    process = subprocess.Popen([*command, "up", "--foreground"], env=environ, stdout=subprocess.PIPE)
    try:
        stage_socket = home / "gw/run/supervisor.sock"
        assert process.stdout
        output = process.stdout.readline() + process.stdout.readline()
        assert b"endpoint" in output
        # Not earlier: supervisord's own handler swallows a signal to a child that it has just forked.
        while b"worker_01 entered RUNNING" not in (line := process.stdout.readline()):
            assert line, "supervisord ended"
        assert stage_socket.exists()
        assert Identity.of(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0
