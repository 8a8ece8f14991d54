"""Who gets what, when several clients share one agent.

Sans-I/O.  The rules are the original's, with one difference: where it drops a request that only a session's
driver may answer (a hook without a driver then allows its tool), the agent gets an error here, at once.

========================================= ==============================================================
message                                   goes to
========================================= ==============================================================
request of a client                       the agent, under an id that no other client can have
response of the agent                     the client that asked; nobody when that one has gone
notification of a session                 every subscriber; while a client loads it, behind its replay
replayed notification                     the client that loads
notification of the whole machine         everybody
notification without a session            the client that was active last
permission, question, end of plan mode    every subscriber, and later ones after their load; one answer
any other request of the agent            the session's driver; an error to the agent when there is none
========================================= ==============================================================

A client subscribes to a session by any message about it.  The first is its driver, then the next oldest.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, NamedTuple

from gateway.wire.jsonrpc import INVALID_REQUEST, METHOD_NOT_FOUND
from harness.leader.frames import ID_KINDS
from harness.limits import SIZES

__all__ = ["AGENT", "Overrun", "Router", "To"]

Message = dict[str, Any]

#: In place of a client.
AGENT = ""

#: Requests of the agent that every subscriber sees; the first answer counts.
SHARED = frozenset({"session/request_permission", "_x.ai/ask_user_question", "_x.ai/exit_plan_mode"})
_EVERYBODY = frozenset(
    {
        "_x.ai/announcements/update",
        "_x.ai/mcp/servers_updated",
        "_x.ai/models/update",
        "_x.ai/sessions/changed",
    }
)
_OPENING = frozenset({"session/new", "session/load", "session/resume"})
_REPLAYING = frozenset({"session/load", "session/resume"})
_ENDING = frozenset({"session/close", "session/delete"})
#: Only the router says it, and it says it to the agent.
_EVICT = "x.ai/internal/evict_sessions"
#: To the agent: its request has nobody to answer it.
NOBODY = -32004


class To(NamedTuple):
    """A message and where it goes: a client's id, or `AGENT`."""

    client: str
    message: Message


class Overrun(Exception):  # noqa: N818 (a verdict on clients)
    """What waits behind the loads of these clients is more than may wait: they must go."""

    def __init__(self, clients: list[str]) -> None:
        super().__init__(clients)
        self.clients = clients


@dataclasses.dataclass(slots=True)
class _Opened:
    """A client's request at the agent."""

    client: str  # `AGENT` when that one has gone
    id: Any
    method: str
    session: str | None


@dataclasses.dataclass(slots=True)
class _Asked:
    """A request of the agent; ``driver``: the one client that may answer, None: all of them."""

    message: Message
    session: str
    driver: str | None


