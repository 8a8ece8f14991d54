"""``grok-gateway pi``: the extension in the settings of the real Pi, and what it says when it cannot work."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT, find_free_port
from tests.pi.pi import CLI, EXTENSION, NODE, pi_command

COMMAND = (sys.executable, "-m", "gateway.operate.cli", "pi")


@pytest.fixture
def env(short_tmp: Path) -> dict[str, str]:
    """A home with a ``pi`` in PATH, and a gateway that does not run."""
    commands = short_tmp / "bin"
    commands.mkdir()
    (commands / "pi").symlink_to(CLI)
    (short_tmp / "agent").mkdir()
    return {
        "PATH": f"{commands}:{NODE.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(short_tmp),
        "PI_CODING_AGENT_DIR": str(short_tmp / "agent"),
        "PI_OFFLINE": "1",
        "PI_SKIP_VERSION_CHECK": "1",
        "PI_TELEMETRY": "0",
        "GROK_GATEWAY_TEST_ID": os.environ.get("GROK_GATEWAY_TEST_ID", ""),
    }


def run(env: dict[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=env,
        cwd=env["HOME"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def grok_ws(env: dict[str, str]) -> dict[str, object]:
    return dict(json.loads(Path(env["PI_CODING_AGENT_DIR"], "grok-ws.json").read_text()))


def packages(env: dict[str, str]) -> list[str]:
    return list(json.loads(Path(env["PI_CODING_AGENT_DIR"], "settings.json").read_text())["packages"])


def test_install_status_uninstall(env: dict[str, str], free_port: int, short_tmp: Path) -> None:
    own = short_tmp / "agent/grok-ws.json"
    own.write_text('{"permissionMode": "ask"}')
    env["GROK_GATEWAY_PORT"] = str(free_port)
    assert run(env, *COMMAND, "status").returncode == 1
    done = run(env, *COMMAND, "install")
    assert done.returncode == 0, done.stderr
    assert grok_ws(env) == {
        "permissionMode": "ask",
        "url": f"ws://127.0.0.1:{free_port}/pi",
        "secretFile": str(short_tmp / ".config/grok-gateway/secret"),
        "modelsFile": str(short_tmp / ".local/state/grok-gateway/models.json"),
    }
    assert own.stat().st_mode & 0o77 == 0
    assert run(env, *COMMAND, "status").returncode == 0
    listed = run(env, "pi", "--list-models", "grok")
    assert "grok-4.7-build-fast" in listed.stdout, listed.stderr
    assert run(env, *COMMAND, "install").returncode == 0, "a second time does no harm"
    assert len(packages(env)) == 1
    env["GROK_GATEWAY_PORT"] = "1"
    other = run(env, *COMMAND, "status")
    assert (other.returncode, "this instance: ws://127.0.0.1:1/pi" in other.stdout) == (1, True)
    assert run(env, *COMMAND, "uninstall").returncode == 0
    assert packages(env) == []
    assert grok_ws(env) == {"permissionMode": "ask"}


def test_another_copy_is_replaced(env: dict[str, str], short_tmp: Path) -> None:
    gone = short_tmp / "old-environment/workers/pi/extension"
    Path(env["PI_CODING_AGENT_DIR"], "settings.json").write_text(json.dumps({"packages": [str(gone)]}))
    done = run(env, *COMMAND, "install")
    assert done.returncode == 0, done.stderr
    (only,) = packages(env)
    assert (Path(env["PI_CODING_AGENT_DIR"]) / only).resolve() == EXTENSION


def test_without_pi_it_says_how_to_get_one(env: dict[str, str], short_tmp: Path) -> None:
    done = run(env, *COMMAND, "install", "--pi", str(short_tmp / "nowhere/pi"))
    assert done.returncode == 1
    assert "npm install -g @earendil-works/pi-coding-agent" in done.stderr


def test_a_broken_settings_file_is_not_overwritten(env: dict[str, str], short_tmp: Path) -> None:
    file = short_tmp / "agent/grok-ws.json"
    file.write_text("{")
    done = run(env, *COMMAND, "install")
    assert done.returncode == 1
    assert str(file) in done.stderr
    assert file.read_text() == "{"


def test_the_wheel_carries_the_extension(tmp_path: Path) -> None:
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    names = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    for file in EXTENSION.iterdir():
        if file.suffix in (".ts", ".json"):
            assert f"workers/pi/extension/{file.name}" in names


# -- what Pi says without a gateway --------------------------------------------------------------------


def named(env: dict[str, str], port: int, secret: Path) -> None:
    """What `install` would name."""
    addresses = {"url": f"ws://127.0.0.1:{port}/pi", "secretFile": str(secret)}
    Path(env["PI_CODING_AGENT_DIR"], "grok-ws.json").write_text(json.dumps(addresses))


def ask(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return run(env, *pi_command("-p", "--no-session", "--model", "grok/grok-4.6", "hi"))


def test_no_gateway_no_secret_and_bad_settings_say_what_to_do(env: dict[str, str], short_tmp: Path) -> None:
    port = find_free_port()
    file, secret = short_tmp / "agent/grok-ws.json", short_tmp / "secret"
    assert f"`grok-gateway pi install` writes {file}" in ask(env).stderr
    named(env, port, secret)
    assert f"ENOENT: no such file or directory, open '{secret}'" in ask(env).stderr
    secret.write_text("0" * 64)
    done = ask(env)
    assert done.returncode == 1
    assert f"No Grok gateway answers at ws://127.0.0.1:{port}/pi. Start it: `grok-gateway up`." in done.stderr
    file.write_text("{")
    assert "grok-ws.json cannot be used" in ask(env).stderr


def test_what_is_no_gateway_is_told(env: dict[str, str], short_tmp: Path) -> None:
    secret = short_tmp / "secret"
    secret.write_text("0" * 64)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        named(env, server.getsockname()[1], secret)
        answering = threading.Thread(target=_answer_404, args=(server,))
        answering.start()
        errors = ask(env).stderr
        server.shutdown(socket.SHUT_RDWR)
        answering.join()
    assert "is no Grok gateway" in errors


def _answer_404(server: socket.socket) -> None:
    """Every request, until the server is shut down."""
    with contextlib.suppress(OSError):
        while True:
            with server.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(
                    b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
