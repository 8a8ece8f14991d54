"""What goes on beside the turns: output of commands, tasks that end, lines of monitors, and who is woken.

The session is woken once for each end: by a turn of its own when it is idle; while a turn runs, the next
result tells it, and what no result has told by the end of the turn wakes it then.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from harness import reminders
from harness.session.conversation import reminder
from harness.session.prompt import Prompt
from harness.session.queue import Queued
from harness.session.updates import Update, Updates
from harness.workspace.terminal.book import TaskKind
from harness.workspace.terminal.events import Backgrounded, Completed, Event, MonitorEvent, OutputChunk

if TYPE_CHECKING:
    from harness.toolbridge import ToolBridge
    from harness.workspace.terminal.terminal import Terminal

__all__ = ["Background"]


class Wake(Protocol):
    def __call__(self, queued: Queued, *, listed: bool = False) -> None: ...


class Background:
    """``wake`` queues a turn that nobody asked for; ``busy`` says whether a turn runs."""

    def __init__(
        self,
        session_id: str,
        *,
        bridge: ToolBridge,
        terminal: Terminal,
        updates: Updates,
        publish: Callable[[Update], None],
        wake: Wake,
        busy: Callable[[], bool],
    ) -> None:
        self._id = session_id
        self._bridge, self._terminal, self._updates = bridge, terminal, updates
        self._publish, self._wake, self._busy = publish, wake, busy
        self._lines: list[MonitorEvent] = []
        self._remove = terminal.subscribe(self._heard, owner=session_id)

    def close(self) -> None:
        self._remove()

    def turn_ended(self) -> None:
        """What the turn has not told wakes the session now."""
        if self._lines:
            self._wake_by_lines()
        self._wake_by_ends()

    # -- events --------------------------------------------------------------------------------------
    def _heard(self, event: Event) -> None:
        if isinstance(event, OutputChunk):
            self._publish(_progress(self._updates, event))
        elif isinstance(event, Backgrounded):
            self._tell_backgrounded(event)
        elif isinstance(event, Completed):
            self._tell_completed(event)
        else:
            self._tell_lines(event)

    def _tell_backgrounded(self, event: Backgrounded) -> None:
        task = event.snapshot
        fields: dict[str, Any] = {
            "tool_call_id": task.call_id,
            "task_id": task.task_id,
            "command": task.command,
            "cwd": task.cwd,
            "output_file": task.output_file,
        }
        if task.kind == "monitor":
            fields["monitor_description"] = task.description
        if task.description is not None:
            fields["description"] = task.description
        self._publish(self._updates.own_method("_x.ai/task_backgrounded", "task_backgrounded", fields))
        self.tell_tasks()

    def _tell_completed(self, event: Completed) -> None:
        task = event.snapshot
        fields = {"task_snapshot": task.wire(), "will_wake": task.will_wake}
        if task.will_wake and not self._busy():
            self._wake_by_ends()
        self._publish(self._updates.own_method("_x.ai/task_completed", "task_completed", fields))
        self.tell_tasks()

    def _tell_lines(self, event: MonitorEvent) -> None:
        fields = {"task_id": event.task_id, "description": event.description, "event_text": event.text}
        self._publish(self._updates.own_method("_x.ai/monitor_event", "monitor_event", fields, meta=False))
        self._lines.append(event)
        if not self._busy():
            self._wake_by_lines()

    def tell_tasks(self) -> None:
        tasks = [task.listing() for task in reversed(self._terminal.tasks(self._id, with_output=False))]
        self._publish(self._updates.notification("background_tasks", {"tasks": tasks}, meta=True))

    # -- wakes ---------------------------------------------------------------------------------------
    def take_lines(self) -> str:
        """The lines of monitors that the model has not got, as it gets them."""
        lines, self._lines = self._lines, []
        return "\n".join(_lines_of(event) for event in lines)

    def _wake_by_lines(self) -> None:
        text = self.take_lines()
        self._wake(
            Queued(f"notifications-{uuid.uuid4()}", Prompt(text, text), autonomous=True, as_query=False)
        )

    def _called(self, ended: reminders.Ended) -> reminders.Ended:
        """With its proper name: who is woken has to know what has ended."""
        shot = self._terminal.snapshot(ended.task_id)
        monitor = shot is not None and shot.kind is TaskKind.MONITOR
        return dataclasses.replace(ended, what="monitor") if monitor else ended

    def _wake_by_ends(self) -> None:
        """Ends that nobody has told; each wakes once, and counts as told from here on."""
        for ended in self._bridge.drain_completions():
            told = reminders.completions([self._called(ended)], {}, self._bridge.toolset.names)
            text = reminder("\n".join(told))
            prompt_id = f"task-completed-{ended.task_id}"
            queued = Queued(prompt_id, Prompt(text, text), autonomous=True, as_query=False)
            self._wake(queued, listed=True)


def _progress(updates: Updates, event: OutputChunk) -> Update:
    """Output so far of a command that runs."""
    raw = {
        "type": "Bash",
        "output": list(event.text.encode()),
        "output_for_prompt": event.text,
        "exit_code": 0,
        "command": event.command,
        "truncated": event.truncated,
        "signal": None,
        "timed_out": False,
        "description": None,
        "current_dir": event.cwd,
        "output_file": "",
        "total_bytes": event.total_bytes,
    }
    content = [{"type": "content", "content": {"type": "text", "text": event.text}}]
    return updates.tool_call_progress(event.call_id, content, raw)


def _lines_of(event: MonitorEvent) -> str:
    description = event.description.replace("\n", " ").replace("]", ")")
    return f'<monitor-event task_id="{event.task_id}">\n[{description}] {event.text}\n</monitor-event>'
