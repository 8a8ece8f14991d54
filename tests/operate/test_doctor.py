"""``doctor`` on this machine: a home of its own, real sockets, real files."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from gateway.operate.doctor import gather
from gateway.paths import Paths
from gateway.secret import ensure_secret

COMMAND = (
    "import argparse, sys; from gateway.operate import doctor; parser = argparse.ArgumentParser(); "
    "doctor.add_arguments(parser); sys.exit(doctor.main(parser.parse_args()))"
)


def environ(home: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "GROK_GATEWAY_HOME": str(home / "gg"), **more}


def doctor(env: dict[str, str], *arguments: str) -> tuple[int, str]:
    run = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments], env=env, capture_output=True, text=True, timeout=60
    )
    assert run.stderr == ""
    return run.returncode, run.stdout


def found(output: str) -> dict[str, dict[str, Any]]:
    return {one["check"]: one for one in json.loads(output)["findings"]}


def test_looking_changes_nothing(short_tmp: Path) -> None:
    doctor(environ(short_tmp))
    assert list(short_tmp.iterdir()) == []


def test_a_taken_port_and_an_open_secret_fail(short_tmp: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        env = environ(short_tmp, GROK_GATEWAY_PORT=str(port))
        paths = Paths.from_environment(env)
        paths.create()
        secret = ensure_secret(paths.secret)
        paths.secret.chmod(0o644)
        code, output = doctor(env, "--json")
    findings = found(output)
    assert code == 1
    assert findings["secret"]["result"] == "fail"
    assert findings["port"]["result"] == "fail"
    assert f"pid {os.getpid()}" in findings["port"]["text"]
    assert secret not in output


def test_groks_own_configuration_is_read(short_tmp: Path) -> None:
    (short_tmp / ".grok").mkdir()
    (short_tmp / ".grok/config.toml").write_text('[ui]\npermission_mode = "always-approve"\n')
    (short_tmp / ".claude").mkdir()
    settings = {"permissions": {"defaultMode": "bypassPermissions"}}
    (short_tmp / ".claude/settings.json").write_text(json.dumps(settings))
    env = environ(short_tmp)
    facts = gather(Paths.from_environment(env), env)
    assert [file.name for file, _ in facts.permissive] == ["config.toml", "settings.json"]


def test_people_get_a_line_for_each_finding(short_tmp: Path) -> None:
    env = environ(short_tmp, GROK_GATEWAY_GROK="/nowhere/grok")
    code, output = doctor(env)
    assert code == 1
    assert "fail" in output
    assert "/nowhere/grok" in output.replace("\n", "")
