"""A client's end of ``/ws``: one connection that survives the loss of its sockets.

The gateway names the connection in its 101 answer and counts what it has received; after a loss both
sides go on where the other one stopped reading (docs/protocol.md, "Resume").  So a request is sent once
and answered once, even when a worker is restarted in between.

`LinkError` ends a link for good; its text says what happened and what to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from gateway import __version__
from gateway.secret import SecretError
from gateway.wire.limits import LIMITS, SIZES

__all__ = ["Link", "LinkError", "close_text", "refusal_text", "resumable"]

CONNECTION = "Grok-Gateway-Connection"
RECEIVED = "Grok-Gateway-Received"
ACKS = "Grok-Gateway-Acks"


class LinkError(Exception):
    """The connection is lost for good, or never came about."""


def resumable(code: int) -> bool:
    """Whether the same connection may go on on a new socket: a worker that hands over (1012), or a
    socket that broke without a word (1006)."""
    return code in (1006, 1012)


def close_text(code: int, reason: str) -> str:
    """Why the gateway closed, for people."""
    told = {
        1001: "the gateway was stopped",
        1006: "the connection broke",
        1009: "a message was too large",
        1011: "the gateway met an error",
        1012: "the worker was restarted",
        1013: "the gateway is too busy; try again",
    }.get(code, f"the gateway closed the connection ({code})")
    return f"{told}: {reason}" if reason and code != 1012 else told  # its reason speaks to programs


def refusal_text(status: int, body: str) -> str:
    """What an answer other than 101 means, for people."""
    told = {
        401: "the gateway does not accept the secret of this instance; is it another instance's port?",
        410: "the gateway no longer knows this connection: it was away for too long",
        503: "the gateway has no worker ready; see `grok-gateway status`",
    }.get(status)
    return told or f"the gateway refused the connection: {status} {body}".strip()


class Link:
    """``secret`` is called for each socket; ``on_loss(text)`` when one is lost and another is tried."""

    def __init__(self, uri: str, secret: Callable[[], str]) -> None:
        self._uri, self._secret = uri, secret
        self.on_loss: Callable[[str], None] = lambda text: None
        self._socket: ClientConnection | None = None
        self._connection = ""
        self._received = 0  # text frames of the gateway
        self._accepted = 0  # of ours, all of which it had before `_sent`
        self._sent = list[bytes]()  # ours since then

    async def open(self) -> None:
        """Connect; while no worker is ready, again and again for at most LIMITS.ready seconds."""
        await self._connect(LIMITS.ready)

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send one message.  One that a lost socket did not carry goes out on the next one."""
        data = orjson.dumps(message)
        self._sent.append(data)
        if self._socket is not None:
            with contextlib.suppress(ConnectionClosed):
                await self._socket.send(data, text=True)

    async def messages(self) -> AsyncIterator[dict[str, Any]]:
        """Every message of the gateway, in order, until `close`.  Raises LinkError."""
        while (sock := self._socket) is not None:
            try:
                data = await sock.recv()
            except ConnectionClosed:
                await self._lost(sock)
                continue
            self._received += 1
            message = orjson.loads(data)
            if isinstance(message, dict):
                yield message

    async def close(self) -> None:
        """Close in order; the gateway then forgets the connection."""
        sock, self._socket = self._socket, None
        if sock is not None:
            await sock.close()

    async def _lost(self, sock: ClientConnection) -> None:
        if self._socket is not sock:  # closed by us
            return
        self._socket = None
        code = sock.close_code or 1006
        if not resumable(code) or not self._connection:
            raise LinkError(close_text(code, sock.close_reason or ""))
        self.on_loss(close_text(code, sock.close_reason or ""))
        await self._connect(LIMITS.resume_window)

    async def _connect(self, seconds: float) -> None:
        """Try until it works, until a try shows that no other can work, or for ``seconds``."""
        deadline = time.monotonic() + seconds
        pause = LIMITS.reconnect
        while True:
            try:
                await self._try()
                return
            except InvalidStatus as error:
                status = error.response.status_code
                text = refusal_text(status, (error.response.body or b"").decode(errors="replace"))
                if status != 503:
                    raise LinkError(text) from None
            except SecretError as error:
                raise LinkError(str(error)) from error
            except (OSError, InvalidHandshake, ConnectionClosed, EOFError) as error:
                text = f"the gateway cannot be reached: {error or type(error).__name__}"
            if time.monotonic() + pause >= deadline:
                raise LinkError(text)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LIMITS.retry_after)

    async def _try(self) -> None:
        headers = {"Authorization": f"Bearer {self._secret()}", ACKS: "1"}
        if self._connection:
            headers |= {CONNECTION: self._connection, RECEIVED: str(self._received)}
        sock = await connect(
            self._uri,
            additional_headers=headers,
            user_agent_header=f"grok-gateway-ask/{__version__}",
            proxy=None,  # the environment's proxy is for the network, and would be told the secret
            compression=None,
            max_size=SIZES.frame,
            open_timeout=LIMITS.initialize,
            ping_interval=LIMITS.ping_interval,
            ping_timeout=LIMITS.ping_timeout,
            close_timeout=LIMITS.close,
        )
        assert sock.response is not None
        self._connection = sock.response.headers.get(CONNECTION, "")
        # What the gateway has not accepted of the frames before is sent again.
        accepted = int(sock.response.headers.get(RECEIVED, "0"))
        del self._sent[: max(0, accepted - self._accepted)]
        self._accepted = max(self._accepted, accepted)
        for data in self._sent:
            await sock.send(data, text=True)
        self._socket = sock
