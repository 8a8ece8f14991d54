"""Why an operation on sessions may not be done, or not now."""

from __future__ import annotations

import enum

__all__ = ["Refusal", "RefusalCode"]


class RefusalCode(enum.StrEnum):
    EMPTY_ID = "empty_agent_id"
    MISSING_SESSION = "missing_session"
    NOT_FOUND = "session_not_found"
    EXISTS = "session_already_exists"
    SHUTTING_DOWN = "shutting_down"
    WIDENING = "capability_widening"
    MAX_DEPTH = "max_depth"
    UNAUTHORISED = "unauthorised"
    TURN_ACTIVE = "turn_active"
    EXTERNALLY_OWNED = "toolset_externally_owned"


class Refusal(Exception):  # noqa: N818 - what happened, not an error of ours
    """An operation on sessions that may not be done, or not now."""

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.code = code
