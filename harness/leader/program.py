"""``agent leader``: the agent behind the router, as a program."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from gateway import __version__
from harness.acp import Peer
from harness.agent import Agent, Defaults
from harness.arguments import Arguments
from harness.leader import server
from harness.leader.lock import socket_path
from harness.model.endpoints import engine_home

__all__ = ["run"]


class _Core:
    """The agent, and all clients as its one peer."""

    def __init__(self, send: Callable[[dict[str, Any]], None], defaults: Defaults) -> None:
        self._peer = Peer(lambda message: send(dict(message)), self._handle)
        self._agent = Agent(engine_home(os.environ), os.environ, self._peer, defaults)

    async def _handle(self, method: str, params: Mapping[str, Any], is_request: bool) -> Any:
        return await self._agent.handle(method, params, is_request)

    def receive(self, message: dict[str, Any]) -> None:
        self._peer.take(message)

    async def close(self) -> None:
        self._peer.close()
        await self._agent.close()


def run(arguments: Arguments) -> int:
    """Lead until a signal comes; the exit code."""
    path = socket_path(arguments.leader_socket)
    # Inherited by whatever tools start: by it, their processes are found when this one was killed.
    os.environ["GROK_LEADER_SOCKET"] = str(path)
    defaults = Defaults.of(arguments)
    return server.run(
        lambda send: _Core(send, defaults),
        __version__,
        path,
        exit_on_disconnect=arguments.exit_on_disconnect,
    )
