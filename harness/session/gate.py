"""Who admits a call: the seam between a turn and the permissions.

A `Gate` is asked before every call that was understood.  The permissions of the engine are one; where
none is given, `AskingGate` asks the client before everything that is not known to change nothing.  A gate
never lets a call through because something went wrong: no answer, an error and nonsense are a rejection.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Protocol

from harness.registry.contract import ClientRequests, ToolKind

__all__ = ["AskingGate", "Decision", "Gate", "GateCall", "Verdict"]


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


@dataclasses.dataclass(frozen=True, slots=True)
class Decided:
    """A plain `Decision`."""

    verdict: Verdict
    text: str = ""
    reason: str = ""
    followup: str = ""


class Gate(Protocol):
    """Decides on one call; never raises, except when the turn is cancelled meanwhile."""

    async def decide(self, call: GateCall, /) -> Decision: ...


#: Kinds that work on the conversation alone.
_HARMLESS = frozenset({ToolKind.PLAN, ToolKind.WAIT_TASKS, ToolKind.BACKGROUND_TASK, ToolKind.KILL_TASK})

_OPTIONS = (
    {"optionId": "allow-once", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "reject-once", "name": "Reject, and stop this turn", "kind": "reject_once"},
)


class AskingGate:
    """Asks for each call that may change something; remembers nothing.

    ``always_approve``: the user has said beforehand that nothing is to be asked for.
    """

    def __init__(self, session_id: str, client: ClientRequests, *, always_approve: bool = False) -> None:
        self._session_id = session_id
        self._client = client
        self._always_approve = always_approve

    async def decide(self, call: GateCall, /) -> Decided:
        if self._always_approve or call.read_only or call.kind in _HARMLESS:
            return Decided(Verdict.ALLOW)
        params = {"sessionId": self._session_id, "toolCall": dict(call.tool_call), "options": list(_OPTIONS)}
        try:
            answer = await self._client.request("session/request_permission", params)
        except Exception as error:  # whatever went wrong, it is no permission
            return Decided(
                Verdict.REJECT, f"The permission to run `{call.name}` could not be asked for.", str(error)
            )
        return _read(answer, call.name)


def _read(answer: Any, name: str) -> Decided:
    outcome = answer.get("outcome") if isinstance(answer, dict) else None
    outcome = outcome if isinstance(outcome, dict) else {}
    if outcome.get("outcome") == "cancelled":
        return Decided(Verdict.CANCEL, f"The user cancelled the tool `{name}` before it ran.")
    if outcome.get("outcome") == "selected" and outcome.get("optionId") == "allow-once":
        return Decided(Verdict.ALLOW)
    meta = answer.get("_meta") if isinstance(answer, dict) else None
    message = meta.get("followup_message") if isinstance(meta, dict) else None
    if isinstance(message, str) and message:
        text = f"The user does not want `{name}` to run; it was not run. Their message follows."
        return Decided(Verdict.FOLLOWUP, text, followup=message)
    return Decided(Verdict.REJECT, f"The user rejected the tool `{name}`.", "User rejected the execution")
