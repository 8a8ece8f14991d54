"""``run_terminal_cmd``: a command in the session's shell, in the foreground or in the background.

The foreground is for what ends soon.  What goes on longer is moved to the background instead of being
killed (where the background is open), and the model gets the id under which it goes on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from harness.limits import LIMITS, SIZES
from harness.outcome import Completeness, FaultKind, ToolFault, ToolOutput
from harness.registry.contract import CallContext, Tool, ToolKind, ToolSpec
from harness.registry.requirements import HasKind, IfParams, ParamIs
from harness.tools import terminal_texts as texts
from harness.workspace.terminal import Command, CommandResult, Snapshot, TaskStatus, TimingPolicy, resolve
from harness.workspace.terminal.selfmatch import self_matching_kill
from harness.workspace.terminal.shelltext import background_operator

__all__ = ["TOOLS", "RunTerminal", "finished_output", "run_command", "started_output"]

#: Environment of the session that overrides the pauses, for tests and for patient people.
_BLOCK_VARIABLE = "GROK_FOREGROUND_BLOCK_BUDGET_MS"
_FOREGROUND_VARIABLE = "GROK_MAX_FOREGROUND_BLOCK_MS"

#: One command and nothing that the shell would do besides: no lists, pipes, files or substitutions.
_BARE_ECHO = re.compile(r"(?:echo|printf)(?:[ \t][^;|&<>`$()\n]*)?")

_BACKGROUND_ON = ParamIs("enabled_background", True)


def _shape(schema: dict[str, Any], params: Mapping[str, Any]) -> None:
    """The time limit's description states the effective figures, and its bound where one was set."""
    policy = timing_policy(params, {})
    ceiling, default = round(policy.bounded_ceiling * 1000), round(policy.default * 1000)
    timeout = schema["properties"]["timeout"]
    timeout["default"] = min(default, ceiling)
    if params.get("max_timeout_secs") is not None:
        timeout["maximum"] = ceiling
    text = f"Time limit in milliseconds, at most {ceiling} (default {min(default, ceiling)}). "
    if policy.auto_background:
        text += (
            "It ends the command only while it is in the foreground, and waiting for it takes no longer: "
            f"after about {policy.block_budget:g}s a command that still runs goes on in the background "
            f"under a task id, until it ends by itself (at most {LIMITS.command_longest / 3600:g}h). A "
            "result without a task id means that the command was ended at the limit."
        )
    else:
        text += "A command that still runs then is ended."
    timeout["description"] = text


class RunTerminal:
    """The standard family's terminal."""

    spec: ClassVar = ToolSpec(
        namespace="GrokBuild",
        id="run_terminal_cmd",
        kind=ToolKind.EXECUTE,
        variant="Bash",
        shown_defaults={"is_background": False},
        reads={"command": "command", "description": "description"},
        description=(
            "Run a bash command and get what it prints.\n\n"
            "Notes:\n"
            "  - `${{ params.execute.timeout }}` is a time limit in milliseconds."
            "${% if config.auto_background_on_timeout %} A call waits for about "
            "{foreground_block_budget_ms} ms at most, whatever the limit. What still runs then is moved to "
            "the background: it is not ended, it has not timed out, and you get a task id to ask with "
            "${{ tools.by_kind.background_task_action }}. Without a task id in the result, the command was "
            "ended at its limit. In the background the limit no longer holds.${% endif %}"
            "${% if config.enabled_background %} A command that you start with "
            "`${{ params.execute.is_background }}: true` has no limit unless you name one (0 is none); at a "
            "limit it and everything it started get SIGTERM, and SIGKILL a second later. Otherwise it is "
            "yours to end with ${{ tools.by_kind.kill_task_action }}.${% endif %}\n"
            "  - Of an output longer than {output_byte_limit} characters you get the beginning and the end, "
            "and the path of a log that holds all of it: read or search that.\n"
            "  - Every call starts in the working directory of the session; a `cd` does not last.\n"
            "${% if config.enabled_background %}"
            "  - Use `${{ params.execute.is_background }}` for what runs long, such as a server or a long "
            "build: you get a task id at once and are told when it has ended, so neither ask again and "
            "again nor sleep. The command needs no `&` at its end.${% endif %}"
        ),
        input_schema={
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The bash command."},
                "timeout": {
                    "type": ["integer", "null"],
                    "format": "uint64",
                    "minimum": 0,
                    "default": 120_000,
                    "description": "Time limit in milliseconds.",
                },
                "description": {
                    "type": "string",
                    "description": "One sentence: why this command has to run, and what it brings the "
                    "work forward by.",
                },
                "is_background": {
                    "type": "boolean",
                    "default": False,
                    "description": "Run it in the background (servers, long builds). You get a task id at "
                    "once, and word when the command has ended: do not ask for it in a loop.",
                },
            },
            "required": ["command", "description"],
        },
        input_when={"is_background": _BACKGROUND_ON},
        params_schema={
            "type": "object",
            "properties": {
                "timeout_secs": {"type": ["number", "null"], "minimum": 0},
                "max_timeout_secs": {"type": ["number", "null"], "minimum": 0},
                "output_byte_limit": {"type": ["integer", "null"], "minimum": 2},
                "cmd_prefix": {"type": ["string", "null"]},
                "enabled_background": {"type": "boolean"},
                "auto_background_on_timeout": {"type": "boolean"},
                "foreground_block_budget_ms": {"type": ["integer", "null"], "minimum": 0},
                "allow_background_operator": {"type": "boolean"},
                "surface_bg_completion_reminders": {"type": "boolean"},
            },
        },
        default_params={
            "enabled_background": True,
            "auto_background_on_timeout": False,
            "allow_background_operator": True,
            "surface_bg_completion_reminders": True,
        },
        params_rules=(
            (
                ~ParamIs("auto_background_on_timeout", True) | _BACKGROUND_ON,
                "auto_background_on_timeout needs enabled_background",
            ),
        ),
        figures={
            "output_byte_limit": SIZES.command_output,
            "foreground_block_budget_ms": round(LIMITS.command_block * 1000),
        },
        requires=IfParams(_BACKGROUND_ON, HasKind(ToolKind.BACKGROUND_TASK) & HasKind(ToolKind.KILL_TASK)),
        concessions=({"enabled_background": False, "auto_background_on_timeout": False},),
        shape=_shape,
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        return await run_command(
            context,
            arguments["command"],
            timeout_ms=arguments.get("timeout"),
            background=bool(arguments.get("is_background", False)),
            description=arguments.get("description"),
        )


