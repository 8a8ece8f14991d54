"""Reminders: what the model must hear although it did not ask, at the end of the next result.

The client never sees them, and the tool's own text stays as it is; a reminder stands in an element of its
own behind it.  The most important one tells that a background task has ended; whether somebody has told that
already is written in the terminal's book of tasks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from harness.limits import LIMITS, SIZES
from harness.registry.contract import Names, ToolKind

__all__ = ["TAG", "Ended", "completions", "concatenated", "new_skills", "others_running", "wrap"]

TAG = "system-reminder"


@dataclasses.dataclass(frozen=True, slots=True)
class Ended:
    """A background task that has ended; ``outcome`` is ready to be read ("exit code 3", "signal 9")."""

    task_id: str
    outcome: str
    description: str
    seconds: float
    output: str
    output_bytes: int
    log: str
    by_signal: bool = False
    by_user: bool = False
    what: str = "background task"


def wrap(text: str, reminders: Sequence[str], tag: str = TAG) -> str:
    """A result's text with its reminders behind it."""
    return "\n\n".join([text, *(f"<{tag}>\n{reminder}\n</{tag}>" for reminder in reminders)])


# -- background tasks ------------------------------------------------------------------------------


def completions(ended: Sequence[Ended], running: Mapping[str, str], names: Names) -> list[str]:
    """One reminder for each end that nobody has told; ``running`` are the other tasks and what they do."""
    told = [_ended(task, names) for task in ended]
    if told and running:
        told[-1] += f"\n{_still_running(running, names)}"
    return told


def _ended(task: Ended, names: Names) -> str:
    lines = [f'The {task.what} "{task.task_id}" has ended: {task.outcome}, after {_duration(task.seconds)}.']
    lines.append(f"It ran: {task.description}")
    if task.by_user:
        lines.append("The user ended it. Do not start it again unless the user asks for it.")
    elif task.by_signal and task.seconds < LIMITS.short_lived:
        lines.append(
            "A signal hit it almost at once. If you ran something like `pkill -f`, its pattern may have"
            " matched the command itself."
        )
    lines.append(_result_of(task, names))
    return "\n".join(lines)


def _result_of(task: Ended, names: Names) -> str:
    """Where the output is: behind a tool, or here when there is no such tool."""
    if tool := names.tool(ToolKind.BACKGROUND_TASK):
        return f"Its output: {tool} with the id {task.task_id}."
    if not task.output:
        return "It printed nothing."
    body = task.output.encode()
    if len(body) <= SIZES.completion_inline:
        return f"Its output:\n{task.output}"
    preview = body[: SIZES.completion_preview].decode(errors="ignore")
    reader = names.tool(ToolKind.READ)
    rest = f"read the rest with {reader} from {task.log}" if reader else f"the rest is in {task.log}"
    return f"Its output begins (of {task.output_bytes} bytes; {rest}):\n{preview}"


def _still_running(running: Mapping[str, str], names: Names) -> str:
    listed = ", ".join(f"{task_id} ({what})" for task_id, what in running.items())
    text = f"Still running: {listed}."
    if tool := names.tool(ToolKind.KILL_TASK):
        text += f" If one of them does the same work twice, end it with {tool}."
    return text


def others_running(others: Sequence[tuple[str, float, str]], names: Names) -> str:
    """At the start of a task: which others run (id, seconds so far, what it does), the newest first."""
    what = "task still runs" if len(others) == 1 else "tasks still run"
    lines = [f"{len(others)} other background {what}:"]
    lines += [f'- "{task_id}" (for {seconds:.0f}s): {text}' for task_id, seconds, text in others]
    if tool := names.tool(ToolKind.KILL_TASK):
        lines.append(f"If one of them does the same work, end it with {tool} before you start more.")
    return "\n".join(lines)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest}s"


# -- others ----------------------------------------------------------------------------------------


def concatenated(total: int) -> str:
    """Several calls were written as one; only one can be carried out under its id."""
    return (
        f"The arguments held {total} JSON objects in a row. The one that fits best was carried out, the other"
        f" {total - 1} were not. Make one call for each of them."
    )


def new_skills(listing: str) -> str:
    return f"These skills are available now; read a skill's file before you do such work:\n{listing}"
