"""Whatever a client saw of a session is there after a kill: the process dies at random moments, another one
loads the session, and what it tells is compared with what was seen before."""

from __future__ import annotations

import asyncio
import random
import secrets
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engines.scripted_model import ScriptedModel
from tests.fidelity.agent import Agent, Message
from tests.fidelity.engines import ENGINES, environment
from tests.harness.store.story import Story, Update, missing

KILLS = 10
ENGINE = ENGINES["harness"]


class Life:
    """One process, or a leader and its bridge, from start to kill."""

    def __init__(self, root: Path, url: str, *, led: bool) -> None:
        self.root, self._led = root, led
        self._env = environment(root / "home", url, {})
        self._leader: asyncio.subprocess.Process | None = None
        self.agent = Agent()

    async def start(self) -> None:
        command = ENGINE.command
        if self._led:
            socket = self.root / "leader.sock"
            socket.unlink(missing_ok=True)  # of the one that was killed
            command = ENGINE.bridge(socket)
            self._leader = await asyncio.create_subprocess_exec(
                *ENGINE.leader(socket),
                env=self._env,
                cwd=self.root / "work",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            while not socket.exists():  # else the bridge would start one of its own
                await asyncio.sleep(0.01)
        await self.agent.start(command, self._env, self.root / "work")
        await self.agent.request("initialize", {"protocolVersion": 1, "clientCapabilities": {}})

    def told(self, session: str) -> list[Update]:
        """Params of the session's updates, in order; a turn's beginning as the prompt that it has."""
        found = list[Update]()
        begun = set[str]()
        for _, way, message in self.agent.lines:
            params = message.get("params") or {}
            if way != "<" or params.get("sessionId") != session:
                continue
            if message.get("method") == "_x.ai/queue/changed":
                running = params.get("runningPromptId", "")
                if running and running not in begun and params["runningKind"] == "prompt":
                    text = {"type": "text", "text": params["runningText"]}
                    found.append({"update": {"sessionUpdate": "user_message_chunk", "content": text}})
                begun.add(running)
            elif isinstance(params.get("update"), dict):
                found.append(params)
        return found

    async def kill(self) -> None:
        """SIGKILL, and everything that it had written before is read."""
        processes = [p for p in (self.agent.process, self._leader) if p is not None and p.returncode is None]
        for process in processes:  # a bridge that survives its leader starts another one
            process.send_signal(signal.SIGKILL)
        while any(process.returncode is None for process in processes):
            await asyncio.sleep(0.005)
        await self.agent.forget()


@pytest.fixture
async def lives(tmp_path: Path) -> AsyncIterator[list[Life]]:
    """What a test started; all of it is dead afterwards."""
    (tmp_path / "work").mkdir()
    (tmp_path / "tmp").mkdir()
    started = list[Life]()
    yield started
    for life in started:
        if life.agent._process is not None:
            await life.kill()


def words(rng: random.Random, most: int) -> str:
    return " ".join(secrets.token_hex(2) for _ in range(rng.randint(1, most)))


def tool(rng: random.Random) -> Message:
    """A call with an effect."""
    command = rng.choice(("echo {0}", "sleep 0.2; echo {0}", "cat missing-{0}")).format(secrets.token_hex(3))
    run = {"command": command, "description": "test"}
    todo = {"id": secrets.token_hex(2), "content": words(rng, 3), "status": "in_progress"}
    name, arguments = rng.choice(
        (
            ("run_terminal_command", run),
            ("run_terminal_command", {**run, "command": f"{command}; sleep 1", "background": True}),
            (
                "search_replace",
                {"file_path": f"{secrets.token_hex(3)}.txt", "old_string": "", "new_string": "x\n"},
            ),
            ("read_file", {"target_file": "read.txt"}),
            ("todo_write", {"merge": bool(rng.randint(0, 1)), "todos": [todo]}),
        )
    )
    return {"name": name, "args": arguments, "id": f"call-{secrets.token_hex(4)}"}


def step(rng: random.Random) -> Message:
    found: Message = {"chunks": rng.randint(1, 30), "delay": rng.choice((0, 0.002, 0.01))}
    if rng.random() < 0.5:
        found["think"] = words(rng, 30)
    if rng.random() < 0.8:
        found["text"] = words(rng, 60)
    found["tools"] = [tool(rng) for _ in range(rng.choice((0, 1, 1, 2)))]
    return found


class Session:
    """A session over several lives."""

    def __init__(
        self, rng: random.Random, root: Path, model: ScriptedModel, lives: list[Life], led: bool
    ) -> None:
        self.rng, self._root, self._model, self._lives, self._led = rng, root, model, lives, led
        self.id = ""
        self.seen = list[Update]()

    async def open(self) -> Life:
        """Another process with the session; what it replays has all that was seen."""
        life = Life(self._root, self._model.url, led=self._led)
        self._lives.append(life)
        await life.start()
        params: Message = {"cwd": str(self._root / "work"), "mcpServers": [], "_meta": {"yoloMode": True}}
        if not self.id:
            self.id = (await life.agent.request("session/new", params))["sessionId"]
            return life
        if self.rng.random() < 0.2:  # killed while it loads: the next one finds all the same
            life.agent.ask("session/load", {**params, "sessionId": self.id})
            await asyncio.sleep(self.rng.uniform(0, 0.1))
            await life.kill()
            return await self.open()
        await life.agent.request("session/load", {**params, "sessionId": self.id})
        replayed = [p for p in life.told(self.id) if (p.get("_meta") or {}).get("isReplay")]
        assert missing(Story.of(self.seen), Story.of(replayed)) == []
        self.seen = replayed
        return life

    async def work(self, life: Life) -> None:
        """Begin one turn or two, and be killed in the middle of something."""
        for _ in range(self.rng.randint(1, 2)):
            script = self._model.script([step(self.rng) for _ in range(self.rng.randint(1, 4))])
            block = {"type": "text", "text": f"{words(self.rng, 4)} {script}"}
            life.agent.ask("session/prompt", {"sessionId": self.id, "prompt": [block]})
        if self.rng.random() < 0.5:
            await asyncio.sleep(self.rng.uniform(0, 0.6))
        else:
            count = len(life.agent.lines) + self.rng.randint(1, 80)
            for _ in range(100):
                if len(life.agent.lines) >= count:
                    break
                await asyncio.sleep(0.01)
        await life.kill()
        self.seen += [p for p in life.told(self.id) if not (p.get("_meta") or {}).get("isReplay")]


@pytest.mark.parametrize("seed", range(5))
async def test_everything_seen_is_there_after_a_kill(
    seed: int, model: ScriptedModel, tmp_path: Path, lives: list[Life]
) -> None:
    rng = random.Random(seed)
    session = Session(rng, tmp_path, model, lives, led=seed == 0)
    (tmp_path / "work/read.txt").write_text("to be read\n")
    for _ in range(KILLS):
        await session.work(await session.open())
    life = await session.open()
    whole = session.seen
    block = {"type": "text", "text": f"and on {model.script([{'text': 'alive'}])}"}
    answer = await life.agent.request("session/prompt", {"sessionId": session.id, "prompt": [block]})
    assert answer["stopReason"] == "end_turn"
    assert "alive" in str(life.told(session.id)[len(whole) :])

    story = Story.of(whole)
    assert sum(map(len, story.texts.values())) > KILLS / 2
    assert story.calls
    for left_out in range(len(whole)):  # else the comparison would see nothing
        if "eventId" in whole[left_out]["_meta"]:
            rest = whole[:left_out] + whole[left_out + 1 :]
            assert missing(story, Story.of(rest)), whole[left_out]
