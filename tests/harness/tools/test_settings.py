"""A person's settings become parameters of tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import tool_settings
from harness.registry.capabilities import CapabilityMode
from harness.registry.config import ToolConfig, ToolServerConfig
from harness.registry.presets import DEFAULT, preset
from harness.tools import default_registry


def params(config: ToolServerConfig) -> dict[str, dict[str, Any]]:
    return {tool.id: dict(tool.params) for tool in config.tools if tool.params}


def test_settings_reach_every_tool_that_has_the_parameter(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        "[tools]\nrespect_gitignore = true\n[toolset.ask_user_question]\ntimeout_secs = 5\n"
    )
    registry = default_registry()
    config = tool_settings.configured(preset(DEFAULT, registry), tool_settings.load(tmp_path))
    toolset = registry.compose(config, CapabilityMode.ALL)
    by_key = {tool.spec.key: tool.params for tool in toolset.tools}
    for name in ("read_file", "search_replace", "list_dir"):
        assert by_key[f"GrokBuild:{name}"]["respect_gitignore"] is True
    assert by_key["GrokBuild:ask_user_question"]["timeout_secs"] == 5


def test_what_a_toolset_says_itself_holds() -> None:
    config = ToolServerConfig((ToolConfig("GrokBuild:list_dir", {"respect_gitignore": False}),))
    assert tool_settings.configured(config, {"tools": {"respect_gitignore": True}}) == config


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"tools": 1},
        {"tools": {"respect_gitignore": "yes"}},
        {"toolset": {"ask_user_question": []}},
        {"toolset": {"ask_user_question": {"timeout_secs": True}}},
        {"toolset": {"ask_user_question": {"timeout_secs": -1}}},
    ],
)
def test_what_does_not_fit_says_nothing(settings: dict[str, Any]) -> None:
    config = preset(DEFAULT, default_registry())
    assert tool_settings.configured(config, settings) == config


@pytest.mark.parametrize("content", [None, b"[tools", b"\xff"])
def test_a_file_that_cannot_be_read_says_nothing(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "config.toml").write_bytes(content)
    assert tool_settings.load(tmp_path) == {}
