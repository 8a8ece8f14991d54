"""Differences between two normal forms, as precise as a line of a report can be."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Iterator
from typing import Any

from tests.fidelity.normal import Form

__all__ = ["Difference", "differences"]

_MISSING = object()


@dataclasses.dataclass(frozen=True)
class Difference:
    """At ``place`` the first engine has one thing and the second another ("—": nothing)."""

    order: str
    kind: str
    place: str
    first: str
    second: str

    def __str__(self) -> str:
        where = self.kind if self.order in (self.kind, "turn") else f"{self.order} | {self.kind}"
        return f"{where} | {self.place}: {self.first} ≠ {self.second}"


def differences(first: Form, second: Form) -> list[Difference]:
    """All differences, in the order of the first."""
    found: list[Difference] = []
    for order in dict.fromkeys((*first, *second)):
        found.extend(_of_order(order, first.get(order, []), second.get(order, [])))
    return found


def _of_order(order: str, first: list[Any], second: list[Any]) -> Iterator[Difference]:
    """Messages are paired by what they are, so that one too many is one difference and not fifty."""
    matcher = difflib.SequenceMatcher(
        None, [*map(_signature, first)], [*map(_signature, second)], autojunk=False
    )
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag == "equal":
            for one, other in zip(first[a:b], second[c:d], strict=True):
                for place, left, right in _of_value((), one, other):
                    yield Difference(order, one["kind"], " ".join(place), _shown(left), _shown(right))
            continue
        for one in first[a:b]:
            yield Difference(order, one["kind"], "whole message", _shown(one), "—")
        for other in second[c:d]:
            yield Difference(order, other["kind"], "whole message", "—", _shown(other))


def _signature(message: Any) -> tuple[str, ...]:
    params = message.get("params") or {}
    update = params.get("update", {}) if isinstance(params, dict) else {}
    if not isinstance(update, dict):
        update = {}
    call = update.get("toolCallId") or update.get("tool_call_id") or ""
    return message["kind"], str(call), str(update.get("status")), str(params.get("phase", ""))


def _of_value(path: tuple[str, ...], first: Any, second: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if type(first) is not type(second):
        yield path, first, second
    elif isinstance(first, dict):
        for key in dict.fromkeys((*first, *second)):
            yield from _of_value((*path, key), first.get(key, _MISSING), second.get(key, _MISSING))
    elif isinstance(first, list) and len(first) == len(second):
        for place, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from _of_value((*path, str(place)), one, other)
    elif first != second:
        yield path, first, second


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "—"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else f"{text[:200]} … {text[-180:]}"
