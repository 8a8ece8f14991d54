"""The command line of the engine: the grammar of the original's ``grok … agent …``.

Options of the program come before ``agent``, options of all agents before the mode word, options of the
mode behind it.  A command line that the original accepts is accepted; what has no meaning here is listed
as such and passed over, so that a script need not know which engine it starts.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Literal

__all__ = ["Arguments", "parse_arguments"]

Mode = Literal["stdio", "leader"]


@dataclasses.dataclass(frozen=True, slots=True)
class Arguments:
    """What was asked for.  ``leader`` says whether stdio is to speak through a leader."""

    mode: Mode
    leader: bool = False
    leader_socket: str | None = None
    model: str | None = None
    effort: str | None = None
    always_approve: bool = False
    permission_mode: str | None = None
    cwd: str | None = None
    trust: bool = False
    exit_on_disconnect: bool = True


def parse_arguments(argv: Sequence[str], version: str) -> Arguments:
    """Read the command line; ends the program with code 2 and a usage line when it is wrong."""
    found = _parser(version).parse_args(argv)
    return Arguments(
        mode=found.mode,
        leader=bool(found.leader),
        leader_socket=found.leader_socket,
        model=found.model,
        effort=found.effort,
        always_approve=found.always_approve or found.permission_mode == "bypassPermissions",
        permission_mode=found.permission_mode,
        cwd=found.cwd,
        trust=found.trust,
        exit_on_disconnect=not getattr(found, "no_exit_on_disconnect", False),
    )


def _parser(version: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="harness", description="An embedded agent that speaks ACP.")
    parser.add_argument("--version", action="version", version=f"harness {version}")
    parser.add_argument("--permission-mode", help="default, plan, acceptEdits, bypassPermissions, …")
    parser.add_argument("--cwd", help="the working directory of the program")
    _everywhere(parser, first=True)
    parser.add_argument("--trust", action="store_true", help="let the project's own files count")
    parser.add_argument("--no-auto-update", action="store_true", help="accepted, without meaning here")
    parser.add_argument("--sandbox", help="accepted, without meaning here")
    commands = parser.add_subparsers(dest="command", required=True, metavar="agent")
    agent = commands.add_parser("agent", help="run without a user interface")
    which = agent.add_mutually_exclusive_group()
    which.add_argument("--leader", action="store_true", default=False, help="speak through a shared leader")
    which.add_argument("--no-leader", dest="leader", action="store_false", help="be the agent itself")
    agent.add_argument("-m", "--model", help="the model that sessions start with")
    agent.add_argument("--reasoning-effort", "--effort", dest="effort")
    agent.add_argument("--always-approve", "--yolo", action="store_true", help="ask for no permission")
    agent.add_argument("--reauth", action="store_true", help="accepted, without meaning here")
    for option in ("--agent-profile", "--plugin-dir", *_ADDRESSES):
        agent.add_argument(option, action="append", help="accepted, without meaning here")
    _everywhere(agent)
    modes = agent.add_subparsers(dest="mode", required=True, metavar="stdio|leader")
    stdio = modes.add_parser("stdio", help="speak ACP over stdin and stdout")
    _everywhere(stdio)
    leader = modes.add_parser("leader", help="be the leader that several bridges share")
    leader.add_argument("--no-exit-on-disconnect", action="store_true")
    for flag in ("--relay-on-demand", "--no-auto-update"):
        leader.add_argument(flag, action="store_true", help="accepted, without meaning here")
    for option in _ADDRESSES[:2]:
        leader.add_argument(option, help="accepted, without meaning here")
    _everywhere(leader)
    return parser


_ADDRESSES = ("--grok-ws-origin", "--grok-ws-url", "--cli-chat-proxy-base-url", "--xai-api-base-url")


def _everywhere(parser: argparse.ArgumentParser, *, first: bool = False) -> None:
    """Options that may stand at any place; a later place must not undo what an earlier one said."""
    default = None if first else argparse.SUPPRESS
    parser.add_argument("--leader-socket", default=default, metavar="PATH")
    parser.add_argument("--debug", action="store_true", default=False if first else argparse.SUPPRESS)
    parser.add_argument("--debug-file", default=default, metavar="FILE")
