"""A Pi client: a connection whose client is the provider, with the extension behind it.

The engine's side is that of every connection.  On the other side the provider takes the place of an ACP
client, and the socket carries `grok.pi.v1`.  The frame buffer keeps what the provider was told: after a
kill another worker reads it and has the same turns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.wire.jsonrpc import parse_engine
from gateway.wire.records import ConnectionRecord, Record
from workers.connection import Connection
from workers.pi.lines import is_kept
from workers.pi.provider import Provider
from workers.websocket import WebSocket

__all__ = ["PiConnection"]


class PiConnection(Connection):
    """See the module."""

    KIND = "pi"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.provider = Provider(self, self._host.paths, self._host.leader)

    # -- for the provider (its Host) -----------------------------------------------------------

    def to_extension(self, frame: bytes) -> None:
        self._send(frame)

    def to_engine(self, message: bytes) -> None:
        self._receive(self._screen.receive(message))

    def record(self, *records: Record) -> bool:
        return self._registration.record(*records)

    def newest_frame(self) -> int:
        return self._frames.last

    def kept_frames(self) -> Iterable[tuple[int, bytes]]:
        return self._frames

    def owner_of(self, session_id: str) -> str:
        session = self.proxy.ledger.sessions.get(session_id)
        return session.session_id if session else ""

    def elsewhere(self, session_id: str) -> bool:
        return self._registration.elsewhere(session_id)

    # -- what is other than for a client that speaks ACP ---------------------------------------

    def _restored(self, record: ConnectionRecord) -> None:
        self.provider.restore(record)

    def _text(self, web_socket: WebSocket, data: bytes) -> None:
        if web_socket is self._socket:
            self.provider.receive(data)

    def _emit(self, frame: bytes) -> None:
        if self._gone:
            return
        line = parse_engine(frame)
        if is_kept(line):
            self._frames.append(frame)
        self.provider.frame(line)

    def _throttle(self, on: bool) -> None:
        """The extension's words are few, and some of them say that a turn must stop."""

    def _send_missed(self, read_by_client: int) -> None:
        """The extension asks for what it lacks."""

    def _await_client(self) -> None:
        self.provider.left()
        super()._await_client()

    async def close_bridge(self) -> None:
        await super().close_bridge()
        self.provider.close()

    async def _finish(self, *arguments: Any) -> None:
        try:
            await super()._finish(*arguments)
        finally:
            self.provider.close()
