"""The requirement language: when an expression holds, and what is named when it does not."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.registry.requirements import (
    FALSE,
    TRUE,
    Candidate,
    Expr,
    HasInput,
    HasKind,
    HasResource,
    HasTool,
    IfParams,
    ParamIs,
    Situation,
    describe,
    holds,
    unmet,
)

READ = Candidate("A:read", "read", {"deep": True}, frozenset({"path"}))
SHALLOW = Candidate("B:read", "read", {"deep": False}, frozenset({"file"}))


def situation(*tools: Candidate, resources: tuple[str, ...] = (), **params: object) -> Situation:
    return Situation(tools, params, frozenset(resources))


@pytest.mark.parametrize(
    ("expression", "here", "missing"),
    [
        (TRUE, situation(), ()),
        (FALSE, situation(), ("it is switched off",)),
        (HasTool("A:read"), situation(READ), ()),
        (HasTool("A:read"), situation(SHALLOW), ("tool A:read",)),
        (HasTool("A:read", ParamIs("deep", True)), situation(READ), ()),
        (HasTool("B:read", ParamIs("deep", True)), situation(SHALLOW, deep=True), "tool B:read whose"),
        (HasKind("read"), situation(SHALLOW), ()),
        (HasKind("edit"), situation(READ), ("a tool of kind edit",)),
        (HasKind("read", ParamIs("deep", True)), situation(SHALLOW, READ), ()),
        (HasInput("read", "path"), situation(SHALLOW, READ), ()),
        (HasInput("read", "path"), situation(SHALLOW), ("a tool of kind read with the input path",)),
        (HasResource("voice"), situation(resources=("voice",)), ()),
        (HasResource("voice"), situation(), ("the resource voice",)),
        (IfParams(ParamIs("on", True), HasKind("read")), situation(on=False), ()),
        (IfParams(ParamIs("on", True), HasKind("read")), situation(on=True), ("a tool of kind read",)),
        (HasKind("a") & HasKind("b"), situation(), ("a tool of kind a", "a tool of kind b")),
        (HasKind("a") | HasKind("b"), situation(), ("a tool of kind a or a tool of kind b",)),
        (HasKind("a") | HasKind("read"), situation(READ), ()),
        (~HasKind("read"), situation(READ), ("not: a tool of kind read",)),
        (~HasKind("read"), situation(), ()),
    ],
)
def test_an_expression_says_what_is_missing(expression: Expr, here: Situation, missing: object) -> None:
    found = unmet(expression, here)
    assert found[0].startswith(missing) if isinstance(missing, str) else found == missing
    assert holds(expression, here) is (found == ())
    assert describe(expression)


def expressions() -> st.SearchStrategy[Expr]:
    leaves = st.sampled_from([TRUE, FALSE, HasKind("a"), HasKind("b"), HasResource("r"), ParamIs("p", 1)])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda x: ~x, inner),
            st.builds(lambda x, y: x & y, inner, inner),
            st.builds(lambda x, y: x | y, inner, inner),
            st.builds(IfParams, inner, inner),
        ),
        max_leaves=8,
    )


@given(expressions(), expressions())
def test_the_connectives_are_those_of_logic(left: Expr, right: Expr) -> None:
    for kinds, resources, number in itertools.product(("", "a", "b", "ab"), ((), ("r",)), (0, 1)):
        tools = [Candidate(f"X:{kind}", kind, {}, frozenset()) for kind in kinds]
        here = situation(*tools, resources=resources, p=number)
        assert holds(left & right, here) == (holds(left, here) and holds(right, here))
        assert holds(left | right, here) == (holds(left, here) or holds(right, here))
        assert holds(~left, here) == (not holds(left, here))
        assert holds(IfParams(left, right), here) == (not holds(left, here) or holds(right, here))


def test_the_condition_on_another_tools_parameters_does_not_see_ones_own() -> None:
    needs = HasTool("A:read", ParamIs("deep", True))
    assert holds(needs, situation(READ, deep=False))
