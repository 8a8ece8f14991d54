"""The measurements of ``bench``.  Each returns figures and leaves the instance as it found it: running.

What can be compared is compared within one run, in turns, with bare bridges on the same leader: ratios
say something on any machine, and survive a noisy one.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import psutil

from gateway.operate.bench_agents import Agent, AgentError
from gateway.operate.bench_instance import BenchError, Instance
from gateway.operate.supervisor import Supervisor
from gateway.wire.control import ControlError, Packet, ask
from gateway.wire.limits import LIMITS

__all__ = [
    "BARE_TRIES",
    "CHUNKS",
    "STAGES",
    "STREAMS",
    "Figure",
    "Stage",
    "bare_answers",
    "measure",
    "ratio",
    "spread",
]

STREAMS, CHUNKS = 20, 400
BARE_TRIES = 5
CLIENTS = 10
#: Connections tried while the front is away, and the pause between them in seconds.
KNOCKS, KNOCK_PAUSE = 10, 0.1
#: Seconds between looks at a process that starts: the error of what is measured so.
LOOK_PAUSE = 0.002


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """One measured value and the most that it should be, both in ``unit``; None: it has no such limit."""

    name: str
    value: float
    limit: float | None
    unit: str
    detail: str = ""

    @property
    def good(self) -> bool:
        return self.limit is None or self.value <= self.limit


#: One measurement: of an instance, with so many rounds.
Stage = Callable[[Instance, int], Awaitable[list[Figure]]]


async def measure(
    instance: Instance, stages: Mapping[str, Stage], rounds: int, say: Callable[[str], None]
) -> list[Figure]:
    """Every figure; ``say`` is told what is being measured.  Raises BenchError."""
    figures = [Figure("ready after `up`", instance.up_seconds, 2, "s")]
    for stage, one in stages.items():
        say(f"{stage} …")
        try:
            figures += await one(instance, rounds)
        except (AgentError, ControlError, OSError) as error:
            raise BenchError(f"{stage}: {error}") from error
    return figures


async def _worker(instance: Instance, rounds: int) -> list[Figure]:
    """A killed worker's successor: from its start to the moment it takes connections."""
    socket_path = instance.paths.worker_socket("worker_01")
    times, memory = list[float](), 0
    for _ in range(rounds):
        old = ask(socket_path, Packet("status")).fields["pid"]
        os.kill(old, signal.SIGKILL)
        pid = await _until(functools.partial(_successor, socket_path, old))
        times.append(time.time() - psutil.Process(pid).create_time())
        memory = psutil.Process(pid).memory_full_info().uss
    return [
        Figure("worker start", statistics.median(times), 0.3, "s", spread(times)),
        Figure("worker memory of its own", memory / 2**20, 20, "MiB", "unique set, idle"),
    ]


def _successor(socket_path: Path, old: int) -> int | None:
    try:
        fields = ask(socket_path, Packet("status"), LIMITS.probe_timeout).fields
    except ControlError:
        return None
    return int(fields["pid"]) if fields["pid"] != old and fields["state"] == "ready" else None


