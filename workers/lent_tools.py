"""Tools that a client lends to Grok: MCP over HTTP on one side, the client's WebSocket on the other.

A client names an address of our own, ``http://127.0.0.1:<port>/mcp/<token>``, among the MCP servers of a
session.  What Grok posts there goes to that client as a request ``_x.ai/mcp/sdk_call {serverId: token,
message}``; its result is the MCP response.

Grok repeats a call that fails with an error or a dropped connection, and the tool would run twice: so a
``tools/call`` that cannot be answered gets a *result* with ``isError``.  And it gives a server up whose
first answers do not come: so the handshake is answered here, however busy the client is.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
import re
import secrets
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from gateway.wire import acp, jsonrpc
from gateway.wire.jsonrpc import Message
from gateway.wire.limits import LIMITS, SIZES
from gateway.wire.records import Record, TokenAdded

__all__ = ["LentTools", "Owner"]

log = logging.getLogger(__name__)

_ADDRESS = re.compile(r"https?://(?:127\.0\.0\.1|localhost|\[::1\]):(?P<port>\d+)/mcp(?:/(?P<token>.*))?")
#: 128 bits that cannot be guessed; whoever knows a token can only call, not change, what is lent.
_TOKEN = re.compile(r"[0-9a-f]{32,128}")
_PROTOCOL = "2025-11-25"


class Owner(Protocol):
    """The connection that lends."""

    def take_session(self, session_id: str) -> bool:
        """Reserve a name for this connection; False: another living connection has it."""

    def record(self, *records: Record) -> bool:
        """Write to the journal."""


@dataclasses.dataclass(slots=True, eq=False)
class _Call:
    """One request of Grok that waits for the client."""

    token: str
    method: str
    grok_id: Any
    answer: asyncio.Future[dict[str, Any]]


class LentTools:
    """What one client lends.  ``emit(frame)`` sends to it; ``changed(added, removed)`` tells of tokens."""

    def __init__(
        self,
        port: int,
        owner: Owner,
        emit: Callable[[bytes], None],
        changed: Callable[[LentTools, list[str], list[str]], None],
    ) -> None:
        self._port, self._owner = port, owner
        self._emit, self._changed = emit, changed
        self._loop = asyncio.get_running_loop()
        self._calls = dict[str, _Call]()  # by the id that the client sees
        self._numbers = 0
        self._name = secrets.token_hex(4)  # another worker may go on: its numbers must be others
        self._moved: asyncio.Future[None] | None = None  # another worker is about to serve them
        self.tokens = set[str]()
        self.counters = collections.Counter[str]()

    # -- tokens --------------------------------------------------------------------------------

    def register(self, mcp_servers: Any) -> str:
        """Take the tokens among the MCP servers of a session; "" or what is wrong, for the client."""
        added = list[str]()
        for server in mcp_servers if isinstance(mcp_servers, list) else ():
            match = _ADDRESS.fullmatch(str(server.get("url", ""))) if isinstance(server, dict) else None
            if match is None or int(match["port"]) != self._port:
                continue
            token = match["token"] or ""
            if token in self.tokens:
                continue
            if not _TOKEN.fullmatch(token):
                return "the address of lent tools must end in /mcp/ and 32 to 128 random hex digits"
            if len(self.tokens) >= SIZES.sessions:
                return "too many addresses of lent tools"
            if not self._owner.take_session(f"mcp:{token}"):
                return "the address of lent tools belongs to another connection; make a new one"
            self._owner.record(TokenAdded(token))
            self.tokens.add(token)
            added.append(token)
        if added:
            self._changed(self, added, [])
        return ""

    def restore(self, tokens: Iterable[str]) -> None:
        """The tokens of a connection that is taken over."""
        self.tokens.update(tokens)
        self._changed(self, sorted(self.tokens), [])

    def close(self, reason: str) -> None:
        """Nobody lends any more: what is parked fails."""
        removed, self.tokens = sorted(self.tokens), set()
        self._changed(self, [], removed)
        self.refuse(reason)

    def refuse(self, reason: str) -> None:
        """What is parked fails, in a way that Grok does not repeat; the tokens stay."""
        for call in tuple(self._calls.values()):
            _settle(call, _failure(call, reason))

    @property
    def parked(self) -> bool:
        """A call waits for the client."""
        return bool(self._calls)

    def leave(self) -> None:
        """Another worker is about to serve the tokens: calls wait, `moved` ends them."""
        self._moved = self._loop.create_future()

    def moved(self) -> None:
        """It does: a call that waited is dropped without an answer, and Grok repeats it there."""
        if self._moved is not None and not self._moved.done():
            self._moved.set_result(None)

    # -- calls ---------------------------------------------------------------------------------

    async def call(self, token: str, message: dict[str, Any]) -> dict[str, Any] | None:
        """A JSON-RPC message that Grok posted: the response, None for a notification.

        Cancelled when Grok gives up; the client is told then.  Raises ConnectionError when another worker
        serves the token now: the client knows nothing of this call.
        """
        method, grok_id = str(message["method"]), message.get("id")
        if "id" not in message:
            return None
        if method in _OWN:
            return {"jsonrpc": "2.0", "id": grok_id, **_OWN[method](message)}
        if self._moved is not None:
            await self._moved
            raise ConnectionError("the lent tools have moved to another worker")
        call = _Call(token, method, grok_id, self._loop.create_future())
        if len(self._calls) >= SIZES.lent_calls:
            self.counters["refused"] += 1
            return _failure(call, "too many calls of lent tools wait for the client")
        self._numbers += 1
        number = f"lent.{self._name}.{self._numbers}"
        self._calls[number] = call
        self.counters["calls"] += 1
        params = {"serverId": token, "message": message}
        self._emit(jsonrpc.request_bytes(jsonrpc.dump(number), acp.LENT_CALL, jsonrpc.dump(params)))
        try:
            # A tool may wait for a person; anything else is the client's machinery.
            async with asyncio.timeout(None if method == "tools/call" else LIMITS.request):
                return await call.answer
        except TimeoutError:
            self.counters["timed_out"] += 1
            return _failure(call, "the client gave no answer in time")
        except asyncio.CancelledError:
            self.counters["given_up"] += 1
            self._emit(jsonrpc.notification_bytes(acp.LENT_CALL_GIVEN_UP, {"id": number, "serverId": token}))
            raise
        finally:
            del self._calls[number]

    def answered(self, message: Message) -> bool:
        """A response of the client; False when it answers no lent call."""
        number = message.spans["id"].value
        if not isinstance(number, str) or not number.startswith("lent."):
            return False
        call = self._calls.get(number)
        if call is None:
            self.counters["late"] += 1
        else:
            _settle(call, _response(call, message))
        return True


def _settle(call: _Call, response: dict[str, Any]) -> None:
    if not call.answer.done():
        call.answer.set_result(response)


def _response(call: _Call, message: Message) -> dict[str, Any]:
    """Grok's response from the client's: the same, but with Grok's id and no error that is repeated."""
    result = message.result
    if message.error is not None:
        return _failure(call, str(message.error.get("message", "the client refused the call")))
    if not isinstance(result, dict) or ("result" not in result and "error" not in result):
        return _failure(call, "the client's answer is no MCP response")
    if "error" in result:
        error = result["error"]
        text = error.get("message") if isinstance(error, dict) else error
        return _failure(call, str(text))
    return {"jsonrpc": "2.0", "id": call.grok_id, "result": result["result"]}


def _failure(call: _Call, text: str) -> dict[str, Any]:
    response: dict[str, Any] = {"jsonrpc": "2.0", "id": call.grok_id}
    if call.method == "tools/call":
        return {**response, "result": {"content": [{"type": "text", "text": text}], "isError": True}}
    return {**response, "error": {"code": jsonrpc.INTERNAL_ERROR, "message": text}}


def _initialize(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params")
    asked = params.get("protocolVersion") if isinstance(params, dict) else None
    info = {"name": "grok-gateway lent tools", "version": "1"}
    return {
        "result": {
            "protocolVersion": asked if isinstance(asked, str) else _PROTOCOL,
            "capabilities": {"tools": {}},
            "serverInfo": info,
        }
    }


def _unknown(message: dict[str, Any]) -> dict[str, Any]:
    return {"error": {"code": jsonrpc.METHOD_NOT_FOUND, "message": "Method not found"}}


#: Answered without the client; Grok goes on to ``initialize`` after any answer to its discovery.
_OWN: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "initialize": _initialize,
    "ping": lambda message: {"result": {}},
    "server/discover": _unknown,
}
