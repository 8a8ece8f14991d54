"""The list of models that the engine offers, for everybody who wants to show or choose one.

The file (`Paths.models_file`) is replaced whole whenever the list changes::

    {"current": "grok-4.6",
     "models": [{"id": "grok-4.6", "name": "Grok 4.6", "description": "…", "contextWindow": 500000,
                 "reasoning": {"default": "high", "efforts": [{"id": "high", "label": "High Effort"}]}}],
     "pi": [the same models as Pi's `registerProvider` takes them]}

``reasoning`` is null for a model that does not reason; ``efforts`` is empty when the engine lists none.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from gateway.front.pi_models import for_pi

__all__ = ["model_list", "write_models"]


def model_list(state: Any) -> dict[str, Any] | None:
    """The file's content from the engine's model state; None for anything else.

    ``state`` is ``{currentModelId, availableModels: [{modelId, name, description?, _meta}]}``.
    """
    if not isinstance(state, Mapping) or not isinstance(state.get("availableModels"), list):
        return None
    models = [_model(entry) for entry in state["availableModels"] if isinstance(entry, Mapping)]
    models = [model for model in models if model["id"]]
    return {"current": state.get("currentModelId"), "models": models, "pi": list(map(for_pi, models))}


def _model(entry: Mapping[str, Any]) -> dict[str, Any]:
    meta = entry.get("_meta")
    meta = meta if isinstance(meta, Mapping) else {}
    return {
        "id": entry.get("modelId"),
        "name": entry.get("name") or entry.get("modelId"),
        "description": entry.get("description") or "",
        "contextWindow": meta.get("totalContextTokens"),
        "reasoning": _reasoning(meta) if meta.get("supportsReasoningEffort") else None,
    }


def _reasoning(meta: Mapping[str, Any]) -> dict[str, Any]:
    efforts = meta.get("reasoningEfforts")
    listed = [e for e in efforts if isinstance(e, Mapping)] if isinstance(efforts, list) else []
    return {
        "default": meta.get("reasoningEffort"),
        "efforts": [{"id": e.get("value") or e.get("id"), "label": e.get("label") or ""} for e in listed],
    }


def write_models(file: Path, models: Mapping[str, Any]) -> None:
    """Replace the file.  Raises OSError."""
    partial = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as stream:  # noqa: PTH123 (a descriptor, not a path)
            stream.write(orjson.dumps(models, option=orjson.OPT_INDENT_2))
        partial.rename(file)
    finally:
        partial.unlink(missing_ok=True)
