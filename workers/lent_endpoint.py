"""``POST /mcp/<token>`` on a socket that was handed over: one HTTP request, one answer, closed.

One request a connection, since the next one on a kept connection might be for another worker's token.
The HTTP is `h11`'s; what is decided here is the order of refusals and the bound on the body.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Callable
from typing import Any

import h11

from gateway.wire.jsonrpc import dump
from gateway.wire.limits import LIMITS, SIZES
from workers.lent_tools import LentTools

__all__ = ["serve"]

log = logging.getLogger(__name__)


class _Refused(Exception):  # noqa: N818 (an HTTP answer)
    def __init__(self, status: int, text: str, **headers: str) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers


async def serve(sock: socket.socket, head: bytes, find: Callable[[str], LentTools | None]) -> None:
    """Answer the one request on ``sock``, whose first bytes are ``head``; closes the socket.

    ``find(token)``: who lends under this token.
    """
    loop = asyncio.get_running_loop()
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=SIZES.head)
    with sock:
        sock.setblocking(False)
        try:
            async with asyncio.timeout(LIMITS.request):
                request, body = await _read(loop, sock, connection, head)
            token, message = _understand(request, body)
            lender = find(token)
            if lender is None:
                raise _Refused(404, "unknown MCP token")
            response = await _unless_gone(loop, sock, lender.call(token, message))
        except _Refused as refusal:
            answer = _answer(connection, refusal.status, {"error": refusal.text}, refusal.headers)
        except h11.RemoteProtocolError as error:
            answer = _answer(connection, error.error_status_hint, {"error": "not understood as HTTP"}, {})
        except (OSError, TimeoutError):
            return
        else:
            answer = _answer(connection, 202 if response is None else 200, response, {})
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(LIMITS.write):
                await loop.sock_sendall(sock, answer)
                sock.shutdown(socket.SHUT_WR)
                # Unread bytes would reset the connection, and Grok would not see the answer.
                while await loop.sock_recv(sock, SIZES.read):
                    pass


async def _read(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, connection: h11.Connection, head: bytes
) -> tuple[h11.Request, bytes]:
    request, body = None, bytearray()
    connection.receive_data(head)
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                await loop.sock_sendall(sock, connection.send(_continue()) or b"")
            connection.receive_data(await loop.sock_recv(sock, SIZES.read))
        elif isinstance(event, h11.Request):
            request = event
            if request.method != b"POST":
                raise _Refused(405, "POST only", allow="POST")
            _check_size(int(dict(request.headers).get(b"content-length", 0)))
        elif isinstance(event, h11.Data):
            body += event.data
            _check_size(len(body))
        elif isinstance(event, h11.EndOfMessage) and request is not None:
            return request, bytes(body)
        else:
            raise ConnectionError("closed before the request was complete")


def _check_size(size: int) -> None:
    if size > SIZES.lent_body:
        raise _Refused(413, f"the body has more than {SIZES.lent_body} bytes")


def _continue() -> h11.InformationalResponse:
    return h11.InformationalResponse(status_code=100, headers=[])


def _understand(request: h11.Request, body: bytes) -> tuple[str, dict[str, Any]]:
    """The token and the JSON-RPC message."""
    prefix, _, token = request.target.decode("ascii", "replace").rpartition("/")
    if prefix != "/mcp":
        raise _Refused(404, "not found")
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise _Refused(400, "the body is not JSON") from None
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        raise _Refused(400, "the body is no JSON-RPC request or notification")
    return token, message


async def _unless_gone(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, call: Any
) -> dict[str, Any] | None:
    """The result of ``call``, cancelled when the other side closes.  Raises ConnectionError then."""
    answer = asyncio.ensure_future(call)
    gone = asyncio.ensure_future(loop.sock_recv(sock, 1))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            result: dict[str, Any] | None = answer.result()
            return result
        raise ConnectionError("Grok has given up")
    finally:
        for task in (answer, gone):
            task.cancel()
        await asyncio.gather(answer, gone, return_exceptions=True)


def _answer(
    connection: h11.Connection, status: int, content: dict[str, Any] | None, headers: dict[str, str]
) -> bytes:
    body = b"" if content is None else dump(content)
    fields = {
        **headers,
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
    }
    response = h11.Response(status_code=status, headers=list(fields.items()))
    parts = (
        connection.send(response),
        connection.send(h11.Data(data=body)),
        connection.send(h11.EndOfMessage()),
    )
    return b"".join(part for part in parts if part)
