"""The provider of one Pi process: what its extension asks, and what the engine tells it.

Thin: it knows which conversation a message is about and lets that decide.  Everything here may end with the
worker; what must not is in the journal (`restore`) or with the extension, which comes back and says it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gateway.paths import Paths
from gateway.wire import acp
from gateway.wire.jsonrpc import INTERNAL_ERROR, METHOD_NOT_FOUND, EngineLine, dump
from gateway.wire.records import ConnectionRecord, Introduced, PiUnbound, Record
from workers.leader import LeaderWatch
from workers.pi import commands, protocol
from workers.pi.answering import Answering
from workers.pi.autonomy import Autonomy
from workers.pi.binding import Binding
from workers.pi.calls import Calls
from workers.pi.conversation import Conversation
from workers.pi.engine import CallFailed, Engine
from workers.pi.grok_session import NeedAll
from workers.pi.images import keep_image
from workers.pi.lines import makes_turn
from workers.pi.models import Models
from workers.pi.outbox import Outbox
from workers.pi.peer import Peer
from workers.pi.program import version_of
from workers.pi.protocol import Fields, Incoming, ProtocolError, UserError
from workers.pi.running import Running
from workers.pi.settings import PiSettingError, PiSettings
from workers.pi.turn import Turn
from workers.pi.wording import disarmed

__all__ = ["Host", "Provider"]

log = logging.getLogger(__name__)

T = TypeVar("T")


class Host(Protocol):
    """What the provider needs of its connection."""

    id: str

    def to_extension(self, frame: bytes) -> None:
        """Send to the extension; dropped when it is not connected."""

    def to_engine(self, message: bytes) -> None:
        """A message of the provider as a client of the engine."""

    def record(self, *records: Record) -> bool:
        """Write to the journal."""

    def newest_frame(self) -> int:
        """Number of the newest kept frame from the engine."""

    def kept_frames(self) -> Iterable[tuple[int, bytes]]:
        """The kept frames with their numbers, oldest first."""

    def elsewhere(self, session_id: str) -> bool:
        """Another living connection has this Grok session."""

    def owner_of(self, session_id: str) -> str:
        """The attached Grok session that a session is, or is a subagent's of; "" if it is neither."""


