from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest

from gateway.engine_home import EngineError, bridge_environment, leader_environment, write_offline_home
from gateway.paths import Paths

SHELL = {
    "HOME": "/home/me",
    "PATH": "/bin",
    "LANG": "C.UTF-8",
    "LC_TIME": "de_DE.UTF-8",
    "XDG_CACHE_HOME": "/cache",
    "HTTPS_PROXY": "http://proxy",
}
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "aws",
    "GROK_GATEWAY_HOME": "/gateway",
    "GROK_LEADER_SOCKET": "/elsewhere.sock",
    "GROK_SANDBOX": "strict",
    "OPENAI_API_KEY": "sk-openai",
    "TEAM_HEADER": "team",
    "GITHUB_TOKEN": "gh",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(
        '[model.mine]\nenv_key = "OPENAI_API_KEY"\nenv_http_headers = { "X-Team" = "TEAM_HEADER" }\n'
        '[mcp_servers.git]\ncommand = "git-mcp"\n'
        'env = { TOKEN = "${GITHUB_TOKEN}", H = "$GROK_GATEWAY_HOME" }\n'
    )
    return tmp_path


def test_a_leader_sees_the_shell_its_key_and_what_the_users_configuration_names(home: Path) -> None:
    env = leader_environment(home, False, {**SHELL, **SECRETS, "XAI_API_KEY": "xai"})
    assert {k: env[k] for k in SHELL} == SHELL
    assert env["XAI_API_KEY"] == "xai"
    assert (env["OPENAI_API_KEY"], env["TEAM_HEADER"], env["GITHUB_TOKEN"]) == ("sk-openai", "team", "gh")
    assert env["GROK_HOME"] == str(home)
    assert env["GROK_DISABLE_AUTOUPDATER"] == "1"
    assert env["GROK_TELEMETRY_ENABLED"] == "0"
    for name in ("AWS_SECRET_ACCESS_KEY", "GROK_GATEWAY_HOME", "GROK_LEADER_SOCKET", "GROK_SANDBOX"):
        assert name not in env


def test_the_default_home_is_read_but_not_named(home: Path) -> None:
    grok = home / ".grok"
    grok.mkdir()
    (home / "config.toml").rename(grok / "config.toml")
    env = leader_environment(None, False, {**SECRETS, "HOME": str(home)})
    assert env["OPENAI_API_KEY"] == "sk-openai"
    assert "GROK_HOME" not in env


def test_the_offline_leader_and_bridges_see_no_secret(home: Path) -> None:
    environ = {**SHELL, **SECRETS, "XAI_API_KEY": "xai", "GROK_CODE_XAI_API_KEY": "xai"}
    for env in (leader_environment(home, True, environ), bridge_environment(home, environ)):
        assert env["GROK_HOME"] == str(home)
        assert not set(env) & (set(SECRETS) | {"XAI_API_KEY", "GROK_CODE_XAI_API_KEY"})
    assert "HTTPS_PROXY" not in bridge_environment(home, environ)


def test_the_offline_home_follows_the_port(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "c", tmp_path / "s", tmp_path / "r")
    paths.create()
    with pytest.raises(EngineError, match="the offline model is not running yet"):
        write_offline_home(paths)
    paths.offline_port.write_text("nonsense")
    with pytest.raises(EngineError, match="the offline model is not running yet"):
        write_offline_home(paths)
    for port in (18080, 18081):
        paths.offline_port.write_text(str(port))
        write_offline_home(paths)
        config = tomllib.loads((paths.offline_home / "config.toml").read_text())
        assert config["model"]["offline"]["base_url"] == f"http://127.0.0.1:{port}/v1"
        assert config["models"]["default"] == "offline"
        assert config["features"]["telemetry"] is config["cli"]["auto_update"] is False
    assert stat.S_IMODE(paths.offline_home.stat().st_mode) == 0o700
    assert {entry.name for entry in paths.offline_home.iterdir()} == {"config.toml", "auth.json"}


def test_an_offline_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "c", tmp_path / "s", tmp_path / "r")
    paths.create()
    paths.offline_port.write_text("18080")
    paths.offline_home.write_text("a file in the way")
    with pytest.raises(EngineError, match=f"{paths.offline_home} cannot be written"):
        write_offline_home(paths)
