"""What the model reads of commands and tasks.

The first line of a result, the tags of a started task and the headings of a task's output are forms that
models know and programs search for; everything else is plain words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness.limits import LIMITS, SIZES
from harness.registry.contract import Names, ToolKind
from harness.workspace.terminal import CommandResult, Moved, Snapshot, WaitOutcome

__all__ = [
    "NO_BACKGROUND",
    "NO_OUTPUT",
    "finished",
    "no_operator",
    "not_found",
    "retrieval",
    "self_match",
    "started",
    "started_block",
    "still_running",
    "truncation_hint",
]

NO_OUTPUT = "(no output)"
NO_BACKGROUND = "commands cannot run in the background here; leave the parameter out"

#: Control sequences (CSI, OSC, DCS and their kin, two-character escapes): colours and cursors say nothing.
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)


def plain(text: str) -> str:
    """Without control sequences, and with no line longer than the wrap column (nothing is lost)."""
    text = _ANSI.sub("", text)
    width = SIZES.wrap_column
    if len(text) <= width:
        return text
    return "\n".join(
        line if len(line) <= width else "\n".join(line[i : i + width] for i in range(0, len(line), width))
        for line in text.split("\n")
    )


def size(count: int) -> str:
    """A number of bytes for a person."""
    value = float(count)
    for unit in ("B", "KB", "MB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GB"


# -- a command that has ended ----------------------------------------------------------------------


def finished(shot: Snapshot) -> str:
    """One line of facts, then the output."""
    head = f"exit: killed ({shot.signal})" if shot.signal is not None else f"exit: {shot.exit_code}"
    if shot.truncated:
        shown = size(len(shot.output.encode("utf-8", "replace")))
        head += (
            f" [truncated: showing first/last {shown} of {size(shot.total_bytes)}"
            f" - full output at: {shot.output_file}]"
        )
    return f"{head}\n{plain(shot.output)}"


# -- a command that goes on ------------------------------------------------------------------------


def started(shot: Snapshot, result: CommandResult | None) -> str:
    """Why there is a task now."""
    if result is None or result.moved is None:
        return f"Background task {shot.task_id} started"
    name = shot.description or shot.command
    if result.moved is Moved.BY_USER:
        return f'The user has moved the command "{name}" to the background. It is still running.'
    waited = f"{result.waited:g}s" if result.waited is not None else "its time"
    return (
        f'The command "{name}" has been moved to the background: it was still running after the '
        f"auto-background limit of {waited}. It goes on."
    )


def retrieval(shot: Snapshot, names: Names) -> str:
    """How to get the output."""
    tool = names.tool(ToolKind.BACKGROUND_TASK)
    if not tool:
        return f"Its output is written to {shot.output_file}."
    ids = names.param(ToolKind.BACKGROUND_TASK, "task_ids")
    return f'Once you need the output, call {tool} with {ids}=["{shot.task_id}"].'


def started_block(shot: Snapshot, summary: str, hint: str) -> str:
    return (
        f"<task-id>{shot.task_id}</task-id>\n"
        "<task-type>bash</task-type>\n"
        f"<output-file>{shot.output_file}</output-file>\n"
        "<status>running</status>\n"
        f"<summary>{summary}</summary>\n"
        f"{hint}"
    )


# -- refusals --------------------------------------------------------------------------------------


def no_operator(parameter: str) -> str:
    """A `&` where it is not wanted; ``parameter`` is empty where the background is closed."""
    way = (
        f"set {parameter} to true and leave the & out"
        if parameter
        else "run it in the foreground; commands cannot run in the background here"
    )
    return f"the command puts a process into the background with &: {way} (or end the command with wait)"


def self_match(program: str, pattern: str) -> str:
    return (
        f"self-matching {program} -f: the pattern `{pattern}` also stands elsewhere in this command, and so "
        "in the command line of the shell that runs it. The signal would end that shell before the rest has "
        "run. Take another way: `pkill -x NAME` without -f, the kill in a call of its own, or a pid from a "
        "file."
    )


def not_found(task_id: str, known: Sequence[str], what: str = "Task", listed: str = "task") -> str:
    if not known:
        return f"{what} {task_id} not found. There are no background tasks in this session."
    return f"{what} {task_id} not found. Known {listed} IDs: [{', '.join(known)}]"


# -- a task that was asked for ---------------------------------------------------------------------


def still_running(outcome: WaitOutcome | None, asked_ms: int, waited_ms: int, parameter: str) -> str:
    """What to do about a task that has not ended; ``outcome`` None: nobody waited."""
    if outcome is None:
        first = f"To wait for the end, give {parameter}."
    elif waited_ms < asked_ms:
        first = f"Waited {waited_ms}ms, the longest that one call may wait."
    else:
        first = f"Waited {asked_ms}ms, as asked."
    return (
        f"{first} The task is still at work: the end of a wait is no reason to end the task, unless the user "
        "said so. You will be told when it completes. Go on with other work, or wait again with a longer "
        f"{parameter}."
    )


def truncation_hint(names: Names) -> str:
    reader = names.tool(ToolKind.READ)
    return f"[truncated - the whole output is in output_file{f'; use {reader}' if reader else ''}]"


def preview_footer(shot: Snapshot, names: Names) -> str:
    reader = names.tool(ToolKind.READ)
    way = f"use {reader} on {shot.output_file}" if reader else f"see {shot.output_file}"
    return f"[Output truncated - {shot.total_bytes} bytes in total; {way} for all of it]"


LONGEST_WAIT_MS = round(LIMITS.wait_longest * 1000)
