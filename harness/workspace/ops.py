"""All sessions of this host: created, forked, bound, given other tools, dropped.

The toolset a session uses belongs to it together with the configuration it was composed from, as one
value that is exchanged in one step.  Composing may be slow and happens in a thread, without the lock; so
the table is asked twice, before and after, and what changed in between counts.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from harness.registry.capabilities import CapabilityMode, within
from harness.registry.config import ToolServerConfig
from harness.registry.toolset import Toolset
from harness.workspace.containment import Containment, Profile, contain
from harness.workspace.filesystem import FileSystem
from harness.workspace.hunks import HunkMode, HunkTracker
from harness.workspace.refusal import Refusal, RefusalCode
from harness.workspace.session import WorkspaceSession
from harness.workspace.swap import Decision, Relation, Situation, Trigger, decide

if TYPE_CHECKING:
    from harness.workspace.executor import Executor
    from harness.workspace.terminal import Terminal

__all__ = ["Refusal", "RefusalCode", "ToolsChanged", "WorkspaceOps"]

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

#: Composes the tools of a session from a configuration; runs in a thread.
Composer = Callable[[WorkspaceSession, ToolServerConfig], Toolset]
#: Makes the terminal of a session from its id, its environment and what contains it.
TerminalFactory = Callable[[str, Mapping[str, str], Containment], "Terminal"]


@dataclasses.dataclass(frozen=True, slots=True)
class ToolsChanged:
    """A session has another toolset from now on."""

    session_id: str
    trigger: Trigger


@dataclasses.dataclass(frozen=True, slots=True)
class _Installed:
    config: ToolServerConfig
    explicit: bool  # somebody chose this configuration
    stale: bool = False


@dataclasses.dataclass(slots=True)
class _Held:
    session: WorkspaceSession
    installed: _Installed
    lock: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    #: Wanted during a turn; composed at its end.
    waiting: tuple[Trigger, ToolServerConfig] | None = None


class WorkspaceOps:
    """The sessions of one host."""

    def __init__(
        self,
        *,
        fs: FileSystem,
        env: Mapping[str, str],
        executors: Callable[[Containment], Executor],
        terminals: TerminalFactory,
        composer: Composer,
        default: ToolServerConfig,
        profile: Profile | None = None,
        on_change: Callable[[ToolsChanged], None] = lambda _change: None,
    ) -> None:
        """``profile`` contains what sessions run, each in its own directory; see `containment`."""
        self._fs = fs
        self._env = dict(env)
        self._executors = executors
        self._profile = profile
        self._terminals = terminals
        self._composer = composer
        self._default = default
        self._on_change = on_change
        self._held: dict[str, _Held] = {}
        self._draining = False

    # -- sessions ------------------------------------------------------------------------------------

    def session(self, session_id: str | None) -> WorkspaceSession:
        return self._find(session_id).session

    def sessions(self) -> list[WorkspaceSession]:
        return [held.session for held in self._held.values()]

    async def create(
        self,
        session_id: str,
        cwd: str,
        *,
        config: ToolServerConfig | None = None,
        env: Mapping[str, str] | None = None,
        hunks: HunkTracker | None = None,
        display_cwd: str | None = None,
    ) -> WorkspaceSession:
        """A root session: it may do everything and fork without bound."""
        self._may_open(session_id)
        session = self._made(session_id, cwd, {**self._env, **(env or {})}, hunks, display_cwd=display_cwd)
        return await self._open(session, config or self._default, config is not None)

    async def fork(
        self,
        parent_id: str,
        session_id: str,
        *,
        mode: CapabilityMode = CapabilityMode.READ_WRITE,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        generations: int | None = None,
    ) -> WorkspaceSession:
        """A child that may do at most what its parent may; ``generations`` bounds its own forks."""
        parent = self._find(parent_id)
        self._may_open(session_id)
        if not within(mode, parent.session.mode):
            raise Refusal(
                RefusalCode.WIDENING,
                f"a session in mode {parent.session.mode} cannot have a child in mode {mode}",
            )
        budget = parent.session.fork_budget
        if budget is not None and budget <= 0:
            raise Refusal(RefusalCode.MAX_DEPTH, "no further generation of sessions is allowed here")
        left = None if budget is None else budget - 1
        if generations is not None:
            left = generations if left is None else min(left, generations)
        inherited = {**parent.session.env, **(env or {})}
        session = self._made(
            session_id,
            cwd or parent.session.cwd,
            inherited,
            mode=mode,
            display_cwd=parent.session.display_cwd if cwd is None else None,
            depth=parent.session.depth + 1,
            fork_budget=left,
        )
        return await self._open(session, parent.installed.config, parent.installed.explicit)

    async def bind(
        self,
        session_id: str,
        cwd: str,
        toolset: Toolset,
        terminal: Terminal | None = None,
        hunks: HunkTracker | None = None,
    ) -> WorkspaceSession:
        """Use a toolset an agent has built, with the agent's terminal; creates the session if need be.

        For a session that exists, directory and hunks stay what they are.
        """
        if session_id in self._held:
            session = self._held[session_id].session
        else:
            self._may_open(session_id)
            session = self._made(session_id, cwd, self._env, hunks)
            self._held[session_id] = _Held(session, _Installed(self._default, explicit=False))
        held = self._held[session_id]
        async with held.lock:
            session.toolset = toolset
            session.bound_terminal = None if terminal is session.own_terminal else terminal
        self._on_change(ToolsChanged(session_id, Trigger.OTHER))
        return session

    async def drop(self, caller_id: str, session_id: str) -> None:
        """End a session; only it may ask for that.  What its own terminal runs ends with it."""
        held = self._find(session_id)
        if caller_id != session_id:
            raise Refusal(RefusalCode.UNAUTHORISED, "a session can be ended by itself only")
        del self._held[session_id]
        held.waiting = None
        await held.session.own_terminal.close()

    async def close(self) -> None:
        """No new sessions; all there are end."""
        self._draining = True
        await asyncio.gather(*(self.drop(session_id, session_id) for session_id in list(self._held)))

    # -- toolsets ------------------------------------------------------------------------------------

    async def update_tools(
        self, caller_id: str, session_id: str, config: ToolServerConfig, *, wait: bool = True
    ) -> Decision:
        """The client of a session wants another configuration.

        During a turn it is kept and applied at the turn's end; with ``wait=False`` the caller is refused
        instead, and asks again itself.  A configuration that cannot be composed raises at once either way.
        """
        held = self._find(session_id)
        if caller_id != session_id:
            raise Refusal(RefusalCode.UNAUTHORISED, "a session's tools are its own to change")
        decision = await self._swap(held, Trigger.UPDATE, config)
        if decision is Decision.KEEP_EXTERNAL:
            raise Refusal(RefusalCode.EXTERNALLY_OWNED, "the agent brought these tools along and keeps them")
        if decision.deferred:
            if not wait:
                raise Refusal(RefusalCode.TURN_ACTIVE, "a turn is running; ask again when it has ended")
            # Put down before it is tried: the turn may end while it is.
            wish = held.waiting = (Trigger.UPDATE, config)
            try:
                await asyncio.to_thread(self._composer, held.session, config)
            except Exception:
                if held.waiting is wish:
                    held.waiting = None
                raise
        else:
            held.waiting = None  # the newest wish counts
        return decision

    async def rebind(self, session_id: str, config: ToolServerConfig) -> Decision:
        """The owner of a session is back, with a configuration."""
        held = self._find(session_id)
        decision = await self._swap(held, Trigger.OWNER_REBIND, config)
        if decision.deferred:
            held.waiting = (Trigger.OWNER_REBIND, config)
        return decision

    async def rebuild(self, trigger: Trigger, *, changed: bool = True) -> dict[str, Decision]:
        """Tools from elsewhere came or went: compose every session's again.

        A session whose composing fails keeps its toolset, marked as stale; the others go on.
        """
        decisions: dict[str, Decision] = {}
        for session_id, held in list(self._held.items()):
            try:
                decisions[session_id] = await self._swap(held, trigger, None, changed=changed)
            except Exception:
                _LOG.exception("the tools of session %s could not be composed again", session_id)
                held.installed = dataclasses.replace(held.installed, stale=True)
        return decisions

    # -- turns and calls -----------------------------------------------------------------------------

    def begin_prompt(self, session_id: str, preview: str = "") -> int:
        return self._find(session_id).session.begin_prompt(preview)

    async def end_prompt(self, session_id: str) -> Decision | None:
        """The turn is over: what was put off happens now."""
        held = self._find(session_id)
        held.session.end_prompt()
        if held.waiting is None:
            return None
        wish = held.waiting
        try:
            decision = await self._swap(held, *wish)
        except Exception:
            _LOG.exception("the tools that session %s waited for could not be composed", session_id)
            decision = None  # it was composed when it was asked for; the turn's end is not the place to fail
        if held.waiting is wish and not (decision and decision.deferred):
            held.waiting = None
        return decision

    async def call(self, session_id: str | None, work: Callable[[WorkspaceSession], Awaitable[_T]]) -> _T:
        """Do a tool call in a session, counted as in flight meanwhile."""
        session = self.session(session_id)
        with session.call_in_flight():
            return await work(session)

    # -- inside --------------------------------------------------------------------------------------

    def _find(self, session_id: str | None) -> _Held:
        if not session_id:
            raise Refusal(RefusalCode.MISSING_SESSION, "no session is named")
        if session_id not in self._held:
            raise Refusal(RefusalCode.NOT_FOUND, f"there is no session {session_id}; bind it first")
        return self._held[session_id]

    def _may_open(self, session_id: str) -> None:
        if not session_id:
            raise Refusal(RefusalCode.EMPTY_ID, "a session needs an id")
        if self._draining:
            raise Refusal(RefusalCode.SHUTTING_DOWN, "the workspace is shutting down")
        if session_id in self._held:
            raise Refusal(RefusalCode.EXISTS, f"session {session_id} exists already")

    def _made(
        self,
        session_id: str,
        cwd: str,
        env: Mapping[str, str],
        hunks: HunkTracker | None = None,
        **options: Any,
    ) -> WorkspaceSession:
        contained = contain(self._profile, cwd)
        return WorkspaceSession(
            session_id,
            cwd,
            fs=self._fs,
            env=env,
            executor=self._executors(contained),
            terminal=self._terminals(session_id, env, contained),
            hunks=hunks or HunkTracker(HunkMode.ALL_DIRTY),
            containment=contained,
            **options,
        )

    async def _open(
        self, session: WorkspaceSession, config: ToolServerConfig, explicit: bool
    ) -> WorkspaceSession:
        held = self._held[session.id] = _Held(session, _Installed(config, explicit))
        try:
            async with held.lock:
                session.toolset = await asyncio.to_thread(self._composer, session, config)
        except BaseException:
            # The id is taken while composing, and free again when that fails.
            del self._held[session.id]
            await session.own_terminal.close()
            raise
        return session

    def _situation(
        self, held: _Held, trigger: Trigger, config: ToolServerConfig | None, changed: bool
    ) -> Situation:
        session, installed = held.session, held.installed
        if config is None:
            relation = Relation.IN_PLACE if changed else Relation.UNCHANGED
        elif config.fingerprint() == installed.config.fingerprint():
            relation = Relation.UNCHANGED
        else:
            relation = Relation.FROM_EXPLICIT if installed.explicit else Relation.FROM_DEFAULT
        return Situation(
            trigger=trigger,
            relation=relation,
            turn_active=session.turn_active,
            in_flight=session.in_flight,
            external_terminal=session.bound_terminal is not None,
            stale=installed.stale,
        )

    async def _swap(
        self, held: _Held, trigger: Trigger, config: ToolServerConfig | None, *, changed: bool = True
    ) -> Decision:
        while True:
            async with held.lock:
                decision = decide(self._situation(held, trigger, config, changed))
                wanted = config or held.installed.config
            if decision is not Decision.APPLY:
                return decision
            toolset = await asyncio.to_thread(self._composer, held.session, wanted)
            async with held.lock:
                # A turn may have begun meanwhile, or the same configuration been installed by another.
                decision = decide(self._situation(held, trigger, config, changed))
                if decision is not Decision.APPLY:
                    return decision
                if config is None and held.installed.config != wanted:
                    continue  # composed from what is no longer the session's configuration
                explicit = held.installed.explicit or config is not None
                held.session.toolset = toolset
                held.installed = _Installed(wanted, explicit)
            if self._held.get(held.session.id) is held:
                self._on_change(ToolsChanged(held.session.id, trigger))
            return decision
