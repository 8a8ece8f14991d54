"""A client's own names for a tool's parameters, in the three places where they matter.

The schema that is offered and the texts in it carry the client's names, arguments are turned back before
the tool sees them, and inside the engine only canonical names exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["problems", "rename_schema", "to_canonical", "to_client"]

Renames = Mapping[str, str]


def problems(renames: Renames, properties: Iterable[str]) -> list[str]:
    """What is wrong with renames for these canonical properties; afterwards no two may share a name."""
    known = set(properties)
    found = [f"there is no parameter {name}" for name in renames if name not in known]
    taken = dict[str, str]()
    for name in properties:
        client = renames.get(name, name)
        if client in taken:
            found.append(f"{taken[client]} and {name} would both be called {client}")
        taken[client] = name
    return found


def to_canonical(arguments: Mapping[str, Any], renames: Renames) -> dict[str, Any]:
    """Arguments under canonical names; unknown keys pass, and the client's own name wins over another."""
    back = {client: name for name, client in renames.items()}
    result = {key: value for key, value in arguments.items() if key not in back}
    result.update({back[key]: value for key, value in arguments.items() if key in back})
    return result


def to_client(arguments: Mapping[str, Any], renames: Renames) -> dict[str, Any]:
    return {renames.get(key, key): value for key, value in arguments.items()}


def rename_schema(schema: Mapping[str, Any], renames: Renames) -> dict[str, Any]:
    """An object schema whose properties are called as the client does, also in its alternatives."""
    result = dict(schema)
    if "properties" in schema:
        result["properties"] = {renames.get(k, k): v for k, v in schema["properties"].items()}
    if "required" in schema:
        result["required"] = [renames.get(name, name) for name in schema["required"]]
    for key in ("oneOf", "anyOf", "allOf"):
        if key in schema:
            result[key] = [rename_schema(alternative, renames) for alternative in schema[key]]
    return result
