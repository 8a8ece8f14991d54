"""Proof that the comparison sees: every value of a recording that no rule names is deleted, changed, swapped.

A mutation that the comparison does not see is a hole in it.  Mutated is the recording as it came from the
wire, before any normalising.  What a rule treats is mutated as far as the treatment promises to see it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.fidelity.compare import differences
from tests.fidelity.normal import Normaliser, first_query, kinds
from tests.fidelity.normaliser import FOREIGN_CALLS, TOOLS, Treatment, treatment
from tests.fidelity.play import Recording
from tests.fidelity.scenario import Scenario

__all__ = ["unseen"]

Path = tuple[str | int, ...]


def unseen(scenario: Scenario, recording: Recording) -> list[str]:
    """Descriptions of the mutations that make no difference; empty: the comparison sees everything."""
    raw = json.loads(json.dumps(recording.as_json()))
    return [*_within_messages(scenario, raw), *_of_lines(scenario, raw), *_of_the_rest(scenario, raw)]


def _normaliser(scenario: Scenario, raw: dict[str, Any]) -> Normaliser:
    return Normaliser(raw, scenario.rules, scenario.distinct, opening=scenario.number == 0)


# -- values inside a message -----------------------------------------------------------------------
def _within_messages(scenario: Scenario, raw: dict[str, Any]) -> Iterator[str]:
    """Of each kind and shape of message, one: its values are independent of the other messages."""
    normaliser = _normaliser(scenario, raw)
    whole = normaliser.form()  # gives the ids their numbers
    compared = {entry["kind"] for order in whole.values() for entry in order}
    seen = set[str]()
    for kind, message in (pair for lines in (raw["lines"], *raw["others"]) for pair in kinds(lines)):
        if kind not in compared:
            continue
        shape = kind + json.dumps([*map(str, _shape(message))])
        if shape in seen:
            continue
        seen.add(shape)
        normal = normaliser.message(kind, message)
        for text, mutated in _mutations(kind, message, scenario):
            if _same(normal, partial(normaliser.message, kind, mutated)):
                yield f"{kind}: {text}"
    yield from _within_calls(scenario, raw, normaliser)


def _within_calls(scenario: Scenario, raw: dict[str, Any], normaliser: Normaliser) -> Iterator[str]:
    """The new messages of each request at the model's endpoint; the other fields of the first one."""
    before: dict[str, list[Any]] = {}
    for call in raw["calls"]:
        kind = f"model {call['kind']}"
        if kind in FOREIGN_CALLS:
            continue
        body, known = call["body"], before.get(kind, [])
        normal = normaliser.call(kind, call, known)
        for place in range(max(len(known), first_query(body["messages"])), len(body["messages"])):
            for text, message in _mutations(
                kind, body["messages"][place], scenario, ("body", "messages", str(place))
            ):
                messages = [*body["messages"][:place], message, *body["messages"][place + 1 :]]
                other = {**call, "body": {**body, "messages": messages}}
                if _same(normal, partial(normaliser.call, kind, other, known)):
                    yield f"{kind}: {text}"
        if not known:
            for text, mutated in _mutations(kind, _frame(call, scenario), scenario):
                if _same(normal, partial(_framed_call, normaliser, kind, mutated, call, known)):
                    yield f"{kind}: {text}"
        before[kind] = body["messages"]


def _same(normal: Any, other: Callable[[], Any]) -> bool:
    """Whether the mutated message has the same normal form; one that has none at all is seen, too."""
    try:
        return bool(other() == normal)
    except (AttributeError, KeyError, TypeError):
        return False


def _framed_call(
    normaliser: Normaliser, kind: str, mutated: dict[str, Any], call: dict[str, Any], known: list[Any]
) -> Any:
    """The normal form of the request with a mutated frame (`_frame`) around its messages."""
    body = mutated["body"]
    tools = [*body.get("tools", {}).values()]
    other = {**mutated, "body": {**body, "messages": call["body"]["messages"], "tools": tools}}
    return normaliser.call(kind, other, known)


def _frame(call: dict[str, Any], scenario: Scenario) -> dict[str, Any]:
    """A request without its messages; with the tools, by name, where those are compared."""
    body = {key: value for key, value in call["body"].items() if key not in ("messages", "tools")}
    if scenario.number == 0:
        tools = {tool["function"]["name"]: tool for tool in call["body"].get("tools", [])}
        body["tools"] = {name: tool for name, tool in tools.items() if name in TOOLS}
    return {"outcome": call["outcome"], "headers": call["headers"], "body": body}


