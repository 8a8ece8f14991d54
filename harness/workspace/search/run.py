"""Runs a search: ``rg`` where it is installed, else our own program, else (files in memory) right here."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.limits import LIMITS, SIZES
from harness.outcome import FaultKind, ToolFault
from harness.workspace.executor import Executed, Execution, Executor
from harness.workspace.filesystem import FileSystem
from harness.workspace.search.program import scan_tree
from harness.workspace.search.request import SearchRequest, SearchResult
from harness.workspace.search.ripgrep import command_line

__all__ = ["in_memory", "own_search", "search"]

_ROOT = Path(__file__).resolve().parents[3]
# Isolated (-I): a module in the directory that is searched must not be taken for one of ours.
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from harness.workspace.search.program import main; sys.exit(main())"
)


async def search(
    fs: FileSystem,
    executor: Executor,
    env: Mapping[str, str],
    request: SearchRequest,
    cancelled: asyncio.Event,
) -> SearchResult:
    """Search; a failure of the pattern is a result, a cancelled turn or a missing program a fault."""
    if not fs.blocking:
        return in_memory(fs, env, request)
    program = shutil.which("rg", path=env.get("PATH"))
    argv = command_line(program, request) if program else own_search(request)
    running = asyncio.ensure_future(
        executor.run(Execution(argv, request.cwd, timeout=LIMITS.search, output_limit=SIZES.grep_output))
    )
    stop = asyncio.ensure_future(cancelled.wait())
    try:
        await asyncio.wait([running, stop], return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            stop.result()
            raise ToolFault(FaultKind.CANCELLED, "the search was cancelled")
        return _result(running.result())
    except OSError as error:
        raise ToolFault(FaultKind.EXECUTION, f"the search could not be started: {error}") from error
    finally:
        stop.cancel()
        if not running.done():
            running.cancel()
            await asyncio.wait([running])


def own_search(request: SearchRequest) -> list[str]:
    return [sys.executable, "-I", "-c", _PROGRAM, str(_ROOT), request.to_json()]


def in_memory(fs: FileSystem, env: Mapping[str, str], request: SearchRequest) -> SearchResult:
    out, complaints = list[str](), list[str]()
    status = scan_tree(fs, env, request, out.append, complaints.append)
    data = "".join(out).encode("utf-8", "surrogateescape")
    return SearchResult(
        status,
        data[: SIZES.grep_output],
        "".join(complaints).encode("utf-8", "surrogateescape"),
        truncated=len(data) > SIZES.grep_output,
    )


def _result(done: Executed) -> SearchResult:
    """A search that was ended because enough was read has found something."""
    status = done.exit_code
    if status is None:
        status = 0 if done.stdout else 1
    elif status < 0:
        raise ToolFault(FaultKind.EXECUTION, f"the search was ended by signal {-status}")
    return SearchResult(status, done.stdout, done.stderr, done.truncated, done.timed_out)
