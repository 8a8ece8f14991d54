"""The extension's half of `grok.pi.v1` for tests, with a session of Pi in place of Pi.

It does what the real extension does and nothing more: it joins no ids, keeps no policy, and makes
messages of events.  What a person would do is in ``person``, which answers dialogs.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import websockets.asyncio.client
from websockets.exceptions import ConnectionClosed

__all__ = ["Answer", "PiClient", "PiSession", "RefusedError"]

Message = dict[str, Any]
Person = Callable[[Message], Message | None]


class RefusedError(Exception):
    """A request was answered with an error."""

    def __init__(self, error: Message) -> None:
        super().__init__(error["message"])
        self.code = error["code"]


def nobody(ask: Message) -> Message | None:
    return {"cancelled": True}


class Answer:
    """One turn as Pi would see it: the blocks of a message and how it ended."""

    def __init__(self, turn: str) -> None:
        self.turn, self.seq = turn, 0
        self.blocks: list[Message] = []
        self.events: list[Message] = []
        self.end: Message = {}
        self.ended = asyncio.Event()
        self.begun = asyncio.Event()  #: the gateway has it, as its status line shows
        self.params: Message = {}  #: of the ``turn``
        self.woken = False  #: Pi was woken for it

    def event(self, event: Message) -> None:
        if event["seq"] <= self.seq:
            return
        self.seq = event["seq"]
        self.events.append(event)
        match event["op"]:
            case "start":
                assert event["i"] == len(self.blocks), event
                assert all(block["closed"] for block in self.blocks), "two blocks are open"
                self.blocks.append({"type": event["type"], "text": "", "closed": False})
            case "delta":
                assert not self.blocks[event["i"]]["closed"], event
                self.blocks[event["i"]]["text"] += event["text"]
            case "end":
                self.blocks[event["i"]]["closed"] = True

    def finish(self, end: Message) -> None:
        assert not self.ended.is_set() or end["stop"] == self.end["stop"]
        self.end = end
        for index, text in end.get("texts", {}).items():
            self.blocks[int(index)]["text"] = text
        self.ended.set()

    def known(self) -> list[Message]:
        return [{"type": b["type"], "chars": len(b["text"].encode("utf-16-le")) // 2} for b in self.blocks]

    @property
    def text(self) -> str:
        return "".join(block["text"] for block in self.blocks if block["type"] == "text")

    @property
    def thinking(self) -> str:
        return "".join(block["text"] for block in self.blocks if block["type"] == "thinking")

    @property
    def stop(self) -> str:
        return str(self.end.get("stop"))

    async def done(self, timeout: float = 60) -> Answer:
        async with asyncio.timeout(timeout):
            await self.ended.wait()
        return self


class PiSession:
    """The branch of one session: entries with their messages."""

    def __init__(self, cwd: Path, session: str | None = None) -> None:
        self.id = session or str(uuid.uuid4())
        self.cwd = str(cwd)
        self.branch: list[Message] = []
        self._clock = int(time.time() * 1000)

    def add(self, message: Message | None = None, **entry: Any) -> Message:
        self._clock += 10
        entry = {"id": uuid.uuid4().hex[:8], "type": "message", "ts": self._clock, **entry}
        if message is not None:
            entry["message"] = {**message, "timestamp": self._clock}
            entry["role"] = message["role"]
        self.branch.append(entry)
        return entry

    def user(self, text: Any) -> Message:
        return self.add({"role": "user", "content": text})

    def assistant(self, answer: Answer, provider: str = "grok") -> Message:
        content = [
            {"type": b["type"], "text" if b["type"] == "text" else "thinking": b["text"]}
            for b in answer.blocks
        ]
        return self.add(
            {
                "role": "assistant",
                "content": content,
                "provider": provider,
                "stopReason": answer.stop,
                "responseId": answer.turn,
            }
        )

    def entries(self, kind: str) -> list[Message]:
        return [e["data"] for e in self.branch if e["type"] == "custom" and e["customType"] == kind]

    def wire(self) -> tuple[list[Message], list[Message]]:
        """(entries, messages) of a ``turn``."""
        fields = ("id", "type", "role", "customType", "ts", "details")
        entries = [{k: e[k] for k in fields if k in e} for e in self.branch]
        return entries, [e["message"] for e in self.branch if "message" in e]


class PiClient:
    """One Pi process.  ``person(ask)`` answers a dialog; None: it stays open."""

    def __init__(self, url: str, secret: str, agent_dir: Path, **options: Any) -> None:
        self.url, self.secret, self.agent_dir = url, secret, agent_dir
        self.ui: bool = options.pop("ui", True)
        self.env: dict[str, str] = options.pop("env", {})
        self.person: Person = options.pop("person", nobody)
        self.model: str = options.pop("model", "scripted")
        self.active: list[str] = options.pop("active", ["read", "bash", "edit", "write"])
        self.wakes: str = options.pop("wakes", "")  # "": woken; else the reason why not
        assert not options, options
        self.conn = ""
        self.welcome: Message = {}
        self.answers: dict[str, Answer] = {}
        self.asked: list[Message] = []
        self.closed_asks: list[Message] = []
        self.notices: list[str] = []
        self.status = ""
        self.session: PiSession | None = None
        self.woken: list[str] = []
        self.open_asks: dict[str, Any] = {}
        self._asked = set[asyncio.Task[None]]()
        self._ids = itertools.count(1)
        self._open: dict[int, asyncio.Future[Message]] = {}

    async def connect(self, *, fresh: bool = False) -> Message:
        """Open the socket and say hello; a known connection is taken up again unless ``fresh``."""
        headers = {"Authorization": f"Bearer {self.secret}"}
        if self.conn and not fresh:
            headers |= {"Grok-Gateway-Connection": self.conn, "Grok-Gateway-Received": "0"}
        self.socket = await websockets.asyncio.client.connect(
            self.url, additional_headers=headers, max_size=2**27, compression=None, proxy=None
        )
        self.closed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read())
        hello = {
            "v": 1,
            "mode": "rpc",
            "ui": self.ui,
            "caps": ["entries", "renderers"],
            "asks": list(self.open_asks),
            "agent_dir": str(self.agent_dir),
            "env": self.env,
        }
        self.welcome = await self.request("hello", hello | ({"conn": self.conn} if self.conn else {}))
        self.conn = self.welcome["conn"]
        return self.welcome

    async def come_back(self) -> None:
        """As the extension does after a lost socket."""
        async with asyncio.timeout(60):
            while True:
                try:
                    await self.connect()
                    break
                except (OSError, websockets.exceptions.InvalidStatus):
                    await asyncio.sleep(0.1)
        if self.session is not None:
            await self.show(self.session, "reconnect")
        for answer in [a for a in self.answers.values() if not a.ended.is_set()]:
            await self._send_turn(answer)

    async def show(self, session: PiSession, reason: str = "startup") -> Message:
        self.session = session
        binding = (session.entries("grok-session") or [None])[-1]
        params = {
            "session": session.id,
            "cwd": session.cwd,
            "reason": reason,
            "binding": binding,
            "active": self.active,
        }
        return await self.request("session", params)

    async def prompt(self, text: Any, **more: Any) -> Answer:
        """A message of the user, and the call of the model that follows."""
        assert self.session is not None
        self.session.user(text)
        return await self.call(**more)

    async def call(self, session: PiSession | None = None, **more: Any) -> Answer:
        """Pi calls the model."""
        session = session or self.session
        assert session is not None
        answer = Answer(str(uuid.uuid4()))
        self.answers[answer.turn] = answer
        entries, messages = session.wire()
        sections = {"preamble": "You are a test.", "tools": "T"}
        system = more.pop("system", [{"role": "system", "content": "", "sections": sections}])
        messages = more.pop("messages", messages)
        answer.params = {
            "turn": answer.turn,
            "session": session.id,
            "kind": "turn",
            "model": self.model,
            "cwd": session.cwd,
            "messages": [*system, *messages],
            "entries": entries,
            "active": self.active,
        } | more
        if more.get("kind") == "side":
            del answer.params["session"], answer.params["entries"]
        await self._send_turn(answer)
        return answer

    async def _send_turn(self, answer: Answer) -> None:
        """Returns when the gateway has the turn, or will not have it."""
        asked = asyncio.get_running_loop().create_task(self._ask_turn(answer))
        begun = asyncio.get_running_loop().create_task(answer.begun.wait())
        await asyncio.wait([asked, begun], return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        self._asked.add(asked)
        asked.add_done_callback(self._asked.discard)

    async def _ask_turn(self, answer: Answer) -> None:
        known = {"seq": answer.seq, "blocks": answer.known()}
        try:
            result = await self.request("turn", answer.params | known)
        except RefusedError as error:
            answer.finish({"stop": "error", "error": str(error)})
        except ConnectionError:
            pass
        else:
            if result.get("need") != "all":
                answer.finish(result)
                return
            answer.params.pop("since")
            await self._ask_turn(answer)

    async def ask(self, text: Any, **more: Any) -> Answer:
        """A whole turn: prompt, answer, and the answer's entry in the session."""
        answer = await (await self.prompt(text, **more)).done()
        assert self.session is not None
        self.session.assistant(answer)
        return answer

    async def request(self, method: str, params: Message) -> Message:
        number = next(self._ids)
        future = self._open[number] = asyncio.get_running_loop().create_future()
        await self._send({"id": number, "method": method, "params": params})
        answer = await future
        if "error" in answer:
            raise RefusedError(answer["error"])
        return dict(answer["result"])

    async def notify(self, method: str, **params: Any) -> None:
        await self._send({"method": method, "params": params})

    async def abort(self, answer: Answer) -> None:
        await self.notify("turn/abort", turn=answer.turn)

    async def answer_ask(self, ask: str, result: Message) -> None:
        await self._send({"id": self.open_asks.pop(ask), "result": result})

    async def close(self) -> None:
        await self.socket.close(1000)
        await self._reader

    async def drop(self) -> None:
        """Lose the socket without a word."""
        self.socket.transport.abort()
        await self._reader

    async def _send(self, message: Message) -> None:
        await self.socket.send(json.dumps({"jsonrpc": "2.0", **message}))

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for frame in self.socket:
                await self._received(json.loads(frame))
        self.closed.set_result(self.socket.close_code or 1006)
        self.open_asks.clear()
        for future in self._open.values():
            if not future.done():
                future.set_exception(ConnectionError("closed"))
        self._open.clear()

    async def _received(self, message: Message) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method is None:
            future = self._open.pop(message["id"])
            if not future.done():
                future.set_result(message)
        elif method == "turn/event":
            self.answers[params["turn"]].event(params)
        elif method == "entry":
            await self._entry(message["id"], params)
        elif method == "wake":
            await self._wake(message["id"], params)
        elif method == "ui/ask":
            await self._ask(message["id"], params)
        elif method == "ui/close":
            self.closed_asks.append(params)
            self.open_asks.pop(params["ask"], None)
        elif method == "ui/notify":
            self.notices.append(params["message"])
        elif method == "ui/status":
            self.status = params["text"]
            for answer in self.answers.values():
                answer.begun.set()

    async def _entry(self, id_: Any, params: Message) -> None:
        session = self.session
        if session is None or session.id != params["session"]:
            await self._send({"id": id_, "result": {"not_current": True}})
            return
        if all(data["id"] != params["id"] for data in session.entries(params["type"])):
            session.add(type="custom", customType=params["type"], data=params["data"])
        await self._send({"id": id_, "result": {"ok": True}})

    async def _wake(self, id_: Any, params: Message) -> None:
        self.woken.append(params["id"])
        if self.wakes:
            await self._send({"id": id_, "result": {"started": False}})
            return
        await self._send({"id": id_, "result": {"started": True}})
        assert self.session is not None
        self.session.add(
            {"role": "user", "content": params["text"]},
            type="custom_message",
            customType="grok-wake",
            details={"id": params["id"]},
        )
        asyncio.get_running_loop().create_task(self._woken_call())

    async def _woken_call(self) -> None:
        answer = await self.call()
        answer.woken = True

    async def _ask(self, id_: Any, params: Message) -> None:
        self.asked.append(params)
        await self.notify("ui/shown", ask=params["ask"], queued=False)
        result = self.person(params)
        if result is None:
            self.open_asks[params["ask"]] = id_
        else:
            await self._send({"id": id_, "result": result})
