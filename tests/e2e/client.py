"""A raw ACP client on a WebSocket, for tests: it hides nothing and remembers everything.

Every text frame is kept as bytes, every message parsed; requests are matched with their answers by
the JSON text of the id, and what the engine asks is answered by a policy that the test may replace.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import websockets.asyncio.client
from websockets.exceptions import ConnectionClosed

__all__ = ["SILENT", "Client", "ClosedError", "RpcError", "allow_everything", "text_of"]

#: A policy's "no answer for now".
SILENT = object()
Message = dict[str, Any]
Policy = Callable[[Message], Any]

INITIALIZE = {
    "protocolVersion": 1,
    "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
}


class RpcError(Exception):
    """The answer was an error object."""

    def __init__(self, error: Message) -> None:
        super().__init__(f"{error.get('code')}: {error.get('message')} {error.get('data', '')}")
        self.code, self.message, self.data = error.get("code"), error.get("message"), error.get("data")


class ClosedError(Exception):
    """The socket closed before the answer came."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"closed {code}: {reason}")
        self.code, self.reason = code, reason


def allow_everything(message: Message) -> Any:
    """Hooks go on, permissions are given once, questions are cancelled."""
    match message["method"]:
        case "session/request_permission":
            options = message["params"]["options"]
            chosen = next(o["optionId"] for o in options if o["kind"] == "allow_once")
            return {"outcome": {"outcome": "selected", "optionId": chosen}}
        case "_x.ai/hooks/run":
            return {}
        case "_x.ai/exit_plan_mode":
            return {"outcome": "approved"}
        case _:
            return {"outcome": "cancelled"}


