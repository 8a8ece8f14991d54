"""Our own search, where ``rg`` is not installed: a program of its own, or a call for files in memory.

A program, because Python's engine may take for ever over one line and cannot be interrupted from a
thread; the caller ends the process instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from harness.limits import SIZES
from harness.workspace.filesystem import FileSystem, canonical
from harness.workspace.host_filesystem import HostFileSystem
from harness.workspace.search.globs import GlobError
from harness.workspace.search.pattern import PatternError, compile_pattern
from harness.workspace.search.request import Mode, SearchRequest
from harness.workspace.search.scan import Scanner
from harness.workspace.search.select import UnknownTypeError, select

__all__ = ["main", "scan_tree"]

FOUND, NOTHING, FAILED = 0, 1, 2


def scan_tree(
    fs: FileSystem,
    env: Mapping[str, str],
    request: SearchRequest,
    write: Callable[[str], None],
    complain: Callable[[str], None],
) -> int:
    """Search and print; the exit status."""
    try:
        if request.mode is Mode.FILES:
            return _list(fs, env, request, write)
        matcher = compile_pattern(
            request.pattern, ignore_case=request.ignore_case, multiline=request.multiline
        )
        scanner = Scanner(request, matcher, write)
        for name, named in select(fs, env, request):
            _scan(fs, name, named, scanner)
        return FOUND if scanner.matched else NOTHING
    except PatternError as error:
        # As rg draws it, which puts a group around the pattern.
        place = " " * (error.at + len("(?:"))
        complain(f"rg: regex parse error:\n    (?:{request.pattern})\n    {place}^\nerror: {error}\n")
    except GlobError as error:
        complain(f"rg: error parsing glob: {error}\n")
    except UnknownTypeError as error:
        complain(f"rg: {error}\n")
    except OSError as error:
        complain(f"rg: {request.path}: {error.strerror} (os error {error.errno})\n")
    return FAILED


def _scan(fs: FileSystem, name: str, named: bool, scanner: Scanner) -> None:
    try:
        path = canonical(fs, name)
        if fs.stat(path).size > SIZES.grep_file:
            return
        data = fs.read(path, SIZES.grep_file).data
    except OSError:
        return  # gone meanwhile, or not ours to read
    scanner.scan(name, data, named=named)


def _list(
    fs: FileSystem, env: Mapping[str, str], request: SearchRequest, write: Callable[[str], None]
) -> int:
    names = [name for name, _ in select(fs, env, request)]
    if request.by_time:
        names.sort(key=lambda name: (-_changed(fs, name), name))
    for name in names:
        write(name + "\n")
    return FOUND if names else NOTHING


def _changed(fs: FileSystem, name: str) -> int:
    try:
        return fs.stat(name).mtime_ns
    except OSError:
        return 0


def main() -> int:
    """Request as JSON in the last argument."""
    out = os.fdopen(sys.stdout.fileno(), "wb", buffering=SIZES.pipe_read, closefd=False)

    def write(text: str) -> None:
        out.write(text.encode("utf-8", "surrogateescape"))

    def complain(text: str) -> None:
        sys.stderr.buffer.write(text.encode("utf-8", "surrogateescape"))

    try:
        status = scan_tree(
            HostFileSystem(), os.environ, SearchRequest.from_json(sys.argv[-1]), write, complain
        )
        out.flush()
    except BrokenPipeError:  # enough was read
        os._exit(FOUND)
    return status
