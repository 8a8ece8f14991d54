"""Who admits a call: the seam between a turn and the permissions.

A `Gate` is asked before every call that was understood (`harness.permissions.PermissionGate`).  It never
lets a call through because something went wrong: no answer, an error and nonsense are a rejection.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from harness.registry.contract import ToolKind

__all__ = ["Decision", "Gate", "GateCall", "Verdict"]


class Verdict(StrEnum):
    """``deny``: a policy's, the turn goes on.  ``reject``, ``cancel``: the user's, the turn ends."""

    ALLOW = "allow"
    DENY = "deny"
    REJECT = "reject"
    CANCEL = "cancel"
    FOLLOWUP = "followup"


@dataclasses.dataclass(frozen=True, slots=True)
class GateCall:
    """A call as a gate sees it.  ``arguments`` are canonical, ``tool_call`` is what a client is shown."""

    call_id: str
    kind: ToolKind
    name: str
    arguments: Mapping[str, Any]
    tool_call: Mapping[str, Any]
    cwd: str
    read_only: bool = False


class Decision(Protocol):
    """``text`` is the result of a call that does not run, ``reason`` why for the client, ``followup``
    what the user wants the model to hear."""

    @property
    def verdict(self) -> Any: ...
    @property
    def text(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def followup(self) -> str: ...


class Gate(Protocol):
    """Decides on one call; never raises, except when the turn is cancelled meanwhile."""

    async def decide(self, call: GateCall, /) -> Decision: ...
