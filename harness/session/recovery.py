"""What is told of a session whose process ended in the middle of something.

Pure.  The turn is over, its open calls have failed, tasks in the background went with the process.  Told
once, as further entries of the history, so that every client that loads the session sees the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.session.history import Lost
from harness.session.presentation import ResultView, text_content
from harness.session.updates import Update, Updates

__all__ = ["endings"]

_INTERRUPTED = "The engine ended before this turn did. Results of finished steps were kept."
_CALL = "The engine ended while this ran."
#: In the place of the signal that ended a task.
_RESTART = "session_restart"


def endings(
    lost: Lost, updates: Updates, prompt_id: str, output: Callable[[str], str], now: Callable[[], float]
) -> list[Update]:
    """``prompt_id`` is the turn's, ``output(call id)`` what its command had printed."""
    told = list[Update]()
    for call_id in lost.calls:
        printed = output(call_id)
        text = f"{printed.rstrip()}\n\n{_CALL}" if printed else _CALL
        told.append(updates.tool_call_ended(call_id, ResultView(True, text_content(text))))
    if lost.turn:
        fields = {"prompt_id": prompt_id, "stop_reason": "interrupted", "agent_result": _INTERRUPTED}
        told.append(updates.notification("turn_completed", fields, meta=True))
    for task in lost.tasks:
        ended: dict[str, Any] = {"task_snapshot": _snapshot(task, now()), "will_wake": False}
        told.append(updates.own_method("_x.ai/task_completed", "task_completed", ended))
    if lost.tasks:
        told.append(updates.notification("background_tasks", {"tasks": []}, meta=True))
    return told


def _snapshot(task: Mapping[str, Any], now: float) -> dict[str, Any]:
    seconds, rest = divmod(now, 1)
    ended = {"secs_since_epoch": int(seconds), "nanos_since_epoch": int(rest * 1e9)}
    return {
        "task_id": task.get("task_id"),
        "command": task.get("command"),
        "cwd": task.get("cwd"),
        "start_time": ended,
        "end_time": ended,
        "output": "",
        "output_file": task.get("output_file", ""),
        "truncated": False,
        "output_total_bytes": 0,
        "exit_code": None,
        "signal": _RESTART,
        "completed": True,
        "kind": "monitor" if "monitor_description" in task else "bash",
        "block_waited": False,
        "explicitly_killed": False,
        "kill_result_delivered": False,
        "is_backgrounded": True,
    }
