"""What a terminal is asked for, what it answers, and what it tells those who listen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import StrEnum

from harness.limits import SIZES
from harness.workspace.terminal.book import Snapshot, TaskKind
from harness.workspace.terminal.timing import Deadline

__all__ = [
    "Backgrounded",
    "Command",
    "CommandResult",
    "Completed",
    "Event",
    "KillOutcome",
    "KillSource",
    "LineTap",
    "Listener",
    "MonitorEvent",
    "Moved",
    "OutputChunk",
    "WaitMode",
    "WaitOutcome",
]

#: Takes the raw bytes of a command as they come, for a monitor.
LineTap = Callable[[bytes], None]


@dataclasses.dataclass(frozen=True, slots=True)
class Command:
    """One command line to run.  ``env`` is the session's own layer of the environment."""

    command: str
    call_id: str
    cwd: str
    deadline: Deadline
    owner: str | None = None
    description: str | None = None
    display: str | None = None
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    kind: TaskKind = TaskKind.BASH
    output_limit: int = SIZES.command_output


class Moved(StrEnum):
    """Why a foreground command went on in the background; the signal it is told with."""

    BY_USER = "backgrounded"
    BY_CLOCK = "auto_backgrounded"


@dataclasses.dataclass(frozen=True, slots=True)
class CommandResult:
    """A foreground command that has ended, or one that was moved (then ``snapshot`` is of its middle)."""

    snapshot: Snapshot
    moved: Moved | None = None
    #: Seconds that the call had waited when the clock moved it.
    waited: float | None = None


class KillSource(StrEnum):
    MODEL = "model"
    USER = "user"
    TEARDOWN = "teardown"


class KillOutcome(StrEnum):
    KILLED = "killed"
    ALREADY_EXITED = "already_exited"
    NOT_FOUND = "not_found"


class WaitMode(StrEnum):
    ANY = "wait_any"
    ALL = "wait_all"


class WaitOutcome(StrEnum):
    COMPLETED = "completed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


# -- events: each names the task's owner; who listens for one owner gets no other's -----------------


@dataclasses.dataclass(frozen=True, slots=True)
class OutputChunk:
    """The output so far (all of it, or its last part once something was cut)."""

    task_id: str
    call_id: str
    owner: str | None
    command: str
    cwd: str
    text: str
    total_bytes: int
    truncated: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Backgrounded:
    """A command runs in the background from now on."""

    snapshot: Snapshot

    @property
    def owner(self) -> str | None:
        return self.snapshot.owner


@dataclasses.dataclass(frozen=True, slots=True)
class Completed:
    """A background task has ended; told for every one, also where nobody is to be woken."""

    snapshot: Snapshot

    @property
    def owner(self) -> str | None:
        return self.snapshot.owner


@dataclasses.dataclass(frozen=True, slots=True)
class MonitorEvent:
    """Lines of a monitor, or a word about them; wakes its owner."""

    task_id: str
    description: str
    owner: str | None
    text: str


Event = OutputChunk | Backgrounded | Completed | MonitorEvent
Listener = Callable[[Event], None]
