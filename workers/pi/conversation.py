"""One session of Pi and what Grok does for it.

A conversation gives Grok what it does not know yet, once, and tells apart the turns that Pi has asked for
from those that Grok starts by itself.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from gateway.wire.acp import ErrorCode
from gateway.wire.jsonrpc import EngineLine
from gateway.wire.limits import LIMITS, SIZES
from gateway.wire.records import PiTurnClosed, PiTurnOpened
from workers.pi.binding import prompt_id
from workers.pi.blocks import Event
from workers.pi.grok_session import PASSING, GrokSession, SessionOwner
from workers.pi.lines import turn_key
from workers.pi.protocol import Fields, UserError
from workers.pi.running import Running
from workers.pi.tool_activity import Call
from workers.pi.transcript import Delivery, delivery, entries_of, person_entry, position_of
from workers.pi.turn import End, Turn
from workers.pi.usage import Totals
from workers.pi.wording import NOT_WRITTEN

__all__ = ["Conversation", "Owner"]

log = logging.getLogger(__name__)

#: Turns whose names are remembered: late words of them are nobody's.
_REMEMBERED = 64


class Owner(SessionOwner, Protocol):
    """What a conversation needs of the provider."""

    def newest_frame(self) -> int:
        """Number of the newest frame from the engine."""

    def running(self, turn: str, session: str, grok: str, stream: Turn) -> Running:
        """A turn that is told to the extension."""

    def entry(self, session: str, id_: str, kind: str, data: Mapping[str, Any]) -> None:
        """Append an entry to a session of Pi."""

    def started_itself(self, conversation: Conversation, stream: Turn) -> None:
        """Grok has begun a turn that nobody asked for."""

    def ended_itself(self, conversation: Conversation, stream: Turn) -> None:
        """It is over, and no turn of Pi has told it."""

    def image(self, name: str, data: bytes) -> str:
        """Keep an image as a file; its path."""


class Conversation:
    """See the module.  ``session`` is Pi's id of it."""

    def __init__(self, owner: Owner, session: str, cwd: str) -> None:
        self._owner = owner
        self.session, self.cwd = session, cwd
        self.grok = GrokSession(owner, session, cwd)
        self.active = frozenset[str]()  #: names of Pi's active tools
        self.turns = dict[str, Running]()  #: by the extension's id; the last one at least
        self.own = dict[str, Turn]()  #: turns that nobody has asked for, or not here, by prompt id
        self.allowed = collections.deque[str](maxlen=SIZES.open_gates)  #: calls that a person has allowed
        self.totals = Totals()
        self.on_screen = False  #: Pi has told its entries
        self.context = 0  #: tokens in use
        self._now_running = ""  # prompt id of Grok's present turn
        self._lock = asyncio.Lock()
        self._finished = collections.OrderedDict[str, Turn]()

    @property
    def turn(self) -> Running | None:
        """The turn of Pi that runs."""
        return next((t for t in self.turns.values() if not t.ended.is_set()), None)

    # -- a turn of Pi --------------------------------------------------------------------------

    async def take(self, fields: Fields) -> Running:
        """Give a turn to Grok; returns once it has it.  Raises NeedAll, UserError and ProtocolError."""
        async with self._lock:
            branch = entries_of(
                fields.objects("entries") if fields.given("entries") else None, fields.objects("messages")
            )
            self.on_screen = self.on_screen or fields.given("entries")
            await self._settled(prompt_id(self.session, person_entry(branch)))
            self._replayed(*await self.grok.open(fields, branch))
            binding = self.grok.binding
            assert binding is not None
            known = 0 if fields.text_or("since") else position_of(branch, binding.delivered)
            what = delivery(branch, known or 0, new=self.grok.fresh)
            running = self._known_turn(fields, what) or self._prompt(fields, what)
            running.window = self._owner.models.window(self.grok.model)
            for old in [t for t in self.turns.values() if t.ended.is_set() and t is not running]:
                self.forget(old)
            return running

    def forget(self, running: Running) -> None:
        """The extension has no question about this turn any more."""
        del self.turns[running.id]
        self._owner.record(PiTurnClosed(running.id))

    async def _settled(self, name: str) -> None:
        """Wait for the end of the turn before: its last words must not become this one's.

        ``name``: of the prompt to come; a turn of the same name is joined instead.
        """
        before = self.turn
        if before is None or (before.stream.prompt_id == name and not before.stream.aborted):
            return
        if not before.heard:  # Pi has given it up while its socket was lost
            self.abort(before)
        if before.stream.aborted:
            try:
                async with asyncio.timeout(LIMITS.cancel_settle):
                    await before.ended.wait()
            except TimeoutError:
                before.stop(End("aborted"))
        else:
            await before.ended.wait()

    def _replayed(self, replay: Mapping[str, Turn], running: str) -> None:
        for name, stream in replay.items():
            if name == running:
                self.own[name] = stream
            else:
                stream.completed()
                self._remember(stream)

    def _known_turn(self, fields: Fields, what: Delivery) -> Running | None:
        """A turn of Grok's that this call of Pi is about already."""
        name = what.wake or (prompt_id(self.session, what.prompt_entry) if what.prompt_entry else "")
        asked = (t.stream for t in self.turns.values() if t.stream.prompt_id == name)
        stream = self.own.get(name) or self._finished.get(name) or next(asked, None)
        if stream is None:
            if what.wake:
                raise UserError("The turn that Grok began by itself is over; its words are in the session.")
            return None
        if stream.end is not None and stream.end.stop in ("error", "aborted"):
            raise UserError(
                "Grok has had this message already, and its turn did not end well. Send another one."
            )
        running = self._opened(fields, stream, own=name in self.own)
        running.delivered = self.grok.binding.delivered if self.grok.binding else ""
        self._tool_entries(stream)
        running.give_all()
        return running

    def _prompt(self, fields: Fields, what: Delivery) -> Running:
        binding = self.grok.binding
        assert binding is not None
        if not what.text:
            raise UserError("There is nothing in this session that Grok has not had yet. Send a message.")
        if what.text.lstrip().lower().startswith("/always-approve"):
            raise UserError("/always-approve would lift Grok's permissions. Use /grok perms for that.")
        text = what.text
        for image in what.images:
            text = text.replace(f"{{{image.name}}}", self._owner.image(image.name, image.data))
        stream = Turn(prompt_id(self.session, what.prompt_entry or what.delivered))
        params = self.grok.prompt(stream.prompt_id, text)
        binding.delivered = what.delivered
        running = self._opened(fields, stream)
        running.delivered = what.delivered
        self.grok.fresh = False
        self._owner.engine.post(turn_key(running.id), "session/prompt", params)
        if self.on_screen:
            data = binding.entry()
            self._owner.entry(self.session, str(data["id"]), "grok-session", data)
        return running

    def _opened(self, fields: Fields, stream: Turn, *, own: bool = False) -> Running:
        """A turn is about to be told.  Its record is written before anything else of it."""
        turn, seq, base = fields.text("turn"), fields.number("seq"), len(fields.objects("blocks"))
        grok, frame = self.grok, self._owner.newest_frame()
        assert grok.binding is not None
        opened = PiTurnOpened(turn, self.session, grok.id, stream.prompt_id, frame, grok.model, own, base)
        if not self._owner.record(grok.binding.record(), opened):
            raise UserError("The gateway cannot write its journal: is the disk full? Grok was sent nothing.")
        running = self.turns[turn] = self._owner.running(turn, self.session, grok.id, stream)
        running.begin(seq, base)
        running.written = True
        return running

    def abort(self, running: Running) -> None:
        """Pi has aborted a turn."""
        if not running.ended.is_set():
            running.stream.aborted = True
            self._owner.engine.notify("session/cancel", {"sessionId": self.grok.id})

    # -- the engine tells ----------------------------------------------------------------------

    def update(self, line: EngineLine) -> None:
        """An update of the Grok session or of a subagent of it."""
        params = line.params
        update, meta = _mapping(params.get("update")), _mapping(params.get("_meta"))
        own = line.session == self.grok.id
        name = str(meta.get("promptId") or update.get("prompt_id") or "") if own else ""
        if self.grok.replayed(name, line, update):
            return
        stream = self._stream(name or self._now_running, line.update)
        if stream is None:
            return
        self._tell(stream, stream.update(line.session, self.grok.id, update, meta))
        self.context = stream.usage.context or self.context
        if line.update != "tool_call_update":
            # A check after an edit adds to the call's entry; the model goes on only when it is done.
            self._tool_entries(stream)
        if line.update == "turn_completed" and own and name in self.own:
            self._own_ended(self.own.pop(name))

    def queue_changed(self, params: Mapping[str, Any]) -> None:
        """``_x.ai/queue/changed``."""
        if params.get("sessionId") != self.grok.id:
            return  # a subagent's
        self._now_running = str(params.get("runningPromptId") or "")
        turn = self.turn
        if turn is not None and turn.stream.aborted and turn.stream.prompt_id == self._now_running:
            # Pi has aborted it while it waited behind a turn that Grok began by itself.
            self._owner.engine.notify("session/cancel", {"sessionId": self.grok.id})

    def answered(self, running: Running, body: Mapping[str, Any]) -> None:
        """The engine has answered the prompt of a turn."""
        stream, error = running.stream, body.get("error")
        if stream.end is not None:
            return
        if isinstance(error, dict):
            code = error.get("code")
            if code == ErrorCode.BRIDGE_LOST and not len(stream.blocks):
                events = stream.stopped(End("error", error=NOT_WRITTEN))  # the engine does not know of it
            elif code in PASSING:
                events = stream.stopped(End("error", error=_lost(code)))
            else:
                events = stream.failed(error)
        else:
            events = stream.answered(_mapping(body.get("result")))
        self.totals.add(stream.usage.whole)
        if stream.end is None or stream.end.error != NOT_WRITTEN:
            self._remember(stream)
        self._tool_entries(stream)  # before the end: what follows it may meet another session on screen
        self._tell(stream, events)

    def reattached(self) -> None:
        """The session was loaded again: turns of Grok's own that did not live through it are over."""
        for name in [name for name in self.own if name != self._now_running]:
            stream = self.own.pop(name)
            stream.reported = stream.reported or "end_turn"
            self._own_ended(stream)

    def _stream(self, name: str, kind: str) -> Turn | None:
        """The turn that an update belongs to."""
        for running in self.turns.values():
            if running.stream.prompt_id == name and running.stream.end is None:
                return running.stream
        if name in self.own:
            return self.own[name]
        if not name or name in self._finished or kind not in _BEGINNINGS:
            return None
        stream = self.own[name] = Turn(name)
        self._owner.started_itself(self, stream)
        return stream

    def _own_ended(self, stream: Turn) -> None:
        events = stream.completed()
        self._remember(stream)
        self.totals.add(stream.usage.whole)
        if self.told(stream):
            self._tool_entries(stream)
            self._tell(stream, events)
        else:
            self._owner.ended_itself(self, stream)

    def _remember(self, stream: Turn) -> None:
        self._finished[stream.prompt_id] = stream
        while len(self._finished) > _REMEMBERED:
            self._finished.popitem(last=False)

    # -- what is told ----------------------------------------------------------------------------

    def told(self, stream: Turn) -> bool:
        """Whether a turn of Pi tells this turn of Grok's."""
        return any(running.stream is stream for running in self.turns.values())

    def _tell(self, stream: Turn, events: list[Event]) -> None:
        for running in tuple(self.turns.values()):
            if running.stream is stream:
                running.emit(events)

    def _tool_entries(self, stream: Turn) -> None:
        if self.on_screen and self.told(stream):
            for call in stream.tools.take_entries():
                self._owner.entry(self.session, call.id, "grok-tool", call.entry())

    def call(self, call_id: str) -> Call | None:
        """A tool call of a turn that runs."""
        return next((c for s in self._streams() if (c := s.tools.get(call_id)) is not None), None)

    def denied(self, call_id: str, reason: str) -> None:
        """The gate has denied a call, which may not have been told yet."""
        for stream in self._streams():
            stream.tools.denied(call_id, reason)

    def _streams(self) -> list[Turn]:
        return [*(r.stream for r in self.turns.values() if r.stream.end is None), *self.own.values()]

    # -- another worker --------------------------------------------------------------------------

    def restore(self, opened: PiTurnOpened, *, whole: bool) -> Running:
        """A turn that a dead worker told.  ``whole``: the frames since its beginning are there."""
        stream = Turn(opened.prompt_id)
        running = self._owner.running(opened.turn, self.session, opened.grok, stream)
        running.written, running.heard, running.whole = True, False, whole
        running.base = opened.base
        running.delivered = self.grok.binding.delivered if self.grok.binding else ""
        self.grok.model = opened.model
        self.turns[opened.turn] = running
        if opened.own:
            self.own[opened.prompt_id] = stream
        return running

    def repeat(self, running: Running, line: EngineLine) -> None:
        """A frame that the dead worker has seen."""
        if line.kind == "response":
            if line.body.get("id") == turn_key(running.id):
                self.answered(running, line.body)
        elif line.session == self.grok.id or line.session in running.stream.subagents:
            params = line.params
            update, meta = _mapping(params.get("update")), _mapping(params.get("_meta"))
            name = str(meta.get("promptId") or update.get("prompt_id") or "")
            if line.session != self.grok.id or name in ("", running.stream.prompt_id):
                running.emit(running.stream.update(line.session, self.grok.id, update, meta))


#: Updates with which a turn that nobody asked for may begin.
_BEGINNINGS = ("agent_message_chunk", "agent_thought_chunk", "tool_call")


def _lost(code: Any) -> str:
    what = "Grok's leader was" if code == ErrorCode.LEADER_LOST else "the way to Grok was"
    return f"This turn is over: {what} lost in the middle of it. Send a message to go on."


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
