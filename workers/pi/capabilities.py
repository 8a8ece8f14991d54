"""The gate of Grok's own tools: may this call run, must somebody be asked, or is it denied?

Sans-I/O.  Grok's tools may do what Pi's *active* tools could do: somebody who has taken ``bash`` out of Pi
does not want commands to be run by the model.  First a call is classified, then the table of the mode
decides; a deny list comes before everything, and in read-only what is not known is not read-only.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

__all__ = ["Capabilities", "Kind", "Tool", "Verdict", "classify", "decide", "mcp_target"]


class Kind(enum.Enum):
    """What a tool call does."""

    READ = "read"
    WRITE = "write"
    SHELL = "shell"
    MCP = "mcp"
    HARMLESS = "harmless"  #: changes nothing but the conversation
    OTHER = "other"  #: known to change something, or not known at all


#: Kinds of Grok's ``x.ai/tool`` stamp.
_STAMPS = {
    **dict.fromkeys(
        ("read", "search", "list_dir", "list", "lsp", "memory_search", "memory_get", "search_tool"), Kind.READ
    ),
    **dict.fromkeys(("edit", "write", "delete", "move"), Kind.WRITE),
    **dict.fromkeys(("execute", "monitor", "kill_task_action"), Kind.SHELL),
    **dict.fromkeys(
        (
            "plan",
            "ask_user",
            "enter_plan",
            "exit_plan",
            "background_task_action",
            "wait_tasks_action",
            "task",
        ),
        Kind.HARMLESS,
    ),
    "use_tool": Kind.MCP,
}

#: Names of tools, for the moment before Grok has stamped the call.
_NAMES = {
    **dict.fromkeys(
        (
            "codebase_search",
            "glob",
            "grep",
            "grep_files",
            "hashline_grep",
            "hashline_read",
            "list_dir",
            "ls",
            "lsp",
            "memory_get",
            "memory_search",
            "read",
            "read_file",
            "search_tool",
        ),
        Kind.READ,
    ),
    **dict.fromkeys(
        (
            "apply_patch",
            "delete_file",
            "edit",
            "hashline_edit",
            "move_file",
            "search_replace",
            "write",
            "write_file",
        ),
        Kind.WRITE,
    ),
    **dict.fromkeys(
        (
            "bash",
            "kill_task",
            "kill_terminal_command",
            "monitor",
            "run_terminal_cmd",
            "run_terminal_command",
        ),
        Kind.SHELL,
    ),
    **dict.fromkeys(
        (
            "ask_user_question",
            "enter_plan_mode",
            "exit_plan_mode",
            "get_task_output",
            "get_terminal_command_output",
            "scheduler_list",
            "spawn_subagent",
            "task",
            "todo_write",
            "wait_tasks",
        ),
        Kind.HARMLESS,  # a subagent's own calls pass the gate one by one
    ),
}

_MCP_NAME = re.compile(r"(?P<server>.+?)__(?P<tool>.+)")


@dataclasses.dataclass(frozen=True, slots=True)
class Tool:
    """One call, classified.  ``name`` is what people and the lists call it."""

    name: str
    kind: Kind
    server: str = ""  #: of an MCP tool
    read_only: bool = False  #: Grok's stamp says so


def mcp_target(name: str, tool_input: Any) -> str:
    """The real name of a tool that is called through ``use_tool``."""
    if name == "use_tool" and isinstance(tool_input, Mapping):
        target = tool_input.get("tool_name")
        return target if isinstance(target, str) and target else name
    return name


def classify(name: str, stamp: Mapping[str, Any] | None = None, tool_input: Any = None) -> Tool:
    """``stamp``: the call's ``_meta["x.ai/tool"]``, None when Grok has not sent it yet."""
    stamp = stamp or {}
    name = mcp_target(name, tool_input)
    kind = _STAMPS.get(str(stamp.get("kind")))
    if stamp.get("namespace") == "mcp":
        kind = Kind.MCP
    match = _MCP_NAME.fullmatch(name)
    if kind is None or kind is Kind.MCP:
        kind = _NAMES.get(name, Kind.MCP if match or name == "use_tool" else kind or Kind.OTHER)
    read_only = stamp.get("read_only") is True
    return Tool(name, kind, match["server"] if match and kind is Kind.MCP else "", read_only)


@dataclasses.dataclass(frozen=True, slots=True)
class Capabilities:
    """What Pi's active tools can do."""

    read: bool
    write: bool
    shell: bool

    @classmethod
    def of(cls, active: Collection[str], mode: str) -> Capabilities:
        """``active``: names of Pi's active tools."""
        if mode == "yolo":
            return cls(True, True, True)
        return cls(
            read=not {"read", "grep", "find", "ls"}.isdisjoint(active),
            write=not {"edit", "write"}.isdisjoint(active),
            shell="bash" in active,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """``ask``: a person must agree."""

    answer: Literal["allow", "deny", "ask"]
    reason: str = ""  #: of a denial; goes to the model


_ALLOW = Verdict("allow")
_NO_LIST = "{tool} is in the deny list (hooks.denyGrokTools)."
_READ_ONLY = "{tool} is not read-only, and the user has set read-only mode."
_LACKS = "{tool} is not available: the user has taken Pi's {what} away."


def decide(
    tool: Tool,
    mode: str,
    capabilities: Capabilities,
    *,
    deny: Iterable[re.Pattern[str]] = (),
    allow: Iterable[re.Pattern[str]] = (),
    mcp_read_only: Iterable[re.Pattern[str]] = (),
    hinted_read_only: bool = False,
    ui: bool = True,
) -> Verdict:
    """The verdict on one call.

    ``hinted_read_only``: an MCP tool's own ``readOnlyHint``.  ``ui``: somebody can be asked; without,
    *ask* is read-only.
    """
    if any(pattern.fullmatch(tool.name) for pattern in deny):
        return Verdict("deny", _NO_LIST.format(tool=tool.name))
    if mode == "ask" and not ui:
        mode = "read-only"
    reads_only = tool.kind in (Kind.READ, Kind.HARMLESS) or _only_reads(tool, mcp_read_only, hinted_read_only)
    if mode == "yolo":
        return _ALLOW
    if mode == "read-only" and not reads_only:
        return Verdict("deny", _READ_ONLY.format(tool=tool.name))
    if not any(pattern.fullmatch(tool.name) for pattern in allow):
        lacking = _lacking(tool, capabilities, reads_only)
        if lacking:
            return Verdict("deny", _LACKS.format(tool=tool.name, what=lacking))
    return Verdict("ask") if mode == "ask" and not reads_only else _ALLOW


def _only_reads(tool: Tool, servers: Iterable[re.Pattern[str]], hinted: bool) -> bool:
    if tool.kind is Kind.MCP:
        return hinted or any(pattern.fullmatch(tool.server) for pattern in servers if tool.server)
    return tool.kind is Kind.OTHER and tool.read_only


def _lacking(tool: Tool, capabilities: Capabilities, reads_only: bool) -> str:
    """Pi's tools that would be needed; "" if nothing lacks."""
    match tool.kind:
        case Kind.READ:
            return "" if capabilities.read else "read, grep, find and ls"
        case Kind.WRITE:
            return "" if capabilities.write else "edit and write"
        case Kind.SHELL:
            return "" if capabilities.shell else "bash"
        case Kind.HARMLESS:
            return ""
        case _:
            return "" if reads_only or capabilities.write or capabilities.shell else "edit, write and bash"
