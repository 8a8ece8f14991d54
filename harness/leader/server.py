"""``agent leader``: the socket, its clients, and the one agent that they share.

The decisions are in `harness.leader.routing`.  A client that does not register in time, sends no frames or
takes nothing for a while is dropped; its turns go on, as they do when it dies.  The leader ends at a signal,
with the commands that it runs; its files go with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from gateway.wire.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from harness.leader.frames import FrameError, FrameReader, acp, frame
from harness.leader.lock import LeaderLock, LockHeld, lock_path
from harness.leader.routing import AGENT, Overrun, Router, To
from harness.limits import LIMITS, SIZES

__all__ = ["Core", "Leader", "run"]

log = logging.getLogger(__name__)

PROTOCOL_VERSION = 1
#: Of a process that a signal ends.
_SIGNALLED = 128


class Core(Protocol):
    """The agent behind the clients."""

    def receive(self, message: dict[str, Any]) -> None:
        """A request, a notification or a response, with ids that are unique among all clients."""

    async def close(self) -> None:
        """End every turn and every command."""


class _Client(asyncio.Protocol):
    """One connection, as bytes and frames."""

    def __init__(self, leader: Leader) -> None:
        self._leader, self._reader = leader, FrameReader()
        self.id = uuid.uuid4().hex
        self.registered = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._patience(LIMITS.leader_register, "did not register")
        if not self._leader.connected(self):
            self.drop("too many clients")

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._reader.feed(data):
                if self._transport.is_closing():
                    return  # dropped at a message before this one
                self._leader.frame(self, message)
        except FrameError as error:
            self.drop(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        self._calm()
        self._leader.disconnected(self)

    def pause_writing(self) -> None:
        self._patience(LIMITS.leader_write, "takes nothing")

    def resume_writing(self) -> None:
        self._calm()

    def send(self, data: bytes) -> None:
        """Queue ``data``; a client that lets too much wait is dropped."""
        if self._transport.is_closing():
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > SIZES.client_queue:
            self.drop("too much waits for it")

    def known(self) -> None:
        """It has said who it is."""
        self.registered = True
        self._calm()

    def drop(self, why: str) -> None:
        """End the connection now; what waits for it is lost."""
        log.info("client %s dropped: %s", self.id[:8], why)
        self._calm()
        self._transport.abort()
        # Its `connection_lost` comes in a later turn of the loop: until then it would still be counted on.
        self._leader.disconnected(self)

    def _patience(self, seconds: float, why: str) -> None:
        self._calm()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.drop, why)

    def _calm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Leader:
    """Clients and agent.  ``core(send)`` makes the agent, which sends its messages through ``send``."""

    def __init__(
        self,
        core: Callable[[Callable[[dict[str, Any]], None]], Core],
        version: str,
        *,
        exit_on_disconnect: bool,
    ) -> None:
        self._router, self._clients = Router(), dict[str, _Client]()
        self._version, self._exit_on_disconnect = version, exit_on_disconnect
        self._core = core(self._from_agent)
        self._outgoing = deque[To]()
        self._delivering = False
        self.ended = asyncio.Event()

    @property
    def clients(self) -> list[str]:
        """Ids of who is connected, the oldest first."""
        return list(self._clients)

    def protocol(self) -> asyncio.Protocol:
        """For a new connection."""
        return _Client(self)

    async def close(self) -> None:
        """End every turn, then every connection."""
        await self._core.close()
        for client in list(self._clients.values()):
            client.drop("the leader ends")

    # -- clients -------------------------------------------------------------------------------

    def connected(self, client: _Client) -> bool:
        """A connection is there; False: there is no room for it."""
        if len(self._clients) >= SIZES.leader_clients:
            return False
        self._clients[client.id] = client
        return True

    def disconnected(self, client: _Client) -> None:
        """A connection has ended, whoever ended it."""
        if self._clients.pop(client.id, None) is None:
            return
        if client.registered:
            self._deliver(self._router.leave(client.id))
        if not self._clients and self._exit_on_disconnect:
            self.ended.set()

    def frame(self, client: _Client, message: dict[str, Any]) -> None:
        """A frame of a client.  Raises FrameError."""
        kind = message["type"]
        if kind == "register" and not client.registered:
            self._register(client, message)
        elif not client.registered:
            raise FrameError("the first frame must register")
        elif kind == "acp":
            self._from_client(client, message.get("payload"))
        elif kind == "ping":
            client.send(frame({"type": "pong"}))
        elif kind == "control":
            client.send(frame(self._control(message)))
        elif kind == "disconnect":
            client.drop("disconnected")

    def _register(self, client: _Client, message: dict[str, Any]) -> None:
        client.known()
        capabilities = message.get("capabilities")
        capabilities = capabilities if isinstance(capabilities, dict) else {}
        self._router.join(client.id, str(message.get("client_type")), capabilities)
        registered = {
            "type": "registered",
            "client_id": client.id,
            "ready": True,
            "leader_protocol_version": PROTOCOL_VERSION,
            "leader_binary_version": self._version,
            "leader_capabilities": {"control_v1": True},
        }
        client.send(frame(registered))

    def _control(self, message: dict[str, Any]) -> dict[str, Any]:
        command = message.get("command")
        name = command.get("type") if isinstance(command, dict) else command
        if name == "get_leader_info":
            info = {"pid": os.getpid(), "version": self._version, "clients": len(self._clients)}
            result: dict[str, Any] = {"Ok": info}
        else:
            result = {"Err": f"this leader has no control command {name!r}"}
        return {"type": "control_result", "request_id": message.get("request_id"), "result": result}

    # -- messages ------------------------------------------------------------------------------

    def _from_client(self, client: _Client, payload: Any) -> None:
        try:
            message = json.loads(payload)
        except (TypeError, ValueError, RecursionError) as error:
            why = "nested too deeply" if isinstance(error, RecursionError) else "no JSON"
            client.send(_error(None, PARSE_ERROR, f"Parse error: {why}"))
            return
        if isinstance(message, dict):
            self._deliver(self._router.from_client(client.id, message))
        else:
            client.send(_error(None, INVALID_REQUEST, "Invalid Request: no object"))

    def _from_agent(self, message: dict[str, Any]) -> None:
        try:
            self._deliver(self._router.from_agent(message))
        except Overrun as overrun:
            for number in overrun.clients:
                if (client := self._clients.get(number)) is not None:
                    client.drop("too much waits behind its load")
            self._deliver(self._router.from_agent(message))

    def _deliver(self, messages: list[To]) -> None:
        """Send in order: what a send leads to, the loss of its client perhaps, goes behind all before it."""
        self._outgoing += messages
        if self._delivering:
            return
        self._delivering = True
        written, line = None, b""  # a message for several clients is written once
        try:
            while self._outgoing:
                to = self._outgoing.popleft()
                if to.client == AGENT:
                    self._core.receive(to.message)
                elif (client := self._clients.get(to.client)) is not None:
                    if to.message is not written:
                        written, line = to.message, self._line(to.message)
                    client.send(line)
        finally:
            self._delivering = False

    @staticmethod
    def _line(message: dict[str, Any]) -> bytes:
        try:
            return acp(json.dumps(message, separators=(",", ":"), ensure_ascii=False))
        except (FrameError, RecursionError) as error:
            log.warning("a message of the agent was dropped: %s", error)
            return _error(message.get("id"), INTERNAL_ERROR, f"Internal error: {error}")


def _error(number: Any, code: int, text: str) -> bytes:
    """An error of JSON-RPC as a frame."""
    error = {"code": code, "message": text}
    return acp(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}))


async def _serve(path: Path, leader: Leader) -> int:
    """Until a signal or the last client's end; the exit code."""
    loop, code = asyncio.get_running_loop(), 0

    def stop(number: int) -> None:
        nonlocal code
        code = _SIGNALLED + number
        leader.ended.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    mask = os.umask(0o177)  # the socket is as secret as what is typed into it
    try:
        server = await loop.create_unix_server(leader.protocol, path, backlog=SIZES.leader_clients)
    finally:
        os.umask(mask)
    async with server:
        await leader.ended.wait()
        server.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(leader.close(), LIMITS.leader_close)
    return code


def run(
    core: Callable[[Callable[[dict[str, Any]], None]], Core],
    version: str,
    path: Path,
    *,
    exit_on_disconnect: bool = True,
) -> int:
    """The program, with its socket at ``path``: the exit code."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = LeaderLock(lock_path(path))

    async def main() -> int:
        return await _serve(path, Leader(core, version, exit_on_disconnect=exit_on_disconnect))

    try:
        lock.acquire(path)
    except LockHeld as held:
        sys.stderr.write(f"Error: {held}\n")
        return 1
    try:
        path.unlink(missing_ok=True)  # of a leader that was killed
        return asyncio.run(main())
    finally:
        lock.release(path)
