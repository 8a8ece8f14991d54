"""Parameters of a client's request, and times in its answers."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

__all__ = ["field", "iso_time", "strings"]


def field(params: Mapping[str, Any], name: str, kind: type) -> Any:
    if name not in params:
        raise ValueError(f"missing field `{name}`")
    if not isinstance(params[name], kind) or (kind is int and isinstance(params[name], bool)):
        raise ValueError(f"field `{name}` has the wrong type")
    return params[name]


def strings(params: Mapping[str, Any], name: str) -> list[str]:
    value = params.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"field `{name}` has the wrong type")
    return value


def iso_time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()
