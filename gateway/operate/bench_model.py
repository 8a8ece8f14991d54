"""A clock before the offline model: how long each of its answers took, so that the rest is the agent's.

It passes requests on and answers with the whole of what the model said, in one piece.  So reading the
pieces is the agent's time and not the model's, and a difference between two agents is no matter of who
waits better for a slow stream.
"""

from __future__ import annotations

import time
from typing import Any, Self

import aiohttp
import orjson
from aiohttp import web

from gateway.wire.limits import LIMITS, SIZES

__all__ = ["ModelClock"]


class ModelClock:
    """Between agents and the model at ``port``; ``async with`` starts and stops it."""

    def __init__(self, port: int) -> None:
        self._upstream = f"http://127.0.0.1:{port}"
        self._seconds = 0.0
        self._answers = 0
        self.port = 0  #: where agents find it

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        app = web.Application(client_max_size=SIZES.model_request)
        app.router.add_route("*", "/{rest:.*}", self._pass_on)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=LIMITS.close)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    def taken(self) -> tuple[float, int]:
        """(seconds, answers) of the model calls of turns since the last look."""
        taken = self._seconds, self._answers
        self._seconds, self._answers = 0.0, 0
        return taken

    async def _pass_on(self, request: web.Request) -> web.Response:
        body = await request.read()
        started = time.perf_counter()
        kind = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        url = self._upstream + request.path_qs
        async with self._session.request(request.method, url, data=body, headers=kind) as answer:
            data, told = await answer.read(), answer.headers.get("Content-Type", "")
        if _of_a_turn(body):
            self._seconds += time.perf_counter() - started
            self._answers += 1
        return web.Response(status=answer.status, body=data, headers={"Content-Type": told})


def _of_a_turn(body: bytes) -> bool:
    """Whether a turn waits for the answer: titles, and lines about a turn that is over, do not count."""
    try:
        asked: dict[str, Any] = orjson.loads(body)
        last = asked["messages"][-1]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return False
    if isinstance(asked.get("tool_choice"), dict):
        return False
    return last.get("role") == "tool" or b"<user_query>" in orjson.dumps(last.get("content"))
