"""The real Pi as a process: RPC mode, print mode, and its terminal in tmux."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.conftest import ROOT
from tests.e2e.gateway import Gateway

__all__ = [
    "EXTENSION",
    "INSTALLED",
    "PiProcess",
    "environment",
    "pi_command",
    "run_pi",
    "text_of",
    "thinking_of",
]

Message = dict[str, Any]
Person = Callable[[Message], Message | None]

EXTENSION = ROOT / "workers/pi/extension"
#: Where ``make test`` installs Node 22 and the pinned Pi.
INSTALLED = Path(os.environ.get("GROK_GATEWAY_TEST_PI", ROOT / ".cache/pi"))
_ARCH = {"aarch64": "arm64"}.get(os.uname().machine, "x64")
NODE = INSTALLED / f"node_modules/node-linux-{_ARCH}/bin/node"
CLI = INSTALLED / "node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js"
DIALOGS = ("select", "confirm", "input", "editor")


def pi_command(*arguments: str, extension: Path | None = EXTENSION) -> list[str]:
    loaded = ["-e", str(extension)] if extension else []
    quiet = ["-ns", "-np", "-nc", "--no-themes", "--no-mcp"]
    return [str(NODE), str(CLI), *quiet, *loaded, *arguments]


def environment(gateway: Gateway, home: Path, **more: str) -> dict[str, str]:
    """Of a Pi with an agent folder of its own that belongs to this gateway."""
    (home / "agent").mkdir(parents=True, exist_ok=True)
    file = home / "agent/grok-ws.json"
    addresses = {
        "url": f"ws://127.0.0.1:{gateway.port}/pi",
        "secretFile": str(gateway.paths.secret),
        "modelsFile": str(gateway.paths.models_file),
    }
    file.write_text(json.dumps((json.loads(file.read_text()) if file.exists() else {}) | addresses))
    return {
        "PATH": f"{NODE.parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PI_CODING_AGENT_DIR": str(home / "agent"),
        "PI_OFFLINE": "1",
        "PI_SKIP_VERSION_CHECK": "1",
        "PI_TELEMETRY": "0",
        "GROK_GATEWAY_TEST_ID": os.environ.get("GROK_GATEWAY_TEST_ID", ""),
        **more,
    }


async def run_pi(
    env: dict[str, str], cwd: Path, *arguments: str, extension: Path | None = EXTENSION, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """``pi ARGUMENTS`` with nothing on standard input."""
    return await asyncio.to_thread(
        subprocess.run,
        pi_command(*arguments, extension=extension),
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


class PiProcess:
    """``pi --mode rpc``.  ``person(request)`` answers a dialog; None: it stays open."""

    def __init__(self, env: dict[str, str], cwd: Path, *arguments: str) -> None:
        self.env, self.cwd, self.arguments = env, cwd, arguments
        self.records: list[Message] = []
        self.person: Person = lambda request: {"cancelled": True}
        self.status = ""
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._changed = asyncio.Condition()
        self._ids = 0

    async def start(self) -> PiProcess:
        self.process = await asyncio.create_subprocess_exec(
            *pi_command("--mode", "rpc", *self.arguments),
            env=self.env,
            cwd=self.cwd,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=2**26,
        )
        assert self.process.stderr is not None
        self._reader = asyncio.create_task(self._read())
        self._errors = asyncio.create_task(self.process.stderr.read())
        await self.call("get_state")
        return self

    async def close(self) -> int:
        """End standard input; the exit code.  A Pi that hangs is a failure."""
        assert self.process.stdin is not None
        if self.process.returncode is None:
            self.process.stdin.close()
        try:
            async with asyncio.timeout(60):
                code = await self.process.wait()
        except TimeoutError:
            self.process.kill()
            raise
        await self._reader
        return code

    async def call(self, kind: str, **more: Any) -> Message:
        """One command of RPC mode; its response's data."""
        self._ids += 1
        key = f"c{self._ids}"
        future = self._waiting[key] = asyncio.get_running_loop().create_future()
        self._write({"id": key, "type": kind, **more})
        async with asyncio.timeout(60):
            answer = await future
        assert answer["success"], answer
        return dict(answer.get("data") or {})

    async def prompt(self, text: str, timeout: float = 60, **more: Any) -> list[Message]:
        """A message of the user; all records until Pi has settled."""
        start = len(self.records)
        await self.call("prompt", message=text, **more)
        await self.until(lambda r: r["type"] == "agent_settled", start, timeout)
        return self.records[start:]

    async def until(self, wanted: Callable[[Message], bool], start: int = 0, timeout: float = 60) -> Message:
        """The first record from ``start`` on that is wanted."""
        position = start
        try:
            async with asyncio.timeout(timeout), self._changed:
                while True:
                    while position < len(self.records):
                        if wanted(self.records[position]):
                            return self.records[position]
                        position += 1
                    await self._changed.wait()
        except TimeoutError:
            tail = [json.dumps(r)[:300] for r in self.records[-8:]]
            raise TimeoutError("no such record; the last ones:\n" + "\n".join(tail)) from None

    async def delta(self, text: str, start: int = 0) -> None:
        """Wait until the streamed text or thought contains ``text``."""
        seen: dict[str, str] = {"text_delta": "", "thinking_delta": ""}

        def contains(record: Message) -> bool:
            event = record.get("assistantMessageEvent", {})
            if event.get("type") in seen:
                seen[event["type"]] += event["delta"]
            return any(text in value for value in seen.values())

        await self.until(contains, start)

    def answer(self, request: Message, answer: Message) -> None:
        self._write({"type": "extension_ui_response", "id": request["id"], **answer})

    def notices(self) -> list[str]:
        return [r["message"] for r in self.records if r.get("method") == "notify"]

    def entries(self, kind: str) -> list[Message]:
        """Data of the custom entries that were appended, in order."""
        added = [r["entry"] for r in self.records if r["type"] == "entry_appended"]
        return [e["data"] for e in added if e.get("customType") == kind]

    def _write(self, message: Message) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            record = json.loads(line)
            if record["type"] == "response" and record.get("id") in self._waiting:
                self._waiting.pop(record["id"]).set_result(record)
            elif record["type"] == "extension_ui_request":
                if record["method"] == "setStatus":
                    self.status = record.get("statusText") or ""
                elif record["method"] in DIALOGS and (answer := self.person(record)) is not None:
                    self.answer(record, answer)
            async with self._changed:
                self.records.append(record)
                self._changed.notify_all()


def _blocks(records: list[Message], kind: str) -> str:
    ends = [
        r["message"] for r in records if r["type"] == "message_end" and r["message"]["role"] == "assistant"
    ]
    return "".join(b[kind] for message in ends for b in message["content"] if b["type"] == kind)


def text_of(records: list[Message]) -> str:
    """All text of the assistant in these records."""
    return _blocks(records, "text")


def thinking_of(records: list[Message]) -> str:
    return _blocks(records, "thinking")


def last_message(records: list[Message]) -> Message:
    """The last message of the assistant."""
    return [
        r["message"] for r in records if r["type"] == "message_end" and r["message"]["role"] == "assistant"
    ][-1]
