"""From the text that a model wrote as arguments to values that a tool can take.

Models write numbers as strings, ``"true"`` for true, null for what they leave out, and sometimes several
objects in a row.  What can be meant in one way only is understood; everything else is refused with a text
that names the parameter as the client calls it, says what was expected and shows what came.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import fastjsonschema

from harness.registry.contract import ToolSpec

__all__ = ["ArgumentError", "adapt", "check_params", "read_objects"]

_TRUE = frozenset({"true", "yes", "1"})
_FALSE = frozenset({"false", "no", "0"})
#: Longer numbers in quotes are no mistake of spelling.
_DIGITS = 40
_WHOLE = re.compile(r"[+-]?\d+(?:\.0*)?")
_HALF = re.compile(r"\\u[dD][89a-fA-F]|[\ud800-\udfff]")
_NULL = object()


class ArgumentError(ValueError):
    """Arguments that cannot be used; the text says which and why."""


# -- the text --------------------------------------------------------------------------------------


def read_objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects of a text: one, or several without anything between them.  No text is no arguments."""
    objects = list[dict[str, Any]]()
    position, text = 0, text.strip()
    while position < len(text):
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"they are not valid JSON ({_where(error)})") from error
        if not isinstance(value, dict):
            raise ArgumentError(f"they must be one JSON object, not {_shown(value)}")
        objects.append(value)
        while position < len(text) and text[position].isspace():
            position += 1
    if _HALF.search(text):
        _refuse_halves(objects)
    return objects or [{}]


def _where(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        column = error.colno - (error.pos >= len(error.doc))  # at the end: the last character that was read
        return f"{error.msg}, line {error.lineno} column {column}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _finite(text: str) -> float:
    """A number as Python reads it, but not one that JSON could not write again."""
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text[:20]} is no number of JSON")
    return value


def _refuse_halves(objects: list[dict[str, Any]]) -> None:
    """An escape that is half of a character: it could neither be written to a file nor sent on."""
    try:
        json.dumps(objects, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ArgumentError("they are not valid JSON (an escape is half of a character)") from error


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


# -- the values ------------------------------------------------------------------------------------


def adapt(spec: ToolSpec, arguments: Mapping[str, Any], called: Callable[[str], str] = str) -> dict[str, Any]:
    """Canonical arguments as the tool's schema wants them, or `ArgumentError`.

    Only what was given comes out: defaults belong to the tool, and a client shows what the model said.
    """
    if spec.verbatim:
        return dict(arguments)
    result = {spec.aliases.get(key, key): value for key, value in arguments.items()}
    result = {key: value for key, value in result.items() if key in spec.input_properties}
    for key in spec.scalar_lists & result.keys():
        result[key] = _as_list(result[key])
    try:
        coerced = _coerce(result, spec.input_schema)
        _validate(spec.input_schema, coerced, called)
    except RecursionError as error:
        raise ArgumentError("they are nested too deeply") from error
    assert isinstance(coerced, dict)
    return coerced


def check_params(spec: ToolSpec, params: Mapping[str, Any]) -> None:
    """Configuration parameters are checked as they are: a program wrote them."""
    if not spec.open_params and (unknown := sorted(params.keys() - spec.params_schema.get("properties", {}))):
        raise ArgumentError(f"there is no parameter {unknown[0]}")
    _validate(spec.params_schema or {"type": "object"}, params, str)


def _as_list(value: Any) -> Any:
    """A list of texts from a list, a single text or a number."""
    items = [value] if isinstance(value, str | int) and not isinstance(value, bool) else value
    if not isinstance(items, list):
        return items
    return [str(item) if isinstance(item, int) and not isinstance(item, bool) else item for item in items]


def _coerce(value: Any, schema: Mapping[str, Any]) -> Any:
    """A value that says unmistakably the same in the type that is wanted; others stay as they are."""
    wanted = _types(schema)
    if value is None:
        return False if "boolean" in wanted and "null" not in wanted else _NULL
    if isinstance(value, dict):
        return _coerce_object(value, schema)
    if isinstance(value, list):
        items = schema.get("items", {})
        return [None if (v := _coerce(item, items)) is _NULL else v for item in value]
    if "integer" in wanted and "string" not in wanted:
        return _whole(value)
    if "number" in wanted and "string" not in wanted and isinstance(value, str):
        return _number(value)
    if "boolean" in wanted and "string" not in wanted:
        return _truth(value)
    return value


def _coerce_object(value: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Null for an optional property means that it was left out; a required one keeps it and is refused."""
    properties, required = schema.get("properties", {}), schema.get("required", ())
    result = dict[str, Any]()
    for key, item in value.items():
        coerced = _coerce(item, properties[key]) if key in properties else item
        if coerced is not _NULL:
            result[key] = coerced
        elif key in required:
            result[key] = None
    return result


def _whole(value: Any) -> Any:
    if isinstance(value, str) and len(value) <= _DIGITS and _WHOLE.fullmatch(value.strip()):
        return int(value.strip().partition(".")[0])
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number(value: str) -> Any:
    try:
        return _finite(value)
    except ValueError:
        return value


def _truth(value: Any) -> Any:
    word = str(value).strip().lower() if isinstance(value, str | int) else value
    return True if word in _TRUE else False if word in _FALSE else value


def _types(schema: Mapping[str, Any]) -> frozenset[str]:
    declared = schema.get("type", ())
    return frozenset([declared] if isinstance(declared, str) else declared)


# -- validation ------------------------------------------------------------------------------------


def _validate(schema: Mapping[str, Any], value: Any, called: Callable[[str], str]) -> None:
    try:
        _compiled(json.dumps(schema, default=dict))(value)
    except fastjsonschema.JsonSchemaValueException as error:
        raise ArgumentError(_told(error, called)) from error


@lru_cache(maxsize=256)
def _compiled(schema: str) -> Callable[[Any], Any]:
    check: Callable[[Any], Any] = fastjsonschema.compile(
        json.loads(schema), use_default=False, use_formats=False
    )
    return check


def _told(error: fastjsonschema.JsonSchemaValueException, called: Callable[[str], str]) -> str:
    place = _place(error.path, called)
    value = error.value
    if error.rule == "required":
        absent = [name for name in error.rule_definition if name not in value]
        names = ", ".join(f"`{_joined(place, called(name) if not place else name)}`" for name in absent)
        return f"{names} is missing" if len(absent) == 1 else f"{names} are missing"
    subject = f"`{place}`" if place else "the value"
    if error.rule == "type":
        return f"{subject} must be {_kinds(error.rule_definition)}, not {_shown(value)}"
    if error.rule == "enum":
        return f"{subject} must be one of {', '.join(map(str, error.rule_definition))}, not {_shown(value)}"
    return f"{subject} is not allowed: {error.message.partition(' ')[2]} ({_shown(value)} came)"


def _place(path: list[str], called: Callable[[str], str]) -> str:
    """``["data", "todos", "0", "id"]`` as ``todos[0].id``, its first step in the client's words."""
    place = ""
    for i, step in enumerate(path[1:]):
        name = called(step) if i == 0 else step
        place += f"[{name}]" if place and step.isdigit() else f".{name}" if place else name
    return place


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _kinds(types: str | list[str]) -> str:
    words = {
        "integer": "a whole number",
        "number": "a number",
        "string": "a string",
        "boolean": "true or false",
        "array": "a list",
        "object": "an object",
    }
    listed = [types] if isinstance(types, str) else types
    return " or ".join(words[name] for name in listed if name in words)


def _shown(value: Any) -> str:
    """A value as it was written, cut when it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:79]}…"
