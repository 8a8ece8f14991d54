"""The engine as an ACP agent: what a client may ask for, and the sessions behind it.

`Agent.handle` takes a method of any client; what is not ACP's own is looked up in `harness.extensions`.
Notifications of sessions leave through the ``notify`` of the client.  The agent neither reads nor writes
anything itself, so that one process can serve one client over stdio or many over a socket.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.acp import INTERNAL_ERROR, AcpError, invalid_params
from harness.answers import (
    AUTH_METHOD,
    initialized,
    model_state,
    opened,
    options,
    place_of,
    session_id_of,
    table,
    text,
)
from harness.model.endpoints import Catalog, ConfigError, Endpoint, load_catalog
from harness.residents import Client, Held, Residents, not_here
from harness.session.prompt import read_prompt
from harness.session.wishes import SessionWishes

if TYPE_CHECKING:
    from harness.arguments import Arguments
    from harness.session.summary import Summary

__all__ = ["Agent", "Client", "Defaults", "Held"]

AUTH_REQUIRED = -32000


@dataclasses.dataclass(frozen=True, slots=True)
class Defaults:
    """What the command line says for every session."""

    model: str | None = None
    effort: str | None = None
    always_approve: bool = False
    permission_mode: str | None = None
    trusted: bool = False

    @classmethod
    def of(cls, arguments: Arguments) -> Defaults:
        """Those of a command line."""
        return cls(
            model=arguments.model,
            effort=arguments.effort,
            always_approve=arguments.always_approve,
            permission_mode=arguments.permission_mode,
            trusted=arguments.trust,
        )


class Agent:
    """One client's agent."""

    def __init__(
        self, home: Path, environ: Mapping[str, str], client: Client, defaults: Defaults | None = None
    ) -> None:
        self.client = client
        self.residents = Residents(home, environ, client)
        self.sessions = self.residents.sessions
        self._home, self._environ = home, environ
        self._defaults = defaults or Defaults()
        self._initialized = False
        self._catalog: Catalog | None = None
        self._instance = str(uuid.uuid4())
        self._warming: asyncio.Task[object] | None = None
        self._methods: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[Any]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/close": self._close_session,
            "session/delete": self._delete,
            "x.ai/internal/evict_sessions": self._evict,
            "_x.ai/internal/evict_sessions": self._evict,
            "session/prompt": self._prompt,
            "session/cancel": self._cancel,
            "session/set_mode": self._set_mode,
            "session/set_model": self._set_model,
            "session/set_config_option": self._set_option,
        }

    async def handle(self, method: str, params: Mapping[str, Any], is_request: bool) -> Any:
        """Do what a message of the client asks for.  Raises AcpError."""
        found = self._methods.get(method)
        if found is not None:
            return await found(params)
        await self.residents.ready()
        from harness.extensions import extension

        return await extension(self, method, params, is_request)

    async def close(self) -> None:
        """The client has gone: all sessions end."""
        await self.residents.close()
        if self._warming is not None:
            self._warming.cancel()

    # -- models --------------------------------------------------------------------------------------
    @property
    def catalog(self) -> Catalog:
        """The configured models; read when first needed, and again at each initialize."""
        if self._catalog is None:
            try:
                self._catalog = load_catalog(self._home, self._environ)
            except ConfigError as error:
                raise AcpError(INTERNAL_ERROR, "Internal error", {"message": str(error)}) from error
        return self._catalog

    def models(self, current: Endpoint | None) -> dict[str, Any]:
        """The model state that several answers carry."""
        return model_state(self.catalog.endpoints.values(), current)

    def default_endpoint(self, wanted: str | None = None) -> Endpoint:
        """The model that a session starts with.  Raises AcpError when there is none."""
        catalog = self.catalog
        for name in (wanted, self._defaults.model, catalog.default):
            if name and (found := catalog.find(name)):
                return found
        told = "no model is configured: add [model.<id>] with a base_url to config.toml, or set XAI_API_KEY"
        raise AcpError(AUTH_REQUIRED, "Authentication required", " ".join((told, *catalog.notes)))

    def options(self, held: Held) -> list[dict[str, Any]]:
        """The settings of a session that a client can offer."""
        return options(self.catalog.endpoints.values(), held.actor.endpoint, held.actor.effort)

    # -- the connection ------------------------------------------------------------------------------
    async def _initialize(self, params: Mapping[str, Any]) -> dict[str, Any]:
        self._catalog = None
        self._initialized = True
        self.say_later(self._warm)
        catalog = self.catalog
        current = catalog.endpoints[catalog.default] if catalog.default else None
        self.say_later(lambda: self.client.notify("_x.ai/mcp/servers_updated", {"mcpServers": []}))
        return initialized(model_state(catalog.endpoints.values(), current), self._instance)

    async def _authenticate(self, params: Mapping[str, Any]) -> dict[str, Any]:
        method = text(params, "methodId")
        if method != AUTH_METHOD:
            raise invalid_params(f"unsupported auth method: {method}")
        self._catalog = None
        self.default_endpoint()
        return {}

    # -- sessions ------------------------------------------------------------------------------------
    async def _new(self, params: Mapping[str, Any]) -> dict[str, Any]:
        if not self._initialized:
            raise invalid_params("initialize must be called before new_session")
        cwd, servers, meta = place_of(params)
        session_id = session_id_of(meta)
        # A client that got no answer asks again; both requests then mean the one session.
        async with self.residents.opening:
            held = self.sessions.get(session_id)
            if held is None:
                await self._make(session_id, cwd, servers, meta)
            elif held.cwd != cwd:
                raise invalid_params(f"session {session_id} exists and has another folder")
            else:  # else tools would run unasked that the client believes to be asked for
                held.unwanted = False
                self._attach(held, session_id, servers, meta)
        return self._opened(session_id)

    async def _make(self, session_id: str, cwd: str, servers: list[Any], meta: Mapping[str, Any]) -> None:
        chosen = session_id if "sessionId" in meta else None
        for phase in ("auth", "resolve_workspace"):
            self._setup("session/new", phase, chosen)
        wishes = self._wishes(session_id, cwd, meta, self.default_endpoint(meta.get("modelId")))
        wishes = dataclasses.replace(wishes, rules=str(meta.get("rules") or ""))
        for phase in ("persistence_init", "spawn_session_actor"):
            self._setup("session/new", phase, session_id)
        await self.residents.make(wishes, self._defaults.effort)
        self._warming = asyncio.ensure_future(asyncio.to_thread(importlib.import_module, "aiohttp"))
        self.say_later(lambda: self._session_ready(session_id, servers, meta))

    def _wishes(
        self, session_id: str, cwd: str, meta: Mapping[str, Any], endpoint: Endpoint
    ) -> SessionWishes:
        """What a client wants of a session; rules are for new ones only, as in the original."""
        return SessionWishes(
            id=session_id,
            cwd=cwd,
            endpoint=endpoint,
            system_prompt=str(meta.get("systemPromptOverride") or "").strip(),
            always_approve=self._defaults.always_approve or meta.get("yoloMode") is True,
            permission_mode=self._defaults.permission_mode,
            trusted=self._defaults.trusted,
            auto_approve=meta.get("autoMode") is True,
            hooks=meta.get("x.ai/hooks"),
        )

    def _session_ready(self, session_id: str, servers: list[Any], meta: Mapping[str, Any]) -> None:
        """What a client hears behind the answer to its request."""
        held = self.sessions.get(session_id)
        if held is None:
            return
        for phase in ("git_discovery", "finalize_response", "response_ready"):
            self._setup("session/new", phase, session_id)
        self.residents.assembly.serve(session_id, servers, meta)
        held.actor.announce()

    def _opened(self, session_id: str) -> dict[str, Any]:
        held = self.sessions[session_id]
        root = self.residents.assembly.repository(held.cwd)
        models = self.catalog.endpoints.values()
        return opened(session_id, held.cwd, root, models, held.actor.endpoint, held.actor.effort)

    async def _load(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self._reopened(params, replay=True)

    async def _resume(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self._reopened(params, replay=False)

    async def _reopened(self, params: Mapping[str, Any], *, replay: bool) -> dict[str, Any]:
        """A session of this process or of an earlier one."""
        if not self._initialized:
            raise invalid_params("initialize must be called before load_session")
        session_id = text(params, "sessionId")
        cwd, servers, meta = place_of(params)
        await self.residents.ready()
        async with self.residents.opening:
            held = await self._held_again(session_id, cwd, servers, meta)
            held.unwanted = False
            journal = self.residents.assembly.journal(session_id)
            entries = await journal.entries() if replay and meta.get("noReplay") is not True else []
        # From here on nothing is awaited: what comes next is sent behind the answer.
        self.residents.replay(held, entries, meta)
        held.actor.tell_tasks()
        held.actor.tell_model(())
        self.say_later(held.actor.announce)
        return self._reopened_answer(session_id, meta)

    async def _held_again(
        self, session_id: str, cwd: str, servers: list[Any], meta: Mapping[str, Any]
    ) -> Held:
        held = self.sessions.get(session_id)
        if held is not None:
            if held.cwd != cwd:
                raise not_here()
            self._attach(held, session_id, servers, meta)
            return held

        def wish(summary: Summary) -> SessionWishes:
            known = self.catalog.find(summary.model) or self.catalog.find(summary.model_name)
            return self._wishes(session_id, cwd, meta, known or self.default_endpoint())

        held = await self.residents.restore(session_id, cwd, wish, self._defaults.effort)
        self.residents.assembly.serve(session_id, servers, meta)
        return held

    def _attach(self, held: Held, session_id: str, servers: list[Any], meta: Mapping[str, Any]) -> None:
        """A client names hooks and servers for a session that is in memory.  Raises AcpError."""
        self.residents.attach(held, self._wishes(session_id, held.cwd, meta, held.actor.endpoint))
        self.residents.assembly.serve(session_id, servers, meta, anew=False)

    def _reopened_answer(self, session_id: str, meta: Mapping[str, Any]) -> dict[str, Any]:
        held = self.sessions[session_id]
        answer = self._opened(session_id)
        del answer["sessionId"]
        for name in ("currentWorkingDirectory", "isGitRepo", "gitRoot"):  # told of new sessions only
            del answer["_meta"][name]
        told = {"sessionId": session_id}
        if held.actor.running_prompt:
            told["x.ai/runningPromptId"] = held.actor.running_prompt
        if "x.ai/persist" in meta:
            told["x.ai/persist"] = meta["x.ai/persist"]
        if held.actor.title:
            answer["_meta"]["x.ai/sessionDetail"]["title"] = held.actor.title
        answer["_meta"] |= told
        return answer

    async def _list(self, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self.listed(params, more=False)

    async def listed(self, params: Mapping[str, Any], *, more: bool) -> dict[str, Any]:
        """Sessions that are kept, in memory or not; ``more``: with all that is known of each."""
        from harness.roster import listed

        cwd, cursor = params.get("cwd"), params.get("cursor")
        found = await self.residents.kept(cwd if isinstance(cwd, str) else None)
        return listed(found, cursor if isinstance(cursor, str) else None, more=more)

    async def _close_session(self, params: Mapping[str, Any]) -> dict[str, Any]:
        session_id = text(params, "sessionId")
        if not await self.residents.unload(session_id):
            return {"_meta": {"x.ai/closeOutcome": "notResident"}}
        self.client.notify("_x.ai/sessions/changed", {"upserted": [], "removed": [session_id]})
        return {"_meta": {"x.ai/closeOutcome": "closed"}}

    async def _delete(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """End a session and remove what is kept of it."""
        await self._close_session(params)
        cwd = params.get("cwd")
        await self.residents.delete(text(params, "sessionId"), cwd if isinstance(cwd, str) else None)
        return {}

    async def _evict(self, params: Mapping[str, Any]) -> None:
        ids = params.get("sessionIds")
        self.residents.evict(str(session_id) for session_id in (ids if isinstance(ids, list) else ()))

    # -- turns ---------------------------------------------------------------------------------------
    async def _prompt(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        held = self.held(params)
        blocks = params.get("prompt")
        if not isinstance(blocks, list):
            raise invalid_params("missing field `prompt`")
        meta = table(params, "_meta")
        prompt_id = meta.get("promptId")
        outcome = await held.actor.prompt(
            read_prompt([block for block in blocks if isinstance(block, dict)]),
            prompt_id if isinstance(prompt_id, str) and prompt_id else None,
            at_once=meta.get("sendNow") is True,
        )
        if outcome.error is not None:
            raise AcpError(*outcome.error)
        return outcome.result or {}

    async def _cancel(self, params: Mapping[str, Any]) -> None:
        held = self.sessions.get(str(params.get("sessionId")))
        if held is not None:
            trigger = table(params, "_meta").get("cancelTrigger")
            held.actor.cancel(trigger if isinstance(trigger, str) else "")

    # -- settings ------------------------------------------------------------------------------------
    async def _set_mode(self, params: Mapping[str, Any]) -> dict[str, Any]:
        held = self.held(params)
        mode = text(params, "modeId")
        if mode in ("plan", "default"):
            held.actor.set_mode(mode)
        return {}

    async def _set_model(self, params: Mapping[str, Any]) -> dict[str, Any]:
        held = self.held(params)
        endpoint = self.catalog.find(text(params, "modelId"))
        if endpoint is None:
            raise invalid_params("unknown model id")
        effort = table(params, "_meta").get("reasoningEffort")
        self._switch(held, endpoint, effort if isinstance(effort, str) else None)
        return {"_meta": {"model": {"Ok": endpoint.model}}}

    async def _set_option(self, params: Mapping[str, Any]) -> dict[str, Any]:
        held = self.held(params)
        option, value = text(params, "configId"), params.get("value")
        if option == "model":
            endpoint = self.catalog.find(str(value))
            if endpoint is None:
                raise invalid_params("unknown model id")
            self._switch(held, endpoint, None)
        elif option == "reasoning_effort" and held.actor.endpoint.efforts:
            if value not in held.actor.endpoint.efforts:
                raise invalid_params(f"unknown value of reasoning_effort: {value}")
            self._switch(held, held.actor.endpoint, str(value))
        else:
            raise invalid_params(f"unknown config option: {option}")
        return {"configOptions": self.options(held)}

    def _switch(self, held: Held, endpoint: Endpoint, effort: str | None) -> None:
        held.actor.set_model(endpoint, effort)
        self.say_later(lambda: held.actor.tell_model(self.options(held)))

    # -- for sessions and extensions -----------------------------------------------------------------
    def _warm(self) -> None:
        """Use the time until the first session is wanted."""
        self._warming = asyncio.ensure_future(self.residents.ready())

    def held(self, params: Mapping[str, Any]) -> Held:
        """The session that a message names.  Raises AcpError."""
        held = self.sessions.get(text(params, "sessionId"))
        if held is None:
            raise invalid_params("unknown session id")
        held.unwanted = False
        return held

    def _setup(self, method: str, phase: str, session_id: str | None) -> None:
        """How far the making of a session has come."""
        self.client.notify("_x.ai/session/setup", {"method": method, "phase": phase, "sessionId": session_id})

    @staticmethod
    def say_later(say: Callable[[], None]) -> None:
        """Behind the answer that is being made: an answer is written before the loop turns again."""
        asyncio.get_running_loop().call_soon(say)
