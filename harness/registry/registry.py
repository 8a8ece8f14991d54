"""The registry: every tool that exists, and the way from there to a session's toolset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from harness.registry.capabilities import CapabilityMode
from harness.registry.compose import Selection, compose, renamed
from harness.registry.config import ConfigError, ConfigRejected, Reason, ToolServerConfig
from harness.registry.contract import ClientContract, Tool
from harness.registry.requirements import describe
from harness.registry.toolset import Chosen, Toolset, build
from harness.registry.validate import choose, requirement_errors, validate

__all__ = ["Registry"]


class Registry:
    """Tools by qualified id, in the order in which they were registered."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools = dict[str, Tool]()
        for tool in tools:
            self.register(tool)

    def register(self, tool: Tool) -> None:
        """Add a tool; two with one id are a defect of the program."""
        key = tool.spec.key
        if key in self._tools:
            raise ValueError(f"{key} is registered already")
        self._tools[key] = tool

    def get(self, key: str) -> Tool | None:
        return self._tools.get(key)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._tools)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(tool.spec.kind for tool in self._tools.values())

    def manifest(self) -> dict[str, dict[str, Any]]:
        """Everything that is registered, for people and programs; ready for JSON."""
        return {key: _manifest_entry(tool) for key, tool in self._tools.items()}

    # -- strict ------------------------------------------------------------------------------------

    def validate(
        self, config: ToolServerConfig, contract: ClientContract | None = None
    ) -> tuple[ConfigError, ...]:
        """What is wrong with a configuration, requirements included; empty when nothing is."""
        contract = contract or ClientContract()
        return validate(_renamed(config, contract), self._tools, frozenset(contract.offers))

    def finalise(
        self,
        config: ToolServerConfig,
        mode: CapabilityMode = CapabilityMode.ALL,
        contract: ClientContract | None = None,
    ) -> Toolset:
        """The toolset of exactly this configuration, or `ConfigRejected`: nothing is left out."""
        contract = contract or ClientContract()
        config = _renamed(config, contract)
        if errors := validate(config, self._tools, frozenset(contract.offers)):
            raise ConfigRejected(errors)
        chosen = [choose(one, self._tools[one.id]) for one in config.tools]
        fingerprint = config.fingerprint(mode)
        return build(
            chosen,
            absent=self._unselected(chosen),
            concessions={},
            mode=mode,
            contract=contract,
            fingerprint=fingerprint,
        )

    # -- composing -----------------------------------------------------------------------------------

    def compose(
        self,
        config: ToolServerConfig,
        mode: CapabilityMode = CapabilityMode.ALL,
        contract: ClientContract | None = None,
        *,
        selection: Selection | None = None,
        mcp: Sequence[Tool] = (),
        hub: Sequence[Tool] = (),
    ) -> Toolset:
        """The toolset that this configuration allows, with a reason for everything that is left out.

        A configuration that is wrong in itself (an unknown id, a bad parameter, one name twice) is still
        rejected: whoever wrote it must hear of it.
        """
        contract, selection = contract or ClientContract(), selection or Selection()
        config = _renamed(config, contract)
        errors = validate(config, self._tools, frozenset(contract.offers))
        if any(error.category != "requirements" for error in errors):
            raise ConfigRejected(errors)
        pairs = [(one, self._tools[one.id]) for one in config.tools]
        result = compose(pairs, mode, contract, selection, mcp, hub)
        if left := tuple(requirement_errors(result.chosen, frozenset(contract.offers))):
            raise ConfigRejected(left)
        foreign = [tool.spec.key for tool in (*mcp, *hub)]
        return build(
            result.chosen,
            absent={**self._unselected(result.chosen), **result.absent},
            concessions=result.concessions,
            mode=mode,
            contract=contract,
            fingerprint=config.fingerprint(mode, repr(selection), *sorted(contract.offers), *foreign),
            warnings=tuple(result.warnings),
        )

    def _unselected(self, chosen: Sequence[Chosen]) -> dict[str, Reason]:
        present = {one.spec.key for one in chosen}
        reason = Reason("unselected", "the session's configuration does not list it")
        return {key: reason for key in self._tools if key not in present}


def _renamed(config: ToolServerConfig, contract: ClientContract) -> ToolServerConfig:
    return ToolServerConfig(tuple(renamed(one, contract) for one in config.tools), config.behavior_preset)


def _manifest_entry(tool: Tool) -> dict[str, Any]:
    spec = tool.spec
    return {
        "namespace": spec.namespace,
        "id": spec.id,
        "kind": str(spec.kind),
        "read_only": spec.is_read_only,
        "default_params": dict(spec.default_params),
        "input_schema": dict(spec.input_schema),
        "requires": describe(spec.requires),
        "notifications": list(spec.notifications),
    }
