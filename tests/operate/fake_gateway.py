"""A gateway's outside for tests of its client: the front's control socket and a scripted ``/ws``.

It resumes as docs/protocol.md says, and each test decides what happens to the sockets.
"""

from __future__ import annotations

import asyncio
import http
import json
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

from gateway.paths import Paths
from gateway.secret import ensure_secret
from gateway.wire import control

Message = dict[str, Any]
Behaviour = Callable[["FakeGateway", Message], Awaitable[None]]

SESSION = "session-1"

COMMAND = (
    "import argparse, sys; from gateway.operate import ask; parser = argparse.ArgumentParser(); "
    "ask.add_arguments(parser); sys.exit(ask.main(parser.parse_args()))"
)


class FakeGateway:
    """``prompt(gateway, message)`` plays the turn; everything before it is answered here."""

    def __init__(self, home: Path, prompt: Behaviour) -> None:
        self.environ = {
            "GROK_GATEWAY_HOME": str(home),
            "PATH": "/usr/bin:/bin",
            "http_proxy": "http://127.0.0.1:9",
        }
        self.paths = Paths.from_environment(self.environ)
        self.paths.create()
        self.secret = ensure_secret(self.paths.secret)
        self.prompt = prompt
        self.heads = list[Request]()
        self.received = list[Message]()
        self.refuse = dict[int, int]()  #: number of the try: status
        self.leader: Message = {"state": "ready"}
        self.engine = "grok"
        self.accepted = 0
        self.sent = list[str]()
        self.connection = secrets.token_hex(16)
        self.sock: ServerConnection | None = None
        self.arrived = asyncio.Event()

    async def run(self, server: Server) -> None:
        port = server.sockets[0].getsockname()[1]
        self.uri = f"ws://127.0.0.1:{port}/ws"

    async def send(self, message: Message) -> None:
        """Count and send; a socket that is gone loses it, the next one gets it."""
        self.sent.append(json.dumps({"jsonrpc": "2.0", **message}))
        if self.sock is not None:
            await self.sock.send(self.sent[-1])

    async def update(self, **update: Any) -> None:
        await self.send({"method": "session/update", "params": {"sessionId": SESSION, "update": update}})

    async def say(self, text: str) -> None:
        await self.update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})

    async def end(self, message: Message, reason: str = "end_turn", **meta: Any) -> None:
        await self.send({"id": message["id"], "result": {"stopReason": reason, "_meta": meta}})

    async def break_off(self) -> None:
        """Cut the socket without a closing frame."""
        assert self.sock is not None
        sock, self.sock = self.sock, None
        sock.transport.abort()

    def front(self, channel: control.Channel, packet: control.Packet) -> None:
        channel.answer(packet, "status", endpoint=self.uri, engine=self.engine, leader=self.leader)

    def head(self, connection: ServerConnection, request: Request) -> Response | None:
        self.heads.append(request)
        if status := self.refuse.get(len(self.heads)):
            return connection.respond(http.HTTPStatus(status), "")
        return None

    def answer_head(self, connection: ServerConnection, request: Request, response: Response) -> None:
        response.headers["Grok-Gateway-Connection"] = self.connection
        response.headers["Grok-Gateway-Received"] = str(self.accepted)

    async def handle(self, sock: ServerConnection) -> None:
        assert sock.request is not None
        for line in self.sent[int(sock.request.headers.get("Grok-Gateway-Received", "0")) :]:
            await sock.send(line)
        self.sock = sock
        async for data in sock:
            self.accepted += 1
            message = json.loads(data)
            self.received.append(message)
            self.arrived.set()
            match message.get("method"):
                case "initialize":
                    meta = {"agentVersion": "9.9"}
                    await self.send({"id": message["id"], "result": {"protocolVersion": 1, "_meta": meta}})
                case "session/new":
                    models = {"availableModels": [{"modelId": "m1"}, {"modelId": "m2"}]}
                    result = {"sessionId": SESSION, "models": models}
                    await self.send({"id": message["id"], "result": result})
                case "session/set_model":
                    await self.send({"id": message["id"], "result": {}})
                case "session/prompt":
                    asyncio.get_running_loop().create_task(self.prompt(self, message))

    async def wait_for(self, wanted: Callable[[Message], bool]) -> Message:
        """The first message that the client sent, or will send, for which ``wanted`` is true."""
        async with asyncio.timeout(60):
            while True:
                for message in self.received:
                    if wanted(message):
                        return message
                self.arrived.clear()
                await self.arrived.wait()


@asynccontextmanager
async def fake_gateway(home: Path, prompt: Behaviour) -> AsyncIterator[FakeGateway]:
    gateway = FakeGateway(home, prompt)
    front = control.Server(gateway.paths.front_socket, gateway.front)
    server = await serve(
        gateway.handle,
        "127.0.0.1",
        0,
        process_request=gateway.head,
        process_response=gateway.answer_head,
        compression=None,
    )
    try:
        await gateway.run(server)
        yield gateway
    finally:
        front.close()
        server.close()
        await server.wait_closed()


async def ask_command(gateway: FakeGateway, *arguments: str, **streams: Any) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", COMMAND, *arguments), env=gateway.environ, **streams
    )
