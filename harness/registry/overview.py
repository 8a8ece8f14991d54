"""A toolset told as a whole: what is there, what goes without something, and why the rest is absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.registry.registry import Registry
from harness.registry.toolset import EffectiveTool, Toolset

__all__ = ["grouped", "overview"]


def overview(toolset: Toolset, registry: Registry, listed: Sequence[str]) -> dict[str, Any]:
    """What is there, what goes without something, and what is absent; ready for JSON."""
    keys = dict.fromkeys((*registry.keys, *listed))
    reasons = {key: reason for key in keys if (reason := toolset.why_absent(key)) is not None}
    return {
        "mode": str(toolset.mode),
        "offers": sorted(toolset.contract.offers),
        "tools": [_row(tool) for tool in toolset.tools],
        "concessions": {key: str(reason) for key, reason in toolset.concessions.items()},
        "absent": {key: {"stage": one.stage, "reason": one.text} for key, one in reasons.items()},
        "warnings": list(toolset.warnings),
    }


def _row(tool: EffectiveTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "id": tool.spec.key,
        "kind": str(tool.spec.kind),
        "read_only": tool.spec.is_read_only,
        "inputs": list(tool.schema.get("properties", {})),
        "params": dict(tool.params),
    }


def grouped(absent: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """The absent tools by what they have in common."""
    groups = dict[str, list[str]]()
    for key, one in absent.items():
        why = "because this engine has no such tool" if one["stage"] == "unregistered" else one["reason"]
        groups.setdefault(why, []).append(key)
    return groups
