"""An effective toolset: the tools that a session has, as its client sees them, and why others are absent.

A toolset never changes.  Whoever needs another one (a tool server came, the mode changed) makes a new one
and puts it in the old one's place between two turns.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from harness.registry.capabilities import CapabilityMode
from harness.registry.config import Reason
from harness.registry.contract import ClientContract, Names, Tool, ToolKind, ToolSpec
from harness.registry.renames import to_canonical
from harness.registry.requirements import Candidate
from harness.registry.schema import offered_properties, offered_schema
from harness.registry.templates import render_or_strip

__all__ = ["Chosen", "EffectiveTool", "Toolset", "build", "extended", "wire_namespace"]


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A tool that was chosen, before it is told about its neighbours.

    ``layer`` is baseline, mcp or hub; ``renames`` maps canonical parameters to the client's names.
    """

    tool: Tool
    name: str
    params: Mapping[str, Any]
    renames: Mapping[str, str] = dataclasses.field(default_factory=dict)
    description: str | None = None
    layer: str = "baseline"

    @property
    def spec(self) -> ToolSpec:
        return self.tool.spec

    def candidate(self) -> Candidate:
        """The tool as requirements see it."""
        inputs = offered_properties(self.spec, self.params)
        return Candidate(self.spec.key, self.spec.kind, self.params, inputs)


@dataclasses.dataclass(frozen=True)
class EffectiveTool:
    """One tool of a toolset under its client's name, with everything rendered."""

    tool: Tool
    name: str
    params: Mapping[str, Any]
    renames: Mapping[str, str]
    description: str
    schema: Mapping[str, Any]
    layer: str

    @property
    def spec(self) -> ToolSpec:
        return self.tool.spec

    def definition(self) -> dict[str, Any]:
        """The function definition that a chat-completions request carries."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.schema)}
        return {"type": "function", "function": function}

    def canonical(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return to_canonical(arguments, self.renames)

    def card(self, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What every event about a call says of its tool; ``arguments`` are canonical."""
        card = {
            "version": 1,
            "name": self.name,
            "kind": str(self.spec.kind),
            "namespace": wire_namespace(self.spec.namespace),
            "label": self.spec.kind.label,
            "read_only": self.spec.is_read_only,
        }
        if arguments is not None:
            as_is: Callable[[Any], Any] = lambda value: value  # noqa: E731
            read = {
                key: self.spec.reads_as.get(key, as_is)(arguments[name])
                for key, name in self.spec.reads.items()
                if name in arguments
            }
            read = {key: value for key, value in read.items() if value is not None}
            card |= {"input": read} if read else {}
        return card


@dataclasses.dataclass(frozen=True)
class Toolset:
    """``concessions`` tells, by qualified id, what a tool goes without and why."""

    tools: tuple[EffectiveTool, ...]
    names: Names
    absent: Mapping[str, Reason]
    concessions: Mapping[str, Reason]
    mode: CapabilityMode
    contract: ClientContract
    fingerprint: str
    warnings: tuple[str, ...] = ()

    @cached_property
    def _by_name(self) -> Mapping[str, EffectiveTool]:
        return {tool.name: tool for tool in self.tools}

    def named(self, name: str) -> EffectiveTool | None:
        """The tool that the client calls so."""
        return self._by_name.get(name)

    def keyed(self, key: str) -> EffectiveTool | None:
        """The tool of a qualified id."""
        return next((tool for tool in self.tools if tool.spec.key == key), None)

    def why_absent(self, tool: str) -> Reason | None:
        """Why a tool (qualified or short id, or a client's name) is not here; None when it is."""
        if self.named(tool) or any(tool in (t.spec.key, t.spec.id) for t in self.tools):
            return None
        matching = (reason for key, reason in self.absent.items() if tool in (key, key.rpartition(":")[2]))
        unknown = Reason("unregistered", f"no tool {tool} is registered", (tool,))
        return next(matching, unknown)

    def names_for(self, tool: EffectiveTool) -> Names:
        return dataclasses.replace(self.names, own_params=tool.renames)


def extended(base: Toolset, foreign: Sequence[Chosen]) -> Toolset:
    """The toolset with tools of servers behind its own; what it cannot take is absent with its reason."""
    tools, absent = list(base.tools), dict(base.absent)
    for one in foreign:
        if any(tool.name == one.name for tool in tools):
            absent[one.spec.key] = Reason("name_taken", f"the name {one.name} is taken", (one.name,))
        elif base.mode is not CapabilityMode.ALL:
            text = f"nobody knows what it does, and the mode is {base.mode}"
            absent[one.spec.key] = Reason("capability", text, (str(base.mode),))
        else:
            tools.append(_effective(one, base.names))
    return dataclasses.replace(base, tools=tuple(tools), absent=absent)


def build(
    chosen: Sequence[Chosen],
    *,
    absent: Mapping[str, Reason],
    concessions: Mapping[str, Reason],
    mode: CapabilityMode,
    contract: ClientContract,
    fingerprint: str,
    warnings: tuple[str, ...] = (),
) -> Toolset:
    """Give every tool its texts, now that all names are known."""
    names = _names(chosen)
    tools = tuple(_effective(one, names) for one in chosen)
    return Toolset(tools, names, absent, concessions, mode, contract, fingerprint, warnings)


def _names(chosen: Sequence[Chosen]) -> Names:
    """The first tool of a kind stands for the kind."""
    tools = dict[ToolKind, str]()
    params = dict[ToolKind, Mapping[str, str]]()
    for one in chosen:
        if one.layer == "baseline" and one.spec.kind not in tools:
            tools[one.spec.kind] = one.name
            params[one.spec.kind] = {name: one.renames.get(name, name) for name in one.spec.input_properties}
    return Names(tools, params)


def _effective(one: Chosen, names: Names) -> EffectiveTool:
    values = _values(one, names)
    figures = {**one.spec.figures, **{k: v for k, v in one.params.items() if k in one.spec.figures}}

    def text(template: str) -> str:
        return template if one.spec.verbatim else render_or_strip(template, values, figures)

    description = text(one.spec.description if one.description is None else one.description).strip()
    schema = offered_schema(one.spec, one.params, one.renames, text)
    return EffectiveTool(one.tool, one.name, one.params, one.renames, description, schema, one.layer)


def _values(one: Chosen, names: Names) -> Mapping[str, Any]:
    """What templates can ask for; a name from one's own family comes before the first of the kind."""
    own = {name: one.renames.get(name, name) for name in one.spec.input_properties}
    return {
        "tools": {"by_kind": {str(kind): name for kind, name in names.tools.items()}},
        "params": {**{str(kind): renames for kind, renames in names.params.items()}, str(one.spec.kind): own},
        "config": one.params,
        "os": platform.system(),
        "system_reminders_enabled": True,
    }


def wire_namespace(namespace: str) -> str:
    """``GrokBuild`` as ``grok_build``; ``OpenCode`` is one word on the wire."""
    if namespace in ("OpenCode", "MCP"):
        return namespace.lower()
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(namespace))
