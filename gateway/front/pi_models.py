"""Models as Pi's `registerProvider` takes them, so that Pi's extension has nothing to decide.

docs/pi-protocol.md says why the numbers are what they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["SHIPPED", "for_pi"]

#: Pi's thinking levels.
_LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
#: For a model that reasons and lists no efforts.
_UNLISTED = ("low", "medium", "high")

#: Tokens of a context whose size the engine does not tell.
_WINDOW = 256_000
#: Pi compares with 16 384 less than the window, and adds an estimate of what is new.
_ROOM = 32_768


def for_pi(model: Mapping[str, Any]) -> dict[str, Any]:
    """From an entry of the models file."""
    shape: dict[str, Any] = {
        "id": model["id"],
        "name": model.get("name") or model["id"],
        "reasoning": model.get("reasoning") is not None,
        "input": ["text", "image"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": (model.get("contextWindow") or _WINDOW) + _ROOM,
        "maxTokens": 0,
    }
    if reasoning := model.get("reasoning"):
        efforts = [effort["id"] for effort in reasoning["efforts"]] or _UNLISTED
        shape["thinkingLevelMap"] = {level: level if level in efforts else None for level in _LEVELS}
    return shape


_KNOWN = ("grok-4.7", "grok-4.7-build-fast", "grok-4.6", "grok-4.5")
_EFFORTS = [{"id": effort} for effort in ("low", "medium", "high", "xhigh")]

#: What the extension offers until the gateway has run once; `shipped.json` beside it has the same.
SHIPPED = [for_pi({"id": name, "reasoning": {"efforts": _EFFORTS}}) for name in _KNOWN]
