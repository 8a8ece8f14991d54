"""An agent in the test's own process, with a client that remembers what it hears."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from harness.acp import Connection
from harness.agent import Agent, Defaults
from tests.engines.grok import write_offline_config
from tests.engines.scripted_model import ScriptedModel

SECONDS = 60


class TestClient:
    """Sends requests and keeps what comes; answers the agent's own requests with ``reply``."""

    __test__ = False

    def __init__(self, home: Path, work: Path, defaults: Defaults | None = None) -> None:
        self.work = work
        self.heard: list[dict[str, Any]] = []
        self.session = ""
        self.reply: Callable[[dict[str, Any]], Any] = lambda _: None  # None: no answer
        self._count = 0
        self._open: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._news = asyncio.Event()
        self.connection = Connection(self._take, lambda *message: self.agent.handle(*message))
        environ = {
            "HOME": str(home.parent),
            "PATH": "/usr/bin:/bin",
            "GROK_HOME": str(home),
            "SHELL": "/bin/sh",
        }
        self.agent = Agent(home, environ, self.connection, defaults)

    def _take(self, line: bytes) -> None:
        message = json.loads(line)
        self.heard.append(message)
        self._news.set()
        if "method" not in message:
            self._open.pop(message["id"]).set_result(message)
        elif "id" in message and (answer := self.reply(message)) is not None:
            self.send({"id": message["id"], **answer})

    def send(self, message: dict[str, Any]) -> None:
        self.connection.line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def begin(self, method: str, params: dict[str, Any]) -> asyncio.Future[dict[str, Any]]:
        self._count += 1
        self._open[self._count] = asyncio.get_running_loop().create_future()
        answer = self._open[self._count]
        self.send({"id": self._count, "method": method, "params": params})
        return answer

    async def call(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return await asyncio.wait_for(self.begin(method, params), SECONDS)

    async def result(self, method: str, params: dict[str, Any]) -> Any:
        answer = await self.call(method, params)
        assert "result" in answer, answer
        return answer["result"]

    async def open(self, **meta: Any) -> None:
        await self.result("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        params: dict[str, Any] = {"cwd": str(self.work), "mcpServers": []}
        self.session = (await self.result("session/new", {**params, "_meta": meta}))["sessionId"]

    def prompt(self, text: str, prompt_id: str = "p", **meta: Any) -> asyncio.Future[dict[str, Any]]:
        block = {"type": "text", "text": text}
        meta = {"promptId": prompt_id, **meta}
        return self.begin("session/prompt", {"sessionId": self.session, "prompt": [block], "_meta": meta})

    async def turn(self, text: str, prompt_id: str = "p") -> dict[str, Any]:
        return await asyncio.wait_for(self.prompt(text, prompt_id), SECONDS)

    def cancel(self) -> None:
        self.send({"method": "session/cancel", "params": {"sessionId": self.session}})

    # -- what was heard ------------------------------------------------------------------------------
    def updates(self, *kinds: str) -> list[dict[str, Any]]:
        """Updates of these kinds, of all when none is named; in order."""
        found = [m["params"]["update"] for m in self.heard if "update" in m.get("params", {})]
        return [u for u in found if not kinds or u["sessionUpdate"] in kinds]

    @property
    def text(self) -> str:
        return "".join(u["content"]["text"] for u in self.updates("agent_message_chunk"))

    def methods(self) -> list[str]:
        return [m["method"] for m in self.heard if "method" in m]

    async def until(self, found: Callable[[], Any]) -> Any:
        """Wait until something was heard."""
        async with asyncio.timeout(SECONDS):
            while not (value := found()):
                self._news.clear()
                await self._news.wait()
        return value

    async def heard_update(self, kind: str, **fields: Any) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            matching = (u for u in self.updates(kind) if all(u.get(k) == v for k, v in fields.items()))
            return next(matching, None)

        update: dict[str, Any] = await self.until(found)
        return update


Open = Callable[..., Awaitable[TestClient]]


@pytest.fixture
async def new_client(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Callable[..., TestClient]]:
    clients = list[TestClient]()

    def make(defaults: Defaults | None = None) -> TestClient:
        home, work = tmp_path / "home", tmp_path / "work"
        work.mkdir(exist_ok=True)
        if not home.exists():
            write_offline_config(home, model.url)
        clients.append(TestClient(home, work, defaults))
        return clients[-1]

    yield make
    for client in clients:
        client.connection.close()
        await client.agent.close()


@pytest.fixture
async def client(new_client: Callable[..., TestClient]) -> TestClient:
    """A client whose session asks for no permission."""
    made = new_client()
    await made.open(yoloMode=True)
    return made
