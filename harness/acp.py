"""ACP spoken with one client: lines in, lines out, requests of both sides kept apart.

No transport here: `Peer.take` takes a message that came, ``send`` gets each one to send.  Messages are
begun in the order in which they came; requests that take time go on beside each other, so a prompt that
runs never holds up the cancel behind it.  What is no message is passed over, as the original does.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import orjson

__all__ = ["AcpError", "ClientGoneError", "Connection", "Peer", "invalid_params", "method_not_found"]

_LOG = logging.getLogger("acp")

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

Handler = Callable[[str, Mapping[str, Any], bool], Awaitable[Any]]


class AcpError(Exception):
    """A request is answered with this error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


def invalid_params(data: str) -> AcpError:
    return AcpError(INVALID_PARAMS, "Invalid params", data)


def method_not_found(data: str | None = None) -> AcpError:
    return AcpError(METHOD_NOT_FOUND, "Method not found", data)


class ClientGoneError(Exception):
    """The client cannot be asked any more, or answered with an error."""


class Peer:
    """The other side, whoever it is.  ``handle(method, params, is_request)`` does what a message asks for."""

    def __init__(self, send: Callable[[Mapping[str, Any]], None], handle: Handler) -> None:
        self._transmit = send
        self._handle = handle
        self._open: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next_id = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    # -- in ------------------------------------------------------------------------------------------
    def take(self, message: Mapping[str, Any]) -> None:
        """Take a message."""
        method = message.get("method")
        if not isinstance(method, str):
            self._answered(message)
            return
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if "id" in message:
            self._spawn(self._serve(message["id"], method, params))
        else:
            self._spawn(self._notice(method, params))

    async def _serve(self, request_id: Any, method: str, params: Mapping[str, Any]) -> None:
        try:
            answer = {"result": await self._handle(method, params, True)}
        except AcpError as error:
            answer = {"error": _error(error)}
        except Exception as error:
            _LOG.exception("%s failed", method)
            told = AcpError(INTERNAL_ERROR, "Internal error", f"{type(error).__name__}: {error}")
            answer = {"error": _error(told)}
        self._send({"jsonrpc": "2.0", "id": request_id, **answer})

    async def _notice(self, method: str, params: Mapping[str, Any]) -> None:
        try:
            await self._handle(method, params, False)
        except AcpError as error:
            _LOG.info("%s was passed over: %s (%s)", method, error.message, error.data)
        except Exception:
            _LOG.exception("%s failed", method)

    def _answered(self, message: Mapping[str, Any]) -> None:
        """An answer to a request of ours; one that nobody waits for any more is dropped."""
        request_id = message.get("id")
        waiting = self._open.pop(request_id, None) if isinstance(request_id, int) else None
        if waiting is None or waiting.done():
            return
        if "error" in message:
            error = message["error"]
            text = error.get("message") if isinstance(error, dict) else error
            waiting.set_exception(ClientGoneError(f"the client answered with an error: {text}"))
        else:
            result = message.get("result")
            waiting.set_result(result if isinstance(result, dict) else {})

    # -- out -----------------------------------------------------------------------------------------
    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the client and wait for its answer, however long it takes.  Raises ClientGoneError."""
        if self._closed:
            raise ClientGoneError("the client has gone")
        request_id, self._next_id = self._next_id, self._next_id + 1
        waiting: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._open[request_id] = waiting
        self._send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        try:
            return await waiting
        finally:
            self._open.pop(request_id, None)

    def close(self) -> None:
        """The client has gone: whoever waits for it learns so."""
        self._closed = True
        for waiting in self._open.values():
            if not waiting.done():
                waiting.set_exception(ClientGoneError("the client has gone"))
        for task in tuple(self._tasks):
            task.cancel()

    def _send(self, message: Mapping[str, Any]) -> None:
        if not self._closed:
            self._transmit(message)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Connection(Peer):
    """One client, spoken to in lines."""

    def __init__(self, write: Callable[[bytes], None], handle: Handler) -> None:
        super().__init__(lambda message: write(_dump(message)), handle)

    def line(self, data: bytes) -> None:
        """Take a line."""
        message = _read(data)
        if message is not None:
            self.take(message)


def _read(data: bytes) -> dict[str, Any] | None:
    try:
        message = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return message if isinstance(message, dict) else None


def _dump(message: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(message)
    except (TypeError, orjson.JSONEncodeError):
        # Text of the host may hold lone surrogates (file names that are no UTF-8), which orjson refuses.
        return json.dumps(message, ensure_ascii=True, default=str).encode()


def _error(error: AcpError) -> dict[str, Any]:
    told: dict[str, Any] = {"code": error.code, "message": error.message}
    return told if error.data is None else {**told, "data": error.data}
