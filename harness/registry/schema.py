"""From the schema that a tool declares to the one that is offered to the model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from harness.registry.contract import ToolSpec
from harness.registry.renames import rename_schema
from harness.registry.requirements import Situation, holds
from harness.registry.templates import placeholders

__all__ = ["offered_properties", "offered_schema"]

DRAFT = "http://json-schema.org/draft-07/schema#"

#: The figure that is a bound of the property whose description names it, not only a remark.
_BOUND = "max_wait_ms"


def offered_properties(spec: ToolSpec, params: Mapping[str, Any]) -> frozenset[str]:
    """The canonical input properties that a tool offers under these parameters."""
    own = Situation((), params, frozenset())
    return frozenset(
        name
        for name in spec.input_properties
        if name not in spec.unadvertised
        and (name not in spec.input_when or holds(spec.input_when[name], own))
    )


def offered_schema(
    spec: ToolSpec,
    params: Mapping[str, Any],
    renames: Mapping[str, str],
    text: Callable[[str], str],
) -> dict[str, Any]:
    """The schema as the client sees it; ``text`` renders a template."""
    if spec.verbatim:
        return copy.deepcopy(dict(spec.input_schema))
    declared = copy.deepcopy(dict(spec.input_schema))
    offered = offered_properties(spec, params)
    schema: dict[str, Any] = {"$schema": DRAFT, "type": "object"}
    schema |= {k: v for k, v in declared.items() if k not in ("title", "description")}
    schema["properties"] = {
        name: _described(value, spec, params, text)
        for name, value in declared.get("properties", {}).items()
        if name in offered
    }
    schema["required"] = [name for name in declared.get("required", ()) if name in offered]
    if spec.shape is not None:
        spec.shape(schema, params)
    return rename_schema(schema, renames)


def _described(value: Any, spec: ToolSpec, params: Mapping[str, Any], text: Callable[[str], str]) -> Any:
    """A subschema with its descriptions rendered, at every depth."""
    if isinstance(value, list):
        return [_described(item, spec, params, text) for item in value]
    if not isinstance(value, dict):
        return value
    result = {key: _described(item, spec, params, text) for key, item in value.items()}
    description = value.get("description")
    if isinstance(description, str):
        result["description"] = text(description)
        bound = params.get(_BOUND, spec.figures.get(_BOUND))
        if _BOUND in placeholders(description) and bound is not None:
            result["maximum"] = bound
    return result
