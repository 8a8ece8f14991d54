"""How a session is put together: workspace, tools, gate, hooks, model and what the model is told first.

The one place that knows all parts.  Everything heavy that a session does not need at once (the HTTP client,
the login shell's environment) is started or imported when it is first used.
"""

from __future__ import annotations

import asyncio
import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from harness import tool_settings
from harness.hook_runner import ClientHooks
from harness.hooks import HookError, Hooks, parse_hooks
from harness.mcp.servers import SessionServers
from harness.model.client import ChatClient
from harness.permissions import GrantStore, Mode, PermissionGate, load_settings, parse_mode, project_root
from harness.permissions.sources import folder_trusted
from harness.registry.presets import DEFAULT, preset
from harness.registry.registry import Registry
from harness.session.actor import SessionActor
from harness.session.driver import SessionParts
from harness.session.gate import GateCall
from harness.session.instructions import opening
from harness.session.journal import Journal, Saved
from harness.session.store import Store
from harness.session.updates import Update
from harness.session.wishes import SessionWishes, WishError
from harness.skills import Skill
from harness.toolbridge import ToolBridge
from harness.tools import default_registry
from harness.tools.grep import HiddenFiles
from harness.tools.plan_mode import PlanMode
from harness.workspace.containment import Containment, profile_named
from harness.workspace.discovery import Places, discover_rules, discover_skills
from harness.workspace.executor import HostExecutor
from harness.workspace.host_filesystem import HostFileSystem
from harness.workspace.ops import ToolsChanged, WorkspaceOps
from harness.workspace.repository import find_repository
from harness.workspace.terminal.terminal import Terminal

__all__ = ["Assembly"]


