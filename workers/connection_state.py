"""The states of one client's connection, and what moves it from one to the next.

* *opening*: made for a socket whose handshake is not done.
* *open*: a socket is there.
* *detached*: the socket was lost.  Gates have the time of an acknowledgement, turns go on.
* *ending*: the client is gone for good.  Turns are ended, then the bridge.
* *leaving*: another worker goes on (`workers.departure`).  The bridge is read to its end; what the client
  says is not accepted here.
* *ended*: nothing is left here: no process, and no file but those of a connection that has left.
"""

from __future__ import annotations

import enum

__all__ = ["FINISHED", "Event", "State", "moved"]


class State(enum.Enum):
    OPENING = "opening"
    OPEN = "open"
    DETACHED = "detached"
    ENDING = "ending"
    LEAVING = "leaving"
    ENDED = "ended"


class Event(enum.Enum):
    HANDSHAKE = "a socket is there"
    SOCKET_LOST = "the socket is gone"
    END = "the client is gone for good"
    LEAVE = "another worker goes on"
    SETTLED = "nothing runs any more"


#: (state, event) → state.  What is not here changes nothing.
_MOVES = {
    (State.OPENING, Event.HANDSHAKE): State.OPEN,
    (State.DETACHED, Event.HANDSHAKE): State.OPEN,
    (State.OPEN, Event.SOCKET_LOST): State.DETACHED,
    (State.OPENING, Event.END): State.ENDING,
    (State.OPEN, Event.END): State.ENDING,
    (State.DETACHED, Event.END): State.ENDING,
    (State.OPENING, Event.LEAVE): State.LEAVING,
    (State.OPEN, Event.LEAVE): State.LEAVING,
    (State.DETACHED, Event.LEAVE): State.LEAVING,
    (State.ENDING, Event.SETTLED): State.ENDED,
    (State.LEAVING, Event.SETTLED): State.ENDED,
}

#: Close codes of a client that has finished; any other end of a socket may be followed by a resume.
FINISHED = frozenset({1000, 1001, 1005, *range(3000, 5000)})


def moved(state: State, event: Event) -> State:
    """The state after the event."""
    return _MOVES.get((state, event), state)
