"""``search_tool`` and ``use_tool``: the way to tools of servers, of which there may be hundreds.

Their definitions would fill a request and change with every server that comes or goes; so the model finds
them by words and calls them by their full name, ``server__tool``.  Permission and hooks go by that name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from harness.foreign import ForeignTool, ToolServers
from harness.limits import SIZES
from harness.outcome import FaultKind, ToolFault, ToolOutput
from harness.registry.contract import CallContext, Tool, ToolKind, ToolSpec
from harness.tools.ranking import ranked

__all__ = ["TOOLS", "SearchTool", "UseTool"]


class SearchTool:
    spec: ClassVar = ToolSpec(
        namespace="GrokBuild",
        id="search_tool",
        kind=ToolKind.SEARCH_TOOL,
        variant="SearchTool",
        read_only=False,
        shown_defaults={"limit": SIZES.mcp_found},
        description=(
            "Find tools of the connected MCP servers by keywords, with the schemas of their inputs. The "
            'status "partial" means that some servers are still connecting.'
        ),
        input_schema={
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "description": "Keywords, matched against names of tools and servers and descriptions. "
                    'The name of the server and what is to be done find best ("linear create issue").',
                },
                "limit": {
                    "type": ["integer", "null"],
                    "minimum": 0,
                    "maximum": 255,
                    "default": SIZES.mcp_found,
                    "description": "How many tools to show at most",
                },
            },
            "required": ["query"],
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        servers = context.resources.get(ToolServers)
        limit = arguments.get("limit", SIZES.mcp_found)
        tools = servers.tools
        texts = {name: f"{name} {tool.spec.description} {_words(tool)}" for name, tool in tools.items()}
        best = ranked(texts, arguments["query"])[:limit]
        groups, room, count = dict[str, list[dict[str, Any]]](), SIZES.tool_output, 0
        for name, score in best:
            shown = _shown(tools[name], score)
            room -= len(json.dumps(shown, ensure_ascii=False, indent=2).encode(errors="replace"))
            if room < 0 and count:
                break
            groups.setdefault(tools[name].server, []).append(shown)
            count += 1
        waiting = servers.connecting()
        found = {
            "results": [{"server": server, "tools": shown} for server, shown in groups.items()],
            "total_hidden_tools": len(tools),
            "status": "partial" if waiting else "ready",
            "note": _note(len(tools), len(best) - count, waiting),
        }
        text = json.dumps(found, ensure_ascii=False, indent=2)
        return ToolOutput("SearchTool", {"result_count": count, "content": text}, text)


def _words(tool: ForeignTool) -> str:
    """What its schema says in words: the names of what it takes."""
    return " ".join(map(str, tool.spec.input_properties))


def _shown(tool: ForeignTool, score: float) -> dict[str, Any]:
    spec = tool.spec
    return {
        "tool_name": spec.id,
        "description": spec.description,
        "score": round(score, 3),
        "input_schema": dict(spec.input_schema),
    }


def _note(count: int, left_out: int, waiting: Sequence[str]) -> str | None:
    notes = []
    if left_out:
        notes.append(f"{left_out} more fit and are too long to be shown with these; ask for less at once.")
    if waiting:
        notes.append(f"Still connecting: {', '.join(waiting)}. Their tools can be found in a moment.")
    if not count and not waiting:
        notes.append("No MCP server with tools is connected in this session.")
    return " ".join(notes) or None


def _shape(schema: dict[str, Any], _: Mapping[str, Any]) -> None:
    """A text in the place of the object is understood, but not asked for."""
    schema["properties"]["tool_input"]["type"] = "object"


class UseTool:
    spec: ClassVar = ToolSpec(
        namespace="GrokBuild",
        id="use_tool",
        kind=ToolKind.USE_TOOL,
        variant="UseTool",
        shape=_shape,
        shown=lambda given: {**given, "tool_input": _decoded(given["tool_input"])},
        description=(
            "Call a tool of an MCP server${% if tools.by_kind.search_tool %} that "
            "${{ tools.by_kind.search_tool }} has found${% endif %}. Its input must fit the schema of that "
            "tool."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "tool_name": {"type": "string", "description": "The full name, server__tool"},
                "tool_input": {
                    "type": ["object", "string", "null"],
                    "additionalProperties": True,
                    "description": "What that tool is given, as its own schema says",
                },
            },
            "required": ["tool_name", "tool_input"],
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        name, given = arguments["tool_name"], _decoded(arguments["tool_input"])
        if not isinstance(given, dict | None):
            raise ToolFault(FaultKind.INVALID_ARGUMENTS, f"the input of `{name}` must be an object")
        servers = context.resources.get(ToolServers)
        tool = servers.tools.get(name)
        if tool is None:
            why = await _missing(name, servers, context)
            tool = servers.tools.get(name)
            if tool is None:
                raise ToolFault(FaultKind.EXECUTION, why)
        return await tool.run(given or {}, context)


async def _missing(name: str, servers: ToolServers, context: CallContext) -> str:
    """Why there is no such tool; its server may just be late, and is waited for."""
    if name in servers.own:
        return f"`{name}` is no tool of a server but one of your own; call it directly"
    if "__" not in name:
        return f"{name!r} is no full name of a server's tool, server__tool"
    why = await servers.seek(name)
    search = context.names.tool(ToolKind.SEARCH_TOOL)
    hint = f"; `{search}` shows which there are" if search else ""
    return f"there is no tool `{name}`{hint}{f'. {why}' if why else ''}"


def _decoded(value: Any) -> Any:
    """An object that was written as a text, as models do."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


TOOLS: tuple[Tool, ...] = (SearchTool(), UseTool())
