from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from gateway.front.models import model_list, write_models

STATE = {
    "currentModelId": "grok-4.6",
    "availableModels": [
        {
            "modelId": "grok-4.6",
            "name": "Grok 4.6",
            "description": "the latest",
            "_meta": {
                "totalContextTokens": 500000,
                "supportsReasoningEffort": True,
                "reasoningEffort": "high",
                "reasoningEfforts": [
                    {"id": "xhigh", "value": "xhigh", "label": "Extra High Effort", "default": False},
                    {"id": "high", "value": "high", "label": "High Effort", "default": True},
                ],
            },
        },
        {"modelId": "plain", "name": "Plain", "_meta": {"totalContextTokens": 200000}},
        {
            "modelId": "unlisted",
            "_meta": {"supportsReasoningEffort": True, "reasoningEffort": "medium"},
        },
    ],
}


def test_windows_and_efforts() -> None:
    models = model_list(STATE)
    assert models is not None
    assert models["current"] == "grok-4.6"
    first, plain, unlisted = models["models"]
    assert first == {
        "id": "grok-4.6",
        "name": "Grok 4.6",
        "description": "the latest",
        "contextWindow": 500000,
        "reasoning": {
            "default": "high",
            "efforts": [
                {"id": "xhigh", "label": "Extra High Effort"},
                {"id": "high", "label": "High Effort"},
            ],
        },
    }
    assert (plain["contextWindow"], plain["reasoning"]) == (200000, None)
    assert unlisted["name"] == "unlisted"
    assert unlisted["reasoning"] == {"default": "medium", "efforts": []}


@pytest.mark.parametrize("state", [None, [], "x", {}, {"availableModels": {}}])
def test_anything_else_is_no_list(state: Any) -> None:
    assert model_list(state) is None


def test_entries_that_make_no_sense_are_left_out() -> None:
    odd = [None, 1, {}, {"modelId": "a", "_meta": []}, {"modelId": "b", "_meta": {"reasoningEfforts": 1}}]
    models = model_list({"availableModels": odd})
    assert models is not None
    assert [m["id"] for m in models["models"]] == ["a", "b"]


def test_the_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    for current in ("a", "b"):
        write_models(file, {"current": current, "models": []})
        assert json.loads(file.read_text()) == {"current": current, "models": []}
    assert os.listdir(tmp_path) == ["models.json"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(OSError, match="No such file"):
        write_models(tmp_path / "missing" / "models.json", {})


def test_pi_gets_them_in_its_own_shape() -> None:
    models = model_list(STATE)
    assert models is not None
    first, plain, unlisted = models["pi"]
    assert (first["name"], first["contextWindow"], first["maxTokens"]) == ("Grok 4.6", 500000 + 32768, 0)
    levels = {"high": "high", "xhigh": "xhigh"}
    assert {k: v for k, v in first["thinkingLevelMap"].items() if v} == levels
    assert first["thinkingLevelMap"]["off"] is None, "Pi would offer a level that is not named"
    assert not plain["reasoning"]
    assert "thinkingLevelMap" not in plain
    assert [k for k, v in unlisted["thinkingLevelMap"].items() if v] == ["low", "medium", "high"]
    assert unlisted["contextWindow"] == 256000 + 32768
