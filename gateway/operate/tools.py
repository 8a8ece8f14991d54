"""``grok-gateway tools``: the tools of the embedded engine, told by the engine itself in a child process.

The gateway never imports an engine; it starts one, here as everywhere.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

__all__ = ["add_arguments", "main"]

PROGRAM = "harness.explain"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that the program itself explains under ``--help``; they are handed on as they stand."""
    parser.add_argument(
        "--explain", metavar="CALL", help="run one call in this folder: NAME {JSON arguments}"
    )
    parser.add_argument("--yes", action="store_true", help="allow what a person would be asked about")
    parser.add_argument("--cwd", metavar="DIR", default=".", help="the session's folder (this one)")
    parser.add_argument("--preset", metavar="NAME", help="another toolset to start from")
    parser.add_argument("--mode", metavar="MODE", help="read_only, read_write, execute or all")
    parser.add_argument("--without", metavar="RESOURCE", action="append", help="what the client lacks")
    parser.add_argument("--contain", metavar="PROFILE", help="off, workspace, read-only or strict")
    parser.add_argument("--json", action="store_true", help="the toolset as JSON")


def main(args: argparse.Namespace) -> int:
    """The program's own exit code: 0 done, 1 the call failed or may not run, 2 usage."""
    command = [sys.executable, "-m", PROGRAM, *_flags(args)]
    return subprocess.run(command, check=False).returncode


def _flags(args: argparse.Namespace) -> list[str]:
    flags = list[str]()
    for name in ("explain", "cwd", "preset", "mode", "contain"):
        if (value := getattr(args, name)) is not None:
            flags.append(f"--{name}={value}")
    flags += [f"--without={value}" for value in args.without or ()]
    flags += [f"--{name}" for name in ("yes", "json") if getattr(args, name)]
    return flags
