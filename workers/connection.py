"""One client: sockets come and go, the connection stays until its client is really gone.

A connection has a `Proxy` for its whole life and at most one `WebSocket` at a time.  Everything sent to
the client is numbered and kept for a while (`workers.resume`), so that a client which lost its socket
misses nothing.  Its states are in `workers.connection_state`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import socket
import time
from typing import Any, Literal, Protocol

from gateway.paths import Paths
from gateway.wire import acp, jsonrpc
from gateway.wire.acp import CloseCode, ErrorCode
from gateway.wire.audit import AuditLog
from gateway.wire.handoff import Succession
from gateway.wire.journal import Journal, JournalError, frames_path, journal_path, read_journal
from gateway.wire.leases import Leases
from gateway.wire.limits import Limits
from gateway.wire.records import ConnectionRecord, Introduced, Opened, Owned
from workers.connection_state import FINISHED, Event, State, moved
from workers.leader import LeaderWatch
from workers.lent_tools import LentTools
from workers.proxy import Proxy
from workers.registration import Registration
from workers.resume import FrameBuffer
from workers.screening import Screen, Verdict
from workers.successor import Successor
from workers.websocket import WebSocket

__all__ = ["Connection", "Host"]

log = logging.getLogger(__name__)

CONNECTION_HEADER = "Grok-Gateway-Connection"
RECEIVED_HEADER = "Grok-Gateway-Received"
_COME_AGAIN = "its worker is restarted; come again with the connection id"
#: The client acknowledges gates.
_ACKS = re.compile(rb"^grok-gateway-acks:[ \t]*1[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)


class Host(Protocol):
    """What a connection needs of its worker."""

    paths: Paths
    leader: LeaderWatch
    leases: Leases
    port: int
    limits: Limits
    audit: AuditLog

    def owned(self) -> Owned:
        """The worker, for a journal."""

    def tokens_changed(self, lender: LentTools, added: list[str], removed: list[str]) -> None:
        """Which lent-tool tokens a connection serves."""

    def connection_changed(self, connection: Connection) -> None:
        """Its state is another."""


class Connection:
    """See the module.  Made by `open` or `take_over`.

    `KIND` is what its sockets ask for; a class of another kind has something else between the socket and
    the proxy, and overrides `_text`, `_emit` and `_restored`.
    """

    KIND = "ws"

    def __init__(
        self,
        host: Host,
        connection_id: str,
        journal: Journal,
        frames: FrameBuffer,
        successor: Successor | None = None,
    ) -> None:
        self._host = host
        self.id = connection_id
        self.state = State.OPENING
        self.opened = time.time()
        self._registration = Registration(connection_id, journal, host.leases, host.audit)
        self._frames = frames
        self._loop = asyncio.get_running_loop()
        self._socket: WebSocket | None = None
        self._unplugged = asyncio.Event()
        self._paused = self._deaf = self._gone = False
        self._window: asyncio.TimerHandle | None = None
        self._tasks = set[asyncio.Task[Any]]()
        self._run: asyncio.Task[Any] | None = None
        self._lent = LentTools(host.port, self._registration, self._emit, host.tokens_changed)
        self.proxy = Proxy(
            self._registration,
            host.leader,
            self._emit,
            frames,
            self._throttle,
            self._lent.register,
            acks=journal.state.acks,
            limits=host.limits,
            lent_waits=lambda: self._lent.parked,
            successor=successor,
        )
        self._screen = Screen(f"grok-gateway-{connection_id[:12]}", self.proxy.ledger)

    @classmethod
    def open(cls, host: Host, connection_id: str, head: bytes) -> Connection:
        """A new connection; ``head``: of its first socket's request.

        Raises JournalError or OSError when its files cannot be made.
        """
        acks = _ACKS.search(head) is not None
        journal = Journal.create(host.paths, Opened(connection_id, cls.KIND, acks), host.owned())
        try:
            frames = FrameBuffer(frames_path(host.paths, connection_id), create=True)
        except OSError:
            journal.remove()
            raise
        connection = cls(host, connection_id, journal, frames)
        connection._run = connection._start(connection._keep_link(""))
        return connection

    @classmethod
    def take_over(cls, host: Host, connection_id: str) -> Connection:
        """Go on with the connection of a worker that has died.  Raises JournalError or OSError."""
        kept = read_journal(journal_path(host.paths, connection_id))
        if kept is None or kept.kind != cls.KIND:
            raise JournalError(f"connection {connection_id[:8]} is not one of kind {cls.KIND}")
        journal = Journal.adopt(host.paths, connection_id, host.owned())
        path = frames_path(host.paths, connection_id)
        try:
            frames = FrameBuffer(path, create=not path.exists())
        except OSError:
            journal.close()
            raise
        connection = cls(host, connection_id, journal, frames)
        connection.state = State.DETACHED
        connection.proxy.restore(journal.state)
        connection._lent.restore(list(journal.state.tokens))
        connection._restored(journal.state)
        connection._await_client()
        connection._run = connection._start(connection._keep_link("bridge"))
        return connection

    @classmethod
    def succeed(cls, host: Host, word: Succession, successor: Successor) -> Connection:
        """Go on with a connection whose former owner has closed its bridge, on the successor's bridge.

        Raises JournalError or OSError.
        """
        journal = Journal.adopt(host.paths, word.conn, host.owned())
        try:
            frames = FrameBuffer(frames_path(host.paths, word.conn), create=False)
        except OSError:
            journal.close()
            raise
        connection = cls(host, word.conn, journal, frames, successor)
        connection.state = State.DETACHED
        known = tuple(gate.id for gate in journal.state.gates.values() if gate.method != acp.HOOK)
        connection.proxy.restore(journal.state)
        connection._lent.restore(list(journal.state.tokens))
        connection._restored(journal.state)
        connection.proxy.succeed(known, successor.heard, word)
        connection._await_client()
        connection._run = connection._start(connection._keep_link_of(successor))
        return connection

    def _restored(self, record: ConnectionRecord) -> None:
        """The proxy has what the journal tells; nothing has been heard of the engine yet."""

    # -- sockets -------------------------------------------------------------------------------

    async def adopt(self, sock: socket.socket, head: bytes, read_by_client: int) -> bool:
        """Attach a socket whose request ``head`` was consumed; False when its handshake was bad.

        ``read_by_client``: server frames that a resuming client has read.
        """
        web_socket = WebSocket(
            on_open=lambda: self._opened(web_socket, read_by_client),
            on_text=lambda data: self._heard(web_socket, data),
            on_closed=lambda code, reason: self._closed(web_socket, code, reason),
            on_pause=lambda: self._writable(web_socket, False),
            on_resume=lambda: self._writable(web_socket, True),
        )
        headers = {CONNECTION_HEADER: self.id, RECEIVED_HEADER: str(self._registration.state.received)}
        await web_socket.adopt(sock, head, headers)
        return self._socket is web_socket

    def _opened(self, web_socket: WebSocket, read_by_client: int) -> None:
        if self.state in (State.ENDING, State.ENDED):
            web_socket.close(CloseCode.GOING_AWAY, "the connection has ended")
            return
        if self.state is State.LEAVING:
            web_socket.close(CloseCode.RESTART, _COME_AGAIN)
            return
        if self._socket is not None:
            self._socket.close(CloseCode.RESTART, "another socket of yours has taken its place")
        new = self.state is State.OPENING
        self._socket = web_socket
        self._unplugged.clear()
        self._move(Event.HANDSHAKE)
        if self._window is not None:
            self._window.cancel()
        self._regulate()
        self.proxy.client_back()
        self.proxy.link.resume_reading()
        if not new:
            self._send_missed(read_by_client)

    def _send_missed(self, read_by_client: int) -> None:
        missed = self._frames.since(read_by_client)
        if missed is None:
            # The client goes on counting from the number of this very frame.
            params = {
                "sessions": [session.session_id for session in self.proxy.ledger.sessions],
                "frame": self._frames.last + 1,
            }
            self._emit(jsonrpc.notification_bytes(acp.TOO_FAR_BEHIND, params))
            return
        for frame in missed:
            self._send(self.proxy.gates.sent_again(frame))
        for gate in self.proxy.ledger.guard:  # a client may have dropped its dialogs with its socket
            if gate.frame not in missed:
                self._emit(gate.frame)

    def _closed(self, web_socket: WebSocket, code: int, reason: str) -> None:
        if web_socket is not self._socket:
            return
        self._socket = None
        self._unplugged.set()
        log.info("connection %s: socket closed, %d %s", self.id[:8], code, reason)
        if code in FINISHED:
            self.end("the client has closed the connection")
        elif not len(self.proxy.ledger.sessions) and not len(self.proxy.ledger.requests):
            self.end("the client is gone and had nothing to come back to")
        elif self.state is State.OPEN:
            self._move(Event.SOCKET_LOST)
            self._await_client()

    def _await_client(self) -> None:
        """Nobody is there: nothing may run unasked, and the client has a while to come back."""
        self.proxy.client_lost()
        self.proxy.link.resume_reading()  # what nobody reads goes to the frame buffer only
        self._window = self._loop.call_later(
            self._host.limits.resume_window, lambda: self.end("the client has not come back")
        )

    # -- from the client -----------------------------------------------------------------------

    def _heard(self, web_socket: WebSocket, data: bytes) -> None:
        # Of a connection that has left nothing is accepted: the client says it again to the successor.
        if self.state not in (State.LEAVING, State.ENDED):
            self._text(web_socket, data)

    def _text(self, web_socket: WebSocket, data: bytes) -> None:
        if web_socket is not self._socket:
            return
        self._registration.count(self._frames.last)
        self._receive(self._screen.receive(data))
        self._registration.counted()

    def _receive(self, verdict: Verdict) -> None:
        message = verdict.message
        if verdict.action == "answer":
            self.proxy.ledger.counters[verdict.reason] += 1
            self._emit(verdict.answer)
        elif verdict.action == "drop" or message is None:
            self.proxy.ledger.counters[verdict.reason] += 1
        elif verdict.action == "consume":
            self._consume(verdict)
        elif message.kind == "response" and self._lent.answered(message):
            pass
        else:
            self.proxy.receive(verdict)

    def _consume(self, verdict: Verdict) -> None:
        message, rule = verdict.message, verdict.rule
        if message is not None and rule is not None and rule.effect == "initialize":
            client = (message.params or {}).get("clientInfo")
            self._registration.record(Introduced(client if isinstance(client, dict) else {}))
            self.proxy.initialize(verdict)
        elif message is not None and rule is not None and rule.effect == "gate_ack":
            self.proxy.gates.acked(message.params)

    def _throttle(self, on: bool) -> None:
        self._paused = on
        self._regulate()

    def _regulate(self) -> None:
        if self._socket is not None:
            if self._paused or self._deaf:
                self._socket.pause_reading()
            else:
                self._socket.resume_reading()

    # -- to the client -------------------------------------------------------------------------

    def _emit(self, frame: bytes) -> None:
        """Number a frame, keep it, and send it if anybody is there."""
        if self._gone:
            return
        self._frames.append(frame)
        self._send(frame)

    def _send(self, frame: bytes) -> None:
        if self._socket is not None:
            self._socket.send_text(frame)

    def _writable(self, web_socket: WebSocket, writable: bool) -> None:
        if web_socket is self._socket:
            if writable:
                self.proxy.link.resume_reading()
            else:
                self.proxy.link.pause_reading()

    # -- the end -------------------------------------------------------------------------------

    def end(
        self, reason: str, code: CloseCode = CloseCode.GOING_AWAY, error: ErrorCode | None = None
    ) -> None:
        """End the connection in order; ``error`` answers what is open.  Returns at once, see `ended`."""
        if self.state not in (State.ENDING, State.LEAVING, State.ENDED):
            self._move(Event.END)
            self._start(self._finish(reason, code, error))

    async def ended(self) -> None:
        """Return when nothing of the connection is left."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _finish(self, reason: str, code: CloseCode, error: ErrorCode | None) -> None:
        log.info("connection %s ends: %s", self.id[:8], reason)
        if self._window is not None:
            self._window.cancel()
        try:
            self._lent.close(reason)
            if error is not None:
                self.proxy.ledger.refuse_all(error, reason)
            self.proxy.client_gone(reason)
            await self.proxy.finish(given_up=self._run is None or self._run.done())
        finally:
            if self._socket is not None:
                self._socket.close(code, reason)
            if self._run is not None:
                self._run.cancel()
                await asyncio.gather(self._run, return_exceptions=True)
            await self.proxy.close()
            self._frames.close(remove=True)
            self._registration.end()
            self._move(Event.SETTLED)

    async def _keep_link(self, cause: Literal["", "bridge"]) -> None:
        reason = await self.proxy.link.run(cause)
        self.end(reason, CloseCode.FAILED, ErrorCode.BRIDGE_LOST)

    async def _keep_link_of(self, successor: Successor) -> None:
        try:
            reason = await successor.run
        finally:
            successor.run.cancel()
            await asyncio.gather(successor.run, return_exceptions=True)
        self.end(reason, CloseCode.FAILED, ErrorCode.BRIDGE_LOST)

    # -- another worker goes on (for `workers.departure`) ---------------------------------------

    @property
    def lent_waits(self) -> bool:
        return self._lent.parked

    def listen(self, on: bool) -> None:
        """Whether the client is read at all."""
        self._deaf = not on
        self._regulate()

    def refuse_what_is_open(self, why: str) -> None:
        """The client had its time: hooks are answered so that nothing runs, lent calls and requests fail."""
        self.proxy.refuse_what_is_open(why)
        self._lent.refuse(why)

    async def close_bridge(self) -> None:
        """Read the bridge to its end; afterwards nothing of the connection changes here."""
        self._move(Event.LEAVE)
        if self._window is not None:
            self._window.cancel()
        self.listen(False)
        self._lent.leave()
        self.proxy.holding.close()
        if self._run is not None:
            self._run.cancel()
            await asyncio.gather(self._run, return_exceptions=True)
        self.proxy.leave()
        self._gone = True
        self._registration.leave()
        self._frames.close(remove=False)

    async def left(self) -> None:
        """Another worker has the connection, or its journal must do: the client is told to come again."""
        self._lent.moved()
        self._host.tokens_changed(self._lent, [], sorted(self._lent.tokens))
        self._move(Event.SETTLED)
        if self._socket is not None:
            self._socket.close(CloseCode.RESTART, _COME_AGAIN)
            self.listen(True)  # what is not read resets the connection, and the client would not see why
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._host.limits.close):
                    await self._unplugged.wait()

    # -- the rest ------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """For `status`."""
        now = self._loop.time()
        return {
            "id": self.id,
            "client": self._registration.state.client,
            "state": self.state.value,
            "since": self.opened,
            "sessions": [session.to_json(now) for session in self.proxy.ledger.sessions],
            "gates": len(self.proxy.ledger.guard),
            "requests": len(self.proxy.ledger.requests),
            "bridge": self.proxy.link.pid,
            "sent": self._frames.last,
            "received": self._registration.state.received,
            "counters": dict(self.proxy.ledger.counters + self.proxy.ledger.guard.counters),
        }

    def _move(self, event: Event) -> None:
        self.state = moved(self.state, event)
        self._host.connection_changed(self)

    def _start(self, work: Any) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("connection %s failed", self.id[:8], exc_info=error)
            self.end("an internal error", CloseCode.FAILED, ErrorCode.BRIDGE_LOST)
