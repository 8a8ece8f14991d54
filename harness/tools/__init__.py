"""The tools of the engine, one file a family.

Each file ends with ``TOOLS``.  A further tool is one file and its line here; what it needs of others it
says in its spec.
"""

from __future__ import annotations

import importlib

from harness.registry.registry import Registry

__all__ = ["default_registry"]

#: Imported when a registry is made, so that one family can be used without the others.
_FAMILIES = (
    "terminal",
    "tasks",
    "monitor",
    "read",
    "edit",
    "write",
    "listing",
    "grep",
    "todo",
    "plan_mode",
    "ask",
    "servers",
    "opencode",
)


def default_registry() -> Registry:
    """A registry of every tool that there is."""
    modules = [importlib.import_module(f"{__name__}.{family}") for family in _FAMILIES]
    return Registry(tool for module in modules for tool in module.TOOLS)
