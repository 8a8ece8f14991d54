"""A whole instance of the gateway in a folder of its own: supervisord, front, workers, leader.

Processes are found by looking at /proc, not by asking the gateway: a test must not believe the
program that it tests.  Everything of an instance carries its folder in the environment (HOME).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp

from gateway.paths import Paths
from tests.conftest import EMBEDDED, ROOT, find_free_port
from tests.e2e.client import Client, Policy, allow_everything
from tests.engines.grok import write_offline_config
from tests.engines.processes import carriers, describe, parent, state

__all__ = ["Gateway", "Process"]

ATTACHED_ELSEWHERE = -32056
COMMAND = (sys.executable, "-m", "gateway.operate.cli")


@dataclasses.dataclass(frozen=True)
class Process:
    """``role``: supervisord, front, worker, watchdog, offline-model, leader, bridge or other."""

    pid: int
    parent: int
    role: str
    name: str = ""  #: of a worker


class Gateway:
    """One instance.  ``engine``: what plays grok, or `EMBEDDED`; ``grok_home``: its configuration.

    More variables of the environment are given as keyword arguments.
    """

    def __init__(
        self,
        folder: Path,
        engine: Path,
        grok_home: Path | None = None,
        *,
        workers: int = 2,
        scale: float | None = None,
        **environment: str,
    ) -> None:
        self.folder, self.port = folder, find_free_port()
        self.embedded = engine == EMBEDDED
        for name in ("home", "work"):
            (folder / name).mkdir(exist_ok=True)
        self.work = folder / "work"  #: a folder for sessions
        if grok_home is None:  # any model configured: the offline model need not be started
            grok_home = folder / "grok-home"
            write_offline_config(grok_home, "http://127.0.0.1:9/v1")
        inherited = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "GROK_GATEWAY_TEST_ID")}
        self.environment = {
            **inherited,
            "PYTHONPATH": str(ROOT),  # the checkout under test, whatever is installed
            "HOME": str(folder / "home"),
            "GROK_GATEWAY_HOME": str(folder / "gw"),
            "GROK_GATEWAY_PORT": str(self.port),
            "GROK_GATEWAY_WORKERS": str(workers),
            **_chosen(engine),
            "GROK_HOME": str(grok_home),
            **({"GROK_GATEWAY_GUARD_SCALE": str(scale)} if scale else {}),
            **environment,
        }
        self.paths = Paths.from_environment(self.environment)
        self.url = f"ws://127.0.0.1:{self.port}/ws"
        self.http = f"http://127.0.0.1:{self.port}"

    # -- commands --------------------------------------------------------------------------------
    def command(self, *arguments: str, timeout: float = 90) -> subprocess.CompletedProcess[str]:
        """Run ``grok-gateway ARGUMENTS`` and wait for it."""
        return subprocess.run(
            [*COMMAND, *arguments],
            env=self.environment,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    async def run(self, *arguments: str, timeout: float = 90) -> subprocess.CompletedProcess[str]:
        """The same without blocking the loop."""
        return await asyncio.to_thread(self.command, *arguments, timeout=timeout)

    def up(self) -> Gateway:
        done = self.command("up")
        if done.returncode:
            raise AssertionError(f"up: exit {done.returncode}\n{done.stdout}{done.stderr}\n{self.logs()}")
        return self

    def down(self) -> None:
        """``down``, then nothing of this instance may be there."""
        done = self.command("down")
        left = self.carriers_after(1.0)
        text = [describe(pid) for pid in left]
        self.kill_all()
        assert not left, f"left after down (exit {done.returncode}): {text}\n{done.stdout}{done.stderr}"
        assert done.returncode in (0, 3), f"down: exit {done.returncode}\n{done.stdout}{done.stderr}"

    def kill_all(self) -> None:
        """End by force whatever is left, so that a failed test troubles no other one."""
        for number in (signal.SIGKILL, signal.SIGKILL):
            for pid in carriers(str(self.folder)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    # -- clients ---------------------------------------------------------------------------------
    @property
    def secret(self) -> str:
        return self.paths.secret.read_text().strip()

    async def connect(
        self,
        policy: Policy = allow_everything,
        *,
        resume: Client | None = None,
        headers: dict[str, str] | None = None,
        acks: bool = False,
    ) -> Client:
        """A client before its ``initialize``."""
        return await Client.connect(
            self.url, self.secret, policy=policy, resume=resume, headers=headers, acks=acks
        )

    async def client(self, policy: Policy = allow_everything) -> Client:
        """A client that has initialized."""
        client = await self.connect(policy)
        await client.initialize()
        return client

    async def session(self, policy: Policy = allow_everything, **meta: Any) -> tuple[Client, str]:
        """A client with one session in ``work``."""
        client = await self.client(policy)
        return client, await client.new_session(self.work, **meta)

    @staticmethod
    async def eventually_loads(client: Client, params: dict[str, Any], timeout: float = 60) -> Any:
        """``session/load`` once the connection that had the session has let it go."""
        async with asyncio.timeout(timeout):
            while True:
                answer = await (await client.start("session/load", params))
                if answer.get("error", {}).get("code") != ATTACHED_ELSEWHERE:
                    return Client.result_of(answer)
                await asyncio.sleep(0.05)

    async def ready(self, timeout: float = 60) -> None:
        """Wait for /readyz."""
        async with asyncio.timeout(timeout), aiohttp.ClientSession() as http:
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with http.get(f"{self.http}/readyz") as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.05)

    async def status(self) -> dict[str, Any]:
        """The parsed ``status --json``."""
        done = await self.run("status", "--json")
        return dict(json.loads(done.stdout))

    # -- processes -------------------------------------------------------------------------------
    def processes(self, role: str = "") -> list[Process]:
        """What runs of this instance, tool commands among it (role "other")."""
        found = [_classify(pid) for pid in carriers(str(self.folder))]
        return [p for p in found if p and (not role or p.role == role)]

    def pid(self, role: str) -> int:
        """The pid of the only process of a role."""
        pids = [p.pid for p in self.processes(role)]
        assert len(pids) == 1, f"{role}: {pids}; all: {self.processes()}"
        return pids[0]

    def workers(self) -> dict[str, int]:
        return {p.name: p.pid for p in self.processes("worker")}

    def bridges(self) -> list[Process]:
        """The bridges of clients (the front's control bridge is none)."""
        workers = set(self.workers().values())
        return [p for p in self.processes("bridge") if p.parent in workers]

    def worker_of(self, bridge: int) -> str:
        """The name of the worker that has this bridge."""
        return next(name for name, pid in self.workers().items() if pid == parent(bridge))

    async def with_own_worker(self, policy: Policy = allow_everything) -> tuple[Client, int]:
        """(client, pid of its bridge): the bridge that appeared with the client."""
        before = {p.pid for p in self.bridges()}
        client = await self.client(policy)
        (bridge,) = {p.pid for p in self.bridges()} - before
        return client, bridge

    @staticmethod
    async def gone(*pids: int, timeout: float = 60) -> None:
        """Wait until none of them runs."""
        try:
            async with asyncio.timeout(timeout):
                while any(state(pid) not in ("", "Z", "X") for pid in pids):
                    await asyncio.sleep(0.01)
        except TimeoutError:
            left = [describe(pid) for pid in pids if state(pid) not in ("", "Z", "X")]
            raise TimeoutError(f"still there after {timeout} s: {left}") from None

    async def until(self, role: str, count: int, timeout: float = 60) -> list[Process]:
        """Wait until exactly ``count`` processes of a role run."""
        try:
            async with asyncio.timeout(timeout):
                while len(found := self.processes(role)) != count:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise TimeoutError(f"{count} × {role} wanted; there are {self.processes()}") from None
        return found

    def carriers_after(self, seconds: float, roles: Iterable[str] = ()) -> list[int]:
        """Pids of this instance still there, at the latest after ``seconds``."""
        deadline = time.monotonic() + seconds
        while left := [p.pid for p in self.processes() if not roles or p.role in roles]:
            if time.monotonic() > deadline:
                return left
            time.sleep(0.02)
        return []

    # -- the engine -------------------------------------------------------------------------------
    @property
    def ends_without_a_judge(self) -> tuple[str, ...]:
        """How a turn ends whose tool nobody could judge any more.

        The original waits, to let the tool run in the end, and the gateway cancels the turn before that.
        The embedded engine denies the tool at once, and its turn goes on: it ends by itself, unless the
        gateway's cancel finds it still at work.
        """
        return ("cancelled", "end_turn") if self.embedded else ("cancelled",)

    # -- logs ------------------------------------------------------------------------------------
    def logs(self, lines: int = 30) -> str:
        """The tail of every log, for a failure's message."""
        parts = []
        for file in sorted(self.paths.logs.glob("*.log")) if self.paths.logs.is_dir() else []:
            tail = file.read_text("utf-8", "replace").splitlines()[-lines:]
            parts.append(f"--- {file.name}\n" + "\n".join(tail))
        return "\n".join(parts)

    def files_with(self, text: str) -> list[str]:
        """Logs, and command lines of running processes, that contain ``text``."""
        wanted = text.encode()
        found = [str(f) for f in self.paths.logs.rglob("*") if f.is_file() and wanted in f.read_bytes()]
        for pid in carriers(str(self.folder)):
            with contextlib.suppress(OSError):
                if wanted in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(describe(pid))
        return found


def _chosen(engine: Path) -> dict[str, str]:
    if engine == EMBEDDED:
        return {"GROK_GATEWAY_ENGINE": "harness"}
    return {"GROK_GATEWAY_ENGINE": "grok", "GROK_GATEWAY_GROK": str(engine)}


def _classify(pid: int) -> Process | None:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    joined = " ".join(words)
    role, name = "other", ""
    if "agent leader" in joined:
        role = "leader"
    elif "agent --leader stdio" in joined:
        role = "bridge"
    elif "gateway.front" in words:
        role = "front"
    elif "workers" in words and "--name" in words:
        role, name = "worker", words[words.index("--name") + 1]
    elif "gateway.operate.watchdog" in words:
        role = "watchdog"
    elif "harness.model.offline" in words:
        role = "offline-model"
    elif "supervisord" in joined:
        role = "supervisord"
    return Process(pid, parent(pid), role, name)
