"""The command line of the engine: the grammar of the original's ``grok … agent …``.

Options of the program come before ``agent``, options of all agents before the mode word, options of the
mode behind it.  A command line that the original accepts is accepted; what has no meaning here is listed
as such and passed over, so that a script need not know which engine it starts.

The tables serve two readers.  The plain one knows whole options with their values behind them, which is
what programs write: a bridge has a tenth of a second to be there, and argparse takes a fifth of it to
import.  All else (help, abbreviations, ``--option=value``, mistakes) is argparse's.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is another twentieth
    import argparse
    from collections.abc import Mapping, Sequence
    from typing import Any

__all__ = ["Arguments", "parse_arguments"]


class Arguments:
    """What was asked for.  ``leader`` says whether stdio is to speak through a leader."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self.mode: str = found["mode"]  #: ``stdio`` or ``leader``
        self.leader: bool = bool(found.get("leader"))
        self.leader_socket: str | None = found.get("leader_socket")
        self.model: str | None = found.get("model")
        self.effort: str | None = found.get("effort")
        self.permission_mode: str | None = found.get("permission_mode")
        self.always_approve = bool(found.get("always_approve")) or self.permission_mode == "bypassPermissions"
        self.cwd: str | None = found.get("cwd")
        self.trust: bool = bool(found.get("trust"))
        self.exit_on_disconnect: bool = not found.get("no_exit_on_disconnect")


def parse_arguments(argv: Sequence[str], version: str) -> Arguments:
    """Read the command line; ends the program with code 2 and a usage line when it is wrong."""
    found = _plain(argv)
    return Arguments(vars(_parser(version).parse_args(argv)) if found is None else found)


#: An option: its names, the field that it sets, whether a value follows (else it sets True), its help.
_Option = tuple[tuple[str, ...], str, bool, str]

_IDLE = "accepted, without meaning here"

_EVERYWHERE: tuple[_Option, ...] = (
    (("--leader-socket",), "leader_socket", True, "the file on which the leader listens"),
    (("--debug",), "debug", False, _IDLE),
    (("--debug-file",), "debug_file", True, _IDLE),
)
_PROGRAM: tuple[_Option, ...] = (
    (("--permission-mode",), "permission_mode", True, "default, plan, acceptEdits, bypassPermissions, …"),
    (("--cwd",), "cwd", True, "the working directory of the program"),
    (("--trust",), "trust", False, "let the project's own files count"),
    (("--no-auto-update",), "no_auto_update", False, _IDLE),
    (("--sandbox",), "sandbox", True, _IDLE),
    *_EVERYWHERE,
)
_ADDRESSES: tuple[_Option, ...] = (
    (("--grok-ws-origin",), "grok_ws_origin", True, _IDLE),
    (("--grok-ws-url",), "grok_ws_url", True, _IDLE),
)
_AGENT: tuple[_Option, ...] = (
    (("-m", "--model"), "model", True, "the model that sessions start with"),
    (("--reasoning-effort", "--effort"), "effort", True, "how hard it thinks"),
    (("--always-approve", "--yolo"), "always_approve", False, "ask for no permission"),
    (("--reauth",), "reauth", False, _IDLE),
    (("--agent-profile",), "agent_profile", True, _IDLE),
    (("--plugin-dir",), "plugin_dir", True, _IDLE),
    (("--cli-chat-proxy-base-url",), "cli_chat_proxy_base_url", True, _IDLE),
    (("--xai-api-base-url",), "xai_api_base_url", True, _IDLE),
    *_ADDRESSES,
    *_EVERYWHERE,
)
#: Of these two only one may stand.
_WHICH = {"--leader": True, "--no-leader": False}
_MODES: dict[str, tuple[_Option, ...]] = {
    "stdio": _EVERYWHERE,
    "leader": (
        (("--no-exit-on-disconnect",), "no_exit_on_disconnect", False, "stay when the last client has gone"),
        (("--relay-on-demand",), "relay_on_demand", False, _IDLE),
        (("--no-auto-update",), "no_auto_update", False, _IDLE),
        *_ADDRESSES,
        *_EVERYWHERE,
    ),
}


def _plain(argv: Sequence[str]) -> dict[str, Any] | None:
    """What is asked for; None for a command line that needs the other reader."""
    found: dict[str, Any] = {}
    options, words = _named(_PROGRAM), iter(argv)
    at_agent = False
    for word in words:
        if word == "agent" and not at_agent and "mode" not in found:
            options, at_agent = _named(_AGENT), True
        elif at_agent and word in _MODES:
            options, at_agent, found["mode"] = _named(_MODES[word]), False, word
        elif at_agent and word in _WHICH and "leader" not in found:
            found["leader"] = _WHICH[word]
        elif word not in options:
            return None
        else:
            field, with_value = options[word]
            value = next(words, "-") if with_value else ""
            if value.startswith("-"):
                return None
            found[field] = value if with_value else True
    return found if "mode" in found else None


def _named(options: Sequence[_Option]) -> dict[str, tuple[str, bool]]:
    return {name: (field, with_value) for names, field, with_value, _ in options for name in names}


def _parser(version: str) -> argparse.ArgumentParser:
    import argparse

    def add(to: argparse.ArgumentParser, options: Sequence[_Option]) -> argparse.ArgumentParser:
        for names, field, with_value, told in options:
            kind: dict[str, Any] = {"metavar": "VALUE"} if with_value else {"action": "store_true"}
            # A later place must not undo what an earlier one said.
            to.add_argument(*names, dest=field, default=argparse.SUPPRESS, help=told, **kind)
        return to

    parser = argparse.ArgumentParser(prog="harness", description="An embedded agent that speaks ACP.")
    parser.add_argument("--version", action="version", version=f"harness {version}")
    add(parser, _PROGRAM)
    commands = parser.add_subparsers(dest="command", required=True, metavar="agent")
    agent = add(commands.add_parser("agent", help="run without a user interface"), _AGENT)
    which = agent.add_mutually_exclusive_group()
    which.add_argument("--leader", action="store_true", default=False, help="speak through a shared leader")
    which.add_argument("--no-leader", dest="leader", action="store_false", help="be the agent itself")
    modes = agent.add_subparsers(dest="mode", required=True, metavar="stdio|leader")
    add(modes.add_parser("stdio", help="speak ACP over stdin and stdout"), _MODES["stdio"])
    add(modes.add_parser("leader", help="be the leader that several bridges share"), _MODES["leader"])
    return parser
