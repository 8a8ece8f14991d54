"""Which Pi it is whose program somebody names."""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["version_of"]


def version_of(program: str) -> str:
    """The version of the Pi package that ``program`` is a file of; "" if it is of none."""
    for folder in Path(program).resolve().parents if program else ():
        try:
            package = json.loads((folder / "package.json").read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(package, dict) and str(package.get("name")).endswith("/pi-coding-agent"):
            return str(package.get("version") or "")
    return ""
