"""What a connection's journal says: typed records, and the state that they add up to.

A record is a dataclass and one line of JSON; ``apply`` changes a `ConnectionRecord`, and
``ConnectionRecord.snapshot`` gives back the fewest records that make it.  `gateway.wire.journal` keeps
them in a file.
"""

from __future__ import annotations

import dataclasses
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
    "Record",
    "RequestClosed",
    "RequestOpened",
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
    received: int = 0  #: client text frames accepted
    sent: int = 0  #: server text frames, as last recorded

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
        return [*records, *self.gates.values(), *self.requests.values(), *self.tokens.values()]


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
        names = (field.name for field in dataclasses.fields(self))  # type: ignore[arg-type]
        return dump({"record": type(self).__name__, **{name: getattr(self, name) for name in names}}) + b"\n"

    @staticmethod
    def decode(line: bytes) -> Record | None:
        """The record of a line; None for a kind that this version does not know.

        Raises ValueError for anything that is no record.
        """
        values = json.loads(line)
        if not isinstance(values, dict) or not isinstance(values.get("record"), str):
            raise ValueError("not a record")
        kind = Record._kinds.get(values.pop("record"))
        if kind is None:
            return None
        names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
        try:
            return kind(**{name: value for name, value in values.items() if name in names})
        except TypeError as error:
            raise ValueError(str(error)) from error


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


@dataclasses.dataclass(frozen=True, slots=True)
class RequestClosed(Record):
    """A client's request got its answer."""

    key: str

    def apply(self, state: ConnectionRecord) -> None:
        state.requests.pop(self.key, None)


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