async def _connect(instance: Instance, rounds: int) -> list[Figure]:
    """From nothing to the answer of ``initialize``, in turns with a bare bridge."""

    async def first_answer(agent: Agent) -> float:
        started = time.perf_counter()
        await agent.open()
        await agent.request("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        seconds = time.perf_counter() - started
        await agent.close()
        return seconds

    await first_answer(instance.client())  # neither the first hard link nor the first page fault counts
    await first_answer(instance.bare())
    pairs = [
        (await first_answer(instance.client()), await first_answer(instance.bare()))
        for _ in range(2 * rounds)
    ]
    return [ratio("connect to first answer", pairs, 1.2)]


async def _stream(instance: Instance, rounds: int) -> list[Figure]:
    """Many long answers at once, in turns with as many bare bridges."""
    await _all_answers(instance.client, instance.work)
    pairs = [
        (await _all_answers(instance.client, instance.work), await bare_answers(instance.bare, instance.work))
        for _ in range(rounds)
    ]
    return [ratio(f"{STREAMS} clients × {CHUNKS} chunks", pairs, 1.1)]


async def _all_answers(make: Callable[[], Agent], work: Path) -> float:
    """Seconds of `STREAMS` answers at once.  Raises AgentError when one of them is cut."""
    async with _sessions(make, STREAMS, work) as opened:
        started = time.perf_counter()
        await asyncio.gather(*(agent.prompt(session, f"count to {CHUNKS}") for agent, session in opened))
        seconds = time.perf_counter() - started
        # Under load Grok's answer to a prompt overtakes the end of its text.
        await asyncio.sleep(LIMITS.first_request)
        cut = [text[-20:] for agent, _ in opened if not (text := agent.text().rstrip()).endswith(str(CHUNKS))]
        if cut:
            raise AgentError(f"{len(cut)} of {STREAMS} texts are cut: {cut}")
        return seconds


async def bare_answers(make: Callable[[], Agent], work: Path) -> float:
    """Grok's leader hangs up on a bare bridge now and then, or cuts its text: nothing mends that."""
    for _ in range(BARE_TRIES - 1):
        with contextlib.suppress(AgentError):
            return await _all_answers(make, work)
    return await _all_answers(make, work)


async def _leader_killed(instance: Instance, rounds: int) -> list[Figure]:
    """From the kill of a leader that had been up to the end of a turn on every session that was open."""

    async def usable(agent: Agent, session: str) -> None:
        while True:
            try:
                return await agent.prompt(session, "count to 1")
            except AgentError:
                if agent.gone.is_set():
                    raise
                await asyncio.sleep(LIMITS.reconnect / 5)

    times = list[float]()
    for _ in range(rounds):
        async with _sessions(instance.client, CLIENTS, instance.work) as opened:
            pid = instance.status()["leader"]["pid"]
            started = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            await asyncio.gather(*(usable(agent, session) for agent, session in opened))
            times.append(time.perf_counter() - started)
        # Else the next one would be taken for a leader that does not stay up, and wait longer to be started.
        await asyncio.to_thread(instance.command, "restart", "leader")
    name = f"leader killed → {CLIENTS} sessions usable"
    return [Figure(name, statistics.median(times), 2, "s", spread(times))]


async def _front_killed(instance: Instance, rounds: int) -> list[Figure]:
    """Sockets lost, connections refused and how long they wait while a killed front comes back."""
    lost = refused = 0
    waits = list[float]()

    async def knock(number: int) -> None:
        nonlocal refused
        await asyncio.sleep(number * KNOCK_PAUSE)
        client, started = instance.client(), time.perf_counter()
        try:
            await client.open()
            waits.append(time.perf_counter() - started)
        except (AgentError, OSError):
            refused += 1
        finally:
            await client.close()

    for _ in range(rounds):
        async with _sessions(instance.client, CLIENTS, instance.work) as opened:
            os.kill(await _until(lambda: _ready_front(instance)), signal.SIGKILL)
            await asyncio.gather(*(knock(n) for n in range(KNOCKS)))
            alive = [(agent, session) for agent, session in opened if not agent.gone.is_set()]
            await asyncio.gather(*(agent.prompt(session, "count to 1") for agent, session in alive))
            lost += len(opened) - len(alive)
    # Those that came while it was away; the others are answered at once.
    waited = [w for w in waits if w > KNOCK_PAUSE] or waits
    return [
        Figure("front killed → WebSockets lost", lost, 0, "", f"of {rounds * CLIENTS}"),
        Figure("front killed → connections refused", refused, 0, "", f"of {rounds * KNOCKS}"),
        Figure("front killed → a waiting connection", statistics.median(waited), 1.5, "s", spread(waited)),
    ]


def _ready_front(instance: Instance) -> int | None:
    """The front's pid, once it is ready."""
    try:
        if ask(instance.paths.front_socket, Packet("ping")).fields["state"] != "ready":
            return None
    except ControlError:
        return None
    return Supervisor(instance.paths).component("gateway").pid


@contextlib.asynccontextmanager
async def _sessions(
    make: Callable[[], Agent], count: int, work: Path
) -> AsyncIterator[list[tuple[Agent, str]]]:
    """``count`` agents, each with a session, one after the other: of bare bridges that start together the
    leader drops some."""
    agents = [make() for _ in range(count)]
    try:
        opened = list[tuple[Agent, str]]()
        for agent in agents:
            await agent.open()
            opened.append((agent, await agent.start_session(str(work))))
        yield opened
    finally:
        await asyncio.gather(*(agent.close() for agent in agents))


STAGES: Mapping[str, Stage] = {
    "worker start": _worker,
    "connect": _connect,
    "streams": _stream,
    "leader killed": _leader_killed,
    "front killed": _front_killed,
}


async def _until(look: Callable[[], int | None]) -> int:
    """The first pid that ``look`` finds.  Raises AgentError after LIMITS.ready seconds."""
    deadline = time.monotonic() + LIMITS.ready
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise AgentError(f"no process became ready within {LIMITS.ready:g} s")
        await asyncio.sleep(LOOK_PAUSE)
    return found


def ratio(name: str, pairs: Sequence[tuple[float, float]], limit: float) -> Figure:
    """The median of the ratios within the pairs (what is measured, what it is compared with), in seconds."""
    ratios = [measured / other for measured, other in pairs]
    measured, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    detail = f"{measured:.3f} s against {other:.3f} s, {spread(ratios)}"
    return Figure(name, statistics.median(ratios), limit, "×", detail)


def spread(values: Sequence[float]) -> str:
    """The least and the greatest of them, and how many they are."""
    return f"{min(values):.3f} … {max(values):.3f} of {len(values)}"
