"""Tasks in the background: look at one or several, wait for them, end one.

``get_task_output`` and ``kill_task`` also serve subagents in a set that has them; their twins
``get_terminal_command_output`` and ``kill_terminal_command`` are for sets without: the same work under a
description that promises no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.limits import LIMITS, SIZES
from harness.outcome import FaultKind, ToolFault, ToolOutput
from harness.registry.contract import CallContext, Tool, ToolKind, ToolSpec
from harness.registry.requirements import Expr, HasTool, ParamIs
from harness.tools import terminal_texts as texts
from harness.tools.task_answers import Asked, one, several
from harness.workspace.terminal import KillOutcome, KillSource, WaitMode, WaitOutcome

__all__ = ["TOOLS"]

_WAIT_VARIABLE = "GROK_MAX_WAIT_BLOCK_MS"

_BACKGROUND = ParamIs("enabled_background", True)
_COMMANDS: Expr = (
    HasTool("GrokBuild:run_terminal_cmd", _BACKGROUND)
    | HasTool("GrokBuildConcise:run_terminal_cmd", _BACKGROUND)
    | HasTool("OpenCode:bash")
)
_COMMANDS_OR_SUBAGENTS: Expr = _COMMANDS | HasTool("GrokBuild:task")

_IDS = {
    "type": "array",
    "items": {"type": "string"},
    "default": [],
    "description": "The ids of the tasks, one or more (a single one as an array of one). Of several, with a "
    "positive ${{ params.background_task_action.timeout_ms }}, all are waited for.",
}
_TIMEOUT = {
    "type": ["integer", "null"],
    "format": "uint64",
    "minimum": 0,
    "default": None,
    "description": "How long to wait for the end, in milliseconds, at most {max_wait_ms}. Left out or 0: no "
    "waiting, only a look.",
}
_FIGURES = {"max_wait_ms": texts.LONGEST_WAIT_MS}


class TaskOutput:
    """State and output of tasks."""

    def __init__(self, tool_id: str, subjects: str, commands: str, requires: Expr) -> None:
        self._spec = ToolSpec(
            namespace="GrokBuild",
            id=tool_id,
            kind=ToolKind.BACKGROUND_TASK,
            variant="TaskOutput",
            read_only=True,
            shown_defaults={"timeout_ms": None},
            requires=requires,
            aliases={"task_id": "task_ids"},
            scalar_lists=frozenset({"task_ids"}),
            figures=_FIGURES,
            description=(
                f"Look at {subjects}: what it has printed and how it stands.\n\n"
                "Notes:\n"
                f"- `${{{{ params.background_task_action.task_ids }}}}` takes the ids that {commands} gave "
                "you${% if tools.by_kind.monitor %} (${{ tools.by_kind.monitor }} gives one too)${% endif %}."
                "\n- Without `${{ params.background_task_action.timeout_ms }}`, or with 0, you get the state "
                "of this moment; a positive value waits as many milliseconds for the end, {max_wait_ms} (an "
                "hour) at most. Of several tasks all are waited for.\n"
                "- The answer has the output so far, the state, and the exit code of a task that has ended.\n"
                "- A long output is cut${% if tools.by_kind.read %}; read the rest from output_file with "
                "${{ tools.by_kind.read }}${% endif %}."
            ),
            input_schema={
                "type": "object",
                "properties": {"task_ids": _IDS, "timeout_ms": _TIMEOUT},
                "required": [],
            },
        )

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        asked = _asked(arguments, context, mode=None, default_ms=0)
        outcome = await _wait(asked, context)
        if len(asked.ids) > 1:
            return several(asked, outcome, context)
        return one(asked, outcome, context)


class WaitTasks:
    """Wait for one or for all of several tasks."""

    def __init__(self) -> None:
        self._spec = ToolSpec(
            namespace="GrokBuild",
            id="wait_tasks",
            kind=ToolKind.WAIT_TASKS,
            variant="WaitTasks",
            read_only=True,
            requires=_COMMANDS_OR_SUBAGENTS,
            aliases={"task_id": "task_ids"},
            scalar_lists=frozenset({"task_ids"}),
            figures=_FIGURES,
            description=(
                "Wait for background tasks.\n\n"
                "Notes:\n"
                "- `wait_any` comes back when the first of them has ended, `wait_all` when the last has.\n"
                "- `${{ params.wait_tasks_action.timeout_ms }}` is the longest wait in milliseconds, "
                "{max_wait_ms} at most; without it "
                f"{round(LIMITS.wait_default * 1000)}. A task that still runs then goes on.\n"
                "- You get the state and the output of every task you named."
            ),
            input_schema={
                "type": "object",
                "properties": {
                    "task_ids": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "The ids of the tasks.",
                    },
                    "mode": {
                        "type": "string",
                        "enum": [str(mode) for mode in WaitMode],
                        "description": "Wait for the first of them or for all.",
                    },
                    "timeout_ms": {**_TIMEOUT, "description": "The longest wait in ms ({max_wait_ms})."},
                },
                "required": ["task_ids", "mode"],
            },
        )

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        default = round(LIMITS.wait_default * 1000)
        asked = _asked(arguments, context, mode=WaitMode(arguments["mode"]), default_ms=default)
        return several(asked, await _wait(asked, context), context)


class KillTask:
    """End one task."""

    def __init__(self, tool_id: str, subjects: str, how: str, missing: str, requires: Expr) -> None:
        self._missing = missing
        self._spec = ToolSpec(
            namespace="GrokBuild",
            id=tool_id,
            kind=ToolKind.KILL_TASK,
            variant="KillTask",
            requires=requires,
            description=(
                f"End {subjects} that is running.\n\n"
                "Notes:\n"
                "- Name it by its `${{ params.kill_task_action.task_id }}`"
                "${% if tools.by_kind.monitor %} (of a monitor: what ${{ tools.by_kind.monitor }} gave you)"
                "${% endif %}.\n"
                f"- {how}\n"
                "- Ending what has ended already is no error."
            ),
            input_schema={
                "type": "object",
                "properties": {
                    "task_id": {"type": "string", "description": "The id of the task that has to end"}
                },
                "required": ["task_id"],
            },
        )

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        task_id, session = str(arguments["task_id"]).strip(), context.session
        outcome = await session.terminal.kill(task_id, KillSource.MODEL, owner=session.id)
        if outcome is KillOutcome.NOT_FOUND:
            known = session.terminal.known_ids(session.id)
            text = texts.not_found(task_id, known, self._missing, "bash task")
            return ToolOutput("KillTask", {"TaskNotFound": text}, text, is_error=True)
        message = "The task has been ended" if outcome is KillOutcome.KILLED else "The task had already ended"
        fields = {"Result": {"task_id": task_id, "outcome": str(outcome), "message": message}}
        # Of one that had ended before, nothing is said here about how: that is still to be told.
        settled = frozenset({task_id} if outcome is KillOutcome.KILLED else ())
        return ToolOutput("KillTask", fields, f"{outcome}: {message}", settles=settled)


# -- asking ----------------------------------------------------------------------------------------


def _asked(
    arguments: Mapping[str, Any], context: CallContext, *, mode: WaitMode | None, default_ms: int
) -> Asked:
    ids = tuple(dict.fromkeys(i for i in (str(i).strip() for i in arguments.get("task_ids") or ()) if i))
    name = context.names.own("task_ids")
    if not ids:
        raise ToolFault(FaultKind.INVALID_ARGUMENTS, f"{name} is empty: name at least one task")
    if len(ids) > SIZES.wait_ids:
        raise ToolFault(FaultKind.INVALID_ARGUMENTS, f"{name} has more than {SIZES.wait_ids} entries")
    wanted = arguments.get("timeout_ms") or default_ms
    limit = context.session.env.get(_WAIT_VARIABLE, "")
    longest = min(int(limit), texts.LONGEST_WAIT_MS) if limit.isdecimal() else texts.LONGEST_WAIT_MS
    return Asked(ids, wanted, min(wanted, longest), mode)


async def _wait(asked: Asked, context: CallContext) -> WaitOutcome | None:
    """Wait as long as was asked for; None where nobody wanted to."""
    if asked.wait_ms <= 0:
        return None
    outcome = await context.session.terminal.wait(
        asked.ids,
        mode=asked.mode or WaitMode.ALL,
        seconds=asked.wait_ms / 1000,
        cancelled=context.cancelled,
    )
    if outcome is WaitOutcome.CANCELLED:
        raise ToolFault(FaultKind.CANCELLED, "the wait was called off; the tasks go on")
    return outcome


_LAUNCHERS = (
    "${% if tools.by_kind.execute %}${{ params.execute.is_background }}=true of "
    "${{ tools.by_kind.execute }}${% else %}a command in the background${% endif %}"
)
#: What else a task may be, in a set where that exists.
_MONITOR = "${% if tools.by_kind.monitor %} or a monitor${% endif %}"
_MONITOR_OR_SUBAGENT = f"{_MONITOR}${{% if tools.by_kind.task %}} or a subagent${{% endif %}}"
_SIGNALS = "A command or monitor gets SIGTERM, then SIGKILL, and so does everything that it has started"

TOOLS: tuple[Tool, ...] = (
    TaskOutput(
        "get_task_output",
        f"a background command{_MONITOR_OR_SUBAGENT}",
        f"{_LAUNCHERS}${{% if tools.by_kind.task %}} or ${{{{ tools.by_kind.task }}}}${{% endif %}}",
        _COMMANDS_OR_SUBAGENTS,
    ),
    TaskOutput("get_terminal_command_output", f"a background command{_MONITOR}", _LAUNCHERS, _COMMANDS),
    WaitTasks(),
    KillTask(
        "kill_task",
        f"a background command{_MONITOR_OR_SUBAGENT}",
        f"{_SIGNALS}${{% if tools.by_kind.task %}}; a subagent is cancelled and shut down${{% endif %}}.",
        "Task or subagent",
        _COMMANDS_OR_SUBAGENTS,
    ),
    KillTask("kill_terminal_command", f"a background command{_MONITOR}", f"{_SIGNALS}.", "Task", _COMMANDS),
)
