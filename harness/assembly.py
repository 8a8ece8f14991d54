"""How a session is put together: workspace, tools, gate, hooks, model and what the model is told first.

The one place that knows all parts.  Everything heavy that a session does not need at once (the HTTP client,
the login shell's environment) is started or imported when it is first used.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.model.client import ChatClient
from harness.model.endpoints import Endpoint
from harness.registry.contract import ClientRequests
from harness.registry.presets import DEFAULT, preset
from harness.registry.registry import Registry
from harness.registry.toolset import Toolset
from harness.session.actor import SessionActor, SessionParts
from harness.session.gate import AskingGate, Gate
from harness.session.hooks import NoHooks, TurnHooks
from harness.session.instructions import opening
from harness.session.updates import Update
from harness.toolbridge import ToolBridge
from harness.tools import default_registry
from harness.workspace.executor import HostExecutor
from harness.workspace.host_filesystem import HostFileSystem
from harness.workspace.ops import ToolsChanged, WorkspaceOps
from harness.workspace.repository import find_repository
from harness.workspace.session import WorkspaceSession
from harness.workspace.terminal.terminal import Terminal

__all__ = ["Assembly", "SessionWishes"]


@dataclasses.dataclass(frozen=True, slots=True)
class SessionWishes:
    """What a client wants of a new session."""

    id: str
    cwd: str
    endpoint: Endpoint
    rules: str = ""
    system_prompt: str = ""
    always_approve: bool = False
    hooks: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Assembly:
    """Makes sessions, and ends what they share."""

    def __init__(
        self,
        home: Path,
        environ: Mapping[str, str],
        publish: Callable[[str, Update], None],
        changed: Callable[[str], None],
    ) -> None:
        self._home = home
        self._environ = dict(environ)
        self._publish = publish
        self._changed = changed
        self._registry: Registry = default_registry()
        self._model = ChatClient()
        self._fs = HostFileSystem()
        self._bridges: dict[str, ToolBridge] = {}
        self._folders: dict[str, Path] = {}
        self._ops = WorkspaceOps(
            fs=self._fs,
            env=self._environ,
            executor=HostExecutor(self._environ),
            terminals=self._terminal,
            composer=lambda session, config: self._registry.compose(config, session.mode),
            default=preset(DEFAULT, self._registry),
            on_change=self._tools_changed,
        )

    async def session(self, wishes: SessionWishes, client: ClientRequests) -> SessionActor:
        """A new session, ready for its first prompt."""
        folder = self._home / "sessions" / quote(wishes.cwd, safe="") / wishes.id
        self._folders[wishes.id] = folder
        workspace = await self._ops.create(wishes.id, wishes.cwd)
        toolset = workspace.toolset
        assert isinstance(toolset, Toolset)
        bridge = ToolBridge(toolset, workspace)
        self._bridges[wishes.id] = bridge
        workspace.terminal.warm()
        head = opening(
            cwd=wishes.cwd,
            shell=self._environ.get("SHELL") or "/bin/sh",
            names=toolset.names,
            today=datetime.datetime.now().astimezone().date(),
            rules=wishes.rules,
            override=wishes.system_prompt,
        )
        return SessionActor(
            SessionParts(
                id=wishes.id,
                bridge=bridge,
                workspace=workspace,
                gate=self._gate(wishes, workspace, client),
                hooks=self._hooks(wishes, workspace, client),
                client=client,
                model=self._model,
                endpoint=wishes.endpoint,
                head=head,
                publish=self._publish,
                changed=lambda: self._changed(wishes.id),
                turn_began=lambda shown: self._ops.begin_prompt(wishes.id, shown),
                turn_ended=lambda: self._ops.end_prompt(wishes.id),
            )
        )

    async def drop(self, session_id: str) -> None:
        """A session that was closed has no workspace any more."""
        self._bridges.pop(session_id, None)
        self._folders.pop(session_id, None)
        await self._ops.drop(session_id, session_id)

    async def close(self) -> None:
        await self._ops.close()
        await self._model.close()

    def repository(self, cwd: str) -> str | None:
        """The root of the repository around a folder."""
        found = find_repository(self._fs, os.path.realpath(cwd))
        return found.root if found else None

    # -- parts ---------------------------------------------------------------------------------------
    def _terminal(self, session_id: str, environ: Mapping[str, str]) -> Terminal:
        directory = self._folders[session_id] / "terminal"
        return Terminal(log_directory=str(directory), environ=environ, session_id=session_id)

    def _gate(self, wishes: SessionWishes, workspace: WorkspaceSession, client: ClientRequests) -> Gate:
        return AskingGate(wishes.id, client, always_approve=wishes.always_approve)

    def _hooks(self, wishes: SessionWishes, workspace: WorkspaceSession, client: ClientRequests) -> TurnHooks:
        return NoHooks()

    def _tools_changed(self, change: ToolsChanged) -> None:
        bridge = self._bridges.get(change.session_id)
        if bridge is not None:
            bridge.replace(self._ops.session(change.session_id).toolset)
