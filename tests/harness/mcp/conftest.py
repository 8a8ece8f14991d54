"""Servers of both kinds, and connections to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from harness.mcp.config import HttpServer, Server, Unusable, read_servers
from harness.mcp.connection import Connection
from harness.mcp.stdio import StdioTransport
from harness.mcp.streamable import HttpTransport
from tests.harness.agent.conftest import new_client
from tests.harness.mcp.support import HttpMcp

__all__ = ["new_client"]

Connect = Callable[..., Connection]


def server_of(entry: dict[str, Any], **config: Any) -> Server:
    (server,) = read_servers([entry], {entry["name"]: config}, "session-1")
    assert not isinstance(server, Unusable), server
    return server


@pytest.fixture
async def http() -> AsyncIterator[HttpMcp]:
    server = await HttpMcp().start()
    yield server
    await server.stop()


@pytest.fixture
async def connect(tmp_path: Path) -> AsyncIterator[Connect]:
    """Make a connection to what an entry of ``mcpServers`` names; all are closed afterwards."""
    made = list[Connection]()

    def make(entry: dict[str, Any], environ: dict[str, str] | None = None, **config: Any) -> Connection:
        server = server_of(entry, **config)
        changed = lambda: changes.append(1)  # noqa: E731
        if isinstance(server, HttpServer):
            made.append(
                Connection(server, lambda receive, _: HttpTransport(server, receive), tools_changed=changed)
            )
        else:
            env = server.environment(environ or {"PATH": "/usr/bin:/bin"}, "session-1")
            cwd = str(tmp_path)
            made.append(
                Connection(server, lambda receive, lost: StdioTransport(server, env, cwd, receive, lost))
            )
        return made[-1]

    changes = list[int]()
    yield make
    for connection in made:
        await connection.close()
