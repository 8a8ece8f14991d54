"""What a connection's journal says: typed records, and the state that they add up to.

A record is a dataclass and one line of JSON; ``apply`` changes a `ConnectionRecord`, and
``ConnectionRecord.snapshot`` gives back the fewest records that make it.  `gateway.wire.journal` keeps
them in a file.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any, ClassVar

from gateway.wire.jsonrpc import dump

__all__ = [
    "Attached",
    "ConnectionRecord",
    "Counted",
    "Detached",
    "GateClosed",
    "GateOpened",
    "Introduced",
    "Opened",
    "OptionSet",
    "Owned",
    "PiBound",
    "PiTurnClosed",
    "PiTurnOpened",
    "PiUnbound",
    "Record",
    "RequestClosed",
    "RequestOpened",
    "Rescued",
    "SessionRecord",
    "TokenAdded",
    "TokenRemoved",
]

# -- state -------------------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class SessionRecord:
    """An attached session: how to load it again."""

    params: dict[str, Any]  #: of session/new or session/load as the engine got them
    options: dict[str, OptionSet] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class ConnectionRecord:
    """One connection as its journal tells it."""

    connection: str = ""  #: 32 hex digits
    kind: str = "ws"  #: "ws" or "pi"
    acks: bool = False  #: the client acknowledges gates
    worker: str = ""  #: the owner: its name, pid and create time
    pid: int = 0
    created: float = 0.0
    client: dict[str, Any] = dataclasses.field(default_factory=dict)  #: clientInfo
    sessions: dict[str, SessionRecord] = dataclasses.field(default_factory=dict)
    gates: dict[str, GateOpened] = dataclasses.field(default_factory=dict)  #: by id
    requests: dict[str, RequestOpened] = dataclasses.field(default_factory=dict)  #: by key
    tokens: dict[str, TokenAdded] = dataclasses.field(default_factory=dict)
    rescued: dict[str, str] = dataclasses.field(default_factory=dict)
    #: sessions whose turns were ended for want of a client, and why; until the next request for one
    received: int = 0  #: client text frames accepted
    sent: int = 0  #: server text frames, as last recorded
    pi_sessions: dict[str, PiBound] = dataclasses.field(default_factory=dict)  #: by Pi session
    pi_turns: dict[str, PiTurnOpened] = dataclasses.field(default_factory=dict)  #: by turn

    def snapshot(self) -> list[Record]:
        """The fewest records that make this state."""
        records: list[Record] = [
            Opened(self.connection, self.kind, self.acks),
            Owned(self.worker, self.pid, self.created),
            Introduced(self.client),
            Counted(self.received, self.sent),
        ]
        for session_id, session in self.sessions.items():
            records.append(Attached(session_id, session.params))
            records += session.options.values()
        records += [*self.gates.values(), *self.requests.values(), *self.tokens.values()]
        return [*records, *(Rescued([session_id], reason) for session_id, reason in self.rescued.items())]


# -- records -----------------------------------------------------------------------------------------


class Record:
    """One line of a journal: a dataclass whose `apply` changes the state."""

    _kinds: ClassVar[dict[str, type[Record]]] = {}

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        Record._kinds[cls.__name__] = cls  # slots=True makes a second class of the same name: it wins

    def apply(self, state: ConnectionRecord) -> None:
        """Change ``state`` as this record says; what it speaks of may be gone."""
        raise NotImplementedError

    def encode(self) -> bytes:
        """The line, its end included."""
        kind = type(self).__name__
        return dump({"record": kind, **{name: getattr(self, name) for name in _fields(kind)}}) + b"\n"

    @staticmethod
    def decode(line: bytes) -> Record | None:
        """The record of a line; None for a kind that this version does not know.

        Raises ValueError for anything that is no record.
        """
        values = json.loads(line)
        if not isinstance(values, dict) or not isinstance(values.get("record"), str):
            raise ValueError("not a record")
        kind = values.pop("record")
        if kind not in Record._kinds:
            return None
        fields = {name: values[name] for name in _fields(kind) if name in values}
        try:
            return Record._kinds[kind](**fields)
        except TypeError as error:
            raise ValueError(str(error)) from error


@functools.cache
def _fields(kind: str) -> tuple[str, ...]:
    """The fields of a kind of record, which each line of a busy journal is written with."""
    return tuple(field.name for field in dataclasses.fields(Record._kinds[kind]))  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True, slots=True)
class Opened(Record):
    """The connection exists; always the first record."""

    connection: str
    kind: str = "ws"
    acks: bool = False

    def apply(self, state: ConnectionRecord) -> None:
        state.connection, state.kind, state.acks = self.connection, self.kind, self.acks


@dataclasses.dataclass(frozen=True, slots=True)
class Owned(Record):
    """This worker has the connection now."""

    worker: str
    pid: int
    created: float

    def apply(self, state: ConnectionRecord) -> None:
        state.worker, state.pid, state.created = self.worker, self.pid, self.created


@dataclasses.dataclass(frozen=True, slots=True)
class Introduced(Record):
    """The client's ``clientInfo``."""

    client: dict[str, Any]

    def apply(self, state: ConnectionRecord) -> None:
        state.client = self.client


