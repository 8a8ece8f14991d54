"""ACP as this gateway speaks it: method names, errors, close codes, the constant ``initialize``, and
the table of what a client may send.

Everything here is data.  Who may send what for which session is decided in ``workers.screening``; what
happens to a turn in ``workers.connection``.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Mapping
from typing import Any, Literal

from gateway.wire.jsonrpc import error_bytes
from gateway.wire.limits import Limits

__all__ = [
    "CHUNKS",
    "GUARDED",
    "INITIALIZE",
    "RULES",
    "CloseCode",
    "ErrorCode",
    "Rule",
    "canonical_method",
    "event_number",
    "gateway_error",
    "is_extension",
]

# -- names -------------------------------------------------------------------------------------------

#: Requests of the engine whose missing answer would let a tool run or a turn hang.
PERMISSION = "session/request_permission"
HOOK = "_x.ai/hooks/run"
QUESTION = "_x.ai/ask_user_question"
PLAN_APPROVAL = "_x.ai/exit_plan_mode"
GUARDED = frozenset({PERMISSION, HOOK, QUESTION, PLAN_APPROVAL})

#: Updates that carry a part of a text.
CHUNKS = frozenset({"agent_message_chunk", "agent_thought_chunk"})
#: Notifications of the engine that the gateway acts on or changes.
SESSION_UPDATE = "session/update"
SESSION_NOTIFICATION = "_x.ai/session_notification"
SESSIONS_CHANGED = "_x.ai/sessions/changed"
QUEUE_CHANGED = "_x.ai/queue/changed"
#: Printed by a bridge (hence without the underscore) that lost its connection to the leader and made another.
#: Also while the leader lives: Grok's leader hangs up on a bridge when something for it comes between the
#: length and the body of a message that it reads.  Requests, answers and hooks under way are lost.
LEADER_RECONNECTED = "x.ai/leader_reconnected"
RECONNECTED_LINE = b'{"jsonrpc":"2.0","method":"x.ai/leader_reconnected"'  # how its line begins

#: A request of the gateway to a client: a call of a tool that it lends.
LENT_CALL = "_x.ai/mcp/sdk_call"

#: A client's word that it is at work on a gate; never forwarded.
GATE_ACK = "pi/gate-ack"

#: Notifications of the gateway.
LEADER_RESTARTED = "gateway/leader_restarted"
REATTACHED = "gateway/reattached"
GATE_CLOSED = "gateway/gate_closed"
TOO_FAR_BEHIND = "gateway/too_far_behind"
LENT_CALL_GIVEN_UP = "gateway/lent_call_given_up"

#: Any spelling of the vendor's prefix; an escaped one is the same string once parsed.
_EXTENSION = re.compile(r"_*x\.ai/")


def canonical_method(name: str) -> str:
    """The one spelling of an extension method (``_x.ai/…``); any other name as it is."""
    return _EXTENSION.sub("_x.ai/", name, count=1) if _EXTENSION.match(name) else name


def is_extension(name: str) -> bool:
    """Whether a name lies outside of ACP proper, in the vendor's or anybody's extension space."""
    return name.startswith("_") or "x.ai" in name.lower()


# -- errors and close codes --------------------------------------------------------------------------


class ErrorCode(enum.IntEnum):
    """Errors of the gateway itself; ``data.reason`` is the name in lower case."""

    LEADER_LOST = -32050
    BRIDGE_LOST = -32051
    DRAINING = -32052
    TIMED_OUT = -32053
    TOO_LARGE = -32054
    REFUSED_METHOD = -32055
    ATTACHED_ELSEWHERE = -32056


#: The same message may succeed later.
_RETRYABLE = frozenset(
    {
        ErrorCode.LEADER_LOST,
        ErrorCode.BRIDGE_LOST,
        ErrorCode.DRAINING,
        ErrorCode.TIMED_OUT,
        ErrorCode.ATTACHED_ELSEWHERE,
    }
)


def gateway_error(id_raw: bytes, code: ErrorCode, message: str, session_id: str | None = None) -> bytes:
    """An error response of the gateway with ``data = {reason, retryable, sessionId?}``."""
    data: dict[str, Any] = {"reason": code.name.lower(), "retryable": code in _RETRYABLE}
    if session_id is not None:
        data["sessionId"] = session_id
    return error_bytes(id_raw, code, message, data)


class CloseCode(enum.IntEnum):
    """How the gateway closes a WebSocket."""

    GOING_AWAY = 1001  #: everything stops, nobody to hand over to
    UNSUPPORTED = 1003  #: a binary frame
    INVALID_TEXT = 1007  #: a text frame that is not UTF-8
    TOO_BIG = 1009  #: a frame above ``SIZES.frame``
    FAILED = 1011  #: the bridge cannot be kept alive
    RESTART = 1012  #: come back: another worker (or another socket of yours) has the connection
    TRY_AGAIN = 1013  #: no leader


# -- initialize --------------------------------------------------------------------------------------

#: Parameters of the one ``initialize`` that the engine ever sees.  Grok keeps the first client's
#: capabilities and fallbacks for the life of the leader but the last one's client type, for all
#: clients; so every bridge sends the same, and what a client wants goes with each session.
INITIALIZE: Mapping[str, Any] = {
    "protocolVersion": 1,
    "clientCapabilities": {
        # A bridge offers neither, whatever is said here: Grok reads, writes and runs by itself.
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
    },
    "clientInfo": {"name": "grok-gateway", "version": "1"},
    "_meta": {
        # "generic" gets plain option sets (allow once, always; reject once, always); the types of
        # Grok's own interfaces get options that rely on the client to do more.
        "clientType": "generic",
        # The fallback for sessions; each session carries its connection's own.
        "clientIdentifier": "grok-gateway",
    },
}


# -- what a client may send --------------------------------------------------------------------------

Effect = Literal[
    "", "initialize", "new", "load", "close", "delete", "prompt", "cancel", "interject", "option", "gate_ack"
]


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One method that a client may send.

    ``session``: ``no`` names none; ``may`` may name one and ``must`` names one, attached to this
    connection; ``opens`` attaches one; ``free`` names one that nobody else has attached.
    Whatever the rule, a message that names a session makes its sender a subscriber of that session in
    Grok, perhaps the one that is asked before its tools run: so a session of others is never named.
    """

    kind: Literal["request", "notification"]
    session: Literal["no", "may", "must", "opens", "free"]
    limit: str | None = None  #: row of `Limits`; None: no limit (a turn), or a notification
    effect: Effect = ""  #: what the connection does besides forwarding
    again: bool = False  #: may be sent once more when nobody knows whether the engine has got it

    def seconds(self, limits: Limits) -> float | None:
        """How long the answer may take, None without limit."""
        return None if self.limit is None else float(getattr(limits, self.limit))


