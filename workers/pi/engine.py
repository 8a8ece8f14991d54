"""The provider as a client of the engine: calls, answers and what the engine tells.

It is a client like any other: its messages pass the screen and the proxy of its connection, so requests are
answered exactly once whatever dies, sessions are attached again, and gates are in the journal.  Only
that its messages never leave the process.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from gateway.wire.jsonrpc import EngineLine, dump, notification_bytes, request_bytes, result_bytes

__all__ = ["CallFailed", "Engine"]


class CallFailed(Exception):  # noqa: N818 (an answer of the engine)
    """The engine, or the gateway in its place, answered with an error."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(str(error.get("message")))
        self.error = error
        self.code = int(error.get("code") or 0)


class Engine:
    """``send`` takes the bytes of a message.  What comes is given to ``told``: a notification; ``asked``: id,
    method and params of a reverse request; ``answered``: id and body of the answer to a `post`."""

    def __init__(
        self,
        send: Callable[[bytes], None],
        told: Callable[[EngineLine], None],
        asked: Callable[[str, str, dict[str, Any]], None],
        answered: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self._send, self._told, self._asked, self._answered = send, told, asked, answered
        self._loop = asyncio.get_running_loop()
        self._calls = dict[str, asyncio.Future[Mapping[str, Any]]]()
        # Answers to calls of an earlier worker must not meet ours.
        self._prefix, self._numbers = secrets.token_hex(4), itertools.count(1)

    async def call(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """A request; its result.  Raises CallFailed.  Bounded by the proxy's limits."""
        key = f"{self._prefix}-{next(self._numbers)}"
        future = self._calls[key] = self._loop.create_future()
        try:
            self.post(key, method, params)
            body = await future
        finally:
            del self._calls[key]
        if "error" in body:
            raise CallFailed(body["error"])
        result = body.get("result")
        return result if isinstance(result, dict) else {}

    def post(self, key: str, method: str, params: Mapping[str, Any]) -> None:
        """A request whose answer comes by ``answered``, perhaps in another worker."""
        self._send(request_bytes(dump(key), method, dump(dict(params))))

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self._send(notification_bytes(method, params))

    def answer(self, shown: str, result: Mapping[str, Any]) -> None:
        """Answer a reverse request."""
        self._send(result_bytes(dump(shown), dump(dict(result))))

    def frame(self, line: EngineLine) -> None:
        """A message for the provider."""
        if line.kind == "notification":
            self._told(line)
        elif line.kind == "request":
            self._asked(str(line.body.get("id")), line.method, line.params)
        elif line.kind == "response":
            key = str(line.body.get("id"))
            future = self._calls.get(key)
            if future is None:
                self._answered(key, line.body)
            elif not future.done():
                future.set_result(line.body)
