"""Pi's calls of the model: taken, joined, resumed, aborted.

A call of a conversation goes to its `Conversation`, any other one to a `Side`.  A call is known by the
extension's id of it, which outlives sockets; the same call sent again joins the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gateway.wire.jsonrpc import parse_engine
from gateway.wire.records import ConnectionRecord
from workers.pi.conversation import Conversation
from workers.pi.grok_session import NeedAll
from workers.pi.protocol import Fields, UserError
from workers.pi.running import Running
from workers.pi.side import Side, SideDesk
from workers.pi.turn import End

__all__ = ["Calls"]

T = TypeVar("T")

_LOST = "The gateway has lost the beginning of this turn; the whole answer is in Grok's session only."


class _Desk(SideDesk, Protocol):
    """What calls need of the provider."""

    conversations: dict[str, Conversation]

    def conversation(self, session: str, cwd: str) -> Conversation:
        """The conversation of a Pi session, perhaps a new one."""

    def capabilities_of(self, session: str, active: frozenset[str] | None) -> None:
        """The active tools that a call names; None: those of the session on screen."""

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do something of its own."""

    def show_status(self) -> None:
        """The status line may have changed."""


class Calls:
    """The calls of one Pi process.  ``folder``: where throwaway sessions have their folders."""

    def __init__(self, desk: _Desk, folder: Path) -> None:
        self._desk, self._folder = desk, folder
        self._sides = dict[str, Side]()  # by Grok session
        self._opening = dict[str, asyncio.Task[Running]]()  # calls that wait for the engine, by turn

    async def take(self, fields: Fields) -> Mapping[str, Any]:
        """``turn``: answered at its end, or with what is needed first."""
        try:
            running = self._resumed(fields) or await self._begun(fields)
        except NeedAll:
            return {"need": "all"}
        await running.ended.wait()
        return running.answer()

    def _resumed(self, fields: Fields) -> Running | None:
        """The call if it runs already: the extension has lost its socket and goes on with it."""
        found = self.find(fields.text("turn"))
        if found is None:
            return None
        running = found[1]
        if not running.whole:
            running.stop(End("error", error=_LOST))
            raise UserError(_LOST)
        if not running.heard:
            if (active := fields.names("active")) is not None and isinstance(found[0], Conversation):
                found[0].active = active
            running.resume(fields.number("seq"), fields.objects("blocks"))
        return running

    async def _begun(self, fields: Fields) -> Running:
        turn = fields.text("turn")
        task = self._opening.get(turn)
        if task is None:
            side = fields.text_or("kind") == "side"
            task = self._desk.start(self._open_side(fields) if side else self._converse(fields))
            self._opening[turn] = task
            task.add_done_callback(lambda done: self._opening.pop(turn, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise UserError("The turn was aborted before Grok had it.") from None

    def abort(self, turn: str) -> None:
        """``turn/abort``."""
        if task := self._opening.get(turn):
            task.cancel()
        if (found := self.find(turn)) is not None:
            owner, running = found
            owner.abort(running)

    def unheard(self) -> None:
        """The extension's socket is lost."""
        for running in self:
            running.heard = False

    def abandon(self) -> None:
        """The extension is back for a while: what it has not resumed it has aborted meanwhile."""
        for running in self:
            if not running.heard:
                self.abort(running.id)

    def find(self, turn: str) -> tuple[Conversation | Side, Running] | None:
        """A call by the extension's id of it, with whatever serves it."""
        for conversation in self._desk.conversations.values():
            if (running := conversation.turns.get(turn)) is not None:
                return conversation, running
        for side in self._sides.values():
            if side.running is not None and side.running.id == turn:
                return side, side.running
        return None

    def side(self, grok: str) -> Side | None:
        """The throwaway session with this id."""
        return self._sides.get(grok)

    def __iter__(self) -> Iterator[Running]:
        for conversation in self._desk.conversations.values():
            yield from tuple(conversation.turns.values())
        yield from [side.running for side in self._sides.values() if side.running is not None]

    async def _converse(self, fields: Fields) -> Running:
        session = fields.text("session")
        conversation = self._desk.conversation(session, fields.text("cwd"))
        self._desk.capabilities_of(session, fields.names("active"))
        running = await conversation.take(fields)
        self._desk.show_status()
        return running

    async def _open_side(self, fields: Fields) -> Running:
        side = await Side.open(self._desk, fields, self._folder)
        self._sides[side.grok] = side
        running = side.begin(fields)
        self._desk.start(self._run_side(side, fields))
        return running

    async def _run_side(self, side: Side, fields: Fields) -> None:
        try:
            await side.run(fields)
        except asyncio.CancelledError:  # the connection ends, and its sessions with it
            side.discard()
            raise
        await side.close()
        del self._sides[side.grok]

    # -- another worker --------------------------------------------------------------------------

    def restore(self, record: ConnectionRecord, frames: Sequence[tuple[int, bytes]], newest: int) -> None:
        """Make the turns of a dead worker again from the engine's frames that it kept."""
        first = frames[0][0] if frames else newest + 1
        for opened in tuple(record.pi_turns.values()):
            conversation = self._desk.conversations.get(opened.session)
            if conversation is None:
                continue
            running = conversation.restore(opened, whole=first <= opened.frame + 1)
            running.window = self._desk.models.window(opened.model)
            for number, data in frames:
                if number > opened.frame:
                    conversation.repeat(running, parse_engine(data))

    async def drop(self, grok: str, cwd: str) -> None:
        """End a session that the dead worker had for nobody: Pi makes a side call again."""
        await Side(self._desk, grok, Path(cwd), self._folder).close()
