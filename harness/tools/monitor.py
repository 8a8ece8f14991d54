"""``monitor``: watch something with a command whose lines wake the session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from harness.limits import LIMITS
from harness.outcome import Completeness, FaultKind, ToolFault, ToolOutput
from harness.registry.contract import CallContext, Resource, Tool, ToolKind, ToolSpec
from harness.registry.requirements import HasResource
from harness.tools import terminal_texts as texts
from harness.workspace.monitor import start_monitor
from harness.workspace.terminal import Command, Deadline, TaskKind
from harness.workspace.terminal.selfmatch import self_matching_kill

__all__ = ["TOOLS"]

_LONGEST_MS = round(LIMITS.monitor_longest * 1000)


class StartMonitor:
    """Starts a monitor; its events reach the session through the terminal's listeners."""

    spec: ClassVar = ToolSpec(
        namespace="GrokBuild",
        id="monitor",
        kind=ToolKind.MONITOR,
        variant="Monitor",
        shown_defaults={"timeout_ms": _LONGEST_MS, "persistent": False},
        requires=HasResource(Resource.NOTIFICATIONS),
        description=(
            "Watch something with a script that runs in the background. Every line it prints is an event "
            "that reaches you in the chat while you do other work; the watch ends when the script does.\n\n"
            "**How much to print**: every line wakes you. Print the outcome only, such as `DONE`, `FAILED` "
            "or `CANCELLED`, and no progress. In pipes use `grep --line-buffered`: a plain `grep` holds its "
            "lines back for minutes. A script that prints too much for too long is ended.\n\n"
            "**When to print**: report a failure at once, as soon as any part you need has failed. Do not "
            "wait for parts that have nothing to do with it, and think of every way in which it can fail.\n\n"
            "With `${{ params.monitor.persistent }}: true` it runs as long as the session (a pull request, "
            "the tail of a log)${% if tools.by_kind.kill_task_action %}, or until you end it with "
            "${{ tools.by_kind.kill_task_action }}${% endif %}. Otherwise it ends after "
            "`${{ params.monitor.timeout_ms }}` (10 h unless you say less)."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "command": {
                    "type": "string",
                    "description": "The shell command or script. A line is an event, its end is the end of "
                    "the watch.",
                },
                "description": {
                    "type": "string",
                    "description": "In a few words for a person: what is watched. Stands with every event.",
                },
                "timeout_ms": {
                    "type": ["integer", "null"],
                    "format": "uint64",
                    "minimum": 0,
                    "default": _LONGEST_MS,
                    "description": f"End the watch after this many ms. Default and longest: {_LONGEST_MS} "
                    "(10 h).",
                },
                "persistent": {
                    "type": "boolean",
                    "default": False,
                    "description": "Watch as long as the session lasts, without a limit of time.",
                },
            },
            "required": ["command", "description"],
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        persistent = bool(arguments.get("persistent", False))
        timeout = arguments.get("timeout_ms") or _LONGEST_MS
        if timeout > _LONGEST_MS and not persistent:
            own = context.names.own
            message = f"a {own('timeout_ms')} above {_LONGEST_MS}ms needs {own('persistent')} to be true"
            raise ToolFault(FaultKind.INVALID_ARGUMENTS, message)
        if found := self_matching_kill(arguments["command"]):
            raise ToolFault(FaultKind.INVALID_ARGUMENTS, texts.self_match(*found))
        kill_tool = context.names.tool(ToolKind.KILL_TASK)
        shot = await start_monitor(
            context.session.terminal, self._command(arguments, context, persistent, timeout), kill_tool
        )
        fields = {
            "taskId": shot.task_id,
            "timeoutMs": 0 if persistent else timeout,
            "persistent": persistent,
        }
        lasts = f"timeout {timeout}ms"
        if persistent:
            ender = f"you end it with {kill_tool}" if kill_tool else "its command ends"
            lasts = f"persistent: until {ender} or the session ends"
        prompt = (
            f"Monitor started (task {shot.task_id}, {lasts}).\n"
            "Every event will be told to you. Go on with your work: neither ask nor sleep.\n"
            "An event may come while you wait for the user. It is not the user's answer."
        )
        return ToolOutput("Monitor", fields, prompt, completeness=Completeness.RUNNING)

    def _command(
        self, arguments: Mapping[str, Any], context: CallContext, persistent: bool, timeout: int
    ) -> Command:
        session = context.session
        return Command(
            command=arguments["command"],
            call_id=context.call_id,
            cwd=context.cwd or session.cwd,
            deadline=Deadline(None if persistent else timeout / 1000),
            owner=session.id,
            description=arguments["description"],
            display=f"[monitor] {arguments['description']}",
            kind=TaskKind.MONITOR,
        )


TOOLS: tuple[Tool, ...] = (StartMonitor(),)