def _shape(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _shape(entry, (*path, key))
    elif isinstance(value, list):
        for entry in value[:1]:
            yield from _shape(entry, (*path, "*"))
    else:
        yield path


def _mutations(kind: str, message: Any, scenario: Scenario, root: Path = ()) -> Iterator[tuple[str, Any]]:
    """(description, mutated message) for each place the comparison must look at."""
    for path, value in _places(message):
        where = tuple(map(str, (*root, *path)))
        treated = _treatment(kind, where, scenario)
        if treated is Treatment.DROPPED:
            continue
        name = " ".join(where)
        yield f"{name} deleted", _without(message, path)
        changed = _changed(value, treated)
        if changed is not None:
            yield f"{name} changed", _with(message, path, changed)
        if treated is None and not isinstance(value, dict | list):
            other = next(
                (p for p, v in _places(message) if _swappable(kind, root, path, value, p, v, scenario)), None
            )
            if other is not None:
                swapped = _with(_with(message, path, _at(message, other)), other, value)
                yield f"{name} swapped with {other[-1]}", swapped


def _swappable(
    kind: str, root: Path, path: Path, value: Any, other: Path, entry: Any, scenario: Scenario
) -> bool:
    if other == path or type(entry) is not type(value) or entry == value or other[:-1] != path[:-1]:
        return False
    return _treatment(kind, tuple(map(str, (*root, *other))), scenario) is None


def _treatment(kind: str, path: tuple[str, ...], scenario: Scenario) -> Treatment | None:
    """The first treatment on the way to a place: what is dropped or worded above it decides."""
    for end in range(1, len(path) + 1):
        rule = treatment(kind, path[:end], scenario.rules)
        if rule is None:
            continue
        if rule.treatment in (Treatment.CONFIGURED, Treatment.UNORDERED):
            return Treatment.DROPPED  # lists whose entries are picked or sorted: seen by `_of_lists`
        return rule.treatment
    return None


def _places(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield (*path, key), entry
            yield from _places(entry, (*path, key))
    elif isinstance(value, list):
        if value and all(isinstance(entry, int) for entry in value):
            return  # bytes: the list is one value
        for place, entry in enumerate(value[:3]):
            yield (*path, place), entry
            yield from _places(entry, (*path, place))


def _changed(value: Any, treated: Treatment | None) -> Any:
    """Another value that the comparison must tell from this one; None: there is no such promise."""
    if treated in (Treatment.FLOOD, Treatment.DROPPED):
        return None
    if treated is Treatment.TYPED:
        return [] if value is not None else None
    if treated is Treatment.WORDED:
        return f"{value} 7654321" if isinstance(value, str) else None
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}x" if value else "x"
        case None:
            return "x"
        case list():
            return [*value, 120] if all(isinstance(entry, int) for entry in value) else [*value, "x"]
        case _:
            return {**value, "x": 1}


def _at(message: Any, path: Path) -> Any:
    for key in path:
        message = message[key]
    return message


def _with(message: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    copied = copy.copy(message)
    copied[path[0]] = _with(message[path[0]], path[1:], value)
    return copied


def _without(message: Any, path: Path) -> Any:
    copied = copy.copy(message)
    if len(path) == 1:
        del copied[path[0]]
        return copied
    copied[path[0]] = _without(message[path[0]], path[1:])
    return copied


# -- whole messages ----------------------------------------------------------------------------------
def _of_lines(scenario: Scenario, raw: dict[str, Any]) -> Iterator[str]:
    """Each message of the normal form missing, doubled, or changing places with the next one that differs."""
    form = _normaliser(scenario, raw).form()
    for order, messages in form.items():
        for place, message in enumerate(messages):
            rest = [*messages[:place], *messages[place + 1 :]]
            if not differences({order: messages}, {order: rest}):
                yield f"{order}: {message['kind']} missing"
            if not differences({order: messages}, {order: [*messages[:place], message, *messages[place:]]}):
                yield f"{order}: {message['kind']} twice"
            if place and messages[place - 1] != message:
                swapped = [*messages[: place - 1], message, messages[place - 1], *messages[place + 1 :]]
                if not differences({order: messages}, {order: swapped}):
                    yield f"{order}: {message['kind']} before {messages[place - 1]['kind']}"


# -- files, facts, processes ---------------------------------------------------------------------------
def _of_the_rest(scenario: Scenario, raw: dict[str, Any]) -> Iterator[str]:
    first = {"afterwards": _normaliser(scenario, raw).form()["afterwards"]}
    changed = [
        ("exit", {**raw, "exit": 99}),
        ("failure", {**raw, "failure": "x"}),
        ("left", {**raw, "left": [*raw["left"], "x"]}),
        ("noise", {**raw, "noise": [*raw["noise"], "x"]}),
        *((f"fact {name}", {**raw, "facts": {**raw["facts"], name: "x"}}) for name in raw["facts"]),
    ]
    for name, content in raw["files"].items():
        rest = {other: value for other, value in raw["files"].items() if other != name}
        changed.append((f"file {name} deleted", {**raw, "files": rest}))
        changed.append(
            (f"file {name} changed", {**raw, "files": {**raw["files"], name: {**content, "mode": "0"}}})
        )
        other_text = {**content, "text": str(content.get("text")) + "x"}
        changed.append((f"file {name} longer", {**raw, "files": {**raw["files"], name: other_text}}))
    for name, mutated in changed:
        second = {"afterwards": _normaliser(scenario, mutated).form()["afterwards"]}
        if not differences(first, second):
            yield name
