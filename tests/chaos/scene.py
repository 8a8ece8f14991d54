"""What goes on in a cell when the blow falls: a struck client and a bystander on another worker.

The struck client never allows what is *forbidden*: it leaves those hooks, permissions and questions
unanswered, before the blow and after it.  Whatever is forbidden leaves a marker file when it runs.
What is *allowed* is answered at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Any

from tests.e2e.client import SILENT, Client, ClosedError, RpcError, allow_everything
from tests.e2e.gateway import Gateway
from tests.engines.scripted_model import ScriptedModel, Step

__all__ = ["SCALE", "Scene", "hook_limit"]

#: Scales the guard rows: a hook registered with 600 s then fails open after 8 s.
SCALE = 8 / 600
ALLOWED = "allowed-by-the-client"


def hook_limit() -> float:
    """Seconds after which an unanswered hook lets its tool run."""
    return 600 * SCALE


def _bash(command: str, **more: Any) -> Step:
    arguments = {"command": command, "description": "a test", **more}
    return {"tools": [{"name": "run_terminal_command", "args": arguments}]}


@dataclasses.dataclass
class Scene:
    """The two clients of a cell, their sessions and the files that tools leave."""

    gateway: Gateway
    model: ScriptedModel
    moment: str
    markers: Path  #: forbidden tools create files here, and nobody else does
    client: Client = dataclasses.field(init=False)
    bridge: int = dataclasses.field(init=False)
    bystander: Client = dataclasses.field(init=False)
    sessions: list[str] = dataclasses.field(default_factory=list)
    own_session: str = ""
    text: str = ""  #: what the bystander must read in the end
    turn: asyncio.Future[Any] = dataclasses.field(init=False)
    last_gate: float = 0.0  #: monotonic time of the last hook that the client has seen
    abandoned: bool = False  #: the first connection is given up; a new one must load the sessions
    marker_count: int = 0

    # -- policy ----------------------------------------------------------------------------------
    def policy(self, message: dict[str, Any]) -> Any:
        """Answers of the struck client."""
        self.last_gate = time.monotonic()
        if message["method"] == "_x.ai/hooks/run":
            asks_permission = self.moment == "permission"
            return {} if asks_permission or ALLOWED in str(message["params"].get("toolInput")) else SILENT
        return SILENT

    def hooks(self) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "x.ai/hooks": {"pre_tool_use": [{"matcher": ".*", "hookCallbackIds": ["pre"], "timeout": 600}]}
        }
        if self.moment != "permission":
            meta["yoloMode"] = True
        return meta

    # -- the set-up ------------------------------------------------------------------------------
    async def set(self) -> None:
        """Connect both clients to different workers and bring the struck one to its moment."""
        self.client, self.bridge = await self.gateway.with_own_worker(self.policy)
        await self._place_bystander()
        if self.moment != "session_new":
            count = 2 if self.moment == "two_sessions" else 1
            self.sessions = [await self._new_session(self.client) for _ in range(count)]
        await getattr(self, f"_set_{self.moment}")()

    async def _place_bystander(self) -> None:
        worker = self.gateway.worker_of(self.bridge)
        while True:
            self.bystander, bridge = await self.gateway.with_own_worker()
            if self.gateway.worker_of(bridge) != worker:
                break
            await self.bystander.close()
        self.own_session = await self._new_session(self.bystander)
        self.text = " ".join(str(number) for number in range(300))
        script = self.model.script(
            [_bash(f"echo {ALLOWED}"), {"text": self.text, "chunks": 300, "delay": 0.03}, {"text": ""}]
        )
        self.turn = await self.bystander.start_prompt(self.own_session, script)

    async def _new_session(self, client: Client) -> str:
        return await client.new_session(self.gateway.work, **self.hooks())

    def _forbidden(self) -> Step:
        self.marker_count += 1
        marker = self.markers / str(self.marker_count)
        if self.moment == "permission":
            return _bash(f"python3 -c \"open('{marker}', 'x')\"")
        return _bash(f"touch {marker}")

    async def _prompt(self, *script: Step, session: int = 0) -> None:
        await self.client.start_prompt(self.sessions[session], self.model.script(list(script)))

    # -- the moments -----------------------------------------------------------------------------
    async def _set_idle(self) -> None:
        await self.client.prompt(self.sessions[0], self.model.script([{"text": "done"}]))

    async def _set_session_new(self) -> None:
        params = {"cwd": str(self.gateway.work), "mcpServers": [], "_meta": self.hooks()}
        await self.client.start("session/new", params)

    async def _set_streaming(self) -> None:
        await self._prompt(self._stream(), self._forbidden(), {"text": "end"})
        await self._reading(0)

    async def _set_hook(self) -> None:
        await self._prompt(self._forbidden(), {"text": "end"})
        await self.client.wait_asked("_x.ai/hooks/run")

    async def _set_permission(self) -> None:
        await self._prompt(self._forbidden(), {"text": "end"})
        await self.client.wait_asked("session/request_permission")

    async def _set_question(self) -> None:
        options = [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}]
        question = {"question": "Which?", "header": "Q", "options": options, "multiSelect": False}
        arguments = {"questions": [question], "note": ALLOWED}
        ask = {"tools": [{"name": "ask_user_question", "args": arguments}]}
        await self._prompt(ask, self._forbidden(), {"text": "end"})
        await self.client.wait_for(lambda m: "id" in m and "method" in m and "Which?" in str(m))

    async def _set_command(self) -> None:
        started = self.markers.parent / "started"
        command = _bash(f"touch {started}; sleep 2; echo {ALLOWED}")
        await self._prompt(command, self._forbidden(), {"text": "end"})
        async with asyncio.timeout(60):
            while not started.exists():
                await asyncio.sleep(0.01)

    async def _set_background(self) -> None:
        command = _bash(f"sleep 4; echo {ALLOWED}", is_background=True, background=True)
        script = self.model.script([command, {"text": "started"}, {"text": "it has ended"}])
        await self.client.prompt(self.sessions[0], script)

    async def _set_two_sessions(self) -> None:
        await self._prompt(self._stream(), self._forbidden(), {"text": "end"}, session=0)
        await self._prompt(self._forbidden(), {"text": "end"}, session=1)
        await self.client.wait_asked("_x.ai/hooks/run")
        await self._reading(0)

    @staticmethod
    def _stream() -> Step:
        return {"text": " ".join(str(n) for n in range(150)), "chunks": 150, "delay": 0.02}

    async def _reading(self, session: int) -> None:
        async with asyncio.timeout(60):
            while len(self.client.text(self.sessions[session])) < 20:
                await asyncio.sleep(0.005)

    # -- afterwards ------------------------------------------------------------------------------
    @property
    def settled_after(self) -> float:
        """Seconds from the blow until every tool that could fail open has done so."""
        before_the_hook = 4.0 if self.moment in ("streaming", "command", "two_sessions", "question") else 0.0
        return before_the_hook + hook_limit() + 1.5

    async def return_when_cut(self) -> None:
        """The struck client comes back whenever its socket ends, by resuming if it can; else as a new one."""
        while True:
            await asyncio.shield(self.client.closed)
            while self.client.closed.done():
                with contextlib.suppress(Exception):  # refused, 410, 503
                    self.client = await self.gateway.connect(self.policy, resume=self.client)
                    continue
                with contextlib.suppress(Exception):
                    fresh = await self.gateway.client(self.policy)
                    self.client, self.abandoned = fresh, True
                    continue
                await asyncio.sleep(0.05)

    async def turn_again(self) -> list[str]:
        """A new turn on every session of the struck client; what went wrong."""
        client = self.client
        if client.closed.done():
            client, self.abandoned = await self.gateway.client(allow_everything), True
        client.policy = allow_everything
        problems = []
        for session in self.sessions:
            params = {"sessionId": session, "cwd": str(self.gateway.work), "mcpServers": []}
            try:
                if self.abandoned:
                    await self.gateway.eventually_loads(client, {**params, "_meta": self.hooks()})
                result = await client.prompt(session, self.model.script([{"text": "again"}]), timeout=30)
                if result["stopReason"] != "end_turn":
                    problems.append(f"new turn: {result['stopReason']}")
            except (RpcError, ClosedError, TimeoutError) as error:
                problems.append(f"new turn: {error}")
        await client.close()
        return problems
