"""One scenario played against one engine: the stage (folders, model, process) and what is recorded."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import random
import shutil
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.engines.processes import carriers, describe
from tests.engines.scripted_model import ScriptedModel
from tests.fidelity.agent import PATIENCE, Agent, Message
from tests.fidelity.engines import Engine, environment
from tests.fidelity.scenario import Scenario

__all__ = ["Play", "Recording", "perform"]

#: Names this run's processes: whatever still carries it afterwards was left behind.
MARK = "FIDELITY_PLAY"
#: Seconds of silence that count as "nothing more comes" at the end of a scenario.
CALM = 0.3
_SYLLABLES = [c + v for c in "bdfgklmnprtvz" for v in "aiou"]


@dataclasses.dataclass
class Recording:
    """Everything observable of one play."""

    engine: str
    scenario: str
    root: str
    url: str  # the model's
    words: list[str]
    ids: list[str]  # those that the script chose itself
    lines: list[Message] = dataclasses.field(default_factory=list)  # {at, way, message}
    others: list[list[Message]] = dataclasses.field(default_factory=list)  # of further clients
    calls: list[Message] = dataclasses.field(default_factory=list)  # requests at the model endpoint
    files: dict[str, Any] = dataclasses.field(default_factory=dict)  # workspace afterwards
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)  # what the script itself looked at
    left: list[str] = dataclasses.field(default_factory=list)  # processes after the engine's end
    noise: list[str] = dataclasses.field(default_factory=list)
    exit: int | None = None
    failure: str = ""

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class Play:
    """What a script has in its hands."""

    def __init__(self, scenario: Scenario, engine: Engine, seed: str, root: Path) -> None:
        self.scenario, self.engine, self.root = scenario, engine, root
        self.work, self.home = root / "work", root / "home"
        for folder in (self.work, self.home, root / "tmp"):
            folder.mkdir(parents=True)
        self.random = random.Random(f"{scenario.number}/{seed}")
        self.words: list[str] = []
        self.ids: list[str] = []
        self.model = ScriptedModel()
        self.agent = Agent()
        self.bridges: list[Agent] = []  # of a led play, the first is `agent`
        self.leader: asyncio.subprocess.Process | None = None
        self.env: dict[str, str] = {}
        self.session = ""
        self.facts: dict[str, Any] = {}
        self.started = 1  # which `task_backgrounded` comes next

    # -- random material, the same for both engines ------------------------------------------------
    def word(self) -> str:
        """A new word that no text of an engine contains by itself."""
        word = "".join(self.random.choice(_SYLLABLES) for _ in range(4)) + self.random.choice("xqj")
        self.words.append(word)
        return word

    def number(self, low: int = 100, high: int = 900) -> int:
        return self.random.randint(low, high)

    def call_id(self) -> str:
        return f"call-{self.word()}"

    def lines(self, count: int) -> list[str]:
        return [f"{self.word()} {self.word()}" for _ in range(count)]

    # -- files ---------------------------------------------------------------------------------
    def write(self, name: str, content: str | bytes) -> Path:
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def git(self) -> None:
        """Make the workspace a repository."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(["git", "init", "-q", "-b", "main", str(self.work)], env=env, check=True)

    # -- the model's steps -----------------------------------------------------------------------
    def usage(self) -> dict[str, Any]:
        prompt, answer = self.number(1000, 5000), self.number(50, 400)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": answer,
            "total_tokens": prompt + answer,
            "prompt_tokens_details": {"cached_tokens": self.number(10, 900)},
            "completion_tokens_details": {"reasoning_tokens": self.number(1, 40)},
        }

    def say(self, text: str | None = None, **more: Any) -> Message:
        """A step with text."""
        return {
            "text": text if text is not None else f"{self.word()} {self.word()}",
            "usage": self.usage(),
            **more,
        }

    def call(self, name: str, args: Any, **more: Any) -> Message:
        """A step with one tool call."""
        return self.calls((name, args), **more)

    def calls(self, *calls: tuple[str, Any], **more: Any) -> Message:
        """A step with several tool calls."""
        tools = [{"name": name, "args": args, "id": self.call_id()} for name, args in calls]
        return {"tools": tools, "usage": self.usage(), **more}

    # -- the client's part -------------------------------------------------------------------------
    async def begin(self, yolo: bool = True, **meta: Any) -> None:
        """`initialize` and `session/new`."""
        if self.scenario.led:
            await self.lead()
            await self.bridge()
        else:
            await self.agent.start(self.engine.command, self.env, self.work)
            await self.agent.request("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        await self.new_session(yolo, **meta)

    async def begin_in_repository(self) -> None:
        """The same in a git repository that ignores ``*.log``."""
        self.git()
        self.write(".gitignore", "*.log\n")
        await self.begin()

    async def new_session(self, yolo: bool = True, **meta: Any) -> str:
        wanted = str(uuid.UUID(int=self.random.getrandbits(128), version=4))
        self.ids.append(wanted)
        params: Message = {"cwd": str(self.work), "mcpServers": [], "_meta": {"sessionId": wanted, **meta}}
        if yolo:
            params["_meta"]["yoloMode"] = True
        self.session = (await self.agent.request("session/new", params))["sessionId"]
        return self.session

    def send(self, *steps: Message, text: str | None = None, **meta: Any) -> asyncio.Future[Any]:
        """Send a prompt whose answers the model plays step by step."""
        said = text if text is not None else f"{self.word()} {self.word()}"
        marker = self.model.script(list(steps), self.word())
        blocks = [{"type": "text", "text": f"{said} {marker}"}]
        params = {"sessionId": self.session, "prompt": blocks, "_meta": {"promptId": self.word(), **meta}}
        return self.agent.ask("session/prompt", params)

    async def prompt(self, *steps: Message, text: str | None = None, **meta: Any) -> Any:
        """Send one and wait for its end."""
        return await self.send(*steps, text=text, **meta)

    # -- a leader and its bridges --------------------------------------------------------------------
    @property
    def socket(self) -> Path:
        return self.root / "leader.sock"

    async def lead(self) -> None:
        """Start a leader and wait until it listens."""
        nowhere = asyncio.subprocess.DEVNULL
        self.leader = await asyncio.create_subprocess_exec(
            *self.engine.leader(self.socket),
            env=self.env,
            cwd=self.work,
            stdin=nowhere,
            stdout=nowhere,
            stderr=nowhere,
            start_new_session=True,
        )
        async with asyncio.timeout(PATIENCE):
            while not self.socket.exists():
                await asyncio.sleep(0.02)

    async def bridge(self) -> Agent:
        """One more client, connected and initialized."""
        agent = Agent() if self.bridges else self.agent
        self.bridges.append(agent)
        await agent.start(self.engine.bridge(self.socket), self.env, self.work)
        await agent.request("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        return agent

    def load(self, agent: Agent, **meta: Any) -> asyncio.Future[Any]:
        params = {"sessionId": self.session, "cwd": str(self.work), "mcpServers": [], "_meta": meta}
        return agent.ask("session/load", params)

    async def update(self, kind: str, count: int = 1, **fields: Any) -> Message:
        """Wait for a session update of a kind whose fields have these values; the update."""

        def fits(message: Message) -> bool:
            update = message.get("params", {}).get("update", {})
            wanted = update.get("sessionUpdate") == kind
            return wanted and all(update.get(name) == value for name, value in fields.items())

        message = await self.agent.until(fits, count)
        update: Message = message["params"]["update"]
        return update

    async def settle(self, seconds: float = CALM) -> None:
        """Let what still comes by itself come."""
        await self.agent.quiet(seconds)

    def processes(self, text: str) -> int:
        """How many processes of this play carry this text in their arguments or environment."""
        return len(carriers(text, carriers(f"{MARK}={self.root}")))

    async def gone(self, text: str, timeout: float = 15.0) -> bool:
        """Whether every such process vanishes in time."""
        deadline = time.monotonic() + timeout
        while self.processes(text):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.05)
        return True


async def perform(
    scenario: Scenario,
    engine: Engine,
    seed: str,
    root: Path,
    extra: Mapping[str, str] = MappingProxyType({}),
    limit: float = 75.0,
) -> Recording:
    """Play it; a script that fails leaves its reason in the recording, for both engines alike."""
    engine.check()
    play = Play(scenario, engine, seed, root)
    recording = Recording(
        engine.name, scenario.label, str(root), play.model.start().url, play.words, play.ids
    )
    mark = f"{MARK}={root}"
    play.env = environment(play.home, play.model.url, {MARK: str(root), **scenario.env, **extra})
    try:
        async with asyncio.timeout(limit):
            await scenario.script(play)
            await play.settle()
    except Exception as error:
        recording.failure = f"{type(error).__name__}: {error}"
    finally:
        recording.exit = await play.agent.close()
        for agent in play.bridges[1:]:
            await agent.close()
        if play.leader is not None:
            with contextlib.suppress(ProcessLookupError):
                play.leader.terminate()
        await play.gone(mark, 3.0)
        recording.left = _end(mark)
        for agent in (play.agent, *play.bridges[1:]):
            await agent.forget()
        play.model.stop()
    recording.lines = _lines(play.agent)
    recording.others = [_lines(agent) for agent in play.bridges[1:]]
    recording.noise = [line for agent in (play.agent, *play.bridges[1:]) for line in agent.noise]
    recording.calls = [_call(call) for call in play.model.calls("", "")]
    recording.files = dict(_files(play.work))
    recording.facts = play.facts
    if recording.failure:
        recording.failure += "\n" + play.agent.errors.decode(errors="replace")[-4000:]
    return recording


def _lines(agent: Agent) -> list[dict[str, Any]]:
    return [{"at": round(at, 3), "way": way, "message": message} for at, way, message in agent.lines]


def _call(call: Any) -> dict[str, Any]:
    return {"kind": call.kind, "outcome": call.outcome, "body": call.body, "headers": call.headers}


def _files(folder: Path) -> Iterable[tuple[str, Any]]:
    """Contents and modes of what lies in the workspace; git's own folder is git's."""
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.split("/")[0] == ".git" or path.is_dir():
            continue
        if path.is_symlink():
            yield name, {"link": str(path.readlink())}
        else:
            data = path.read_bytes()
            yield (
                name,
                {"mode": oct(path.stat().st_mode & 0o777), "text": data.decode("utf-8", "backslashreplace")},
            )


def _end(mark: str) -> list[str]:
    """End what outlived the engine, and say what it was."""
    left = carriers(mark)
    told = [describe(pid) for pid in left]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    return told


@contextlib.asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[Path]:
    """A folder that is gone afterwards."""
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
