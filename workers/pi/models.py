"""The models that the engine offers, from the file that the gateway keeps, and what Pi asks of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from workers.pi.protocol import UserError

__all__ = ["Models"]


@dataclasses.dataclass(frozen=True, slots=True)
class Models:
    """``models`` are entries of the file; ``current`` is the engine's default."""

    current: str = ""
    models: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def load(cls, file: Path) -> Models:
        """Empty when the engine has not told anything yet."""
        try:
            data = orjson.loads(file.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            return cls()
        return cls.of(data)

    @classmethod
    def of(cls, data: Any) -> Models:
        """From the file's content."""
        models = data.get("models") if isinstance(data, dict) else None
        if not isinstance(models, list):
            return cls()
        entries = tuple(m for m in models if isinstance(m, dict) and isinstance(m.get("id"), str))
        return cls(str(data.get("current") or ""), entries)

    def get(self, model: str) -> Mapping[str, Any] | None:
        return next((m for m in self.models if m["id"] == model), None)

    def check(self, model: str) -> None:
        """Raises UserError for a model that the engine does not have."""
        if self.models and self.get(model) is None:
            names = ", ".join(m["id"] for m in self.models)
            raise UserError(f"Grok has no model {model!r} here. It has: {names}. Choose one with /model.")

    def window(self, model: str) -> int:
        """Tokens of a model's context, 0 if unknown."""
        value = (self.get(model) or {}).get("contextWindow")
        return value if isinstance(value, int) and value > 0 else 0

    def effort(self, model: str, level: str) -> str:
        """The reasoning effort for a thinking level of Pi; "" to leave the model's own."""
        reasoning = (self.get(model) or {}).get("reasoning")
        if not level or level == "off" or not isinstance(reasoning, dict):
            return ""
        listed = reasoning.get("efforts")
        efforts = [e.get("id") for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []
        return level if not efforts or level in efforts else ""
