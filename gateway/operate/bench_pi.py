"""The measurements of ``bench`` over ``/pi``: what Pi waits for because a gateway stands between it and Grok.

The first two speak the extension's protocol from this process, so that both ends of a difference have one
clock: a bare bridge that has loaded the same session hears each line of Grok when the worker's own hears it.
The last one runs the real Pi, if there is one, in turns with a bare bridge and with a Pi whose model is a
stub.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import secrets
import shutil
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from gateway.operate.bench_agents import INITIALIZE, Agent, AgentError, BareBridge, GatewayClient
from gateway.operate.bench_figures import BARE_TRIES, Figure, Stage, spread
from gateway.operate.bench_instance import Instance
from gateway.operate.pi import EXTENSION
from gateway.secret import read_secret
from gateway.wire.insist import insist
from gateway.wire.limits import LIMITS

__all__ = ["PI_STAGES", "PiClient"]

#: Turns for each round that was asked for: these are short, and what is looked for is small.
TURNS = 4
#: A command that no rule of Grok's own allows unasked.
ASKS = "run python3 -c 'print(42)'"


class PiClient(GatewayClient):
    """The extension's half of ``grok.pi.v1`` with one session, as far as the measurements need it."""

    PATH = "/pi"

    def __init__(self, port: int, secret: str, folder: Path, cwd: Path) -> None:
        super().__init__(port, secret)
        self._folder, self._cwd = folder, str(cwd)
        self._messages = list[Mapping[str, Any]]()
        self._clock = int(time.time() * 1000)
        self.session = secrets.token_hex(8)
        self.grok = ""  #: Grok's id of the session, from its first turn on
        self.first = 0.0  #: when the first text of the present turn came
        self.answered = 0.0  #: when the present dialog was answered
        self.dialogs = list[float]()  #: seconds from the answer to the gateway's word that it has it

    async def introduce(self) -> None:
        """Say hello and show the session."""
        self._folder.mkdir(exist_ok=True)
        hello = {"v": 1, "ui": True, "mode": "rpc", "caps": ["entries", "renderers"], "env": {}, "asks": []}
        await self.request("hello", {**hello, "agent_dir": str(self._folder)})
        shown = {"session": self.session, "cwd": self._cwd, "reason": "connect", "active": ["read", "bash"]}
        await self.request("session", shown)

    async def turn(self, model: str, text: str) -> None:
        """One turn to its end.  Raises AgentError for one that does not end well."""
        self._clock += 10
        self._messages.append({"role": "user", "content": text, "timestamp": self._clock})
        self.first = 0.0
        entries = [
            {"id": str(m["timestamp"]), "type": "message", "role": "user", "ts": m["timestamp"]}
            for m in self._messages
        ]
        turn = {"turn": secrets.token_hex(16), "session": self.session, "kind": "turn", "model": model}
        given = {"cwd": self._cwd, "active": ["read", "bash"], "messages": self._messages, "entries": entries}
        end = await self.request("turn", {**turn, **given, "seq": 0, "blocks": []})
        if end["stop"] != "stop":
            raise AgentError(f"a turn ended with {end['stop']}: {end.get('error')}")

    def _message(self, data: bytes) -> None:
        now = time.perf_counter()
        message = orjson.loads(data)
        params = message.get("params") or {}
        match message.get("method"):
            case None:
                super()._message(data)
            case "turn/event" if params["op"] == "delta" and not self.first:
                self.first = now
            case "ui/ask":
                self._tell({"method": "ui/shown", "params": {"ask": params["ask"]}})
                options = params["args"]["options"]
                allow = next(o for o in options if o == "Allow" or "allow_once" in o)
                self.answered = time.perf_counter()
                self._tell({"id": message["id"], "result": {"value": allow}})
            case "ui/close":
                self.dialogs.append(now - self.answered)
            case "entry":
                self._tell({"id": message["id"], "result": {"ok": True}})
                self.grok = params["data"].get("grok") or self.grok

    def _tell(self, message: Mapping[str, Any]) -> None:
        self._send(orjson.dumps({"jsonrpc": "2.0", **message}))


