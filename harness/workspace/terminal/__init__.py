"""Commands of a session: foreground, background, monitors; see `harness.workspace.terminal.terminal`."""

from harness.workspace.terminal.book import Snapshot, TaskKind, TaskStatus
from harness.workspace.terminal.events import (
    Backgrounded,
    Command,
    CommandResult,
    Completed,
    Event,
    KillOutcome,
    KillSource,
    MonitorEvent,
    Moved,
    OutputChunk,
    WaitMode,
    WaitOutcome,
)
from harness.workspace.terminal.terminal import Terminal
from harness.workspace.terminal.timing import Deadline, TimingPolicy, resolve

__all__ = [
    "Backgrounded",
    "Command",
    "CommandResult",
    "Completed",
    "Deadline",
    "Event",
    "KillOutcome",
    "KillSource",
    "MonitorEvent",
    "Moved",
    "OutputChunk",
    "Snapshot",
    "TaskKind",
    "TaskStatus",
    "Terminal",
    "TimingPolicy",
    "WaitMode",
    "WaitOutcome",
    "resolve",
]
