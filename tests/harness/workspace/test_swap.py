"""The table, row by row, against the same rules written as sentences."""

from __future__ import annotations

import itertools

import pytest

from harness.workspace.swap import TABLE, Decision, Relation, Situation, Trigger, decide

SNAPSHOTS = (Trigger.MCP_SNAPSHOT, Trigger.HUB_TOOLS, Trigger.OTHER)
EVERYTHING = [
    Situation(trigger, relation, turn, calls, external, stale)
    for trigger, relation, turn, calls, external, stale in itertools.product(
        Trigger, Relation, (False, True), (0, 2), (False, True), (False, True)
    )
]


def expected(now: Situation) -> Decision:
    unchanged = now.relation is Relation.UNCHANGED
    if now.trigger in SNAPSHOTS:
        if unchanged:
            return Decision.REUSE
        return Decision.KEEP_EXTERNAL if now.external_terminal else Decision.APPLY
    if unchanged and not now.stale:
        return Decision.REUSE
    if now.trigger is Trigger.UPDATE:
        if now.turn_active:
            return Decision.DEFER_TURN
        return Decision.KEEP_EXTERNAL if now.external_terminal else Decision.APPLY
    again = unchanged and now.stale
    if now.in_flight and (now.relation is Relation.FROM_EXPLICIT or again):
        return Decision.DEFER_IN_FLIGHT
    return Decision.KEEP_EXTERNAL if now.external_terminal else Decision.APPLY


@pytest.mark.parametrize("now", EVERYTHING, ids=lambda now: "")
def test_every_situation(now: Situation) -> None:
    assert decide(now) is expected(now)


UPDATE, REBIND, MCP = Trigger.UPDATE, Trigger.OWNER_REBIND, Trigger.MCP_SNAPSHOT
SAME, FIRST, OTHER, AGAIN = (
    Relation.UNCHANGED,
    Relation.FROM_DEFAULT,
    Relation.FROM_EXPLICIT,
    Relation.IN_PLACE,
)


@pytest.mark.parametrize(
    ("now", "decision"),
    [
        (Situation(UPDATE, SAME, turn_active=True, in_flight=1, external_terminal=True), Decision.REUSE),
        (Situation(REBIND, SAME, turn_active=True, in_flight=1, external_terminal=True), Decision.REUSE),
        (Situation(MCP, SAME, turn_active=True, external_terminal=True, stale=True), Decision.REUSE),
        (Situation(REBIND, OTHER, in_flight=1, external_terminal=True), Decision.DEFER_IN_FLIGHT),
        (Situation(REBIND, SAME, in_flight=1, stale=True), Decision.DEFER_IN_FLIGHT),
        (Situation(REBIND, OTHER, external_terminal=True), Decision.KEEP_EXTERNAL),
        (Situation(REBIND, FIRST, in_flight=1), Decision.APPLY),
        (Situation(UPDATE, OTHER, turn_active=True, external_terminal=True), Decision.DEFER_TURN),
        (Situation(UPDATE, OTHER, external_terminal=True), Decision.KEEP_EXTERNAL),
        (Situation(UPDATE, SAME, stale=True), Decision.APPLY),
        (Situation(MCP, AGAIN, external_terminal=True), Decision.KEEP_EXTERNAL),
        (Situation(MCP, AGAIN, turn_active=True, in_flight=3), Decision.APPLY),
    ],
)
def test_rows(now: Situation, decision: Decision) -> None:
    assert decide(now) is decision


def test_no_row_is_dead() -> None:
    """Each row decides somewhere: none is hidden behind those above it."""
    deciding = {next(index for index, row in enumerate(TABLE) if row.holds(now)) for now in EVERYTHING}
    assert deciding == set(range(len(TABLE)))