class _Listener(BareBridge):
    """A bare bridge that notes when the first text of a turn has come."""

    first = 0.0

    def _message(self, data: bytes) -> None:
        if not self.first and b'"agent_message_chunk"' in data:
            self.first = time.perf_counter()
        super()._message(data)


@contextlib.asynccontextmanager
async def _pi_client(instance: Instance) -> AsyncIterator[tuple[PiClient, str]]:
    """A client whose session has had one turn, and the model of it."""
    secret, folder = read_secret(instance.paths.secret), instance.work.parent / "agent"
    client = PiClient(instance.port, secret, folder, instance.work)
    try:
        await client.open()
        await client.introduce()
        model = _model(instance)
        await client.turn(model, "count to 1")
        yield client, model
    finally:
        await client.close()


def _model(instance: Instance) -> str:
    return str(orjson.loads(instance.paths.models_file.read_bytes())["current"])


async def _first_text(instance: Instance, rounds: int) -> list[Figure]:
    """The first piece of an answer: when /pi tells it, after a bare bridge has heard it."""
    late = list[float]()
    async with _pi_client(instance) as (client, model):
        listener = _Listener(*instance.bridge())
        try:
            await listener.open()
            await insist(functools.partial(listener.request, "initialize", INITIALIZE), LIMITS.first_request)
            load = {"sessionId": client.grok, "cwd": str(instance.work), "mcpServers": []}
            await listener.request("session/load", load)
            while len(late) < TURNS * rounds:
                listener.first = 0.0
                await client.turn(model, "count to 3")
                if listener.first:
                    late.append((client.first - listener.first) * 1000)
                elif listener.gone.is_set():
                    raise AgentError("the bare bridge has lost its leader")
        finally:
            await listener.close()
    return [Figure("/pi: first text after the bridge's line", statistics.median(late), 5, "ms", spread(late))]


async def _dialogs(instance: Instance, rounds: int) -> list[Figure]:
    """From the answer of a dialog to the gateway's word that Grok has it."""

    async def answered(client: PiClient, model: str, mode: str) -> list[float]:
        await client.request("command", {"session": client.session, "text": f"perms {mode}"})
        client.dialogs.clear()
        for _ in range(TURNS * rounds):
            await client.turn(model, ASKS)
        if len(client.dialogs) < TURNS * rounds:
            raise AgentError(f"{len(client.dialogs)} dialogs for {TURNS * rounds} commands")
        return [seconds * 1000 for seconds in client.dialogs]

    async with _pi_client(instance) as (client, model):
        hook = await answered(client, model, "ask")  # the gate of /grok perms ask
        permission = await answered(client, model, "auto")  # Grok's own prompt
    return [
        Figure("/pi: hook round trip", statistics.median(hook), 1, "ms", spread(hook)),
        Figure("/pi: permission round trip", statistics.median(permission), 1, "ms", spread(permission)),
    ]


# -- the real Pi -------------------------------------------------------------------------------------

#: A model that has answered before it was asked: what is left is Pi's own start.
_STUB = """
export default function stub(pi) {
  pi.registerProvider("stub", {
    name: "stub", baseUrl: "stub", apiKey: "stub", api: "stub",
    models: [{ id: "stub", name: "stub", reasoning: false, input: ["text"], contextWindow: 256000,
               maxTokens: 0, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 } }],
    streamSimple: ({ api, provider, id }) => {
      const cost = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 };
      const usage = { input: 1, output: 1, cacheRead: 0, cacheWrite: 0, totalTokens: 2, cost };
      const content = [{ type: "text", text: "done" }], timestamp = Date.now(), stopReason = "stop";
      const message = { role: "assistant", content, api, provider, model: id, usage, stopReason, timestamp };
      const events = [{ type: "start", partial: message }, { type: "done", reason: "stop", message }];
      return { result: async () => message, async *[Symbol.asyncIterator]() { yield* events; } };
    },
  });
}
"""


