"""Tools that say what they need and only echo what they are given: a set to compose in tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from harness.outcome import ToolOutput
from harness.registry.config import ToolConfig, ToolServerConfig
from harness.registry.contract import CallContext, Resource, ToolKind, ToolSpec
from harness.registry.registry import Registry
from harness.registry.requirements import HasInput, HasKind, HasResource, HasTool, IfParams, ParamIs


@dataclasses.dataclass(frozen=True)
class Echo:
    spec: ToolSpec

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        return ToolOutput("Echo", {"arguments": dict(arguments)}, f"{self.spec.id}: {sorted(arguments)}")


def schema(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


TEXT = {"type": "string"}
FLAG = {"type": "boolean", "default": False}
TERMINAL = "GrokBuild:run_terminal_cmd"
WITH_BACKGROUND = HasTool(TERMINAL, ParamIs("enabled_background", True)) | HasTool("OpenCode:bash")

RUN = Echo(
    ToolSpec(
        "GrokBuild",
        "run_terminal_cmd",
        ToolKind.EXECUTE,
        "Run a command."
        "${% if config.enabled_background %} With ${{ params.execute.is_background }} it runs on;"
        " ask ${{ tools.by_kind.background_task_action }} for it.${% endif %}",
        schema("command", command=TEXT, timeout={"type": "integer"}, is_background=FLAG),
        params_schema=schema(
            enabled_background=FLAG, auto_background_on_timeout=FLAG, limit={"type": "integer"}
        ),
        default_params={"enabled_background": True, "auto_background_on_timeout": False},
        open_params=True,
        params_rules=(
            (
                IfParams(ParamIs("auto_background_on_timeout", True), ParamIs("enabled_background", True)),
                "a command can move to the background only where there is one",
            ),
        ),
        requires=IfParams(
            ParamIs("enabled_background", True),
            HasKind(ToolKind.BACKGROUND_TASK)
            & HasKind(ToolKind.KILL_TASK)
            & HasResource(Resource.NOTIFICATIONS),
        ),
        concessions=({"enabled_background": False, "auto_background_on_timeout": False},),
        input_when={"is_background": ParamIs("enabled_background", True)},
        variant="Bash",
        shown_defaults={"is_background": False},
        reads={"command": "command"},
        managed=True,
    )
)
OUTPUT = Echo(
    ToolSpec(
        "GrokBuild",
        "get_task_output",
        ToolKind.BACKGROUND_TASK,
        "Output of a task of ${{ tools.by_kind.execute }}.",
        schema(
            task_ids={"type": "array", "items": TEXT},
            timeout_ms={
                "type": ["integer", "null"],
                "minimum": 0,
                "description": "At most {max_wait_ms} ms.",
            },
        ),
        requires=WITH_BACKGROUND,
        aliases={"task_id": "task_ids"},
        scalar_lists=frozenset({"task_ids"}),
        figures={"max_wait_ms": 600_000},
        read_only=True,
        variant="TaskOutput",
        shown_defaults={"timeout_ms": None},
    )
)
KILL = Echo(
    ToolSpec(
        "GrokBuild",
        "kill_task",
        ToolKind.KILL_TASK,
        "End a task.",
        schema("task_id", task_id=TEXT),
        requires=WITH_BACKGROUND,
    )
)
READ = Echo(
    ToolSpec(
        "GrokBuild",
        "read_file",
        ToolKind.READ,
        "Read a file, at most {max_lines_read} lines of it.",
        schema("target_file", target_file=TEXT, offset={"type": "integer"}, share={"type": "number"}),
        figures={"max_lines_read": 1000},
        variant="ReadFile",
        reads={"path": "target_file", "offset": "offset"},
        managed=True,
    )
)
EDIT = Echo(
    ToolSpec(
        "GrokBuild",
        "search_replace",
        ToolKind.EDIT,
        "Change a file${% if tools.by_kind.read %} that ${{ tools.by_kind.read }} showed${% endif %}.",
        schema(
            "file_path",
            "old_string",
            "new_string",
            file_path=TEXT,
            old_string={"type": "string", "description": "As ${{ tools.by_kind.read }} shows it."},
            new_string={"type": "string", "description": "Not ${{ params.edit.old_string }}."},
            replace_all=FLAG,
        ),
        params_schema=schema(skip_read_before_edit=FLAG),
        default_params={"skip_read_before_edit": False},
        requires=(ParamIs("skip_read_before_edit", True) | HasKind(ToolKind.READ))
        & HasInput(ToolKind.EDIT, "old_string"),
        notifications=("file_written",),
        variant="SearchReplace",
        shown_defaults={"replace_all": False},
        reads={"path": "file_path"},
    )
)
ENTER = Echo(
    ToolSpec(
        "GrokBuild",
        "enter_plan_mode",
        ToolKind.ENTER_PLAN,
        "Plan first.",
        schema(),
        requires=HasTool("GrokBuild:exit_plan_mode"),
    )
)
LEAVE = Echo(
    ToolSpec(
        "GrokBuild",
        "exit_plan_mode",
        ToolKind.EXIT_PLAN,
        "Present the plan.",
        schema(),
        requires=HasTool("GrokBuild:enter_plan_mode") & HasResource(Resource.PLAN_APPROVAL),
    )
)
MONITOR = Echo(
    ToolSpec(
        "GrokBuild",
        "monitor",
        ToolKind.MONITOR,
        "Watch a command.",
        schema("command", command=TEXT),
        requires=HasResource(Resource.NOTIFICATIONS),
    )
)
CREATE = Echo(ToolSpec("GrokBuild", "scheduler_create", ToolKind.OTHER, "Plan a prompt.", schema()))
DELETE = Echo(
    ToolSpec(
        "GrokBuild",
        "scheduler_delete",
        ToolKind.OTHER,
        "Forget it.",
        schema("id", id=TEXT),
        requires=HasTool("GrokBuild:scheduler_create"),
    )
)
TODO = Echo(
    ToolSpec(
        "GrokBuild",
        "todo_write",
        ToolKind.PLAN,
        "Keep a list.",
        schema(
            "todos",
            todos={
                "type": "array",
                "items": schema(
                    "id", id=TEXT, status={"type": ["string", "null"], "enum": ["open", "done", None]}
                ),
            },
            merge={"type": "boolean", "default": True},
        ),
    )
)

ALL = (RUN, OUTPUT, KILL, READ, EDIT, ENTER, LEAVE, MONITOR, CREATE, DELETE, TODO)


def registry() -> Registry:
    return Registry(ALL)


def config(*tools: Echo | ToolConfig) -> ToolServerConfig:
    entries = (one if isinstance(one, ToolConfig) else ToolConfig(one.spec.key) for one in tools or ALL)
    return ToolServerConfig(tuple(entries))
