"""The composing stage: what a session really gets, and for everything else the reason.

Layers come first (the session's own list, then tools of MCP servers, then remote ones), then what the
operator and the mode forbid, then the requirements.  A requirement may fail only because of a tool that
itself has to go, so they are judged again until nothing changes; a tool that can do without something
(`ToolSpec.concessions`) stays with less.  The strict validator then finds nothing to refuse.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from harness.registry.capabilities import CapabilityMode, allows
from harness.registry.config import Reason, ToolConfig
from harness.registry.contract import ClientContract, Tool, ToolKind
from harness.registry.requirements import Situation, unmet
from harness.registry.toolset import Chosen
from harness.registry.validate import choose, unsupported, with_params

__all__ = ["Composition", "Selection", "compose", "renamed"]

#: Names that other agents use for their tools, understood in allow and deny lists.
FOREIGN_NAMES: Mapping[str, frozenset[ToolKind]] = {
    "Bash": frozenset({ToolKind.EXECUTE}),
    "Read": frozenset({ToolKind.READ}),
    "Edit": frozenset({ToolKind.EDIT}),
    "MultiEdit": frozenset({ToolKind.EDIT}),
    "Write": frozenset({ToolKind.WRITE}),
    "Glob": frozenset({ToolKind.LIST, ToolKind.LIST_DIR}),
    "LS": frozenset({ToolKind.LIST, ToolKind.LIST_DIR}),
    "Grep": frozenset({ToolKind.SEARCH}),
    "WebSearch": frozenset({ToolKind.WEB_SEARCH}),
    "WebFetch": frozenset({ToolKind.WEB_FETCH}),
    "TodoWrite": frozenset({ToolKind.PLAN}),
    "Task": frozenset({ToolKind.TASK}),
    "Agent": frozenset({ToolKind.TASK}),
    "AskUserQuestion": frozenset({ToolKind.ASK_USER}),
    "BashOutput": frozenset({ToolKind.BACKGROUND_TASK}),
    "KillShell": frozenset({ToolKind.KILL_TASK}),
}

#: The way to tools that are found at run time is not for an allow list of names to close.
_ALWAYS_ALLOWED = frozenset({ToolKind.SEARCH_TOOL, ToolKind.USE_TOOL})


@dataclasses.dataclass(frozen=True)
class Selection:
    """Lists of names (qualified, short, the client's or foreign): first the agent's, then the operator's.

    None for an allow list is no list; an empty one allows nothing.
    """

    disallowed: tuple[str, ...] = ()
    allowed: tuple[str, ...] | None = None
    operator_denied: tuple[str, ...] = ()
    operator_allowed: tuple[str, ...] | None = None


@dataclasses.dataclass
class Composition:
    """What is left, what went and why, and what stays with less."""

    chosen: list[Chosen]
    absent: dict[str, Reason] = dataclasses.field(default_factory=dict)
    concessions: dict[str, Reason] = dataclasses.field(default_factory=dict)
    warnings: list[str] = dataclasses.field(default_factory=list)

    def drop(self, one: Chosen, reason: Reason) -> None:
        self.chosen.remove(one)
        self.absent[one.spec.key] = reason


def compose(
    configs: Sequence[tuple[ToolConfig, Tool]],
    mode: CapabilityMode,
    contract: ClientContract,
    selection: Selection,
    mcp: Sequence[Tool] = (),
    hub: Sequence[Tool] = (),
) -> Composition:
    """Choose from a configuration whose entries are right one by one."""
    result = Composition([choose(renamed(config, contract), tool) for config, tool in configs])
    _add_layer(result, mcp, "mcp")
    _add_layer(result, hub, "hub")
    _select(result, selection)
    for one in tuple(result.chosen):
        if not _allowed(one, mode):
            text = f"a tool of kind {one.spec.kind} is not allowed in the mode {mode}"
            result.drop(one, Reason("capability", text, (str(mode),)))
    _settle(result, frozenset(contract.offers))
    return result


def renamed(config: ToolConfig, contract: ClientContract) -> ToolConfig:
    """The configuration under the client's own names, which win over configured ones."""
    name, params = contract.renames.get(config.id, (None, {}))
    return dataclasses.replace(
        config,
        name_override=name or config.name_override,
        params_name_overrides={**config.params_name_overrides, **params},
    )


def _add_layer(result: Composition, tools: Iterable[Tool], layer: str) -> None:
    """Add foreign tools; an id or name that is taken stays with the one that was first."""
    for tool in tools:
        spec = tool.spec
        holder = next((one for one in result.chosen if one.spec.key == spec.key or one.name == spec.id), None)
        if holder is None:
            result.chosen.append(Chosen(tool, spec.id, spec.default_params, layer=layer))
        elif holder.spec.key != spec.key:
            text = f"its name {spec.id} belongs to {holder.spec.key} already"
            result.absent[spec.key] = Reason("name_taken", text, (spec.id,))
        else:
            result.warnings.append(f"{spec.key} of the layer {layer} is there already and was left out")


def _allowed(one: Chosen, mode: CapabilityMode) -> bool:
    if one.layer != "baseline" and one.spec.kind is ToolKind.OTHER:
        return mode is CapabilityMode.ALL
    return allows(mode, one.spec.kind)


# -- lists of names --------------------------------------------------------------------------------


def _select(result: Composition, selection: Selection) -> None:
    _deny(result, selection.disallowed, "the agent's definition")
    _allow(result, selection.allowed, "the agent's definition")
    _deny(result, selection.operator_denied, "the operator")
    _allow(result, selection.operator_allowed, "the operator")


def _deny(result: Composition, names: Sequence[str], who: str) -> None:
    for one in tuple(result.chosen):
        if any(_means(name, one) for name in names):
            result.drop(one, Reason("denied", f"{who} forbids it", (one.spec.key,)))


def _allow(result: Composition, names: Sequence[str] | None, who: str) -> None:
    """Keep what is listed.  A list with a name that nobody knows was meant for another set: it is ignored."""
    if names is None:
        return
    known = [*result.chosen]
    unknown = [n for n in names if n not in FOREIGN_NAMES and not any(_means(n, one) for one in known)]
    if unknown:
        result.warnings.append(f"the list of {who} was ignored: {unknown[0]} is no tool")
        return
    for one in known:
        if one.spec.kind not in _ALWAYS_ALLOWED and not any(_means(name, one) for name in names):
            result.drop(
                one, Reason("denied", f"{who} allows only a list in which it is not", (one.spec.key,))
            )


def _means(name: str, one: Chosen) -> bool:
    return name in (one.spec.key, one.spec.id, one.name) or one.spec.kind in FOREIGN_NAMES.get(name, ())


# -- requirements ----------------------------------------------------------------------------------


def _settle(result: Composition, resources: frozenset[str]) -> None:
    """Until all requirements are met: let one tool go without, or let it go.

    One at a time, because the next one's fate may hang on it; the set only ever shrinks, so this ends.
    """
    while failing := next(unsupported(result.chosen, resources), None):
        one, missing = failing
        lesser = _conceded(one, result.chosen, resources)
        if lesser is None:
            text = f"it needs {' and '.join(missing)}"
            result.drop(one, Reason("requirements", text, missing))
        else:
            result.chosen[result.chosen.index(one)] = lesser
            given_up = _difference(one, lesser)
            text = f"{given_up}, for want of {' and '.join(missing)}"
            result.concessions[one.spec.key] = Reason("requirements", text, missing)


def _conceded(one: Chosen, chosen: Sequence[Chosen], resources: frozenset[str]) -> Chosen | None:
    """The tool under its first concession that helps."""
    candidates = [other.candidate() for other in chosen]
    for overlay in one.spec.concessions:
        lesser = with_params(one, overlay)
        if lesser.params != one.params and not unmet(
            one.spec.requires, Situation(candidates, lesser.params, resources)
        ):
            return lesser
    return None


def _difference(before: Chosen, after: Chosen) -> str:
    changed = (f"{k} = {v!r}" for k, v in after.params.items() if before.params.get(k) != v)
    return ", ".join(changed)