class _Pi:
    """``pi -p`` on an instance."""

    def __init__(self, instance: Instance, program: str) -> None:
        home = instance.work.parent / "pi"
        (home / "agent").mkdir(parents=True, exist_ok=True)
        self._stub, self._work, self._program = home / "stub.ts", instance.work, program
        self._stub.write_text(_STUB)
        addresses = {
            "url": f"ws://127.0.0.1:{instance.port}/pi",
            "secretFile": str(instance.paths.secret),
            "modelsFile": str(instance.paths.models_file),
        }
        (home / "agent/grok-ws.json").write_text(json.dumps(addresses))
        quiet = {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"}
        own = {"HOME": str(home), "PI_CODING_AGENT_DIR": str(home / "agent")}
        self._env = {**os.environ, **quiet, **own}

    async def grok(self, model: str, text: str) -> None:
        await self._run(EXTENSION, f"grok/{model}", text)

    async def stub(self, text: str) -> None:
        await self._run(self._stub, "stub/stub", text)

    async def _run(self, extension: Path, model: str, text: str) -> None:
        quiet = ("-ne", "-ns", "-np", "-nc", "--no-themes", "--no-mcp", "--no-session")
        argv = [self._program, "-p", *quiet, "-e", str(extension), "--model", model, text]
        run = functools.partial(subprocess.run, argv, env=self._env, cwd=self._work, timeout=LIMITS.ready)
        null, pipe = subprocess.DEVNULL, subprocess.PIPE
        done = await asyncio.to_thread(run, stdin=null, stdout=pipe, stderr=pipe, text=True)
        if done.returncode or not done.stdout.strip():
            raise AgentError(f"{' '.join(argv[:2])} with {model}: {done.stderr.strip()[-500:] or 'no words'}")


async def _pi_turn(instance: Instance, rounds: int) -> list[Figure]:
    """``pi -p`` with a turn that uses one tool of Grok's, against a bare bridge and a Pi without Grok."""
    program = shutil.which(instance.pi)
    if program is None:
        return []
    (instance.work / "notes.txt").write_text("alpha\n")
    pi, model, text = _Pi(instance, program), _model(instance), "read notes.txt"

    async def bare() -> None:
        agent: Agent = instance.bare()
        try:
            await agent.open()
            await agent.prompt(await agent.start_session(str(instance.work)), text)
        finally:
            await agent.close()

    async def seconds(what: Callable[[], Awaitable[None]]) -> float:
        started = time.perf_counter()
        await what()
        return time.perf_counter() - started

    grok, stub = functools.partial(pi.grok, model, text), functools.partial(pi.stub, text)
    await grok()  # the first one reads everything from the disk
    rows = [(await seconds(grok), await seconds(bare), await seconds(stub)) for _ in range(TURNS * rounds)]
    whole, turn, start = (statistics.median(column) for column in zip(*rows, strict=True))
    detail = f"{whole:.3f} s against {turn:.3f} s and {start:.3f} s, medians of {len(rows)}"
    over = (whole - turn - start) * 1000
    return [Figure("/pi: `pi -p` with one tool, above Grok's turn and Pi's start", over, 30, "ms", detail)]


async def _insistently(stage: Stage, instance: Instance, rounds: int) -> list[Figure]:
    """The leader hangs up on a bridge now and then; such a turn says nothing of the gateway."""
    for _ in range(BARE_TRIES - 1):
        with contextlib.suppress(AgentError):
            return await stage(instance, rounds)
    return await stage(instance, rounds)


PI_STAGES: Mapping[str, Stage] = {
    "Pi's first text": functools.partial(_insistently, _first_text),
    "Pi's dialogs": functools.partial(_insistently, _dialogs),
    "Pi's turns": functools.partial(_insistently, _pi_turn),
}
