"""A tool whose work somebody else does: an MCP server, a remote workspace.

Its schema is passed on as it came and its arguments go out unchecked, because only its server knows what
they mean.  What comes back is a tool's output, a text or any other JSON value, and is bounded here: a
foreign server does not know how much a model can read.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from harness.limits import SIZES
from harness.outcome import Completeness, ToolOutput
from harness.registry.contract import CallContext, ToolKind, ToolSpec

__all__ = ["ForeignTool", "Handler", "ToolServers", "as_output"]

Handler = Callable[[Mapping[str, Any], CallContext], Awaitable[Any]]


class ForeignTool:
    """One such tool under its full name (``server__tool``)."""

    def __init__(
        self,
        name: str,
        schema: Mapping[str, Any],
        handler: Handler,
        *,
        description: str = "",
        namespace: str = "MCP",
        server: str = "",
    ) -> None:
        self._handler = handler
        self.server = server
        self._spec = ToolSpec(
            namespace=namespace,
            id=name,
            kind=ToolKind.OTHER,
            description=_cut(description, SIZES.mcp_description),
            input_schema=schema,
            verbatim=True,
            shown=lambda given: {"variant": "MCPTool", "tool_name": name, "tool_input": given},
        )

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        return as_output(await self._handler(arguments, context))


async def _nowhere(_: str) -> str:
    return ""


class ToolServers:
    """What the tools that find and call those of servers know of them.

    ``own`` are the names of the session's other tools.  ``connecting``: servers whose tools may still come;
    ``seek`` waits for a server whose tool is missing, and says why it still is.
    """

    def __init__(self) -> None:
        self.tools: Mapping[str, ForeignTool] = {}
        self.own: frozenset[str] = frozenset()
        self.connecting: Callable[[], Sequence[str]] = tuple
        self.seek: Callable[[str], Awaitable[str]] = _nowhere


def as_output(value: Any) -> ToolOutput:
    """An output as it is; a text or another value as one, its prompt bounded."""
    if isinstance(value, ToolOutput):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1, default=str)
    fields = {"text": value} if isinstance(value, str) else {"value": value}
    prompt, cut = _bounded(text)
    return ToolOutput(
        "Text" if isinstance(value, str) else "Dynamic",
        fields,
        prompt,
        prompt_completeness=Completeness.TRUNCATED if cut else None,
    )


def _bounded(text: str) -> tuple[str, bool]:
    data = text.encode(errors="replace")
    if len(data) <= SIZES.mcp_output:
        return text, False
    head = data[: SIZES.mcp_output].decode(errors="ignore")
    return f"{head}\n[cut here: {len(data)} bytes in all]", True


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 1]}…"
