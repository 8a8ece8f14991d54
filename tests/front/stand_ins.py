"""Stand-ins for the neighbours of the front: a worker, a leader's keeper, the watchdog's escrow."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import socket
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from gateway.wire.control import Channel, Packet, Server
from gateway.wire.handoff import LeaderInfo, WorkerHello
from gateway.wire.process import Identity


class StandInWorker:
    """Speaks the hand-off contract on the running loop; answers each socket with its name and closes it.

    ``keep``: sockets stay open in ``sockets`` instead.  Its process is a child that only lives and dies.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        *,
        state: str = "ready",
        capacity: int = 100,
        connections: tuple[str, ...] = (),
        tokens: tuple[str, ...] = (),
        keep: bool = False,
    ) -> None:
        self.name, self.state, self.capacity, self.keep = name, state, capacity, keep
        self.connections, self.tokens = connections, tokens
        self.offers = list[Packet]()
        self.sockets = list[socket.socket]()
        self.leaders = list[LeaderInfo]()
        self.closed = False
        self.process = subprocess.Popen(["sleep", "600"])
        self.server = Server(path, self._on_packet)

    def close(self) -> None:
        """As if killed: the channel breaks, the sockets end, the process is gone."""
        if not self.closed:
            self.server.close()
            self.process.kill()
            self.process.wait()
        self.closed = True
        for sock in self.sockets:
            sock.close()

    def say(self, op: str, **fields: Any) -> None:
        for channel in tuple(self.server.channels):
            channel.send(Packet(op, fields))

    def load(self, state: str, sockets: int) -> None:
        self.state = state
        self.say("load", state=state, sockets=sockets)

    def _on_packet(self, channel: Channel, packet: Packet) -> None:
        match packet.op:
            case "hello":
                pid = self.process.pid
                hello = WorkerHello(self.name, pid, self.state, len(self.sockets), self.capacity)  # type: ignore[arg-type]
                channel.answer(packet, "hello", **hello.to_fields())
                channel.send(Packet("owns", {"connections": self.connections, "tokens": self.tokens}))
            case "leader":
                self.leaders.append(LeaderInfo.from_fields(packet.fields))
            case "ping":
                channel.answer(packet, "pong", state=self.state)
            case "status":
                client = {"id": "c", "client": "test", "sessions": [], "state": "open"}
                channel.answer(packet, "status", name=self.name, clients=[client], counters={"frames": 3})
            case "socket":
                self.offers.append(packet)
                sock = socket.socket(fileno=packet.fds[0])
                if self.keep:
                    self.sockets.append(sock)
                else:
                    with sock, contextlib.suppress(OSError):
                        sock.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + self.name.encode())
                self.load(self.state, len(self.sockets))


class StandInKeeper:
    """A leader that is ready when told so, and an account of what was asked of it."""

    def __init__(self, on_change: Callable[[LeaderInfo], None], journal: Path | None = None) -> None:
        self.info = LeaderInfo()
        self._on_change = on_change
        self._journal = journal
        self.calls = list[str]()

    def start(self) -> None:
        self._note("start")
        self.change(LeaderInfo("ready", generation="0badcafe", pid=1, engine="grok"))

    def change(self, info: LeaderInfo) -> None:
        self.info = info
        self._on_change(info)

    async def restart(self) -> str | None:
        self._note("restart")
        await asyncio.sleep(0)
        self.change(dataclasses.replace(self.info, generation="5ca1ab1e"))
        return os.environ.get("STAND_IN_FAILURE")

    async def throwaway_bridge(
        self, on_line: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> StandInBridge:
        self._note("throwaway_bridge")
        return StandInBridge(on_line)

    async def close(self, end_leader: bool) -> None:
        self._note(f"close end_leader={end_leader}")

    def status(self) -> dict[str, Any]:
        return {"state": self.info.state, "pid": self.info.pid, "starts": 1}

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if self._journal:
            with self._journal.open("a") as file:
                file.write(f"{os.getpid()} {call}\n")


class StandInBridge:
    """A throwaway bridge to an engine at which nothing is at work."""

    def __init__(self, on_line: Callable[[bytes], None]) -> None:
        self._on_line = on_line

    def write(self, line: bytes) -> None:
        message = json.loads(line)
        if "id" in message:
            result = {"result": {"sessions": []}}
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            asyncio.get_running_loop().call_soon(self._on_line, json.dumps(answer).encode())

    async def close(self) -> None: ...


class NobodyBereft:
    """Looks after nothing; ``rescues`` are those that were asked for."""

    def worker_lost(self, worker: Identity | None, connections: Collection[str]) -> None: ...
    def worker_back(self, worker: Identity) -> None: ...
    def offered(self, conn: str) -> None: ...


class StandInEscrow:
    """Keeps the listening socket as the watchdog does."""

    def __init__(self, path: Path) -> None:
        self.fd: int | None = None
        self.port = 0
        self.keeps = 0
        self.server = Server(path, self._on_packet)

    def close(self) -> None:
        self.server.close()
        self.release()

    def release(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
        self.fd = None

    def _on_packet(self, channel: Channel, packet: Packet) -> None:
        match packet.op:
            case "keep":
                self.release()
                self.fd, self.port = packet.fds[0], packet.fields["port"]
                self.keeps += 1
                channel.answer(packet, "kept")
            case "take" if self.fd is not None and packet.fields["port"] == self.port:
                channel.send_now(Packet("listener", {"re": packet.fields["id"]}, fds=(self.fd,)))
            case "take":
                channel.answer(packet, "none")
            case "release":
                self.release()
                channel.answer(packet, "released")
