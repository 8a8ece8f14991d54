"""The language in which a tool says what it needs.

An expression is built of leaves over the other tools of the set, their kinds, the tool's own configuration
parameters, the input properties that others offer and the resources of session and client.  `unmet` gives
nothing when an expression holds and otherwise the leaves that fail, so that a person can be told what is
missing; a bare yes or no would leave them guessing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "FALSE",
    "TRUE",
    "All",
    "Always",
    "Any_",
    "Candidate",
    "Expr",
    "HasInput",
    "HasKind",
    "HasResource",
    "HasTool",
    "IfParams",
    "Never",
    "Not",
    "ParamIs",
    "Situation",
    "describe",
    "holds",
    "unmet",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """A tool as its neighbours see it."""

    key: str
    kind: str
    params: Mapping[str, Any]
    inputs: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Situation:
    """What an expression is judged in: the proposed set, the tool's own parameters, the resources."""

    tools: Sequence[Candidate]
    params: Mapping[str, Any]
    resources: frozenset[str]


class Expr:
    """Base of all expressions; ``&``, ``|`` and ``~`` combine them."""

    __slots__ = ()

    def __and__(self, other: Expr) -> Expr:
        return All((self, other))

    def __or__(self, other: Expr) -> Expr:
        return Any_((self, other))

    def __invert__(self) -> Expr:
        return Not(self)


@dataclasses.dataclass(frozen=True, slots=True)
class Always(Expr):
    pass


@dataclasses.dataclass(frozen=True, slots=True)
class Never(Expr):
    why: str = "it is switched off"


TRUE: Expr = Always()
FALSE: Expr = Never()


@dataclasses.dataclass(frozen=True, slots=True)
class ParamIs(Expr):
    """The parameter in scope (the tool's own, or in ``if_params`` the other tool's) has this value."""

    name: str
    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class HasTool(Expr):
    """This very tool is in the set, and its parameters satisfy ``if_params``."""

    key: str
    if_params: Expr = TRUE


@dataclasses.dataclass(frozen=True, slots=True)
class HasKind(Expr):
    """Some tool of this kind is in the set, and its parameters satisfy ``if_params``."""

    kind: str
    if_params: Expr = TRUE


@dataclasses.dataclass(frozen=True, slots=True)
class HasInput(Expr):
    """Some tool of this kind offers this input property."""

    kind: str
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class HasResource(Expr):
    """Session or client provide this: ``notifications``, ``questions``, …"""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class IfParams(Expr):
    """``requirement``, but only while the own parameters satisfy ``condition``."""

    condition: Expr
    requirement: Expr


@dataclasses.dataclass(frozen=True, slots=True)
class All(Expr):
    parts: tuple[Expr, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Any_(Expr):  # noqa: N801 - `Any` is typing's
    parts: tuple[Expr, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Not(Expr):
    part: Expr


def holds(expr: Expr, situation: Situation) -> bool:
    return not unmet(expr, situation)


def unmet(expr: Expr, situation: Situation) -> tuple[str, ...]:
    """Why an expression fails, one text a missing thing; empty when it holds."""
    match expr:
        case Always():
            return ()
        case Never(why):
            return (why,)
        case ParamIs(name, value):
            actual = situation.params.get(name)
            return () if actual == value else (f"parameter {name} is {actual!r}, not {value!r}",)
        case HasTool(key, if_params):
            named = [tool for tool in situation.tools if tool.key == key]
            return _some(named, if_params, situation, f"tool {key}")
        case HasKind(kind, if_params):
            of_kind = [tool for tool in situation.tools if tool.kind == kind]
            return _some(of_kind, if_params, situation, f"a tool of kind {kind}")
        case HasInput(kind, name):
            offered = any(tool.kind == kind and name in tool.inputs for tool in situation.tools)
            return () if offered else (f"a tool of kind {kind} with the input {name}",)
        case HasResource(name):
            return () if name in situation.resources else (f"the resource {name}",)
        case IfParams(condition, requirement):
            return unmet(requirement, situation) if holds(condition, situation) else ()
        case All(parts):
            return tuple(dict.fromkeys(text for part in parts for text in unmet(part, situation)))
        case Any_(parts):
            failures = [unmet(part, situation) for part in parts]
            if not all(failures):
                return ()
            return (" or ".join(dict.fromkeys(" and ".join(texts) for texts in failures)),)
        case Not(part):
            return () if unmet(part, situation) else (f"not: {describe(part)}",)
    raise TypeError(f"not an expression: {expr!r}")


def _some(tools: Sequence[Candidate], if_params: Expr, situation: Situation, what: str) -> tuple[str, ...]:
    """Nothing when one of the tools has fitting parameters; ``if_params`` sees theirs, not the asker's."""
    if not tools:
        return (what,)
    failures = [unmet(if_params, dataclasses.replace(situation, params=tool.params)) for tool in tools]
    return () if not all(failures) else (f"{what} whose {' and '.join(failures[0])}",)


def describe(expr: Expr) -> str:
    """An expression in words, as a requirement is listed."""
    match expr:
        case Always():
            return "nothing"
        case Never(why):
            return f"never ({why})"
        case ParamIs(name, value):
            return f"{name} = {value!r}"
        case HasTool(key, if_params):
            return f"tool {key}" + _where(if_params)
        case HasKind(kind, if_params):
            return f"a tool of kind {kind}" + _where(if_params)
        case HasInput(kind, name):
            return f"a tool of kind {kind} with the input {name}"
        case HasResource(name):
            return f"the resource {name}"
        case IfParams(condition, requirement):
            return f"{describe(requirement)} while {describe(condition)}"
        case All(parts):
            return "(" + " and ".join(describe(part) for part in parts) + ")"
        case Any_(parts):
            return "(" + " or ".join(describe(part) for part in parts) + ")"
        case Not(part):
            return f"not {describe(part)}"
    raise TypeError(f"not an expression: {expr!r}")


def _where(if_params: Expr) -> str:
    return "" if isinstance(if_params, Always) else f" whose {describe(if_params)}"
