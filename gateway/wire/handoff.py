"""What the front and a worker tell each other about sockets, connections and the leader.

The worker listens at its control socket, the front connects (again and again, until it is there).
Words on that channel, all `gateway.wire.control` packets:

========== =========== ==========================================================================
op         direction   meaning
========== =========== ==========================================================================
hello      F→W R       ``{role: "front", pid}``; answered by ``hello`` with the fields of `WorkerHello`
owns       W→F         ``{connections: [id], tokens: [token]}`` more that this worker owns (chunks)
disowns    W→F         the same fields, no longer owned
load       W→F         ``{state, sockets}`` whenever one of them changes
leader     F→W         the fields of `LeaderInfo`, at once after hello and at every change
socket     F→W         `SocketOffer`, the consumed request bytes as payload, one descriptor
rescue     W→F R       ``{conn, sessions: [{sessionId}], reason}``: end their turns, the bridge is lost
                       and a hook was open; answered by ``rescued {idle}`` when no bridge of the rescue
                       is left: then (and only then) the sessions may be attached again
handover   W→F R       the fields of `Succession`: a draining worker to the one that succeeds it.  The front
                       chooses the successor of a connection at its first word, passes every word on
                       and the answer back: ``done {}`` or ``failed {reason}``.  Its own are ``later {}``,
                       no other worker is ready now, and ``nobody {}``, all of them are told to go
handover   F→W R       the same
========== =========== ==========================================================================

Anybody may ask a worker ``ping`` (answer ``pong {state}``) and ``status``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from gateway.wire.control import Packet

__all__ = [
    "LeaderInfo",
    "LeaderState",
    "SocketKind",
    "SocketOffer",
    "Succession",
    "WorkerHello",
    "WorkerState",
]

LeaderState = Literal["absent", "starting", "ready", "lost", "backoff", "broken"]
WorkerState = Literal["starting", "ready", "draining"]
SocketKind = Literal["ws", "pi", "mcp"]
SuccessionStep = Literal["load", "take", "drop"]


class _Fields:
    """A dataclass that travels as the fields of a packet; unknown fields are ignored, so that a
    front and a worker of two versions understand each other during an upgrade."""

    def to_fields(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: fields[name] for name in names if name in fields})


@dataclasses.dataclass(frozen=True, slots=True)
class LeaderInfo(_Fields):
    """The leader as the front knows it, and how to start a bridge to it."""

    state: LeaderState = "absent"
    reason: str = ""  #: why it is not ready, for people
    generation: str = ""  #: 8 hex digits, one value for the life of one leader process; "" while none runs
    pid: int = 0
    created: float = 0.0  #: create time, with ``pid`` the leader's `Identity`
    socket: str = ""
    bridge: Sequence[str] = ()  #: whole argv of a bridge
    link: bool = False  #: ``bridge[0]`` is a pinned copy: start a hard link of it, unlink once initialized
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: a bridge's whole environment
    engine: str = ""  #: "grok" or "harness"


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerHello(_Fields):
    """A worker introduces itself."""

    name: str
    pid: int
    state: WorkerState
    sockets: int
    capacity: int


@dataclasses.dataclass(frozen=True, slots=True)
class SocketOffer(_Fields):
    """One accepted TCP connection, its request head admitted and consumed."""

    kind: SocketKind
    conn: str = ""  #: connection id to resume (32 hex digits), "" for a new one
    received: int = 0  #: server frames that the resuming client has read

    def packet(self, head: bytes, fd: int) -> Packet:
        """``head`` is everything read from the socket so far; the receiver feeds it to its parser."""
        return Packet("socket", self.to_fields(), head, (fd,))


@dataclasses.dataclass(frozen=True, slots=True)
class Succession(_Fields):
    """One word of a planned hand-over of a connection.

    ====== ================================================================================
    step   the successor
    ====== ================================================================================
    load   loads these ``sessions`` on a bridge of its own (again, if it had) and stays mute
    take   owns the connection from now on: its former owner's bridge has ended
    drop   forgets it; so it does when the front or the former owner is lost
    ====== ================================================================================
    """

    conn: str
    step: SuccessionStep
    sessions: Sequence[str] = ()
    running: Sequence[str] = ()  #: of take: those that were loaded while a turn ran
    queued: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)  #: prompt ids that wait
    rules_due: Sequence[str] = ()  #: sessions that Grok has yet to be told the rules of
    background: Mapping[str, int] = dataclasses.field(default_factory=dict)  #: commands running, by session