#: The allow-list.  Everything else is refused, among it what hands out or changes credentials
#: (``auth/*``, ``getApiKey``, ``setApiKey``), what acts without a permission prompt (``fs/*``,
#: ``terminal/*``, ``git/*``, ``mcp/call``, ``mcp/upsert``, ``hooks/action``, ``rewind/execute``) and
#: what reaches into the sessions of others (``permissions/reset``, ``yolo_mode_changed``, ``internal/*``).
RULES: Mapping[str, Rule] = {
    "initialize": Rule("request", "no", "initialize", "initialize"),
    "authenticate": Rule("request", "no", "initialize", again=True),
    "session/new": Rule("request", "no", "session_open", "new", again=True),
    "session/load": Rule("request", "opens", "session_open", "load", again=True),
    "session/resume": Rule("request", "opens", "session_open", "load", again=True),
    "session/list": Rule("request", "no", "request", again=True),
    "session/close": Rule("request", "must", "request", "close"),
    "session/prompt": Rule("request", "must", None, "prompt"),
    "session/cancel": Rule("notification", "must", None, "cancel"),
    "session/set_mode": Rule("request", "must", "set_option", "option", again=True),
    "session/set_model": Rule("request", "must", "set_option", "option", again=True),
    "session/set_config_option": Rule("request", "must", "set_option", "option", again=True),
    "_x.ai/interject": Rule("request", "must", "request", "interject"),
    "_x.ai/session/info": Rule("request", "may", "request", again=True),
    "_x.ai/session/usage": Rule("request", "must", "request", again=True),
    "_x.ai/session/updates": Rule("request", "must", "request", again=True),
    "_x.ai/session/rename": Rule("request", "must", "request"),
    "_x.ai/session/delete": Rule("request", "free", "request", "delete"),
    "_x.ai/session/list": Rule("request", "no", "request", again=True),
    "_x.ai/sessions/list": Rule("request", "no", "request", again=True),
    "_x.ai/models/list": Rule("request", "no", "request", again=True),
    "_x.ai/commands/list": Rule("request", "may", "request", again=True),
    "_x.ai/mcp/list": Rule("request", "may", "request", again=True),
    "_x.ai/task/list": Rule("request", "must", "request", again=True),
    "_x.ai/task/kill": Rule("request", "must", "request"),
    GATE_ACK: Rule("notification", "no", None, "gate_ack"),
}


def event_number(meta: Any) -> int | None:
    """Position of an update in the leader's one count of events, by its ``_meta``; None without one."""
    number = str(meta.get("eventId", "")).rpartition("-")[2] if isinstance(meta, dict) else ""
    return int(number) if number.isdecimal() else None
