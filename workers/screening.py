"""What becomes of a message of a client: forwarded, answered, consumed or dropped.

Sans-I/O.  `Screen.receive` reads one text frame and returns a `Verdict`.  A message that goes on is the
one that was judged, byte for byte: where a name or a parameter has to change (an extension method in
an unusual spelling, ``clientIdentifier``, a hook's timeout), it is changed first and read again.

Refused are methods that are not in ``acp.RULES``, sessions that are not the sender's, and what Grok
would drop without an answer.  A refused request gets an error; a refused notification or response is
dropped, and the caller counts it by ``Verdict.reason``.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Literal, Protocol

from gateway.wire import acp, jsonrpc
from gateway.wire.acp import ErrorCode, Rule
from gateway.wire.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, BadMessage, Message
from gateway.wire.limits import LIMITS, SIZES, Limits
from workers.session_params import identified, session_params

__all__ = ["Screen", "Sessions", "Verdict"]


class Sessions(Protocol):
    """What the screen must know about sessions and folders; answered by the connection."""

    def attached(self, session_id: str) -> bool:
        """This connection has the session, or it is a subagent's of such a session."""

    def elsewhere(self, session_id: str) -> bool:
        """Another living connection has the session."""

    def directory(self, path: str) -> bool:
        """There is a folder with this path."""


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with a message.

    ``forward``: send ``message`` on.  ``answer``: send ``answer`` back.  ``consume``: ``message`` is
    meant for the gateway itself.  ``drop``: forget it.
    """

    action: Literal["forward", "answer", "consume", "drop"]
    message: Message | None = None
    rule: Rule | None = None  #: None of a response and of what was refused
    session_id: str | None = None  #: the session that the message names
    answer: bytes = b""
    reason: str = ""  #: of ``answer`` and ``drop``: one word for the counters


class _Refused(BadMessage):
    """A message that is well-formed and still refused; ``session_id`` goes into the error's data."""

    def __init__(self, code: int, text: str, session_id: str | None = None) -> None:
        super().__init__(code, text)
        self.session_id = session_id


_REASONS = {
    INVALID_REQUEST: "invalid_request",
    INVALID_PARAMS: "invalid_params",
    METHOD_NOT_FOUND: "unknown_method",
    jsonrpc.PARSE_ERROR: "parse_error",
} | {code: code.name.lower() for code in ErrorCode}


class Screen:
    """The screen of one connection.

    ``client_identifier`` becomes the ``_meta.clientIdentifier`` of its sessions: Grok scopes its
    always-approve switches by it, and all bridges would share one otherwise.
    """

    def __init__(self, client_identifier: str, sessions: Sessions, limits: Limits = LIMITS) -> None:
        self._identifier = client_identifier
        self._sessions = sessions
        self._limits = limits

    def receive(self, data: bytes) -> Verdict:
        """Judge one text frame; never raises."""
        message = None
        try:
            message = jsonrpc.parse_client(data)
            return self._response(message) if message.kind == "response" else self._call(message)
        except BadMessage as refusal:
            reason = _REASONS[refusal.code]
            if message is None:
                return Verdict("answer", answer=refusal.answer(), reason=reason)
            if message.kind != "request":
                return Verdict("drop", message, reason=reason)
            return Verdict("answer", message, answer=_answer(refusal, message.id_raw), reason=reason)

    def _response(self, message: Message) -> Verdict:
        _check_size(message.data)
        if isinstance(message.result, dict):
            # A reply with a session's id subscribes as well.
            session_id = _named(message.result)
            if session_id is not None:
                self._check_attached(session_id)
        return Verdict("forward", message)

    def _call(self, message: Message) -> Verdict:
        message = _direct(message)
        rule = _rule(message)
        _check_size(message.data)
        params = message.params
        if isinstance(params, list):
            raise _Refused(INVALID_PARAMS, f"{message.method}: params must be an object")
        session_id = self._check_sessions(message.method, rule, params or {})
        if rule.effect in ("initialize", "gate_ack"):
            return Verdict("consume", message, rule, session_id)
        if rule.effect == "new":
            self._check_folder(params or {})
        if rule.effect in ("new", "load"):
            raw = session_params(message.raw("params") or b"{}", self._identifier, self._limits)
            message = message.changed(params=raw)
            _check_size(message.data)
        elif _mapping(_mapping(params).get("_meta")).get("clientIdentifier") is not None:
            message = message.changed(params=identified(message.raw("params"), self._identifier))
        return Verdict("forward", message, rule, session_id)

    # -- sessions ------------------------------------------------------------------------------

    def _check_sessions(self, method: str, rule: Rule, params: dict[str, Any]) -> str | None:
        session_id = _named(params)
        if rule.effect == "new":
            if session_id is not None:
                raise _Refused(INVALID_PARAMS, f"{method}: a new session is named in _meta.sessionId")
            chosen = _mapping(params.get("_meta")).get("sessionId")
            if chosen is None:
                return None
            # Grok gives back a resident session with this id: this attaches as session/load does.
            if not isinstance(chosen, str) or not _UUID.fullmatch(chosen):
                raise _Refused(INVALID_PARAMS, f"{method}: _meta.sessionId must be a UUID in lower case")
            self._check_free(chosen)
            return chosen
        if session_id is None:
            if rule.session in ("must", "opens", "free"):
                raise _Refused(INVALID_PARAMS, f"{method}: sessionId is missing")
            return None
        if rule.session in ("opens", "free"):
            self._check_free(session_id)
        else:
            self._check_attached(session_id)
        return session_id

    def _check_attached(self, session_id: str) -> None:
        if not self._sessions.attached(session_id):
            self._check_free(session_id)
            raise _Refused(INVALID_PARAMS, f"unknown session {session_id}: attach it with session/load first")

    def _check_free(self, session_id: str) -> None:
        if not self._sessions.attached(session_id) and self._sessions.elsewhere(session_id):
            raise _Refused(
                ErrorCode.ATTACHED_ELSEWHERE,
                f"session {session_id} is attached to another connection; close it there first",
                session_id,
            )

    def _check_folder(self, params: dict[str, Any]) -> None:
        cwd = params.get("cwd")
        if not isinstance(cwd, str) or not cwd.startswith("/"):
            raise _Refused(INVALID_PARAMS, "session/new: cwd must be an absolute path")
        if not self._sessions.directory(cwd):
            raise _Refused(INVALID_PARAMS, f"session/new: cwd {cwd[:256]} is no existing folder")


