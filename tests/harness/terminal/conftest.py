"""Real shells in a directory of their own, on both event loops, and nothing left of them afterwards."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from harness.workspace.terminal import (
    Command,
    CommandResult,
    Deadline,
    Event,
    Snapshot,
    Terminal,
    TimingPolicy,
    resolve,
)
from harness.workspace.terminal.environment import TASK_VARIABLE

OWNER = "session-1"


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


class Bench:
    """A terminal and what it told, with short ways to run commands in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        home = directory / "home"
        home.mkdir()
        environ = {"PATH": os.environ["PATH"], "HOME": str(home), "SHELL": "/bin/bash", "LANG": "C.UTF-8"}
        self.environ = environ
        self.terminal = Terminal(log_directory=str(directory / "logs"), environ=environ, session_id=OWNER)
        self.events = list[Event]()
        self.terminal.subscribe(self.events.append)

    def command(self, text: str, call_id: str = "call", **changes: Any) -> Command:
        fields: dict[str, Any] = {
            "cwd": str(self.directory),
            "deadline": resolve(None, background=False, policy=TimingPolicy()),
            "owner": OWNER,
        }
        return Command(text, call_id, **{**fields, **changes})

    async def run(self, text: str, call_id: str = "call", **changes: Any) -> CommandResult:
        return await self.terminal.run(self.command(text, call_id, **changes))

    async def start(self, text: str, call_id: str = "call", **changes: Any) -> Snapshot:
        changes.setdefault("deadline", Deadline(None))
        return await self.terminal.start(self.command(text, call_id, **changes))

    def told(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def marked(self) -> list[int]:
        """Pids of the living processes that this terminal's commands started."""
        return marked(self.terminal._nonce)


def marked(nonce: str) -> list[int]:
    needle = f"{TASK_VARIABLE}={nonce}.".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                zombie = b") Z" in (entry / "stat").read_bytes()
                if needle in (entry / "environ").read_bytes() and not zombie:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


async def until(condition: Callable[[], Any], seconds: float = 10) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it did not come to that"
        await asyncio.sleep(0.01)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    before = set(os.listdir("/proc/self/fd"))
    yield made
    await made.terminal.close()
    await until(lambda: not made.marked(), 5)
    await until(lambda: len(os.listdir("/proc/self/fd")) <= len(before) + 2, 5)