class Router:
    """All clients of one leader."""

    def __init__(self) -> None:
        self._clients = dict[str, Message]()  # what goes into the ``_meta`` of their sessions
        self._active = AGENT
        self._sessions = dict[str, list[str]]()  # subscribers, the driver first
        self._opened = dict[str, _Opened]()
        self._asked = dict[str, _Asked]()
        self._waiting = dict[tuple[str, str], list[Message]]()  # behind a load
        self._replayed = dict[tuple[str, str], int]()  # the newest event of that load
        self._numbers = dict[int, str]()  # what the agent calls the clients
        self._serial = self._joined = 0

    # -- clients -------------------------------------------------------------------------------

    def join(self, client: str, client_type: str, capabilities: Message) -> None:
        """A client has registered; ``client_type``: what it calls itself, ``capabilities``: what it wants."""
        meta: Message = {"clientIdentifier": client_type}
        if capabilities.get("yolo_mode") is True:
            meta["yoloMode"] = True
        if isinstance(capabilities.get("default_model"), str):
            meta["modelId"] = capabilities["default_model"]
        self._clients[client] = meta
        self._joined += 1
        self._numbers[self._joined] = client
        self._active = client

    def leave(self, client: str) -> list[To]:
        """A client has gone; its turns go on."""
        self._clients.pop(client, None)
        self._numbers = {number: other for number, other in self._numbers.items() if other != client}
        if self._active == client:
            self._active = next(reversed(self._clients), AGENT)
        for opened in self._opened.values():
            if opened.client == client:
                opened.client = AGENT
        for waiting in [key for key in self._waiting if key[0] == client]:
            del self._waiting[waiting]
            self._replayed.pop(waiting, None)
        empty = []
        for session, subscribers in list(self._sessions.items()):
            if client in subscribers:
                subscribers.remove(client)
                if not subscribers:
                    empty.append(session)
                    del self._sessions[session]
        out = [
            to for asked in list(self._asked.values()) if asked.driver == client for to in self._ask(asked)
        ]
        return [*out, _evict(empty)] if empty else out

    def driver(self, session: str) -> str | None:
        """The client that answers the hooks of a session."""
        return next(iter(self._sessions.get(session, ())), None)

    # -- messages of a client ------------------------------------------------------------------

    def from_client(self, client: str, message: Message) -> list[To]:
        """A message of a registered client."""
        self._active = client
        number = message.get("id")
        if not isinstance(number, ID_KINDS):
            return _refused(client, None, INVALID_REQUEST, "Invalid Request: an id is a text or a number")
        if "method" not in message:
            return self._reply(client, message)
        method, params = message["method"], message.get("params")
        if not isinstance(method, str):
            return _refused(client, number, INVALID_REQUEST, "Invalid Request: a method is a text")
        if method.removeprefix("_") == _EVICT:  # of another client's sessions perhaps
            missing = "Method not found: it is the leader's own"
            return _refused(client, number, METHOD_NOT_FOUND, missing) if "id" in message else []
        session = _session(params)
        if session is None and method == "session/new":
            session = _session(_meta(params))  # chosen by the client
        if session is not None:
            self._subscribe(client, session)
        if "id" not in message:
            return [To(AGENT, message)]
        self._serial += 1
        key = f"{client}|{self._serial}|{_key(number)}"
        self._opened[key] = _Opened(client, number, method, session)
        if method in _REPLAYING and session is not None:
            self._waiting.setdefault((client, session), [])
        return [To(AGENT, {**message, "id": key, "params": self._introduced(client, method, params)})]

    def _introduced(self, client: str, method: str, params: Any) -> Any:
        """Parameters that say which client asks."""
        if (method not in _OPENING and method != "initialize") or not isinstance(params, dict):
            return params
        meta = params.get("_meta")
        meta = dict(meta) if isinstance(meta, dict) else {}
        for key, value in self._clients[client].items():
            if key == "clientIdentifier" or method == "session/new":
                meta.setdefault(key, value)
        if method in _OPENING:
            meta["x.ai/leaderClientId"] = next(n for n, other in self._numbers.items() if other == client)
        return {**params, "_meta": meta}

    def _reply(self, client: str, message: Message) -> list[To]:
        """An answer to the agent: the first one of somebody who was asked."""
        asked = self._asked.get(_key(message.get("id")))
        if asked is None or (asked.driver or client) != client:
            return []
        if client not in self._sessions.get(asked.session, ()):
            return []
        del self._asked[_key(message["id"])]
        return [To(AGENT, message)]

    # -- messages of the agent -----------------------------------------------------------------

    def from_agent(self, message: Message) -> list[To]:
        """A message of the agent.  Raises Overrun, before anything has changed."""
        if "method" not in message:
            return self._answer(message)
        if "id" in message:
            session = _session(message.get("params")) or ""
            asked = _Asked(message, session, None)
            self._asked[_key(message["id"])] = asked
            return self._ask(asked)
        return self._tell(message)

    def _ask(self, asked: _Asked) -> list[To]:
        """Ask whoever may answer, for the first time or after the driver has gone."""
        if asked.message["method"] in SHARED:
            return [To(client, asked.message) for client in self._sessions.get(asked.session, ())]
        driver = self.driver(asked.session)
        if driver is None:
            number = asked.message["id"]
            del self._asked[_key(number)]
            error = {"code": NOBODY, "message": "no client has the session that could answer"}
            return [To(AGENT, {"jsonrpc": "2.0", "id": number, "error": error})]
        asked.driver = driver
        return [To(driver, asked.message)]

    def _answer(self, message: Message) -> list[To]:
        opened = self._opened.pop(str(message.get("id")), None)
        if opened is None:
            return []
        session, result = opened.session, message.get("result")
        told = result.get("sessionId") if isinstance(result, dict) else None
        if isinstance(told, str):
            session = told
        if opened.client == AGENT:
            # It went before there was anything to evict: the session came into memory only now.
            if session is None or self._sessions.get(session):
                return []
            return [_evict([session])] if opened.method in _OPENING or session == told else []
        if session is not None and session == told:
            self._subscribe(opened.client, session)
        out = [To(opened.client, {**message, "id": opened.id})]
        if session is None:
            return out
        if opened.method in _REPLAYING:
            out += self._loaded(opened.client, session)
        elif opened.method in _ENDING and "error" not in message:
            self._sessions.pop(session, None)
        return out

    def _loaded(self, client: str, session: str) -> list[To]:
        """What happened during a load, and what is still asked."""
        # What came between the request and the agent's look at its history is in both.
        newest = self._replayed.pop((client, session), -1)
        waiting = self._waiting.pop((client, session), ())
        out = [To(client, m) for m in waiting if (event := _event(m)) is None or event > newest]
        asked = (a for a in self._asked.values() if a.session == session and a.driver is None)
        return out + [To(client, a.message) for a in asked]

    def _tell(self, message: Message) -> list[To]:
        method, params = message["method"], message.get("params")
        session = _session(params)
        if method in _EVERYBODY:
            return [To(client, message) for client in self._clients]
        if session is None:
            return [To(self._active, message)] if self._active else []
        number = _meta(params).get("x.ai/leaderClientId")
        if number is not None:
            self._resolved(session, params)
            loader = self._numbers.get(number, "")
            if (loading := (loader, session)) in self._waiting:
                self._replayed[loading] = max(_event(message) or 0, self._replayed.get(loading, -1))
            return [To(loader, message)] if loader in self._clients else []
        subscribers = self._sessions.get(session, [])
        full = [c for c in subscribers if len(self._waiting.get((c, session), ())) >= SIZES.load_waiting]
        if full:
            raise Overrun(full)
        self._resolved(session, params)
        out = []
        for client in subscribers:
            waiting = self._waiting.get((client, session))
            if waiting is None:
                out.append(To(client, message))
            else:
                waiting.append(message)
        return out

    def _resolved(self, session: str, params: Any) -> None:
        """A question that the agent gives up is shown to nobody any more."""
        update = params.get("update") if isinstance(params, dict) else None
        if not isinstance(update, dict) or update.get("sessionUpdate") != "interaction_resolved":
            return
        for key, asked in list(self._asked.items()):
            if asked.session == session and _tool_call(asked.message) == update.get("tool_call_id"):
                del self._asked[key]

    def _subscribe(self, client: str, session: str) -> None:
        subscribers = self._sessions.setdefault(session, [])
        if client not in subscribers:
            subscribers.append(client)


def _evict(sessions: list[str]) -> To:
    """Nobody has these sessions any more."""
    return To(AGENT, {"jsonrpc": "2.0", "method": _EVICT, "params": {"sessionIds": sessions}})


def _refused(client: str, number: Any, code: int, text: str) -> list[To]:
    return [To(client, {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}})]


def _key(number: Any) -> str:
    return json.dumps(number, sort_keys=True)


def _session(params: Any) -> str | None:
    if not isinstance(params, dict):
        return None
    found = params.get("sessionId", params.get("session_id"))
    return found if isinstance(found, str) else None


def _meta(params: Any) -> Message:
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta if isinstance(meta, dict) else {}


def _event(message: Message) -> int | None:
    """The number of an update among those of its session."""
    number = str(_meta(message.get("params")).get("eventId") or "").rpartition("-")[2]
    return int(number) if number.isdecimal() else None


def _tool_call(message: Message) -> Any:
    params = message.get("params") or {}
    call = params.get("toolCall")
    return call.get("toolCallId") if isinstance(call, dict) else params.get("toolCallId")