def _answer(refusal: BadMessage, id_raw: bytes) -> bytes:
    if isinstance(refusal.code, ErrorCode):
        session_id = refusal.session_id if isinstance(refusal, _Refused) else None
        return acp.gateway_error(id_raw, refusal.code, refusal.text, session_id)
    return jsonrpc.error_bytes(id_raw, refusal.code, refusal.text)


#: Grok finds a session by a path made of its id, so "x", "./x" and "x/." would be one session with
#: three names, and the rule that a session has one owner would hold for none of them.
_SESSION_ID = re.compile(r"[A-Za-z0-9_-]+")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _named(params: dict[str, Any]) -> str | None:
    """The session that ``params`` name, None if they name none."""
    if "session_id" in params:
        raise _Refused(INVALID_PARAMS, "session_id: this member is spelled sessionId")
    if "sessionId" not in params:
        return None
    value = params["sessionId"]
    if not isinstance(value, str) or not _SESSION_ID.fullmatch(value) or len(value) > SIZES.session_id:
        raise _Refused(INVALID_PARAMS, "sessionId must be a string of letters, digits, - and _")
    return value


def _rule(message: Message) -> Rule:
    rule = acp.RULES.get(message.method)
    shown = jsonrpc.shown(message.method)
    if rule is None:
        if acp.is_extension(message.method):
            raise _Refused(ErrorCode.REFUSED_METHOD, f"{shown} is not among the methods a client may use")
        raise _Refused(METHOD_NOT_FOUND, f"Method not found: {shown}")
    if rule.kind != message.kind:
        raise _Refused(INVALID_REQUEST, f"{shown} is a {rule.kind}, not a {message.kind}")
    return rule


def _direct(message: Message) -> Message:
    """The message with its extension method in the one spelling, its params not wrapped again.

    Grok also takes ``{"method": "_x.ai/a", "params": {"method": "x.ai/a", "params": {…}}}``.
    """
    method, edits = acp.canonical_method(message.method), dict[str, bytes]()
    if acp.is_extension(method) and isinstance(message.params, dict) and "method" in message.params:
        inner = message.params
        name = inner["method"]
        if set(inner) != {"method", "params"} or not isinstance(name, str):
            raise _Refused(INVALID_PARAMS, f"{jsonrpc.shown(method)}: wrapped params hold method and params")
        if acp.canonical_method(name) != method:
            raise _Refused(INVALID_REQUEST, f"{jsonrpc.shown(method)} wraps another method")
        raw = message.raw("params")
        span = jsonrpc.members(raw)["params"]
        edits["params"] = raw[span.start : span.end]
    if method != message.method:
        edits["method"] = jsonrpc.dump(method)
    return _direct(message.changed(**edits)) if edits else message


def _check_size(data: bytes) -> None:
    # Grok's IPC wraps the line in a JSON string: each quote and backslash takes two bytes.
    size = len(data)
    if 2 * size > SIZES.grok_line:
        size += size - len(data.translate(None, b'"\\'))
    if size > SIZES.grok_line:
        raise _Refused(
            ErrorCode.TOO_LARGE,
            f"the message has {size} bytes (quotes and backslashes counted twice), "
            f"the engine takes {SIZES.grok_line}",
        )


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