async def run_command(
    context: CallContext,
    command: str,
    *,
    timeout_ms: int | None,
    background: bool,
    description: str | None,
    cwd: str | None = None,
) -> ToolOutput:
    """Check a command, run it under the tool's parameters, and word what came of it."""
    params, session = context.params, context.session
    _check(command, background, context)
    if prefix := params.get("cmd_prefix"):
        command = f"{prefix} && {command}"
    deadline = resolve(timeout_ms, background=background, policy=timing_policy(params, session.env))
    work = Command(
        command=command,
        call_id=context.call_id,
        cwd=cwd or context.cwd or session.cwd,
        deadline=deadline,
        owner=session.id,
        description=description,
        output_limit=params.get("output_byte_limit") or SIZES.command_output,
    )
    if background:
        return started_output(await session.terminal.start(work), context)
    result = await session.terminal.run(work, cancelled=context.cancelled)
    if result.moved is not None:
        return started_output(result.snapshot, context, result)
    return finished_output(result.snapshot)


def timing_policy(params: Mapping[str, Any], env: Mapping[str, str]) -> TimingPolicy:
    """The tool's parameters as seconds; the environment of the session may shorten the pauses."""
    block_ms = params.get("foreground_block_budget_ms")
    block = LIMITS.command_block if block_ms is None else block_ms / 1000
    if (override := _milliseconds(env.get(_BLOCK_VARIABLE))) is not None:
        block = max(override, 1) / 1000  # 0 means at once, not never
    default = params.get("timeout_secs") or LIMITS.command_default
    ceiling = params.get("max_timeout_secs") or LIMITS.command_foreground
    foreground = _milliseconds(env.get(_FOREGROUND_VARIABLE))
    return TimingPolicy(
        default=default,
        ceiling=ceiling,
        auto_background=bool(params.get("auto_background_on_timeout", False)),
        block_budget=block,
        foreground=LIMITS.command_foreground if foreground is None else foreground / 1000,
    )


def _milliseconds(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() else None


def _check(command: str, background: bool, context: CallContext) -> None:
    """Refuse what would not do what the model means by it."""
    params = context.params
    enabled = bool(params.get("enabled_background", True))
    if background and not enabled:
        raise ToolFault(FaultKind.INVALID_ARGUMENTS, texts.NO_BACKGROUND)
    allowed = background or (enabled and bool(params.get("allow_background_operator", True)))
    if not allowed and background_operator(command) is not None:
        parameter = context.names.own("is_background") if enabled else ""
        raise ToolFault(FaultKind.INVALID_ARGUMENTS, texts.no_operator(parameter))
    if found := self_matching_kill(command):
        raise ToolFault(FaultKind.INVALID_ARGUMENTS, texts.self_match(*found))


def is_bare_echo(command: str) -> bool:
    """Whether it only prints a text that the model could have said: clients count such calls."""
    return len(command) < SIZES.bare_echo and _BARE_ECHO.fullmatch(command.strip()) is not None


def finished_output(shot: Snapshot) -> ToolOutput:
    """A foreground command that has ended.  An exit code other than 0 is an answer, not a failure of the
    call; an end by a signal or a limit is one."""
    prompt = texts.finished(shot)
    fields = {
        "output": list(shot.output.encode("utf-8", "replace")),
        "output_for_prompt": prompt,
        "exit_code": -1 if shot.exit_code is None else shot.exit_code,
        "command": shot.command,
        "truncated": shot.truncated,
        "signal": shot.signal,
        "timed_out": shot.status is TaskStatus.TIMED_OUT,
        "description": shot.description,
        "current_dir": shot.cwd,
        "output_file": shot.output_file,
        "total_bytes": shot.total_bytes,
    }
    if is_bare_echo(shot.command):
        fields["was_bare_echo"] = True  # only then is the field there
    whole = Completeness.TRUNCATED if shot.truncated else Completeness.COMPLETE
    return ToolOutput("Bash", fields, prompt, is_error=shot.signal is not None, completeness=whole)


def started_output(shot: Snapshot, context: CallContext, result: CommandResult | None = None) -> ToolOutput:
    """A command that runs in the background from now on."""
    summary, hint = texts.started(shot, result), texts.retrieval(shot, context.names)
    fields: dict[str, Any] = {
        "task_id": shot.task_id,
        "task_type": "bash",
        "output_file": shot.output_file,
        "status": "running",
        "command": shot.command,
        "summary": summary,
        "retrieval_hint": hint,
        "pid": shot.pid,
    }
    prompt = texts.started_block(shot, summary, hint)
    return ToolOutput("BackgroundTaskStarted", fields, prompt, completeness=Completeness.RUNNING)


TOOLS: tuple[Tool, ...] = (RunTerminal(),)
