"""The configuration: the real one's format, what is inherited, where keys come from, what stays hidden."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.limits import LIMITS, SIZES
from harness.model.endpoints import Catalog, ConfigError, Secret, load_catalog
from tests.engines.grok import MODEL, SECOND_MODEL, write_offline_config


def catalog(home: Path, text: str = "", environ: dict[str, str] | None = None) -> Catalog:
    (home / "config.toml").write_text(text)
    return load_catalog(home, environ or {})


def test_the_config_of_the_real_engine(tmp_path: Path) -> None:
    write_offline_config(tmp_path / "home", "http://127.0.0.1:1/v1")
    found = load_catalog(tmp_path / "home", {})
    assert list(found.endpoints) == [MODEL, SECOND_MODEL]
    first, second = found.endpoints.values()
    assert found.default == MODEL
    assert (first.model, first.name, first.url) == (
        "scripted-1",
        "Scripted",
        "http://127.0.0.1:1/v1/chat/completions",
    )
    assert first.key == Secret("none-needed")
    assert (first.efforts, second.effort, second.context_window) == ((), "medium", 100_000)
    assert found.find("scripted-2") is second


def test_no_configuration_no_models(tmp_path: Path) -> None:
    assert load_catalog(tmp_path, {}) == Catalog({}, None)


@pytest.mark.parametrize("variable", ["XAI_API_KEY", "GROK_CODE_XAI_API_KEY"])
def test_a_key_of_xai_is_enough(tmp_path: Path, variable: str) -> None:
    found = load_catalog(tmp_path, {variable: "xai-secret"})
    default = found.endpoints[found.default or ""]
    assert default.url == "https://api.x.ai/v1/chat/completions"
    assert default.key == Secret("xai-secret")
    assert (default.efforts, default.effort) == (("low", "medium", "high", "xhigh"), "high")


def test_a_key_in_the_auth_file(tmp_path: Path) -> None:
    scopes = {"https://auth.x.ai": {"key": "session-token"}, "xai::api_key": {"key": "xai-stored"}}
    (tmp_path / "auth.json").write_text(json.dumps(scopes))
    found = load_catalog(tmp_path, {})
    assert found.endpoints["grok-4.6"].key == Secret("xai-stored")


def test_the_key_of_xai_goes_to_xai_only(tmp_path: Path) -> None:
    text = '[model.o]\nbase_url="http://localhost:11434/v1"\n[model."grok-4.6"]\ntemperature=0.5\n'
    found = catalog(tmp_path, text, {"XAI_API_KEY": "xai-secret"})
    assert found.endpoints["o"].key is None
    own = found.endpoints["grok-4.6"]
    assert (own.key, own.temperature, own.context_window) == (Secret("xai-secret"), 0.5, 500_000)


@pytest.mark.parametrize(
    ("lines", "environ", "key"),
    [
        ('api_key="a-key-here"\nenv_key="K"', {"K": "other"}, "a-key-here"),
        ('env_key="K"', {"K": "from-env"}, "from-env"),
        ('env_key=["A","B"]', {"A": "", "B": "second"}, "second"),
        ('env_key="K"', {}, None),
    ],
)
def test_order_of_keys(tmp_path: Path, lines: str, environ: dict[str, str], key: str | None) -> None:
    found = catalog(tmp_path, f'[model.m]\nbase_url="http://h/v1"\n{lines}', environ).endpoints["m"]
    assert found.key == (Secret(key) if key else None)
    if key is None:
        assert "K is not set" in found.key_origin


def test_what_is_inherited(tmp_path: Path) -> None:
    text = """
[models]
temperature = 0.7
max_retries = 3
extra_headers = { "X-Tag" = "all", "X-Two" = "2" }
[model_providers.p]
base_url = "https://gateway.example/v1?a=1"
env_key = "P_KEY"
query_params = { api-version = "x y" }
env_http_headers = { "X-Tenant" = "TENANT", "X-Unset" = "NOT_SET" }
[model.m]
model_provider = "p"
temperature = 0.1
extra_headers = { "x-tag" = "mine" }
"""
    found = catalog(tmp_path, text, {"P_KEY": "p-secret", "TENANT": "t-secret"}).endpoints["m"]
    assert found.url == "https://gateway.example/v1/chat/completions?a=1&api-version=x+y"
    assert (found.temperature, found.max_retries) == (0.1, 3)
    assert {n: v.reveal() for n, v in found.headers.items()} == {
        "x-tag": "mine",
        "X-Two": "2",
        "X-Tenant": "t-secret",
    }
    assert found.idle_timeout == LIMITS.model_idle
    assert found.rate_limit_tries == SIZES.rate_limit_tries
    assert "p-secret" in list(found.secrets())


def test_no_print_shows_a_secret(tmp_path: Path) -> None:
    text = '[model.m]\nbase_url="http://h/v1"\napi_key="unseen-1"\nextra_headers={a="unseen-2"}'
    assert "unseen" not in repr(catalog(tmp_path, text))


def test_other_protocols_are_left_out_and_named(tmp_path: Path) -> None:
    text = '[model.a]\nbase_url="http://h/v1"\napi_backend="messages"\n[model.b]\nmodel="x"\n[model.c]\nbase_url="http://h/v1"'
    found = catalog(tmp_path, text)
    assert list(found.endpoints) == ["c"]
    assert found.default == "c"
    assert ["messages" in found.notes[0], "base_url" in found.notes[1]] == [True, True]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[model", "not valid TOML"),
        ('[model.m]\nbase_url="localhost:1"', "http://"),
        ('[model.m]\nbase_url="http://h"\nmodel_provider="p"', "'p'"),
        ('[model.m]\nbase_url="http://h"\ntemperature="warm"', "wrong type"),
        ("[model]\nm=1", "must be a table"),
    ],
)
def test_a_wrong_configuration_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        catalog(tmp_path, text)
