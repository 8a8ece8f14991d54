"""The measurements of ``bench`` that compare the two engines: the embedded one and, where there is one, grok.

Each has a private home and the offline model, and is spoken to over its own pipes: no gateway in between.
What is compared is measured in turns within one run.  Without a grok the embedded engine's own figures are
all there is, and those that only a comparison can judge have no limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import psutil

from gateway.engine import HARNESS, bridge_arguments, leader_arguments
from gateway.engine_home import bridge_environment, leader_environment, write_home
from gateway.front.leader_process import end_leaders
from gateway.operate.bench_agents import INITIALIZE, Agent, AgentError, PipedAgent
from gateway.operate.bench_figures import (
    CHUNKS,
    STREAMS,
    Figure,
    Stage,
    bare_answers,
    ratio,
    spread,
)
from gateway.operate.bench_instance import Instance
from gateway.operate.bench_model import ModelClock
from gateway.wire.limits import LIMITS
from gateway.wire.process import end_group, spawn

__all__ = ["ENGINE_STAGES"]

#: Tool calls of an agent before its memory is looked at; half of them read, half of them run something.
CALLS = 20
#: Instructions of one turn with one tool call, that both engines allow unasked.
TURNS: Mapping[str, str] = {"reads": "read notes.txt", "runs": "run ls"}
#: Sessions of a leader whose memory is looked at.
SESSIONS = 6
#: Bridges for each round that was asked for: they are short.
BRIDGES = 4
#: Seconds between looks for a leader's socket.
LOOK_PAUSE = 0.01


@dataclasses.dataclass(frozen=True, slots=True)
class Engine:
    """One of the two, in a folder of its own.  ``home`` is its GROK_HOME."""

    name: str
    command: tuple[str, ...]
    home: Path
    environ: Mapping[str, str]

    @property
    def socket(self) -> Path:
        return self.home / "leader.sock"

    def agent(self) -> PipedAgent:
        """An agent for one client."""
        argv = [*self.command, "agent", "--no-leader", "stdio"]
        return PipedAgent(argv, leader_environment(self.home, True, self.environ))

    def bridge(self, socket: Path | None = None) -> PipedAgent:
        """A bridge to the engine's leader, or to a socket."""
        argv = [*self.command, *bridge_arguments(socket or self.socket)]
        return PipedAgent(argv, bridge_environment(self.home, self.environ))

    @contextlib.asynccontextmanager
    async def leader(self) -> AsyncIterator[int]:
        """A leader that is ready; its pid."""
        env = leader_environment(self.home, True, self.environ)
        argv = [*self.command, *leader_arguments(self.socket)]
        process = spawn(argv, env=env, stderr=subprocess.DEVNULL)
        try:
            await self._listening(process)
            yield process.pid
        finally:
            await end_group(process)
            end_leaders(self.socket)  # that a bridge may have started

    async def _listening(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + LIMITS.ready
        while time.monotonic() < deadline and process.poll() is None:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_unix_connection(self.socket)
                writer.close()
                return
            await asyncio.sleep(LOOK_PAUSE)
        raise AgentError(f"{self.name}'s leader is not ready (exit code {process.poll()})")


def _engines(instance: Instance, name: str, port: int) -> list[Engine]:
    """The embedded engine first; then grok, if there is one.  ``port``: of their model."""
    commands: dict[str, tuple[str, ...]] = {"harness": HARNESS}
    if instance.grok is not None:
        commands["grok"] = (str(instance.grok),)
    found = list[Engine]()
    for engine, command in commands.items():
        home = instance.work.parent / f"{name}-{engine}"
        write_home(home, port)
        found.append(Engine(engine, command, home, instance.environ))
    return found


async def _turns(instance: Instance, rounds: int) -> list[Figure]:
    """What a turn with one tool call takes beside the model, and what the agent weighs after many."""
    (instance.work / "notes.txt").write_text("alpha\n")
    pairs = {kind: list[tuple[float, ...]]() for kind in TURNS}
    weights = list[list[_Weight]]()
    async with ModelClock(instance.model_port()) as model, contextlib.AsyncExitStack() as stack:
        engines = _engines(instance, "turns", model.port)
        for _ in range(rounds):
            opened = [await _opened(stack, engine.agent(), instance.work) for engine in engines]
            for _ in range(CALLS // len(TURNS)):
                for kind, text in TURNS.items():
                    pairs[kind].append(tuple([await _beside(model, *one, text) for one in opened]))
            weights.append([_weigh(agent.pid) for agent, _ in opened])
            for agent, _ in opened:
                await agent.close()
    figures = [
        _compared(f"engines: a turn that {kind}, model excluded", some, 1.0) for kind, some in pairs.items()
    ]
    name = f"engines: agent after {CALLS} tool calls"
    return [*figures, _memory(name, [one[0].shared for one in weights], 60, weights)]


async def _beside(model: ModelClock, agent: Agent, session: str, text: str) -> float:
    """Seconds of one turn, without those of the model."""
    model.taken()
    started = time.perf_counter()
    await agent.prompt(session, text)
    seconds = time.perf_counter() - started
    waited, answers = model.taken()
    if answers != 2:
        raise AgentError(f"`{text}` took {answers} model calls instead of a call and an answer")
    return seconds - waited


async def _bridges(instance: Instance, rounds: int) -> list[Figure]:
    """From the start of a bridge: to its connection, and to the answer of ``initialize``."""
    engines = _engines(instance, "bridges", instance.model_port())
    connected, pairs = list[float](), list[tuple[float, ...]]()
    async with contextlib.AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine.leader())
            await _initialized(engine)  # neither the first page fault nor the leader's own start counts
        for _ in range(BRIDGES * rounds):
            connected.append(await _connected(engines[0]) * 1000)
            pairs.append(tuple([await _initialized(engine) for engine in engines]))
    return [
        Figure(
            "engines: bridge started → connected", statistics.median(connected), 100, "ms", spread(connected)
        ),
        _compared("engines: bridge started → `initialize` answered", pairs, 1.0),
    ]


async def _initialized(engine: Engine) -> float:
    agent, started = engine.bridge(), time.perf_counter()
    try:
        await agent.open()
        await agent.request("initialize", INITIALIZE)
        return time.perf_counter() - started
    finally:
        await agent.close()


async def _connected(engine: Engine) -> float:
    """Seconds until a bridge has said who it is, to a listener in the leader's place."""
    heard = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        heard.set()
        await reader.read()
        writer.close()

    path = engine.home / "listener.sock"
    async with await asyncio.start_unix_server(listen, path):
        agent, started = engine.bridge(path), time.perf_counter()
        try:
            await agent.open()
            async with asyncio.timeout(LIMITS.ready):
                await heard.wait()
            return time.perf_counter() - started
        except TimeoutError:
            raise AgentError(f"{engine.name}'s bridge did not connect within {LIMITS.ready:g} s") from None
        finally:
            await agent.close()
            path.unlink(missing_ok=True)


async def _leaders(instance: Instance, rounds: int) -> list[Figure]:
    """What a leader weighs with one session, and what each further one adds.  Each has had a turn."""
    (instance.work / "notes.txt").write_text("alpha\n")
    first, all_of_them = list[list[_Weight]](), list[list[_Weight]]()
    for _ in range(rounds):
        weighed = list[tuple[_Weight, _Weight]]()
        for engine in _engines(instance, "memory", instance.model_port()):
            async with engine.leader() as pid, contextlib.AsyncExitStack() as stack:
                looks = list[_Weight]()
                for _ in range(SESSIONS):
                    agent, session = await _opened(stack, engine.bridge(), instance.work)
                    await agent.prompt(session, "; ".join(TURNS.values()))
                    looks.append(_weigh(pid))
                weighed.append((looks[0], looks[-1]))
        first.append([one for one, _ in weighed])
        all_of_them.append([many for _, many in weighed])
    further = [
        (many[0].shared - one[0].shared) / (SESSIONS - 1)
        for one, many in zip(first, all_of_them, strict=True)
    ]
    return [
        _memory("engines: leader with one session", [one[0].shared for one in first], 60, first),
        _memory("engines: each further session", further, 8, all_of_them, f"with {SESSIONS} sessions "),
    ]


async def _streams(instance: Instance, rounds: int) -> list[Figure]:
    """Many long answers at once, through one leader and a bridge for each."""
    engines = _engines(instance, "streams", instance.model_port())
    pairs = list[tuple[float, ...]]()
    async with contextlib.AsyncExitStack() as stack:
        for engine in engines:
            await stack.enter_async_context(engine.leader())
        for turn in range(rounds + 1):
            row = tuple([await bare_answers(engine.bridge, instance.work) for engine in engines])
            if turn:  # the first one is for the caches
                pairs.append(row)
    return [_compared(f"engines: {STREAMS} sessions × {CHUNKS} chunks", pairs, 1.5)]


async def _opened(stack: contextlib.AsyncExitStack, agent: PipedAgent, work: Path) -> tuple[PipedAgent, str]:
    """The agent and a session of it; closed with the stack at the latest."""
    stack.push_async_callback(agent.close)
    await agent.open()
    return agent, await agent.start_session(str(work))


# -- figures -----------------------------------------------------------------------------------------
def _compared(name: str, rows: Sequence[tuple[float, ...]], limit: float) -> Figure:
    """Harness against grok; without one, the harness's seconds as they are."""
    pairs = [(row[0], row[1]) for row in rows if len(row) > 1]
    if pairs:
        return ratio(f"{name}, against grok", pairs, limit)
    values = [row[0] * 1000 for row in rows]
    return Figure(name, statistics.median(values), None, "ms", spread(values))


@dataclasses.dataclass(frozen=True, slots=True)
class _Weight:
    """MiB of a process with all that it started."""

    shared: float  #: pages that others use, too, count in parts (PSS)
    own: float  #: pages that nobody else uses (USS)


def _weigh(pid: int) -> _Weight:
    process = psutil.Process(pid)
    shared = own = 0
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            info = one.memory_full_info()
            shared, own = shared + info.pss, own + info.uss
    return _Weight(shared / 2**20, own / 2**20)


def _memory(
    name: str, values: Sequence[float], limit: float, weights: Sequence[Sequence[_Weight]], when: str = ""
) -> Figure:
    """The median of ``values``; ``weights`` of both engines, for the detail."""
    told = [
        f"{engine} {statistics.median(one.shared for one in column):.1f}"
        f" ({statistics.median(one.own for one in column):.1f} its own)"
        for engine, column in zip(("harness", "grok"), zip(*weights, strict=True), strict=False)
    ]
    return Figure(name, statistics.median(values), limit, "MiB", f"{when}{', '.join(told)}")


async def _insistently(stage: Stage, instance: Instance, rounds: int) -> list[Figure]:
    """Grok's leader hangs up on a bridge now and then; the stage is then measured again, once."""
    with contextlib.suppress(AgentError):
        return await stage(instance, rounds)
    return await stage(instance, rounds)


ENGINE_STAGES: Mapping[str, Callable[[Instance, int], Awaitable[list[Figure]]]] = {
    "engines' turns": functools.partial(_insistently, _turns),
    "engines' bridges": functools.partial(_insistently, _bridges),
    "engines' leaders": functools.partial(_insistently, _leaders),
    "engines' streams": functools.partial(_insistently, _streams),
}
