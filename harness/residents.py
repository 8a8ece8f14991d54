"""The sessions of an agent that are in memory: how they come there, from disk or new, and how they leave.

Openings and endings happen one after the other, so that a load never meets half a session.  What a session
is made of is `harness.assembly`'s, what it keeps is `harness.session.journal`'s; both are imported when
the first session is wanted.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness.acp import INTERNAL_ERROR, AcpError, invalid_params
from harness.answers import now_ms
from harness.limits import LIMITS
from harness.session.wishes import SessionWishes, WishError

if TYPE_CHECKING:
    from harness.assembly import Assembly
    from harness.session.actor import SessionActor
    from harness.session.history import Entry
    from harness.session.journal import Journal, Saved
    from harness.session.summary import Summary
    from harness.session.updates import Update

__all__ = ["Client", "Held", "Residents", "not_here"]


class Client(Protocol):
    """The client's side of a connection."""

    def notify(self, method: str, params: Mapping[str, Any]) -> None: ...
    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]: ...


@dataclasses.dataclass
class Held:
    """A session that is in memory."""

    actor: SessionActor
    cwd: str
    always_approve: bool
    changed_ms: int
    unwanted: bool = False  #: no client has it any more: it goes when it rests


class Residents:
    """``sessions`` are those in memory, by id."""

    def __init__(self, home: Path, environ: Mapping[str, str], client: Client) -> None:
        self.sessions: dict[str, Held] = {}
        self.opening = asyncio.Lock()
        self._importing = asyncio.Lock()
        self._home, self._environ, self._client = home, environ, client
        self._assembly: Assembly | None = None
        self._unloading = set[asyncio.Future[bool]]()

    @property
    def assembly(self) -> Assembly:
        assert self._assembly is not None, "`ready` makes it"
        return self._assembly

    async def ready(self) -> None:
        """Import what sessions are made of: most of the engine, which `initialize` need not wait for.

        One thread at a time: two that import parts of the same packages may meet half made modules.
        """
        async with self._importing:
            if self._assembly is None:
                module = await asyncio.to_thread(importlib.import_module, "harness.assembly")
                self._assembly = module.Assembly(self._home, self._environ, self._publish, self._changed)

    async def close(self) -> None:
        for held in tuple(self.sessions.values()):
            await held.actor.close()
        self.sessions.clear()
        if self._assembly is not None:
            await self._assembly.close()

    # -- in ------------------------------------------------------------------------------------------
    async def make(self, wishes: SessionWishes, effort: str | None) -> None:
        """A new session.  Raises AcpError."""
        await self.ready()
        journal = await _opened(lambda: self.assembly.store.create(wishes.id, wishes.cwd))
        await self._take_in(wishes, journal, None, effort)

    async def restore(
        self, session_id: str, cwd: str, wish: Callable[[Summary], SessionWishes], effort: str | None
    ) -> Held:
        """A session that another process began, or this one before.  Raises AcpError."""
        store = self.assembly.store
        summary = await asyncio.to_thread(store.find, session_id, cwd)
        if summary is None:
            raise not_here()
        wishes = wish(summary)
        journal = await _opened(lambda: store.open(summary))
        saved = await asyncio.to_thread(journal.restore)
        await self._take_in(wishes, journal, saved, summary.effort or effort)
        return self.sessions[session_id]

    def attach(self, held: Held, wishes: SessionWishes) -> None:
        """A client loads a session that is in memory.  Raises AcpError."""
        try:
            self.assembly.attach(wishes.id, wishes)
        except WishError as error:
            raise invalid_params(str(error)) from error
        held.always_approve = held.always_approve or wishes.always_approve

    async def _take_in(
        self, wishes: SessionWishes, journal: Journal, saved: Saved | None, effort: str | None
    ) -> None:
        def rests() -> None:
            asyncio.get_running_loop().call_soon(self._put_away, wishes.id)

        try:
            actor = await self.assembly.session(wishes, self._client, journal, saved, rests)
        except WishError as error:
            journal.close()
            raise invalid_params(str(error)) from error
        actor.title = journal.summary.title
        actor.set_model(wishes.endpoint, effort)
        self.sessions[wishes.id] = Held(actor, wishes.cwd, wishes.always_approve, now_ms())

    # -- out -----------------------------------------------------------------------------------------
    async def unload(self, session_id: str, *, only_unwanted: bool = False) -> bool:
        """End a session; what is kept of it stays.  False: it was not there."""
        async with self.opening:
            held = self.sessions.get(session_id)
            if held is None or (only_unwanted and (not held.unwanted or held.actor.busy)):
                return False
            del self.sessions[session_id]
            await held.actor.close()
            await self.assembly.drop(session_id)
            return True

    def evict(self, session_ids: Iterable[str]) -> None:
        """No client has these sessions any more: those at work go on until they rest."""
        for session_id in session_ids:
            if (held := self.sessions.get(session_id)) is not None:
                held.unwanted = True
                self._put_away(session_id)

    async def delete(self, session_id: str, cwd: str | None) -> None:
        """Remove all that is kept of a session."""
        await self.ready()
        await self.unload(session_id)
        async with self.opening:
            if session_id not in self.sessions:
                await asyncio.to_thread(self.assembly.store.delete, session_id, cwd)

    def _put_away(self, session_id: str) -> None:
        held = self.sessions.get(session_id)
        if held is not None and held.unwanted and not held.actor.busy:
            unloading = asyncio.ensure_future(self.unload(session_id, only_unwanted=True))
            self._unloading.add(unloading)
            unloading.add_done_callback(self._unloading.discard)

    # -- what is known -------------------------------------------------------------------------------
    async def kept(self, cwd: str | None = None) -> list[Summary]:
        """Sessions on disk, whether or not they are in memory."""
        await self.ready()
        return await asyncio.to_thread(self.assembly.store.all, cwd)

    async def history(self, session_id: str, cwd: str) -> list[Entry]:
        """The history of a session; empty when there is none such."""
        await self.ready()
        held = self.sessions.get(session_id)
        if held is not None and held.cwd == cwd:
            return await self.assembly.journal(session_id).entries()
        store = self.assembly.store
        summary = await asyncio.to_thread(store.find, session_id, cwd)
        return await asyncio.to_thread(store.entries, summary) if summary else []

    def replay(self, held: Held, entries: Iterable[Entry], meta: Mapping[str, Any]) -> None:
        """Send a history to the client that loads; ``meta`` is its request's."""
        from harness.session.history import replay

        stamp = {name: meta[name] for name in ("x.ai/leaderClientId", "x.ai/persist") if name in meta}
        cursor = str(meta.get("cursor") or "").rpartition("-")[2]
        after = int(cursor) if cursor.isdecimal() else None
        running, asked = held.actor.running_prompt is not None, held.actor.asked_calls
        for method, params in replay(entries, running=running, asked=asked, after=after, stamp=stamp):
            self._client.notify(method, params)

    def row(self, session_id: str) -> dict[str, Any]:
        """A session as the roster shows it."""
        held = self.sessions[session_id]
        return {
            "sessionId": session_id,
            "title": None,
            "cwd": held.cwd,
            "isWorktree": False,
            "modelId": held.actor.endpoint.id,
            "yolo": held.always_approve,
            "activity": held.actor.activity,
            "resident": True,
            "lastChangeUnixMs": held.changed_ms,
            "origin": {"kind": "local"},
        }

    def _changed(self, session_id: str) -> None:
        held = self.sessions.get(session_id)
        if held is not None:
            held.changed_ms = now_ms()
            changed = {"upserted": [self.row(session_id)], "removed": []}
            self._client.notify("_x.ai/sessions/changed", changed)

    def _publish(self, session_id: str, update: Update) -> None:
        self._client.notify(update.method, update.params)


def not_here() -> AcpError:
    """The answer to a load of what is not kept."""
    detail = "the session is not here, or it has another folder"
    return AcpError(INTERNAL_ERROR, "Path not found.", {"detail": detail, "code": "FS_NOT_FOUND"})


async def _opened(make: Callable[[], Journal]) -> Journal:
    """Open a session's files; a process that is about to end may still have them for a moment."""
    deadline = asyncio.get_running_loop().time() + LIMITS.session_lock
    while True:
        try:
            return make()
        except BlockingIOError as error:
            if asyncio.get_running_loop().time() > deadline:
                told = "another process has this session open"
                raise AcpError(INTERNAL_ERROR, "Internal error", told) from error
            await asyncio.sleep(LIMITS.session_look)
        except OSError as error:
            told = f"the session cannot be kept: {error.strerror}"
            raise AcpError(INTERNAL_ERROR, "Internal error", told) from error
