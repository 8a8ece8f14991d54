"""One cell of the matrix: set the scene, strike, wait until a fail-open would show, judge."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.chaos.matrix import Cell
from tests.chaos.scene import SCALE, Scene
from tests.conftest import ROOT
from tests.e2e.client import INITIALIZE, Client, ClosedError, RpcError
from tests.e2e.gateway import Gateway
from tests.engines.grok import write_offline_config
from tests.engines.processes import describe
from tests.engines.scripted_model import ScriptedModel

__all__ = ["FAIL_OPEN", "UNGUARDED", "Result", "run_cell"]

#: The environment of an instance whose guard does nothing (`tests.chaos.unguarded.sitecustomize`).
UNGUARDED = {"PYTHONPATH": f"{Path(__file__).parent / 'unguarded'}:{ROOT}"}
FAIL_OPEN = "FAIL-OPEN"

STOPPED = 4.0  #: seconds between STOP and CONT
LEFT = 10.0  #: seconds after `down` within which nothing may be left
SILENCE = 3.0  #: seconds without a line of the leader: it may have lost the request
LEADER_LOST = -32050
BREAK = 0.1  #: seconds without text: the stream has a chunk every 20 ms


@dataclasses.dataclass
class Result:
    """``problems`` is empty when every promise was kept; ``figures`` are seconds by name."""

    cell: Cell
    problems: list[str] = dataclasses.field(default_factory=list)
    figures: dict[str, float] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    logs: str = ""


async def run_cell(cell: Cell, model: ScriptedModel, grok: Path, **environment: str) -> Result:
    """Run a cell in an instance of its own.  Never raises: what went wrong is a problem of the result."""
    result, began = Result(cell), time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="gc", dir="/tmp"))
    write_offline_config(folder / "grok-home", model.url)
    gateway = Gateway(folder, grok, folder / "grok-home", scale=SCALE, **environment)
    try:
        await asyncio.to_thread(gateway.up)
        async with asyncio.timeout(120):
            await _Run(cell, gateway, model, result).play()
    except Exception as error:
        result.problems.append(f"{type(error).__name__}: {error}")
    try:
        await _everything_ends(gateway, result)
    finally:
        if result.problems:
            result.logs = gateway.logs(60)
        gateway.kill_all()
        shutil.rmtree(folder, ignore_errors=True)
        result.seconds = time.monotonic() - began
    return result


async def _everything_ends(gateway: Gateway, result: Result) -> None:
    done = await gateway.run("down")
    left = await asyncio.to_thread(gateway.carriers_after, LEFT)
    result.problems += [f"left after down: {describe(pid)}" for pid in left]
    if done.returncode not in (0, 3):
        result.problems.append(f"down: exit {done.returncode}: {done.stderr.strip()}")


class _Run:
    def __init__(self, cell: Cell, gateway: Gateway, model: ScriptedModel, result: Result) -> None:
        self.cell, self.gateway, self.model, self.result = cell, gateway, model, result
        self.markers = gateway.folder / "markers"
        self.markers.mkdir()
        self.scene = Scene(gateway, model, cell.moment, self.markers)

    async def play(self) -> None:
        scene = self.scene
        await scene.set()
        struck_at = time.monotonic()
        returning = None
        if self.cell.victim != "client":  # a struck client stays away until the others have been judged
            returning = asyncio.create_task(scene.return_when_cut())
        watching = asyncio.create_task(self._measure(struck_at))
        await self._strike()
        if self.cell.victim == "supervisord" and self.cell.way == "KILL":
            await self._all_gone()
            await asyncio.to_thread(self.gateway.up)
        else:
            await self._bystander_went_on()
        while time.monotonic() < max(struck_at, scene.last_gate) + scene.settled_after:
            await asyncio.sleep(0.1)
        watching.cancel()
        self._no_marker()
        self._all_answered()
        await self._nobody_works_alone()
        if returning:
            returning.cancel()
        self.result.problems += await scene.turn_again()
        self._no_marker()

    # -- the blow --------------------------------------------------------------------------------
    async def _strike(self) -> None:
        if self.cell.victim == "client":
            await self._strike_client()
            return
        pid = self._victim()
        number = {"KILL": signal.SIGKILL, "TERM": signal.SIGTERM, "STOP": signal.SIGSTOP}[self.cell.way]
        os.kill(pid, number)
        if self.cell.way == "STOP":
            await asyncio.sleep(STOPPED)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _victim(self) -> int:
        match self.cell.victim:
            case "bridge":
                return self.scene.bridge
            case "worker":
                return self.gateway.workers()[self.gateway.worker_of(self.scene.bridge)]
            case role:
                return self.gateway.pid(role)

    async def _strike_client(self) -> None:
        match self.cell.way:
            case "KILL":
                await self.scene.client.abort()
            case "TERM":
                await self.scene.client.close()
            case "STOP":  # it neither reads nor writes; its kernel buffers fill up
                transport = self.scene.client.socket.transport
                transport.pause_reading()
                await asyncio.sleep(STOPPED)
                transport.resume_reading()

    # -- the judgement ---------------------------------------------------------------------------
    def _problem(self, text: str) -> None:
        self.result.problems.append(text)

    def _no_marker(self) -> None:
        for marker in self.markers.iterdir():
            self._problem(f"{FAIL_OPEN}: forbidden tool {marker.name} ran")
            marker.unlink()

    def _all_answered(self) -> None:
        client = self.scene.client
        if client.closed.done() or self.scene.abandoned:
            return  # its sockets have closed: nobody waits for an answer
        prompts = [m for m in client.unanswered.values() if m == "session/prompt"]
        if client.unanswered:
            self._problem(f"unanswered: {sorted(client.unanswered.values())} ({len(prompts)} prompts)")

    async def _bystander_went_on(self) -> None:
        scene = self.scene
        try:
            result = await Client.answer_to(scene.turn, 60)
        except RpcError as error:
            if self.cell.victim != "leader" or error.code != LEADER_LOST:
                self._problem(f"bystander's turn: {error}")
            return
        except (ClosedError, TimeoutError) as error:
            if self.cell.victim != "supervisord":
                self._problem(f"bystander: {error}")
            return
        finally:
            if scene.bystander.closed.done() and self.cell.victim != "supervisord":
                self._problem(f"bystander's socket closed: {scene.bystander.closed.result()}")
        if result["stopReason"] != "end_turn":
            self._problem(f"bystander's turn: {result}")
        if (text := scene.bystander.text(scene.own_session)) != scene.text:
            await asyncio.sleep(SILENCE)
            later = scene.bystander.text(scene.own_session)[len(text) :]
            # Grok itself may have no more.
            kept = await scene.bystander.recorded(scene.own_session, scene.gateway.work, **scene.hooks())
            self._problem(f"bystander's text is not whole: {text!r}, later {later!r}, on record {kept!r}")

    async def _all_gone(self) -> None:
        left = await asyncio.to_thread(self.gateway.carriers_after, LEFT)
        for pid in left:
            self._problem(f"outlived supervisord: {describe(pid)}")

    async def _nobody_works_alone(self) -> None:
        """No session is at work without a client that has it."""
        attached = set()
        if not self.scene.client.closed.done():
            attached |= set(self.scene.sessions)
        if not self.scene.bystander.closed.done():
            attached.add(self.scene.own_session)
        for row in await asyncio.to_thread(self._sessions):
            if row.get("activity") in ("working", "needs_input") and row["sessionId"] not in attached:
                self._problem(f"session {row['activity']} with no client")

    def _sessions(self) -> list[dict[str, Any]]:
        """What the leader itself says, asked through a bridge that names no session."""
        leader = Path(f"/proc/{self.gateway.pid('leader')}")
        words = leader.joinpath("cmdline").read_text().split("\0")
        command = words[: words.index("--permission-mode")]
        argv = [*command, "--permission-mode", "default", "agent", "--leader", "stdio"]
        process = subprocess.Popen(
            [*argv, "--leader-socket", str(self.gateway.paths.leader_socket)],
            env={**self.gateway.environment, "GROK_DISABLE_AUTOUPDATER": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        try:
            _ask(process, 1, "initialize", INITIALIZE)
            return list(_ask(process, 2, "_x.ai/sessions/list", {})["result"]["sessions"])
        finally:
            process.kill()
            process.communicate()

    # -- figures ---------------------------------------------------------------------------------
    async def _measure(self, since: float) -> None:
        """When the struck client's prompts were answered, and when its text went on after a break."""
        scene = self.scene
        prompts = [key for key, method in scene.client.unanswered.items() if method == "session/prompt"]
        size, grown = self._text_size(), since
        while True:
            await asyncio.sleep(0.005)
            now = time.monotonic()
            if prompts and not any(key in scene.client.unanswered for key in prompts):
                self.result.figures.setdefault("answered", now - since)
            if (read := self._text_size()) != size:
                if now - grown > BREAK:
                    self.result.figures.setdefault("text went on", now - since)
                size, grown = read, now

    def _text_size(self) -> int:
        return sum(len(self.scene.client.text(session)) for session in self.scene.sessions)


def _ask(process: subprocess.Popen[bytes], number: int, method: str, params: dict[str, Any]) -> Any:
    """The result of one request; asked again after a silence, for the leader may have lost it."""
    assert process.stdin
    assert process.stdout
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    for _ in range(5):
        process.stdin.write(json.dumps(message).encode() + b"\n")
        while select.select([process.stdout], [], [], SILENCE)[0]:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"{method}: the bridge ended")
            answer = json.loads(line)
            if answer.get("id") == number and "method" not in answer:
                return answer["result"]
    raise RuntimeError(f"{method}: no answer")