class Client(Protocol):
    """The client of a session: told things and asked."""

    def notify(self, method: str, params: Mapping[str, Any]) -> None: ...
    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]: ...


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
        self._journals: dict[str, Journal] = {}
        self._guards: dict[str, tuple[PermissionGate, ClientHooks]] = {}
        self._servers: dict[str, SessionServers] = {}
        self._usual: dict[str, Mode] = {}  # what holds when nothing is being planned
        self.store = Store(home)
        self._ops = WorkspaceOps(
            fs=self._fs,
            env=self._environ,
            executors=lambda contained: HostExecutor(self._environ, contained.wrap),
            terminals=self._terminal,
            composer=lambda session, config: self._registry.compose(config, session.mode),
            default=tool_settings.configured(preset(DEFAULT, self._registry), tool_settings.load(home)),
            profile=profile_named(self._environ.get("GROK_SANDBOX", "")),
            on_change=self._tools_changed,
        )

    async def session(
        self,
        wishes: SessionWishes,
        client: Client,
        journal: Journal,
        saved: Saved | None = None,
        rests: Callable[[], None] = lambda: None,
    ) -> SessionActor:
        """A session, ready for its next prompt; ``saved`` is what it was before.  Raises WishError."""
        registered = _hooks(wishes.hooks)
        folder = self._folders[wishes.id] = journal.folder
        self._journals[wishes.id] = journal
        workspace = await self._ops.create(wishes.id, wishes.cwd)
        bridge = ToolBridge(workspace.toolset, workspace)
        self._bridges[wishes.id] = bridge
        bridge.restore(saved.resources if saved else {})
        journal.resources = bridge.state
        workspace.terminal.warm()
        root = await asyncio.to_thread(project_root, wishes.cwd)
        loop = asyncio.get_running_loop()
        actor: SessionActor
        hooks: ClientHooks

        def asked(call: GateCall) -> None:
            message = "A call of a tool waits for permission."
            fields = {"notificationType": "permission_prompt", "message": message, "level": "info"}
            loop.call_soon(hooks.tell, "notification", fields, "")  # behind the request itself

        trusted = wishes.trusted or folder_trusted(wishes.cwd, root, self._home, self._environ)
        gate = await asyncio.to_thread(self._gate, wishes, root, client, asked, trusted)
        hooks = ClientHooks(
            wishes.id,
            wishes.cwd,
            root,
            registered,
            client,
            client.notify,
            lambda update: actor.show(update),
            about=lambda: {
                "transcriptPath": str(folder / "updates.jsonl"),
                "permissionMode": str(gate.mode),
            },
        )
        bridge.resources.insert(HiddenFiles(lambda: gate.hidden_globs))
        plan = bridge.resources.get(PlanMode)
        started = self._usual[wishes.id] = gate.mode
        plan.path = gate.plan_file = str(folder / "plan.md")

        def set_plan_mode(active: bool) -> None:
            plan.active = active
            gate.set_mode(Mode.PLAN if active else self._usual[wishes.id])

        def approves() -> bool:
            return self._usual[wishes.id] is Mode.BYPASS

        def approve(wish: bool) -> bool:
            asking = Mode.DEFAULT if started is Mode.BYPASS else started
            self._usual[wishes.id] = gate.settings.clamped(Mode.BYPASS if wish else asking)
            set_plan_mode(plan.active)
            return approves()

        def publish(session_id: str, update: Update) -> None:
            journal.record(update)
            self._publish(session_id, update)

        if plan.active:
            gate.set_mode(Mode.PLAN)
        self._guards[wishes.id] = (gate, hooks)
        servers = self._servers[wishes.id] = SessionServers(
            wishes.id, wishes.cwd, folder, self._environ, bridge, client.notify, lambda: actor.announce()
        )
        actor = SessionActor(
            SessionParts(
                id=wishes.id,
                bridge=bridge,
                workspace=workspace,
                gate=gate,
                hooks=hooks,
                client=client,
                model=self._model,
                endpoint=wishes.endpoint,
                head=await asyncio.to_thread(self._opening, wishes, bridge, trusted),
                publish=publish,
                keep=journal,
                saved=saved,
                rests=rests,
                changed=lambda: self._changed(wishes.id),
                set_plan_mode=set_plan_mode,
                plan_mode=plan,
                servers_ready=servers.ready,
                approves=approves,
                approve=approve,
                turn_began=lambda shown: self._ops.begin_prompt(wishes.id, shown),
                turn_ended=lambda: self._ops.end_prompt(wishes.id),
            )
        )
        hooks.tell("session_start", {"source": "resume" if saved else "new"}, "")
        return actor

    def journal(self, session_id: str) -> Journal:
        """Of a session that is in memory."""
        return self._journals[session_id]

    def attach(self, session_id: str, wishes: SessionWishes) -> None:
        """A client loads a session that is in memory: other hooks, and no more questions if it says so.

        Raises WishError.
        """
        gate, hooks = self._guards[session_id]
        if wishes.hooks is not None:
            hooks.hooks = _hooks(wishes.hooks)
        if wishes.always_approve:
            self._usual[session_id] = Mode.BYPASS
            if gate.mode is not Mode.PLAN:
                gate.set_mode(Mode.BYPASS)

    def serve(
        self, session_id: str, entries: Sequence[object], meta: Mapping[str, Any], *, anew: bool = True
    ) -> None:
        """Have the MCP servers that a client names; see `SessionServers.use`."""
        self._servers[session_id].use(entries, meta, anew=anew)

    def servers(self, session_id: str) -> list[dict[str, Any]]:
        """The MCP servers of a session as a client's list shows them."""
        return self._servers[session_id].rows()

    async def drop(self, session_id: str) -> None:
        """A session that was closed has no workspace any more."""
        if (servers := self._servers.pop(session_id, None)) is not None:
            await servers.close()
        self._bridges.pop(session_id, None)
        self._folders.pop(session_id, None)
        self._guards.pop(session_id, None)
        await self._ops.drop(session_id, session_id)
        if (journal := self._journals.pop(session_id, None)) is not None:
            journal.close()

    async def close(self) -> None:
        servers = [one.close() for one in self._servers.values()]
        await asyncio.gather(*servers, self._ops.close())
        for journal in self._journals.values():
            journal.close()
        await self._model.close()

    def repository(self, cwd: str) -> str | None:
        """The root of the repository around a folder."""
        found = find_repository(self._fs, os.path.realpath(cwd))
        return found.root if found else None

    # -- parts ---------------------------------------------------------------------------------------
    def _terminal(self, session_id: str, environ: Mapping[str, str], contained: Containment) -> Terminal:
        directory = str(self._folders[session_id] / "terminal")
        return Terminal(log_directory=directory, environ=environ, session_id=session_id, wrap=contained.wrap)

    def _gate(
        self,
        wishes: SessionWishes,
        root: str,
        client: Client,
        asked: Callable[[GateCall], None],
        trusted: bool,
    ) -> PermissionGate:
        home = self._environ.get("HOME") or "/"
        settings = load_settings(wishes.cwd, root, self._home, Path(home), self._environ, trusted=trusted)
        mode = parse_mode(wishes.permission_mode) if wishes.permission_mode else None
        if wishes.auto_approve:
            mode = Mode.AUTO
        if wishes.always_approve:
            mode = Mode.BYPASS
        store = GrantStore(self._home, root)
        return PermissionGate(
            wishes.id,
            wishes.cwd,
            self._fs,
            client,
            settings,
            store,
            grok_home=str(self._home),
            home=home,
            mode=mode,
            on_prompt=asked,
        )

    def _opening(self, wishes: SessionWishes, bridge: ToolBridge, trusted: bool) -> list[dict[str, Any]]:
        """What the model is told first, with the rules and skills that are found on the way."""
        places = Places(wishes.cwd, self._environ.get("HOME"), str(self._home), trusted)
        found = (skill for skill in discover_skills(self._fs, places) if skill.model_invocable)
        bridge.discover_skills(Skill(skill.name, skill.description, skill.path) for skill in found)
        return opening(
            cwd=wishes.cwd,
            shell=self._environ.get("SHELL") or "/bin/sh",
            names=bridge.toolset.names,
            today=datetime.datetime.now().astimezone().date(),
            rules=wishes.rules,
            override=wishes.system_prompt,
            rule_files=discover_rules(self._fs, places, self._environ),
            skills=bridge.skills.announce(wishes.endpoint.context_window),
        )

    def _tools_changed(self, change: ToolsChanged) -> None:
        bridge = self._bridges.get(change.session_id)
        if bridge is not None:
            bridge.replace(self._ops.session(change.session_id).toolset)


def _hooks(registered: object) -> Hooks:
    try:
        return parse_hooks(registered)
    except HookError as error:
        raise WishError(str(error)) from error
