from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gateway.paths import SUN_PATH_MAX, PathError, Paths


def test_the_xdg_folders_and_their_defaults() -> None:
    paths = Paths.from_environment({"HOME": "/home/a"})
    assert paths.config == Path("/home/a/.config/grok-gateway")
    assert paths.state == Path("/home/a/.local/state/grok-gateway")
    assert paths.run == paths.state / "run"
    paths = Paths.from_environment({"HOME": "/home/a", "XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c"})
    assert (paths.config, paths.state) == (Path("/c/grok-gateway"), Path("/s/grok-gateway"))


def test_a_relative_xdg_value_is_ignored() -> None:
    paths = Paths.from_environment({"HOME": "/home/a", "XDG_STATE_HOME": "relative"})
    assert paths.state == Path("/home/a/.local/state/grok-gateway")


def test_the_runtime_folder_does_not_follow_the_login() -> None:
    """A shell and systemd see different XDG_RUNTIME_DIRs; the instance is one."""
    both = [
        Paths.from_environment({"HOME": "/h", "XDG_RUNTIME_DIR": run}) for run in ("/run/user/1", "/tmp/x")
    ]
    assert both[0] == both[1]


def test_one_home_isolates_everything() -> None:
    paths = Paths.from_environment({"GROK_GATEWAY_HOME": "/i", "HOME": "/home/a", "XDG_STATE_HOME": "/s"})
    everything = [paths.config, paths.state, paths.run, paths.secret, paths.leader_socket, paths.logs]
    assert all(path.is_relative_to("/i") for path in everything)


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_home_there_is_no_fallback(environment: dict[str, str]) -> None:
    with pytest.raises(PathError, match="GROK_GATEWAY_HOME"):
        Paths.from_environment(environment)


def test_a_relative_home_is_refused() -> None:
    with pytest.raises(PathError, match="absolute"):
        Paths.from_environment({"GROK_GATEWAY_HOME": "here"})


def test_socket_paths_fit_the_kernel() -> None:
    room = SUN_PATH_MAX - len("/run/supervisor.sock.4194304")  # supervisord appends its pid for a moment
    assert Paths.from_environment({"GROK_GATEWAY_HOME": "/" + "x" * (room - 1)})
    with pytest.raises(PathError, match="shorter folder"):
        Paths.from_environment({"GROK_GATEWAY_HOME": "/" + "x" * room})
    with pytest.raises(PathError):  # bytes count, not characters
        Paths.from_environment({"GROK_GATEWAY_HOME": "/" + "é" * (room // 2 + 1)})


def test_folders_are_private(tmp_path: Path) -> None:
    paths = Paths.from_environment({"GROK_GATEWAY_HOME": str(tmp_path / "i")})
    mask = os.umask(0)
    try:
        paths.create()
    finally:
        os.umask(mask)
    for folder in (paths.config, paths.state, paths.run, paths.logs, paths.journals, paths.leases):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    paths.create()  # again: nothing to do


def test_an_open_folder_is_closed(tmp_path: Path) -> None:
    paths = Paths.from_environment({"GROK_GATEWAY_HOME": str(tmp_path)})
    paths.config.mkdir(mode=0o755)
    paths.create()
    assert stat.S_IMODE(paths.config.stat().st_mode) == 0o700


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(PathError, match=r"cannot create .*state"):
        Paths.from_environment({"GROK_GATEWAY_HOME": str(tmp_path)}).create()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_strangers_folder_is_refused(tmp_path: Path) -> None:
    paths = Paths.from_environment({"GROK_GATEWAY_HOME": str(tmp_path)})
    paths.run.mkdir()
    os.chown(paths.run, 12345, 12345)
    with pytest.raises(PathError, match="belongs to uid 12345"):
        paths.create()
