from __future__ import annotations

from pathlib import Path

import pytest

from gateway.paths import Paths
from gateway.settings import SettingError, Settings


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths.from_environment({"GROK_GATEWAY_HOME": str(tmp_path)})
    made.create()
    return made


def test_flag_beats_environment_beats_file_beats_default(paths: Paths) -> None:
    assert Settings.load(paths, {}).port == 2419
    paths.config_file.write_text("port = 1001\nengine = 'grok'\n")
    assert Settings.load(paths, {}).port == 1001
    environment = {"GROK_GATEWAY_PORT": "1002"}
    assert Settings.load(paths, environment).port == 1002
    assert Settings.load(paths, environment, {"port": 1003, "engine": None}).port == 1003
    assert Settings.load(paths, environment).engine == "grok"


def test_there_are_always_two_workers() -> None:
    assert 2 <= Settings().workers <= 4


def test_both_names_of_the_binary(paths: Paths) -> None:
    assert Settings.load(paths, {"PI_GROK_BINARY": "/a"}).grok == "/a"
    assert Settings.load(paths, {"PI_GROK_BINARY": "/a", "GROK_GATEWAY_GROK": "/b"}).grok == "/b"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GROK_GATEWAY_PORT", "0"),
        ("GROK_GATEWAY_PORT", "65536"),
        ("GROK_GATEWAY_PORT", "http"),
        ("GROK_GATEWAY_WORKERS", "1"),
        ("GROK_GATEWAY_WORKERS", "65"),
        ("GROK_GATEWAY_ENGINE", "other"),
    ],
)
def test_a_bad_variable_is_named_with_what_is_allowed(paths: Paths, name: str, value: str) -> None:
    with pytest.raises(SettingError, match=rf"{name} = '{value}': must be "):
        Settings.load(paths, {name: value})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port =", "not valid TOML"),
        ("port = true", "port = True: must be a number"),
        ("prot = 1", "unknown key 'prot'; allowed are port"),
        ("guard = 5", "guard = 5: must be a table"),
        ("[guard]\nackMs = 9e9", r"guard\.ackMs"),
        ("\udcff", "not valid TOML"),
    ],
)
def test_a_bad_file_is_named(paths: Paths, text: str, said: str) -> None:
    paths.config_file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SettingError, match=said):
        Settings.load(paths, {})


def test_an_empty_variable_is_none(paths: Paths) -> None:
    assert Settings.load(paths, {"GROK_GATEWAY_PORT": ""}).port == 2419


def test_guard_settings_make_the_table_and_the_scale_comes_on_top(paths: Paths) -> None:
    paths.config_file.write_text("[guard]\ndialogMs = 550000\n")
    table = Settings.load(paths, {}).limits({"GROK_GATEWAY_GUARD_SCALE": "0.1"})
    assert table.dialog == pytest.approx(55)
    with pytest.raises(SettingError, match="GROK_GATEWAY_GUARD_SCALE"):
        Settings.load(paths, {"GROK_GATEWAY_GUARD_SCALE": "7"})
