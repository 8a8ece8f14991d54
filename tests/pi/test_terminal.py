"""The real Pi in a terminal: what a person sees of a turn, its tools, its dialogs and the status line."""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.gateway import Gateway
from tests.engines.scripted_model import ScriptedModel
from tests.pi.pi import environment, pi_command


class Terminal:
    """A program in a tmux server of its own."""

    def __init__(self, socket: Path) -> None:
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]

    def start(self, command: list[str], env: dict[str, str], cwd: Path) -> None:
        line = "exec env -i " + shlex.join(
            [*(f"{k}={v}" for k, v in env.items()), "TERM=screen-256color", *command]
        )
        inherited = {**os.environ, "TERM": "xterm-256color"}
        new = ["new-session", "-d", "-x", "110", "-y", "45", "-c", str(cwd), line]
        subprocess.run([*self._tmux, *new], env=inherited, check=True)

    def keys(self, *keys: str) -> None:
        subprocess.run([*self._tmux, "send-keys", *keys], check=True)

    def screen(self) -> str:
        done = subprocess.run(
            [*self._tmux, "capture-pane", "-p"], capture_output=True, text=True, check=False
        )
        return done.stdout

    async def shows(self, *texts: str, timeout: float = 45) -> str:
        try:
            async with asyncio.timeout(timeout):
                while not all(text in (screen := self.screen()) for text in texts):
                    await asyncio.sleep(0.1)
                return screen
        except TimeoutError:
            raise AssertionError(f"{texts} wanted; the screen:\n{self.screen()}") from None

    def stop(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
async def test_a_person_at_the_terminal(shared: Gateway, model: ScriptedModel, short_tmp: Path) -> None:
    marker = shared.work / secrets.token_hex(4)
    call = {"name": "run_terminal_command", "args": {"command": f"touch {marker}", "description": "d"}}
    script = model.script([{"tools": [call]}, {"text": "it is done"}])
    env = environment(shared, short_tmp / "home")
    terminal = Terminal(short_tmp / "tmux")
    terminal.start(pi_command("--model", "grok/scripted"), env, shared.work)
    try:
        await terminal.shows("scripted")
        terminal.keys("/grok perms ask", "Enter")
        await terminal.shows("Grok's tools: ask")
        terminal.keys("-l", f"do {script}")
        terminal.keys("Enter")
        await terminal.shows("Allow", "Deny")
        assert not marker.exists()
        terminal.keys("Enter")
        await terminal.shows("it is done", "[grok run_terminal_command] #1", "completed", "· ask ·")
        assert marker.exists()
        gate = secrets.token_hex(4)
        slow = model.script([{"text": "beginning and end", "chunks": 2, "gate": gate, "gate_after": 1}])
        terminal.keys("-l", f"go {slow}")
        terminal.keys("Enter")
        await model.waiting(gate)
        terminal.keys("Escape")
        await terminal.shows("aborted")
        model.release(gate)
    finally:
        terminal.stop()
