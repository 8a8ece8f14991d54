"""What a bridge must know to go on behind another leader.

Sans-I/O.  It keeps the client's last ``initialize``, all parameters of every open session, so that its hooks
come back with it (the original forgets those of sessions that it saw made), and the ids of requests without
an answer, which get an error when their leader is lost.
"""

from __future__ import annotations

import json

from harness.leader.frames import ID_KINDS
from harness.limits import SIZES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Message = dict[str, Any]

__all__ = ["Memory"]

#: A leader's notification begins so; it concerns nobody's request.
_NOTICE = '{"jsonrpc":"2.0","method"'
_OPENING = frozenset({"session/new", "session/load", "session/resume"})
_ENDING = frozenset({"session/close", "session/delete", "_x.ai/session/close"})
LOST = -32603


class Memory:
    """Of one bridge."""

    def __init__(self) -> None:
        self._initialize: Message | None = None
        self._sessions: dict[str, Message] = {}
        self._open: dict[str, Message] = {}  # requests of the client, by their id as JSON

    def from_client(self, line: bytes) -> None:
        """A line of the client is sent to the leader."""
        message = _parse(line)
        if message is None or "id" not in message or not isinstance(message.get("method"), str):
            return
        if message["method"] == "initialize":
            self._initialize = message
        elif message["method"] not in _OPENING | _ENDING:
            message = {"id": message["id"], "method": message["method"]}
        self._open[_key(message)] = message

    def from_leader(self, payload: str) -> Any:
        """A line of the leader: the id of the request that it answers, None if it is no answer."""
        if payload.startswith(_NOTICE):
            return None
        answer = _parse(payload)
        if answer is None or "method" in answer:
            return None
        request = self._open.pop(_key(answer), None)
        if request is not None and "result" in answer:
            self._succeeded(request, answer["result"])
        return answer.get("id")

    def _succeeded(self, request: Message, result: Any) -> None:
        params = request.get("params")
        if not isinstance(params, dict):
            return
        told = result.get("sessionId") if isinstance(result, dict) else None
        session = told or params.get("sessionId")
        if not isinstance(session, str):
            return
        if request["method"] in _ENDING:
            self._sessions.pop(session, None)
        elif request["method"] in _OPENING and len(self._sessions) < SIZES.client_sessions:
            self._sessions[session] = {**params, "sessionId": session}

    def lost(self) -> list[Message]:
        """The leader has gone: the answers to what it was asked."""
        requests = list(self._open.values())
        self._open.clear()
        text = "Internal error: the leader ended before it answered"
        return [{"jsonrpc": "2.0", "id": r["id"], "error": {"code": LOST, "message": text}} for r in requests]

    def replay(self) -> list[Message]:
        """Requests that bring a new leader to where the lost one was, in order, with ids of our own."""
        if self._initialize is None:
            return []
        again = [{**self._initialize, "id": "bridge-initialize"}]
        for number, (session, params) in enumerate(self._sessions.items()):
            load = {
                "sessionId": session,
                "cwd": params.get("cwd"),
                "mcpServers": params.get("mcpServers", []),
            }
            if isinstance(params.get("_meta"), dict):
                load["_meta"] = params["_meta"]
            again.append(
                {"jsonrpc": "2.0", "id": f"bridge-load-{number}", "method": "session/load", "params": load}
            )
        return again

    def reconnected(self) -> Message:
        """What the client is told when the replay is done."""
        sessions = list(self._sessions)
        params = {"sessionId": sessions[-1]} if sessions else {}
        return {"jsonrpc": "2.0", "method": "x.ai/leader_reconnected", "params": params}


def _key(message: Message) -> str:
    return json.dumps(message.get("id"), sort_keys=True)


def _parse(line: bytes | str) -> Message | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("id"), ID_KINDS):
        return None
    return message
