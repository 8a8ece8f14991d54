"""Permission modes: how much is asked of what neither a rule nor a grant decides."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

__all__ = ["Mode", "parse_mode"]


class Mode(StrEnum):
    DEFAULT = "default"
    ACCEPT_EDITS = "acceptEdits"
    PLAN = "plan"
    AUTO = "auto"
    DONT_ASK = "dontAsk"
    BYPASS = "bypassPermissions"


_NAMES: Mapping[str, Mode] = {
    **{mode.value.lower(): mode for mode in Mode},
    "ask": Mode.DEFAULT,
    "always-approve": Mode.BYPASS,
    "yolo": Mode.BYPASS,
    "accept-edits": Mode.ACCEPT_EDITS,
    "dont-ask": Mode.DONT_ASK,
}


def parse_mode(name: object) -> Mode | None:
    """A mode by any of its names; None for a name that is none (then what holds already stays)."""
    return _NAMES.get(name.lower()) if isinstance(name, str) else None