@dataclasses.dataclass(frozen=True, slots=True)
class Attached(Record):
    """A session is attached, or attached again with other parameters."""

    session_id: str
    params: dict[str, Any]

    def apply(self, state: ConnectionRecord) -> None:
        if session := state.sessions.get(self.session_id):
            session.params = self.params
        else:
            state.sessions[self.session_id] = SessionRecord(self.params)


@dataclasses.dataclass(frozen=True, slots=True)
class OptionSet(Record):
    """The engine accepted a ``session/set_*`` request; the last one of a kind counts."""

    session_id: str
    method: str
    params: dict[str, Any]

    def apply(self, state: ConnectionRecord) -> None:
        if session := state.sessions.get(self.session_id):
            session.options[f"{self.method}:{self.params.get('configId', '')}"] = self


@dataclasses.dataclass(frozen=True, slots=True)
class Detached(Record):
    """A session is closed or deleted."""

    session_id: str

    def apply(self, state: ConnectionRecord) -> None:
        state.sessions.pop(self.session_id, None)


@dataclasses.dataclass(frozen=True, slots=True)
class GateOpened(Record):
    """A gate is open; written *before* the client sees it.  Times are seconds since the epoch."""

    id: str  #: as the client sees it: "<generation>.<id>"
    method: str
    session_id: str
    event: str = ""  #: of a hook
    tool_use_id: str = ""
    opened: float = 0.0
    deadline: float = 0.0  #: of a pre hook: then Grok runs the tool

    def apply(self, state: ConnectionRecord) -> None:
        state.gates[self.id] = self


@dataclasses.dataclass(frozen=True, slots=True)
class GateClosed(Record):
    """A gate was answered or is void."""

    id: str

    def apply(self, state: ConnectionRecord) -> None:
        state.gates.pop(self.id, None)


@dataclasses.dataclass(frozen=True, slots=True)
class RequestOpened(Record):
    """A client's request went to the engine under ``key``."""

    key: str
    id_raw: str  #: the client's id, its own spelling
    method: str
    session_id: str = ""
    prompt_id: str = ""

    def apply(self, state: ConnectionRecord) -> None:
        state.requests[self.key] = self
        state.rescued.pop(self.session_id, None)


@dataclasses.dataclass(frozen=True, slots=True)
class RequestClosed(Record):
    """A client's request got its answer."""

    key: str

    def apply(self, state: ConnectionRecord) -> None:
        state.requests.pop(self.key, None)


@dataclasses.dataclass(frozen=True, slots=True)
class Rescued(Record):
    """The turns of these sessions, running and queued, were ended by a rescue (`gateway.wire.rescue`)."""

    sessions: list[str]
    reason: str

    def apply(self, state: ConnectionRecord) -> None:
        state.rescued.update(dict.fromkeys(self.sessions, self.reason))


@dataclasses.dataclass(frozen=True, slots=True)
class TokenAdded(Record):
    """An MCP token of lent tools, bound to this connection."""

    token: str
    session_id: str = ""

    def apply(self, state: ConnectionRecord) -> None:
        state.tokens[self.token] = self


@dataclasses.dataclass(frozen=True, slots=True)
class TokenRemoved(Record):
    """A token is no longer valid."""

    token: str

    def apply(self, state: ConnectionRecord) -> None:
        state.tokens.pop(self.token, None)


@dataclasses.dataclass(frozen=True, slots=True)
class Counted(Record):
    """Text frames so far: accepted from the client, sent to it."""

    received: int
    sent: int = 0

    def apply(self, state: ConnectionRecord) -> None:
        state.received, state.sent = self.received, max(state.sent, self.sent)


# -- of a Pi client ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class PiBound(Record):
    """A session of Pi has this Grok session; the newest record of a Pi session counts."""

    session: str
    grok: str
    cwd: str
    delivered: str = ""  #: newest entry of Pi's branch that Grok knows
    made: bool = False  #: the Grok session exists: load it, do not make it

    def apply(self, state: ConnectionRecord) -> None:
        state.pi_sessions[self.session] = self


@dataclasses.dataclass(frozen=True, slots=True)
class PiUnbound(Record):
    """A session of Pi is closed, or its next turn makes another Grok session."""

    session: str

    def apply(self, state: ConnectionRecord) -> None:
        state.pi_sessions.pop(self.session, None)


@dataclasses.dataclass(frozen=True, slots=True)
class PiTurnOpened(Record):
    """A turn of Pi is about to be given to Grok; written *before* its prompt is."""

    turn: str
    session: str
    grok: str
    prompt_id: str
    frame: int  #: newest frame from the engine at that moment: the turn's own come after it
    model: str = ""
    own: bool = False  #: Grok has started it by itself: no prompt will be answered
    base: int = 0  #: blocks that Pi's message had before the gateway began it anew

    def apply(self, state: ConnectionRecord) -> None:
        state.pi_turns[self.turn] = self


@dataclasses.dataclass(frozen=True, slots=True)
class PiTurnClosed(Record):
    """Pi has had the end of a turn."""

    turn: str

    def apply(self, state: ConnectionRecord) -> None:
        state.pi_turns.pop(self.turn, None)