class Client:
    """One connection.  Use `connect`; ``connection`` and ``accepted`` are the two resume headers of the 101.

    ``messages`` are all that came, ``asked`` the reverse requests among them, ``frames`` the raw bytes.
    A client made with ``resume`` takes over what its predecessor has read, sent and still waits for.
    """

    def __init__(
        self,
        socket: websockets.asyncio.client.ClientConnection,
        policy: Policy,
        before: Client | None = None,
    ) -> None:
        self.socket, self.policy = socket, policy
        headers = socket.response.headers if socket.response else {}
        self.connection = headers.get("Grok-Gateway-Connection", "")
        self.accepted = int(headers.get("Grok-Gateway-Received", 0))
        self.messages: list[Message] = list(before.messages) if before else []
        self.asked: list[Message] = list(before.asked) if before else []
        self.frames: list[bytes] = list(before.frames) if before else []
        self.sent: list[str | bytes] = list(before.sent) if before else []
        self.closed: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self.unanswered: dict[str, str] = dict(before.unanswered) if before else {}  #: id: method
        self._ids = before._ids if before else itertools.count(1)
        self._open: dict[str, asyncio.Future[Message]] = {key: self._expected() for key in self.unanswered}
        self._news = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def connect(
        cls,
        url: str,
        secret: str,
        *,
        policy: Policy = allow_everything,
        headers: dict[str, str] | None = None,
        resume: Client | None = None,
        acks: bool = False,
        read_limit: int = 16,
    ) -> Client:
        """``resume`` takes up the connection of a client that has lost its socket."""
        extra = {"Authorization": f"Bearer {secret}", **(headers or {})}
        if resume:
            extra["Grok-Gateway-Connection"] = resume.connection
            extra["Grok-Gateway-Received"] = str(len(resume.frames))
        if acks:
            extra["Grok-Gateway-Acks"] = "1"
        socket = await websockets.asyncio.client.connect(
            url,
            additional_headers=extra,
            proxy=None,
            compression=None,
            max_size=None,
            max_queue=read_limit,
            ping_interval=None,
            open_timeout=60,
        )
        client = cls(socket, policy, resume)
        if resume:
            for data in client.sent[client.accepted :]:  # what the gateway has not accepted yet
                await client.socket.send(data, text=True)
        return client

    @staticmethod
    def _expected() -> asyncio.Future[Message]:
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        # A test that kills things may never look at an answer; that is not worth a warning.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        return answer

    def again(self, number: Any) -> asyncio.Future[Message]:
        """The answer of a request that the predecessor sent, come already or still to come."""
        key = json.dumps(number)
        if key in self._open:
            return self._open[key]
        answer = self._expected()
        answer.set_result(next(m for m in self.messages if "method" not in m and m.get("id") == number))
        return answer

    # -- requests --------------------------------------------------------------------------------
    async def call(self, method: str, params: Any = None, *, number: Any = None, timeout: float = 60) -> Any:
        """The result.  Raises RpcError, ClosedError, TimeoutError."""
        return await self.answer_to(await self.start(method, params, number=number), timeout)

    async def start(self, method: str, params: Any = None, *, number: Any = None) -> asyncio.Future[Message]:
        """Send a request; the future becomes the whole answer."""
        number = next(self._ids) if number is None else number
        key = json.dumps(number)
        answer = self._open[key] = self._expected()
        self.unanswered[key] = method
        await self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}})
        return answer

    @classmethod
    async def answer_to(cls, answer: asyncio.Future[Message], timeout: float = 60) -> Any:
        async with asyncio.timeout(timeout):
            return cls.result_of(await answer)

    @staticmethod
    def result_of(answer: Message) -> Any:
        """The result of a whole answer.  Raises RpcError."""
        if "error" in answer:
            raise RpcError(answer["error"])
        return answer["result"]

    async def notify(self, method: str, params: Any = None) -> None:
        await self.send({"jsonrpc": "2.0", "method": method, "params": params or {}})

    async def respond(self, request: Message, result: Any) -> None:
        """Answer a reverse request by hand."""
        await self.send({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def send(self, message: Message | str | bytes) -> None:
        """One frame; ``bytes`` and ``str`` go out as they are, as text."""
        data = json.dumps(message) if isinstance(message, dict) else message
        try:
            await self.socket.send(data, text=True)
        except ConnectionClosed as error:
            raise ClosedError(*_code(error)) from error
        self.sent.append(data)

    # -- the common ones -------------------------------------------------------------------------
    async def initialize(self) -> Any:
        return await self.call("initialize", INITIALIZE)

    async def new_session(self, cwd: Path | str, **meta: Any) -> str:
        params = {"cwd": str(cwd), "mcpServers": [], **({"_meta": meta} if meta else {})}
        return str((await self.call("session/new", params))["sessionId"])

    async def start_prompt(self, session: str, text: str, **meta: Any) -> asyncio.Future[Message]:
        meta.setdefault("promptId", f"p-{secrets.token_hex(4)}")
        blocks = [{"type": "text", "text": text}]
        return await self.start("session/prompt", {"sessionId": session, "prompt": blocks, "_meta": meta})

    async def prompt(self, session: str, text: str, timeout: float = 60, **meta: Any) -> Any:
        return await self.answer_to(await self.start_prompt(session, text, **meta), timeout)

    # -- what came -------------------------------------------------------------------------------
    async def wait_for(
        self, wanted: Callable[[Message], Any], timeout: float = 60, since: int = 0
    ) -> Message:
        """The first message from index ``since`` on for which ``wanted`` is true."""

        def found() -> Message | None:
            return next((m for m in self.messages[since:] if wanted(m)), None)

        try:
            async with asyncio.timeout(timeout), self._news:
                while (message := found()) is None:
                    if self.closed.done():
                        raise ClosedError(*self.closed.result())
                    await self._news.wait()
        except TimeoutError:
            tail = [(m.get("method"), m.get("id"), str(m)[:160]) for m in self.messages[-8:]]
            raise TimeoutError(f"nothing such came within {timeout} s; the last messages: {tail}") from None
        return message

    async def wait_asked(self, method: str, timeout: float = 60, since: int = 0) -> Message:
        """The first reverse request of this method from message index ``since`` on."""
        return await self.wait_for(lambda m: m.get("method") == method and "id" in m, timeout, since)

    def text(self, session: str, since: int = 0) -> str:
        """The agent's text in a session, replay left out."""
        return "".join(text_of(m, session) for m in self.messages[since:])

    async def recorded(self, session: str, cwd: Path, **meta: Any) -> str:
        """The agent's text in a session as the engine keeps it: loads the session once more."""
        since = len(self.messages)
        params = {"sessionId": session, "cwd": str(cwd), "mcpServers": [], "_meta": meta}
        await self.call("session/load", params)
        replay = [m["params"]["update"] for m in self.messages[since:] if "isReplay" in str(m)]
        chunks = [update for update in replay if update["sessionUpdate"] == "agent_message_chunk"]
        return "".join(chunk["content"]["text"] for chunk in chunks)

    # -- the end ---------------------------------------------------------------------------------
    async def close(self) -> None:
        """Close in order."""
        await self.socket.close()
        await self._reader

    async def abort(self) -> None:
        """Cut the connection without a closing handshake, like a killed client."""
        self.socket.transport.abort()
        await self._reader

    async def _read(self) -> None:
        code, reason = 1006, ""
        try:
            while True:
                await self._received(await self.socket.recv(decode=False))
        except ConnectionClosed as error:
            code, reason = _code(error)
        finally:
            self.closed.set_result((code, reason))
            for answer in self._open.values():
                if not answer.done():
                    answer.set_exception(ClosedError(code, reason))
            async with self._news:
                self._news.notify_all()

    async def _received(self, data: bytes) -> None:
        self.frames.append(data)
        message = json.loads(data)
        self.messages.append(message)
        if "method" not in message:
            self.unanswered.pop(json.dumps(message.get("id")), None)
            answer = self._open.pop(json.dumps(message.get("id")), None)
            if answer and not answer.done():
                answer.set_result(message)
        elif "id" in message:
            self.asked.append(message)
            result = self.policy(message)
            if result is not SILENT:
                with contextlib.suppress(ClosedError):
                    await self.respond(message, result)
        async with self._news:
            self._news.notify_all()


def text_of(message: Message, session: str) -> str:
    """The text of an agent_message_chunk of this session, else ""."""
    params = message.get("params") or {}
    if message.get("method") != "session/update" or params.get("sessionId") != session:
        return ""
    update = params.get("update", {})
    if update.get("sessionUpdate") != "agent_message_chunk" or (params.get("_meta") or {}).get("isReplay"):
        return ""
    return str(update["content"].get("text", ""))


def _code(error: ConnectionClosed) -> tuple[int, str]:
    frame = error.rcvd or error.sent
    return (frame.code, frame.reason) if error.rcvd and frame else (1006, "")
