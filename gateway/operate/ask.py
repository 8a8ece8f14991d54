"""``grok-gateway ask TEXT``: one turn on a new session, as a client of ``/ws`` like any other.

The answer goes to standard output as it comes; thoughts, tool calls, questions and notes go to
standard error.  The engine's own permission prompts are all the gating that a person at a terminal
needs, so no hooks are registered: a hook would ask the same things a second time.  Without a terminal
nothing can be asked, and every prompt is refused.

Exit codes: 0 the turn ended, 1 it failed, was refused or cancelled, 2 usage, 3 not running.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.operate.ask_link import Link, LinkError
from gateway.operate.ask_terminal import Terminal
from gateway.operate.ask_turn import Turn, TurnError
from gateway.operate.supervisor import Supervisor
from gateway.operate.turn_view import Piece
from gateway.paths import PathError, Paths
from gateway.secret import read_secret
from gateway.wire.control import ControlError, Packet
from gateway.wire.control import ask as ask_control
from gateway.wire.limits import LIMITS

__all__ = ["add_arguments", "front_status", "main"]

DONE, FAILED, USAGE, NOT_RUNNING = 0, 1, 2, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``ask``."""
    parser.add_argument("text", metavar="TEXT", help="what to do; - reads it from standard input")
    parser.add_argument("--cwd", metavar="DIR", default=".", help="folder to work in (default: this one)")
    parser.add_argument("--model", metavar="ID", help="model to use (default: the engine's)")


def main(args: argparse.Namespace) -> int:
    """Run one turn; the exit code."""
    folder = Path(args.cwd).expanduser().resolve()
    if not folder.is_dir():
        return _say(f"--cwd {args.cwd}: not a folder", USAGE)
    text = sys.stdin.buffer.read().decode("utf-8", "replace") if args.text == "-" else args.text
    # Bytes of a command line that are no UTF-8 come as lone surrogates, which no JSON can carry.
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if not text.strip():
        return _say("nothing to ask: the text is empty", USAGE)
    try:
        paths = Paths.from_environment()
    except PathError as error:
        return _say(str(error), FAILED)
    try:
        status = front_status(paths)
        if status is None:
            return _say("not running; start it with `grok-gateway up`", NOT_RUNNING)
        link = Link(status["endpoint"], lambda: read_secret(paths.secret))
        return asyncio.run(_run(link, text, folder, args.model, status))
    except (LinkError, TurnError) as error:
        return _say(str(error), FAILED)
    except KeyboardInterrupt:
        return _say("left before the turn had begun", FAILED)
    except BrokenPipeError:  # whoever reads the answer has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def front_status(paths: Paths) -> Mapping[str, Any] | None:
    """The front's status, None when this instance does not run.  Raises LinkError when the front is silent.

    Asked at the private socket before anything is sent to the port: while the gateway is down,
    somebody else may listen there, and would be handed the secret.
    """
    deadline = time.monotonic() + LIMITS.ready
    while True:
        try:
            return ask_control(paths.front_socket, Packet("status")).fields
        except ControlError as error:
            # A front that is being restarted is back in a second, as long as its supervisor lives.
            if Supervisor(paths).identity() is None:
                return None
            if time.monotonic() > deadline:
                raise LinkError(f"the front does not answer ({error}); see `grok-gateway status`") from None
        time.sleep(LIMITS.reconnect)


def _notes(status: Mapping[str, Any]) -> list[str]:
    """What to tell a user to whom not Grok itself, or no real model, answers."""
    leader = status.get("leader") or {}
    notes = [f"answered by {leader.get('model')}"] if leader.get("offline") else []
    if status.get("engine") == "harness":
        notes.append(f"run by {leader.get('source') or 'the embedded engine'}")
    return notes


async def _run(link: Link, text: str, folder: Path, model: str | None, status: Mapping[str, Any]) -> int:
    terminal = Terminal()
    try:
        await link.open()
        turn = Turn(link, terminal, str(status.get("engine") or "engine"))
        reason = await turn.run(text, folder, model)
    finally:
        await link.close()
    terminal.show([Piece("note", f"  {note}\n") for note in _notes(status)])
    return DONE if reason is None else _say(reason, FAILED)


def _say(text: str, code: int) -> int:
    print(f"grok-gateway ask: {text}", file=sys.stderr)
    return code