class Provider:
    """See the module.  ``frame`` and ``receive`` are what comes from both sides."""

    def __init__(self, host: Host, paths: Paths, leader: LeaderWatch) -> None:
        self._host, self._paths, self._leader = host, paths, leader
        self._loop = asyncio.get_running_loop()
        self.engine = Engine(host.to_engine, self._told, self._asked, self._answered)
        self.peer = Peer(host.to_extension)
        self.settings = PiSettings()
        self.models = Models.load(paths.models_file)
        self.agent_dir = ""
        self.pi = ""  #: version of Pi, for people
        self.current = ""  #: the session of Pi on screen
        self.conversations = dict[str, Conversation]()
        self._problem = ""  # why the settings cannot be used
        self._sockets = 0  # that the extension has lost
        self._tasks = set[asyncio.Task[Any]]()
        self._then = list[Callable[[], None]]()  # what the answer about to be sent is followed by
        self._answering = Answering(self, self.peer)
        self._autonomy = Autonomy(self.peer)
        self._outbox = Outbox(self.peer)
        self._calls = Calls(self, paths.run)

    # -- from the extension --------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """One frame of the extension."""
        try:
            message = protocol.parse(data)
        except ProtocolError as error:
            self._host.to_extension(protocol.error_bytes(b"null", error.code, str(error)))
            return
        if message.kind == "response":
            self.peer.answered(message)
        elif message.kind == "notification":
            self._notified(message)
        elif (handler := _REQUESTS.get(message.method)) is None:
            text = f"Method not found: {message.method[:64]}"
            self._host.to_extension(_error(message, ProtocolError(METHOD_NOT_FOUND, text)))
        elif message.method != "hello" and not self.peer.here:
            first = UserError("The first message of a connection is hello.")
            self._host.to_extension(_error(message, first))
        else:
            self.start(self._serve(message, handler))

    async def _serve(self, message: Incoming, handler: _Handler) -> None:
        socket = self._sockets
        try:
            frame = protocol.reply(message.id, await handler(self, message.fields))
        except ProtocolError as error:
            frame = _error(message, error)
        except PiSettingError as error:
            frame = _error(message, UserError(disarmed(str(error))))
        except CallFailed as error:
            frame = _error(message, UserError(disarmed(f"Grok: {error}")))
        except Exception:
            log.exception("%s failed", message.method)
            text = "An error inside the gateway; its worker's log says more (grok-gateway logs)."
            frame = _error(message, ProtocolError(INTERNAL_ERROR, text))
        if socket == self._sockets:  # else nobody waits for it any more
            self._host.to_extension(frame)
        # Not by call_soon: the next message may be read before that is called.
        then, self._then = self._then, []
        for callback in then:
            callback()

    def _notified(self, message: Incoming) -> None:
        try:
            fields = message.fields
            match message.method:
                case "turn/abort":
                    self._calls.abort(fields.text("turn"))
                case "session/close":
                    self.start(self._leave(fields.text("session")))
                case "ui/shown":
                    self.peer.shown(fields.text("ask"))
        except ProtocolError as error:
            log.warning("a notification is ignored: %s", error)

    async def _hello(self, fields: Fields) -> Mapping[str, Any]:
        version = fields.number("v")
        if version != protocol.VERSION:
            older = "Pi extension" if version < protocol.VERSION else "gateway"
            raise UserError(
                f"The Pi extension speaks protocol {version}, this gateway {protocol.VERSION}. Update the "
                f"{older}: `grok-gateway pi install` installs the extension that belongs to the gateway."
            )
        self.agent_dir, self.pi = fields.text("agent_dir"), version_of(fields.text_or("program"))
        environ = {k: v for k, v in fields.mapping("env").items() if isinstance(v, str)}
        try:
            self.settings, self._problem = PiSettings.load(self.agent_dir, environ), ""
        except PiSettingError as error:
            self._problem = disarmed(str(error))
        self.peer.limits = self.settings.limits
        ui, asks = fields.flag("ui"), fields.names("asks") or ()
        mode = fields.text_or("mode") or ("tui" if ui else "print")  # Pi 0.73 has no word for it
        self._host.record(Introduced({"name": "pi", "version": self.pi, "mode": mode}))
        self.models = Models.load(self._paths.models_file)
        self._then.append(lambda: self.peer.arrived(ui=ui, mode=mode, asks=asks))
        self.start(self._abandon())
        draws = "renderers" in (fields.names("caps") or ()) or fields.given("conn")
        notice = self._problem or ("" if draws else _OLD_PI)
        return {"v": protocol.VERSION, "conn": self._host.id, **({"notice": notice} if notice else {})}

    async def _abandon(self) -> None:
        await asyncio.sleep(self.settings.limits.ack)
        if self.peer.here:
            self._calls.abandon()

    async def _session(self, fields: Fields) -> Mapping[str, Any]:
        session, cwd = fields.text("session"), fields.text("cwd")
        conversation = self.conversation(session, cwd)
        conversation.active = fields.names("active") or conversation.active
        conversation.on_screen = True
        self.current = session
        if fields.text_or("reason") == "tree":
            self.record(PiUnbound(session))
            await conversation.grok.leave()
        elif conversation.grok.binding is None and fields.given("binding"):
            conversation.grok.binding = Binding.of_entry(fields.mapping("binding"), session, cwd)
        self._then += (lambda: self._outbox.show(session), self.show_status)
        binding = conversation.grok.binding
        if binding is None:
            return {"state": "new", "perms": self.settings.mode}
        if conversation.grok.attached:
            return {"state": "bound", "delivered": binding.delivered, "perms": self.settings.mode}
        busy = self._host.elsewhere(binding.grok)
        return {"state": "busy" if busy else "bound", "perms": self.settings.mode}

    async def _turn(self, fields: Fields) -> Mapping[str, Any]:
        if self._problem:
            raise UserError(self._problem)
        return await self._calls.take(fields.with_system())

    async def _command(self, fields: Fields) -> Mapping[str, Any]:
        return await commands.run(self, fields.text_or("text"))

    async def _leave(self, session: str) -> None:
        conversation = self.conversations.pop(session, None)
        if conversation is None:
            return
        self._host.record(PiUnbound(session))
        for running in tuple(conversation.turns.values()):
            conversation.abort(running)
            conversation.forget(running)
        await conversation.grok.leave()

    # -- from the engine -----------------------------------------------------------------------

    def frame(self, line: EngineLine) -> None:
        """A message of the engine, or of the gateway in its place."""
        self.engine.frame(line)

    def _told(self, line: EngineLine) -> None:
        if line.update:
            if (side := self._calls.side(line.session)) is not None:
                side.update(line)
            elif makes_turn(line):
                conversation = self.conversation_of(line.session)
                if conversation is not None:
                    conversation.update(line)
                    if line.update == "turn_completed":
                        self.show_status()
            return
        match line.method:
            case acp.QUEUE_CHANGED if (conversation := self.conversation_of(line.session)) is not None:
                conversation.queue_changed(line.params)
            case acp.GATE_CLOSED:
                self._answering.closed(str(line.params.get("id")))
            case acp.REATTACHED if (conversation := self.conversation_of(line.session)) is not None:
                conversation.reattached()
            case acp.LEADER_RESTARTED:
                for conversation in self.conversations.values():
                    conversation.reattached()
                self.notice("Grok was restarted; its sessions were opened again.", "warning")

    def _asked(self, shown: str, method: str, params: dict[str, Any]) -> None:
        self._answering.asked(shown, method, params)

    def _answered(self, key: str, body: Mapping[str, Any]) -> None:
        if (found := self._calls.find(key.removeprefix("turn:"))) is not None:
            owner, running = found
            if isinstance(owner, Conversation):
                owner.answered(running, body)
                self.show_status()

    # -- for the conversations (Owner) ----------------------------------------------------------

    def record(self, *records: Record) -> bool:
        return self._host.record(*records)

    def newest_frame(self) -> int:
        return self._host.newest_frame()

    def attached(self, grok: str) -> bool:
        return bool(grok) and self._host.owner_of(grok) == grok

    def running(self, turn: str, session: str, grok: str, stream: Turn) -> Running:
        return Running(turn, session, grok, stream, self.peer.notify)

    def conversation_of(self, grok: str) -> Conversation | None:
        owner = self._host.owner_of(grok) or grok
        return next((c for c in self.conversations.values() if c.grok.id == owner), None)

    def started_itself(self, conversation: Conversation, stream: Turn) -> None:
        if conversation.session == self.current:
            self.start(self._autonomy.wake(conversation.session, stream))

    def ended_itself(self, conversation: Conversation, stream: Turn) -> None:
        self.start(self._tell_own(conversation, stream))

    async def _tell_own(self, conversation: Conversation, stream: Turn) -> None:
        await self._autonomy.settled(stream)
        if conversation.told(stream) or not conversation.on_screen:
            return
        data = self._autonomy.entry(stream)
        self.entry(conversation.session, stream.prompt_id, "grok-turn", data)

    def notice(self, text: str, level: str = "info") -> None:
        self.peer.notify("ui/notify", {"message": text, "level": level})

    def image(self, name: str, data: bytes) -> str:
        return keep_image(name, data)

    def grok_home(self) -> Path | None:
        info = self._leader.info
        if info is None:
            return None
        home = info.env.get("GROK_HOME")
        return Path(home) if home else Path(info.env.get("HOME", "/nonexistent")) / ".grok"

    def connection_lines(self) -> list[str]:
        info = self._leader.info
        engine = f"{info.engine}, leader {info.pid}" if info else f"no engine: {self._leader.reason}"
        return [f"Gateway connection {self._host.id[:8]}, worker {os.getpid()}, engine {engine}"]

    def show_status(self) -> None:
        """The status line."""
        text = commands.status_line(self)
        self.peer.notify("ui/status", {"text": text})

    def entry(self, session: str, id_: str, kind: str, data: Mapping[str, Any]) -> None:
        self._outbox.put(session, id_, kind, data)

    def capabilities_of(self, session: str, active: frozenset[str] | None) -> None:
        shown = self.conversations.get(self.current)
        if active is None and session != self.current and shown is not None:
            active = shown.active  # a session of another extension's: the same person allows the same
        if active is not None:
            self.conversations[session].active = active

    # -- the connection ------------------------------------------------------------------------

    def left(self) -> None:
        """The extension's socket is lost."""
        self._sockets += 1
        self.peer.left()
        self._calls.unheard()

    def restore(self, record: ConnectionRecord) -> None:
        """Go on where a dead worker was: its turns are made again from the frames that it kept."""
        for bound in record.pi_sessions.values():
            conversation = self.conversation(bound.session, bound.cwd)
            conversation.grok.binding = Binding.of_record(bound)
            conversation.on_screen = True
        self._calls.restore(record, list(self._host.kept_frames()), self._host.newest_frame())
        for grok, kept in record.sessions.items():
            if self.conversation_of(grok) is None:
                self.start(self._calls.drop(grok, str(kept.params.get("cwd"))))

    def close(self) -> None:
        """The connection ends, or another worker has it: nothing is said any more."""
        self.peer.left()
        self._answering.close()
        for task in tuple(self._tasks):
            task.cancel()

    def conversation(self, session: str, cwd: str) -> Conversation:
        conversation = self.conversations.get(session)
        if conversation is None:
            conversation = self.conversations[session] = Conversation(self, session, cwd)
        return conversation

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do something of its own; errors that nobody awaits are logged."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ProtocolError | NeedAll):  # those have an answer
            log.error("a task of a Pi connection failed", exc_info=error)


_OLD_PI = (
    "This Pi is older than 1.0: Grok answers, asks and can be stopped, but its tools are shown in its "
    "thoughts only. Update Pi to see more."
)

_Handler = Callable[[Provider, Fields], Coroutine[Any, Any, Mapping[str, Any]]]

_REQUESTS: Mapping[str, _Handler] = {
    "hello": Provider._hello,
    "session": Provider._session,
    "turn": Provider._turn,
    "command": Provider._command,
}


def _error(message: Incoming, error: ProtocolError) -> bytes:
    return protocol.error_bytes(dump(message.id), error.code, str(error))
