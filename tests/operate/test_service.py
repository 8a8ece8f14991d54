"""The unit and its environment file, as text; what systemd makes of it is tested in tests/service."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.operate import service
from gateway.operate.supervisor import data_file
from gateway.wire.limits import LIMITS


def render(argv: list[str], environment: Path = Path("/c/service.env")) -> str:
    return service.render_unit(data_file(service.UNIT).read_text(), argv, environment)


def test_times_of_the_unit_are_those_of_the_table() -> None:
    values = dict(re.findall(r"^(\w+)=(.*)$", render(["/bin/true"]), flags=re.M))
    assert float(values["WatchdogSec"]) == LIMITS.systemd_watchdog
    assert float(values["TimeoutStartSec"]) > LIMITS.ready
    assert float(values["TimeoutStartSec"]) < LIMITS.systemd_job
    assert float(values["TimeoutStopSec"]) > LIMITS.drain_all + LIMITS.drain
    assert (values["Type"], values["NotifyAccess"], values["KillMode"]) == ("notify", "all", "mixed")
    assert (values["Restart"], values["WantedBy"]) == ("on-failure", "default.target")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="NO systemd-analyze")
@pytest.mark.parametrize("folder", ["plain", "with blank", "per%cent", "dollar$HOME"])
def test_systemd_accepts_the_unit(tmp_path: Path, folder: str) -> None:
    """A bad directive gives a warning and exit code 0: standard error must be empty too."""
    place = tmp_path / folder
    place.mkdir()
    program = place / "grok-gateway"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / service.UNIT
    unit.write_text(render([str(program)], place / "service.env"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", str(unit)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_command_is_absolute() -> None:
    assert Path(service.command()[0]).is_absolute()


ENVIRON = {
    "PATH": "/opt/my tools/bin:/bin",
    "GROK_GATEWAY_HOME": '/srv/"gw"',
    "XAI_API_KEY": "xai-very-secret",
    "EDITOR": "vi",
    "GROK_HOME": "",
}


def test_environment_file_has_what_the_service_needs_and_no_secret() -> None:
    text = service.render_environment(ENVIRON, "")
    lines = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert {name: shlex.split(value) for name, value in lines.items()} == {
        "PATH": ["/opt/my tools/bin:/bin"],
        "GROK_GATEWAY_HOME": ['/srv/"gw"'],
    }
    assert "very-secret" not in text


def test_lines_that_the_user_added_stay() -> None:
    before = "# Written by hand\nPATH=/old\nXAI_API_KEY=mine\n\nGROK_GATEWAY_PORT=1\n"
    text = service.render_environment(ENVIRON, before)
    assert "XAI_API_KEY=mine" in text
    assert "/old" not in text
    assert "GROK_GATEWAY_PORT" not in text
    assert service.render_environment(ENVIRON, text) == text


def test_files_are_private(tmp_path: Path) -> None:
    file = tmp_path / "new folder/service.env"
    service._write(file, "A=1\n")
    service._write(file, "A=2\n")
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == ("A=2\n", 0o600)


def test_without_systemd_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(service.ServiceError, match=r"no systemd here.*grok-gateway up"):
        service._require_systemd()


def test_without_a_user_manager_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('Failed to connect to bus')\n")
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(service.ServiceError, match="Failed to connect to bus"):
        service._require_systemd()


@pytest.mark.parametrize(
    ("answer", "state", "advice"),
    [("Linger=yes", "yes", "at boot"), ("Linger=no", "no", "loginctl enable-linger"),
     ("Failed to connect", "unknown", "loginctl enable-linger")],
)  # fmt: skip
def test_linger_is_reported_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, state: str, advice: str
) -> None:
    loginctl = tmp_path / "loginctl"
    loginctl.write_text(f"#!/bin/sh\necho \"$1\" >> {tmp_path}/calls\necho '{answer}'\n")
    loginctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert service.lingering() == state
    assert advice in service._linger_advice(service.lingering())
    assert set((tmp_path / "calls").read_text().split()) == {"show-user"}
