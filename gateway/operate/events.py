"""supervisord's event listener protocol, and what can be counted with it: starts and crashes.

supervisord writes an event to the listener's standard input and waits for the result on its standard
output; nothing else may ever be printed there::

    READY\\n                                          listener → supervisord
    ver:3.0 … eventname:PROCESS_STATE_EXITED len:71\\n  supervisord → listener, then 71 bytes
    RESULT 2\\nOK                                      listener → supervisord, READY again

supervisord itself counts no restarts.  The count is kept in the run folder, so that it survives a
restart of the watchdog, under the identity of the supervisord it belongs to.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path

from gateway.wire.limits import LIMITS, SIZES
from gateway.wire.process import Identity

__all__ = ["READY", "RESULT", "CrashBook", "EventError", "EventReader", "StartBook", "StateEvent"]

READY = b"READY\n"
RESULT = b"RESULT 2\nOK"


class EventError(Exception):
    """supervisord sent something that is not its protocol."""


@dataclasses.dataclass(frozen=True, slots=True)
class StateEvent:
    """A program changed its state."""

    component: str  #: ``gateway``, ``worker:worker_00``
    state: str  #: ``STARTING``, ``RUNNING``, ``BACKOFF``, ``EXITED``, ``FATAL``, …
    before: str
    own_error: bool = False  #: it ended itself with an error code (``exitcodes`` of supervisord.conf)


class EventReader:
    """Bytes in, events out.  supervisord sends one and waits, so that no more than one is buffered."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[StateEvent | None]:
        """One item for each complete event: None for one that is not of interest but wants its result.

        Raises EventError.
        """
        self._buffer += data
        events: list[StateEvent | None] = []
        while (end := self._buffer.find(b"\n")) >= 0:
            header = _pairs(self._buffer[:end])
            if not header.get("len", "").isdigit():
                raise EventError(f"event header without a length: {self._buffer[:end]!r}")
            size = int(header["len"])
            if len(self._buffer) < end + 1 + size:
                break
            payload = _pairs(self._buffer[end + 1 : end + 1 + size])
            self._buffer = self._buffer[end + 1 + size :]
            events.append(_state_event(header.get("eventname", ""), payload))
        return events


def _pairs(text: bytes) -> dict[str, str]:
    words = (word.partition(":") for word in text.decode("utf-8", "replace").split())
    return {name: value for name, _, value in words}


def _state_event(kind: str, payload: dict[str, str]) -> StateEvent | None:
    _, prefix, state = kind.partition("PROCESS_STATE_")
    if not prefix:
        return None
    group, name = payload.get("groupname", ""), payload.get("processname", "")
    return StateEvent(
        name if group == name else f"{group}:{name}",
        state,
        payload.get("from_state", ""),
        own_error=payload.get("expected") == "1",
    )


class StartBook:
    """How often each component was started; a restart is every start after the first."""

    def __init__(self, file: Path, supervisord: Identity) -> None:
        self._file, self._owner = file, [supervisord.pid, supervisord.created]
        self._starts = self._load()

    def observe(self, event: StateEvent) -> None:
        """Count a start and write the book down."""
        if event.state != "STARTING":
            return
        self._starts[event.component] = self._starts.get(event.component, 0) + 1
        draft = self._file.with_suffix(".new")
        with contextlib.suppress(OSError):  # a full disk costs the count, not the watchdog
            draft.write_text(json.dumps({"supervisord": self._owner, "starts": self._starts}))
            draft.replace(self._file)

    def restarts(self) -> dict[str, int]:
        """Restarts by component."""
        return {name: starts - 1 for name, starts in self._starts.items() if starts > 0}

    def _load(self) -> dict[str, int]:
        try:
            data = json.loads(self._file.read_text())
            if data["supervisord"] != self._owner:
                return {}
            return {str(name): int(starts) for name, starts in data["starts"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}


class CrashBook:
    """Finds crash loops, which supervisord would go on with for ever.

    An end by an error of the program's own counts towards `SIZES.start_retries`.  Kills do not: they say
    nothing about the program.  Only a flood of ends of any kind (a program that crashes by a signal) does.
    """

    def __init__(self) -> None:
        self._ends: dict[str, list[tuple[float, bool]]] = {}

    def looping(self, now: float, event: StateEvent) -> bool:
        """Whether this exit is one too many within the window.  ``now``: monotonic seconds."""
        if event.state != "EXITED":
            return False
        recent = [end for end in self._ends.get(event.component, []) if end[0] > now - LIMITS.circuit_window]
        self._ends[event.component] = [*recent, (now, event.own_error)]
        errors = sum(own_error for _, own_error in recent)
        return (event.own_error and errors >= SIZES.start_retries) or len(recent) >= SIZES.ends
