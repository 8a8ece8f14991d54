"""What is answered about tasks: one in full, or several one after the other.

Both projections are made of the same entries; the client's has every field, the model's the lines that it
needs to go on, with a word about what still runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from harness.limits import SIZES
from harness.outcome import Completeness, ToolOutput
from harness.registry.contract import CallContext
from harness.tools import terminal_texts as texts
from harness.workspace.terminal import Snapshot, WaitMode, WaitOutcome
from harness.workspace.terminal.book import iso_time

__all__ = ["Asked", "one", "several"]


@dataclasses.dataclass(frozen=True, slots=True)
class Asked:
    """A question about tasks after it was checked; ``wait_ms`` 0: only a look."""

    ids: tuple[str, ...]
    asked_ms: int
    wait_ms: int
    mode: WaitMode | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    """One task of an answer: for the client, and what the model reads of it."""

    fields: Mapping[str, Any]
    label: str
    output: str
    completed: bool
    truncated: bool


def one(asked: Asked, outcome: WaitOutcome | None, context: CallContext) -> ToolOutput:
    task_id, session = asked.ids[0], context.session
    shot = session.terminal.snapshot(task_id, session.id)
    if shot is None:
        text = texts.not_found(task_id, session.terminal.known_ids(session.id))
        return ToolOutput("TaskOutput", {"TaskNotFound": text}, text, is_error=True)
    entry = _entry(shot, asked, outcome, context)
    lines = [
        f"=== Task {task_id} ===",
        f"Command: {shot.label}",
        f"Status: {shot.status}",
        f"Duration: {shot.duration:.2f}s",
    ]
    if shot.exit_code is not None:
        lines.append(f"Exit Code: {shot.exit_code}")
    lines += [f"Output File: {shot.output_file}", "", "=== Output ===", entry.output or texts.NO_OUTPUT]
    if entry.truncated:
        lines.append(str(entry.fields["truncation_hint"]))
    return ToolOutput(
        "TaskOutput",
        {"Result": entry.fields},
        "\n".join(lines),
        completeness=_completeness([entry]),
        settles=frozenset({task_id} if shot.completed else ()),
    )


def several(asked: Asked, outcome: WaitOutcome | None, context: CallContext) -> ToolOutput:
    session = context.session
    shots = {i: session.terminal.snapshot(i, session.id) for i in asked.ids}
    entries = [
        _missing(i) if shot is None else _entry(shot, asked, outcome, context) for i, shot in shots.items()
    ]
    mode = str(asked.mode) if asked.mode else "poll" if outcome is None else str(WaitMode.ALL)
    done = sum(entry.completed for entry in entries)
    summary = f"{done}/{len(entries)} tasks completed ({mode})"
    prompt = f"=== Multi-wait ({mode}) ===\n{''.join(map(_block, entries))}\n{summary}"
    fields = {"mode": mode, "results": [entry.fields for entry in entries], "summary": summary}
    return ToolOutput(
        "TaskOutput",
        {"MultiResult": fields},
        prompt,
        completeness=_completeness(entries),
        settles=frozenset(i for i, shot in shots.items() if shot is not None and shot.completed),
    )


def _block(entry: _Entry) -> str:
    fields = entry.fields
    lines = [
        f"--- Task {fields['task_id']} [{fields['status']}] ---",
        f"Command: {entry.label}",
        f"Duration: {fields['duration_secs']:.2f}s",
    ]
    if fields["exit_code"] is not None:
        lines.append(f"Exit Code: {fields['exit_code']}")
    lines.append(entry.output or texts.NO_OUTPUT)
    return "\n".join(lines) + "\n"


def _entry(shot: Snapshot, asked: Asked, outcome: WaitOutcome | None, context: CallContext) -> _Entry:
    data = shot.output.encode("utf-8", "replace")
    output, cut = shot.output, shot.truncated
    if len(data) > SIZES.tool_output:
        preview = data[: SIZES.task_preview].decode("utf-8", "ignore")
        output = f"{preview}\n\n{texts.preview_footer(shot, context.names)}"
        cut = True
    if not shot.completed:
        parameter = context.names.own("timeout_ms")
        word = texts.still_running(outcome, asked.asked_ms, asked.wait_ms, parameter)
        output = f"{output}\n\n{word}"
    fields = {
        "task_id": shot.task_id,
        "command": shot.label,
        "status": str(shot.status),
        "exit_code": shot.exit_code,
        "started": iso_time(shot.started),
        "ended": None if shot.finished is None else iso_time(shot.finished),
        "duration_secs": shot.duration,
        "output": output,
        "output_file": shot.output_file,
        "truncated": cut,
        "truncation_hint": texts.truncation_hint(context.names),
        "raw_output_bytes": shot.total_bytes,
    }
    return _Entry(fields, shot.label, output, shot.completed, cut)


def _missing(task_id: str) -> _Entry:
    text = f"Task {task_id} not found."
    fields = {
        "task_id": task_id,
        "command": "",
        "status": "not_found",
        "exit_code": None,
        "started": "",
        "ended": None,
        "duration_secs": 0.0,
        "output": text,
        "output_file": "",
        "truncated": False,
        "truncation_hint": "",
        "raw_output_bytes": 0,
    }
    return _Entry(fields, "", text, completed=False, truncated=False)


def _completeness(entries: Sequence[_Entry]) -> Completeness:
    if any(not entry.completed and entry.fields["status"] != "not_found" for entry in entries):
        return Completeness.RUNNING
    return Completeness.TRUNCATED if any(entry.truncated for entry in entries) else Completeness.COMPLETE
