"""``grok-gateway``: the command line.

Exit codes: 0 done, 1 failed (the reason is on standard error), 2 usage, 3 not running.
Modules are imported by the command that needs them: `status` must be quick.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gateway import __version__
from gateway.paths import PathError, Paths
from gateway.settings import ENGINES, SettingError, Settings

if TYPE_CHECKING:
    from gateway.operate.instance import Instance, Prepared

__all__ = ["DONE", "FAILED", "NOT_RUNNING", "USAGE", "main"]

DONE, FAILED, USAGE, NOT_RUNNING = 0, 1, 2, 3

#: flags of `up` and the variables that carry them to the components
_FLAGS = {
    "port": "GROK_GATEWAY_PORT",
    "workers": "GROK_GATEWAY_WORKERS",
    "engine": "GROK_GATEWAY_ENGINE",
    "grok": "GROK_GATEWAY_GROK",
}

#: commands in modules of their own: ``add_arguments(parser)`` and ``main(args) -> int``
_MODULES = {
    "ask": "send one prompt and print the answer",
    "doctor": "look for what is wrong with this installation",
    "top": "watch the components",
    "tools": "list the tools of the embedded engine, or explain one call",
    "bench": "measure this instance",
    "pi": "make Grok a model of the Pi coding agent",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    args = _parser(arguments).parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        return run(args)
    except KeyboardInterrupt:
        return FAILED
    except BrokenPipeError:  # `grok-gateway logs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        code = _exit_code(error)
        if code is None:
            raise
        print(f"grok-gateway: {error}", file=sys.stderr)
        return code


def _exit_code(error: Exception) -> int | None:
    """The code of an expected failure, whose text is meant for people; None for a defect."""
    from gateway.engine_home import EngineError
    from gateway.operate.instance import OperateError
    from gateway.operate.service import ServiceError
    from gateway.operate.supervisor import NotRunningError, SupervisorError
    from gateway.secret import SecretError

    if isinstance(error, NotRunningError):
        return NOT_RUNNING
    expected = (
        OperateError,
        SupervisorError,
        ServiceError,
        SettingError,
        PathError,
        SecretError,
        EngineError,
    )
    return FAILED if isinstance(error, expected) else None


# -- commands --------------------------------------------------------------------------------------
def _instance() -> Instance:
    from gateway.operate.instance import Instance

    return Instance(Paths.from_environment())


def _up(args: argparse.Namespace) -> int:
    from gateway.operate.instance import OperateError, prepare
    from gateway.operate.supervisor import command

    flags = {flag: getattr(args, flag) for flag in _FLAGS}
    instance = _instance()
    paths = instance.paths
    settings = Settings.load(paths, os.environ, flags)
    environ = dict(os.environ)
    environ.update({_FLAGS[flag]: str(value) for flag, value in flags.items() if value is not None})
    paths.create()
    with instance.lock():
        if (running := instance.supervisor.identity()) is not None:
            if args.foreground:
                raise OperateError(f"this instance runs already (supervisord, pid {running.pid})")
            print(f"Already running (supervisord, pid {running.pid}).")
            _print_status(instance)
            return DONE
        prepared = prepare(paths, settings, environ, may_install=not args.no_install, say=_say)
        if not args.foreground:
            instance.start(settings, prepared.environment, _say)
        else:
            instance.clear_the_way(settings, _say)
    if args.foreground:
        _print_engine(instance, prepared)
        sys.stdout.flush()
        os.chdir(paths.state)
        os.umask(0o077)
        os.execve(sys.executable, command(silent=False), prepared.environment)  # noqa: S606
    _print_engine(instance, prepared)
    _print_status(instance)
    print('Try: grok-gateway ask "run ls"')
    return DONE


def _down(args: argparse.Namespace) -> int:
    from gateway.operate.instance import OperateError

    instance = _instance()
    if not instance.paths.run.is_dir():
        print("Not running.")
        return DONE
    with instance.lock():
        was_running = instance.supervisor.identity() is not None
        left = instance.stop()
    if left:
        raise OperateError(f"cannot be ended: {', '.join(map(str, left))}")
    print("Stopped." if was_running else "Not running.")
    return DONE


def _status(args: argparse.Namespace) -> int:
    from gateway.operate.status import healthy, report

    instance = _instance()
    document = report(instance.snapshot(), instance.endpoint())
    if args.json:
        print(json.dumps(document, indent=2))
    else:
        _render(document)
    return DONE if healthy(document) else FAILED


def _restart(args: argparse.Namespace) -> int:
    from gateway.operate.instance import OperateError

    instance = _instance()
    components = [component.name for component in instance.supervisor.components()]
    if args.what == "leader":
        with instance.following_engine(_say):
            instance.restart_leader()
        print("leader restarted")
        return DONE
    workers = [name for name in components if name.startswith("worker:")]
    if args.what not in ("gateway", "workers", *workers):
        raise OperateError(f"there is no {args.what}; workers are {', '.join(workers)}")
    for name in workers if args.what == "workers" else [args.what]:
        instance.restart(name)
        print(f"{name} restarted", flush=True)
    return DONE


def _reload(args: argparse.Namespace) -> int:
    instance = _instance()
    instance.supervisor.component("gateway")  # not running: exit 3
    instance.settings()  # a bad file is refused while the front still runs with the good one
    instance.reload()
    print("gateway reloaded")
    return DONE


def _logs(args: argparse.Namespace) -> int:
    from gateway.operate import logs

    return logs.show(Paths.from_environment(), args.name, args.lines, args.follow)


def _service(args: argparse.Namespace) -> int:
    from gateway.operate import service

    actions = {"install": service.install, "uninstall": service.uninstall, "status": service.status}
    return actions[args.action](_instance(), _say)


# -- output ----------------------------------------------------------------------------------------
def _say(text: str) -> None:
    print(text, flush=True)


def _print_engine(instance: Instance, prepared: Prepared) -> None:
    print("Grok Gateway")
    print(f"  endpoint  ws://127.0.0.1:{prepared.settings.port}/ws")
    print(f"  secret    {instance.paths.secret}")
    print(f"  engine    {prepared.engine.why}")
    print(f"  model     {prepared.engine.note}")


def _print_status(instance: Instance) -> None:
    from gateway.operate.status import report

    _render(report(instance.snapshot(), instance.endpoint()))


def _render(document: dict[str, object]) -> None:
    from rich.console import Console

    from gateway.operate.status import render

    render(document, Console())


# -- arguments -------------------------------------------------------------------------------------
def _restart_target(text: str) -> str:
    """A component as `status` calls it; ``worker:1`` and ``worker:01`` are accepted too."""
    if text in ("gateway", "leader", "workers"):
        return text
    if match := re.fullmatch(r"worker:(?:worker_)?(\d{1,2})", text):
        return f"worker:worker_{int(match[1]):02d}"
    raise argparse.ArgumentTypeError(f"{text!r} is none of gateway, leader, workers, worker:NN")


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="grok-gateway",
        description="Grok Build as an always-on service.",
        epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 not running.",
    )
    parser.add_argument("--version", action="version", version=f"grok-gateway {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    up = add("up", _up, "start everything and wait until it is ready")
    up.add_argument("--foreground", action="store_true", help="stay in the foreground (for systemd)")
    up.add_argument("--no-install", action="store_true", help="do not fetch grok when it is missing")
    up.add_argument("--port", metavar="N", help="TCP port on 127.0.0.1")
    up.add_argument("--workers", metavar="N", help="worker processes, at least 2")
    up.add_argument("--engine", metavar="|".join(ENGINES), help="which engine runs the sessions")
    up.add_argument("--grok", metavar="PATH", help="the grok command")
    add("down", _down, "stop everything, the leader too")
    add("status", _status, "components, leader and clients").add_argument("--json", action="store_true")
    add("restart", _restart, "restart one part while the others go on").add_argument(
        "what", type=_restart_target, metavar="gateway|leader|workers|worker:NN"
    )
    add("reload", _reload, "let the front read its settings again, connections kept")
    logs = add("logs", _logs, "print logs")
    logs.add_argument("name", nargs="?", metavar="NAME", help="gateway, worker_00, leader, …; all without it")
    logs.add_argument("-f", "--follow", action="store_true", help="go on as lines are added")
    logs.add_argument("-n", "--lines", type=int, default=20, metavar="N", help="lines to begin with")
    service = add("service", _service, "run as a systemd user service")
    service.add_argument("action", choices=("install", "uninstall", "status"))
    for name, text in _MODULES.items():
        command = add(name, _of_module(name), text)
        if name in arguments[:1]:
            importlib.import_module(f"gateway.operate.{name}").add_arguments(command)
    return parser


def _of_module(name: str) -> Callable[[argparse.Namespace], int]:
    def run(args: argparse.Namespace) -> int:
        code: int = importlib.import_module(f"gateway.operate.{name}").main(args)
        return code

    return run


if __name__ == "__main__":
    sys.exit(main())
