"""However the engine ends, the servers that it started end with it."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.harness.agent.test_program import Start, ask, start
from tests.harness.mcp.sessions import gone
from tests.harness.mcp.support import logged, process_entry

__all__ = ["start"]


@pytest.mark.parametrize("end", [None, signal.SIGTERM, signal.SIGKILL])
async def test_no_server_outlives_the_engine(
    start: Start, tmp_path: Path, end: signal.Signals | None
) -> None:
    process = await start()
    log = tmp_path / "log"
    await ask(process, "initialize", protocolVersion=1, clientCapabilities={})
    # Who is deaf to TERM and to the end of its input is killed.
    entries = [process_entry(log), process_entry(tmp_path / "deaf", "deaf-alone", name="deaf")]
    await ask(process, "session/new", cwd=str(tmp_path / "work"), mcpServers=entries)
    async with asyncio.timeout(60):
        while not (logged(log) and logged(tmp_path / "deaf")):
            await asyncio.sleep(0.01)
    if end is None:
        assert process.stdin is not None
        process.stdin.close()
    else:
        process.send_signal(end)
    await process.wait()
    await gone(logged(log)[0]["pid"])
    await gone(logged(tmp_path / "deaf")[0]["pid"])
