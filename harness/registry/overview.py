"""A toolset told as a whole: what is there, what goes without something, and why the rest is absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.registry.registry import Registry
from harness.registry.toolset import EffectiveTool, Toolset

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["grouped", "overview", "render"]


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


def render(document: Mapping[str, Any], console: Console) -> None:
    """The overview for a person."""
    from rich.padding import Padding

    rows = document["tools"]
    wide = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        console.print(f"{row['name']:<{wide}}  {row['id']}", soft_wrap=True)
        changes = "reads only" if row["read_only"] else "may change something"
        console.print(Padding(f"{row['kind']}, {changes}", (0, 0, 0, 4)))
        if row["inputs"]:
            console.print(Padding(", ".join(row["inputs"]), (0, 0, 0, 4)))
    for key, reason in document["concessions"].items():
        console.print(f"\n{key} goes without something: {reason}")
    for why, keys in grouped(document["absent"]).items():
        console.print(f"\nAbsent, {why}:")
        console.print(Padding(", ".join(keys), (0, 0, 0, 2)))
    for warning in document["warnings"]:
        console.print(f"\nWarning: {warning}")
