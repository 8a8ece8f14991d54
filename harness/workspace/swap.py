"""May a session's toolset be exchanged now?  One table, asked under the session's update lock.

A toolset carries what a running call depends on, so the answer depends on who asks and on what is going
on: an unchanged configuration never costs anything, a change asked for by a client waits for the turn's
end, and a toolset that an agent built around a terminal of its own is kept, because the workspace could
only replace it by one whose terminal knows none of the running tasks.
"""

from __future__ import annotations

import dataclasses
import enum

__all__ = ["TABLE", "Decision", "Relation", "Row", "Situation", "Trigger", "decide"]


class Trigger(enum.StrEnum):
    """Who wants another toolset."""

    UPDATE = "update"  # the session's client
    OWNER_REBIND = "owner_rebind"  # the session's owner binds again, with a configuration
    MCP_SNAPSHOT = "mcp_snapshot"  # tools of MCP servers came or went
    HUB_TOOLS = "hub_tools"  # tools that run elsewhere came or went
    OTHER = "other"


class Relation(enum.StrEnum):
    """The candidate's configuration beside the stored one."""

    UNCHANGED = "unchanged"
    FROM_DEFAULT = "from_default"  # the stored one was never chosen by anybody
    FROM_EXPLICIT = "from_explicit"  # it was, and the candidate differs
    IN_PLACE = "in_place"  # no candidate: the stored one is composed again


class Decision(enum.StrEnum):
    REUSE = "reuse"
    APPLY = "apply"
    DEFER_IN_FLIGHT = "defer_in_flight"  # calls are running: keep the old one for now
    DEFER_TURN = "defer_turn"  # a turn is active: at its end
    KEEP_EXTERNAL = "keep_external"  # the agent's own toolset stays

    @property
    def deferred(self) -> bool:
        return self in (Decision.DEFER_IN_FLIGHT, Decision.DEFER_TURN)


@dataclasses.dataclass(frozen=True, slots=True)
class Situation:
    trigger: Trigger
    relation: Relation
    turn_active: bool = False
    in_flight: int = 0
    external_terminal: bool = False
    stale: bool = False  # an earlier rebuild failed: the toolset is older than its configuration


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Conditions that must all hold (None: any) and what follows."""

    triggers: frozenset[Trigger]
    decision: Decision
    relation: Relation | None = None
    turn_active: bool | None = None
    in_flight: bool | None = None
    external_terminal: bool | None = None
    stale: bool | None = None

    def holds(self, now: Situation) -> bool:
        return now.trigger in self.triggers and all(
            wanted is None or wanted == found
            for wanted, found in (
                (self.relation, now.relation),
                (self.turn_active, now.turn_active),
                (self.in_flight, now.in_flight > 0),
                (self.external_terminal, now.external_terminal),
                (self.stale, now.stale),
            )
        )


_UPDATE = frozenset({Trigger.UPDATE})
_REBIND = frozenset({Trigger.OWNER_REBIND})
_SNAPSHOT = frozenset({Trigger.MCP_SNAPSHOT, Trigger.HUB_TOOLS, Trigger.OTHER})

#: The first row that holds decides.
TABLE: tuple[Row, ...] = (
    Row(_UPDATE | _REBIND, Decision.REUSE, relation=Relation.UNCHANGED, stale=False),
    Row(_SNAPSHOT, Decision.REUSE, relation=Relation.UNCHANGED),
    Row(_REBIND, Decision.DEFER_IN_FLIGHT, relation=Relation.FROM_EXPLICIT, in_flight=True),
    Row(_REBIND, Decision.DEFER_IN_FLIGHT, relation=Relation.UNCHANGED, stale=True, in_flight=True),
    Row(_REBIND, Decision.KEEP_EXTERNAL, external_terminal=True),
    Row(_REBIND, Decision.APPLY),
    Row(_UPDATE, Decision.DEFER_TURN, turn_active=True),
    Row(_UPDATE, Decision.KEEP_EXTERNAL, external_terminal=True),
    Row(_UPDATE, Decision.APPLY),
    Row(_SNAPSHOT, Decision.KEEP_EXTERNAL, external_terminal=True),
    Row(_SNAPSHOT, Decision.APPLY),  # also in a turn: a server's tools are gone whether it is or not
)


def decide(now: Situation) -> Decision:
    return next(row.decision for row in TABLE if row.holds(now))
