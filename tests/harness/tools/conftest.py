"""A session over files in memory and over the host's, and a way to call one tool in it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import pytest

from harness.outcome import Notification, ToolOutput
from harness.registry.contract import CallContext, ClientRequests, Names, Resources, Tool, ToolKind
from harness.workspace.executor import HostExecutor
from harness.workspace.session import WorkspaceSession
from tests.harness.workspace.conftest import Tree, memory, tree

__all__ = ["Changed", "Workbench", "memory", "tree"]


class Changed:
    """A table of limits with some of its rows changed."""

    def __init__(self, table: object, **rows: float) -> None:
        self.__dict__.update(rows)
        self._table = table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


NAMES = Names(
    {
        ToolKind.READ: "read_file",
        ToolKind.EXECUTE: "run_terminal_command",
        ToolKind.SEARCH: "grep",
        ToolKind.LIST_DIR: "list_dir",
        ToolKind.LIST: "list_dir",
        ToolKind.ASK_USER: "ask_user_question",
        ToolKind.EXIT_PLAN: "exit_plan_mode",
        ToolKind.TASK: "spawn_subagent",
    }
)


@dataclasses.dataclass
class Workbench:
    """What a tool's call needs, and what the call told."""

    tree: Tree
    session: WorkspaceSession
    resources: Resources = dataclasses.field(default_factory=Resources)
    told: list[Notification] = dataclasses.field(default_factory=list)
    names: Names = NAMES
    client: ClientRequests | None = None
    cancelled: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    async def call(
        self, tool: Tool, arguments: Mapping[str, Any], *, call_id: str = "call-1", **params: Any
    ) -> ToolOutput:
        context = CallContext(
            call_id=call_id,
            session=self.session,
            params={**tool.spec.default_params, **params},
            names=self.names,
            cancelled=self.cancelled,
            notify=self.told.append,
            client=self.client,
            resources=self.resources,
        )
        return await tool.run(arguments, context)


def make_workbench(tree: Tree) -> Workbench:
    environment = {"HOME": f"{tree.root}/home", "PATH": "/usr/bin:/bin"}
    session = WorkspaceSession(
        "session-1",
        tree.root,
        fs=tree.fs,
        env=environment,
        executor=HostExecutor(environment),
        terminal=cast(Any, None),
    )
    return Workbench(tree, session)


@pytest.fixture
def bench(tree: Tree) -> Workbench:
    return make_workbench(tree)
