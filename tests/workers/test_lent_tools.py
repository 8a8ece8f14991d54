"""Lent tools: what Grok posts reaches the client, and no failure makes it call a tool twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gateway.wire.jsonrpc import parse_client
from gateway.wire.limits import SIZES
from gateway.wire.records import Record, TokenAdded
from workers import lent_endpoint
from workers.lent_tools import LentTools

PORT = 2419


class Lender:
    """A connection that lends, and what its client does with a call (by default nothing)."""

    def __init__(self) -> None:
        self.others = set[str]()  # names that other connections have
        self.records = list[Record]()
        self.sent = list[dict[str, Any]]()
        self.reply: Callable[[dict[str, Any]], Any] | None = None
        self.changes = list[tuple[list[str], list[str]]]()
        self.tools = LentTools(PORT, self, self._emit, lambda tools, a, r: self.changes.append((a, r)))
        self.token = secrets.token_hex(16)
        assert self.tools.register([server(self.token)]) == ""

    def take_session(self, session_id: str) -> bool:
        return session_id not in self.others

    def record(self, *records: Record) -> bool:
        self.records += records
        return True

    def _emit(self, frame: bytes) -> None:
        message = json.loads(frame)
        self.sent.append(message)
        if self.reply is not None and "id" in message:
            asyncio.get_running_loop().call_soon(self.answer, message, self.reply(message))

    def answer(self, message: dict[str, Any], outcome: dict[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}).encode()
        assert self.tools.answered(parse_client(data))

    async def called(self, count: int = 1) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while len(self.sent) < count:
                await asyncio.sleep(0.001)
        return self.sent[count - 1]


def server(token: str, host: str = "127.0.0.1", port: int = PORT) -> dict[str, Any]:
    return {"type": "http", "name": "pi", "url": f"http://{host}:{port}/mcp/{token}", "headers": []}


def request(method: str, number: Any = 7, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


CALL = request("tools/call", name="echo", arguments={"text": "hi"})
CONTENT = {"content": [{"type": "text", "text": "hi"}]}


def mcp(message: dict[str, Any], result: Any) -> dict[str, Any]:
    """A client's answer: the result is the whole MCP response."""
    return {"result": {"jsonrpc": "2.0", "id": message["params"]["message"]["id"], "result": result}}


@pytest.fixture
async def lender() -> Lender:
    return Lender()


# -- tokens ------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_an_address_of_ours_is_registered_once(lender: Lender, host: str) -> None:
    token = secrets.token_hex(16)
    for _ in range(2):
        assert lender.tools.register([server(token, host)]) == ""
    assert lender.changes[1:] == [([token], [])]
    assert lender.records[1:] == [TokenAdded(token)]


@pytest.mark.parametrize(
    "servers",
    [
        None,
        "x",
        [7, {}, {"url": 7}],
        [server("short", port=PORT + 1)],
        [{"url": "http://example.org:2419/mcp/x"}],
        [{"type": "stdio", "command": "x", "args": []}],
    ],
)
async def test_other_servers_are_none_of_our_business(lender: Lender, servers: Any) -> None:
    assert lender.tools.register(servers) == ""
    assert lender.tools.tokens == {lender.token}


@pytest.mark.parametrize("token", ["", "pi-session-7", "ab" * 15, "AB" * 16, "ab" * 65, "ab" * 16 + "/x"])
async def test_a_token_that_could_be_guessed_is_refused(lender: Lender, token: str) -> None:
    assert "random" in lender.tools.register([server(token)])
    assert lender.tools.tokens == {lender.token}


async def test_the_token_of_another_connection_is_refused(lender: Lender) -> None:
    token = secrets.token_hex(16)
    lender.others.add(f"mcp:{token}")
    assert "another connection" in lender.tools.register([server(token)])


async def test_the_number_of_tokens_is_bounded(lender: Lender) -> None:
    servers = [server(secrets.token_hex(16)) for _ in range(SIZES.sessions)]
    assert "too many" in lender.tools.register(servers)


# -- calls -------------------------------------------------------------------------------------


async def test_a_call_reaches_the_client_and_its_answer_reaches_grok(lender: Lender) -> None:
    lender.reply = lambda message: mcp(message, CONTENT)
    answer = await lender.tools.call(lender.token, CALL)
    assert answer == {"jsonrpc": "2.0", "id": 7, "result": CONTENT}
    (sent,) = lender.sent
    assert sent["method"] == "_x.ai/mcp/sdk_call"
    assert sent["params"] == {"serverId": lender.token, "message": CALL}


async def test_the_answer_has_groks_id_whatever_the_client_says(lender: Lender) -> None:
    lender.reply = lambda message: {"result": {"id": "mine", "result": CONTENT}}
    answer = await lender.tools.call(lender.token, {**CALL, "id": "a"})
    assert answer is not None
    assert answer["id"] == "a"


@pytest.mark.parametrize(
    "outcome",
    [
        {"error": {"code": -1, "message": "it broke"}},
        {"result": {"error": {"code": -1, "message": "it broke"}}},
        {"result": {"error": "it broke"}},
        {"result": None},
        {"result": {"content": []}},
        {"result": 7},
    ],
)
async def test_a_failed_call_is_a_result_so_that_grok_does_not_repeat_it(
    lender: Lender, outcome: dict[str, Any]
) -> None:
    lender.reply = lambda message: outcome
    answer = await lender.tools.call(lender.token, CALL)
    assert answer is not None
    assert answer["result"]["isError"] is True
    if "broke" in str(outcome):
        assert answer["result"]["content"][0]["text"] == "it broke"


async def test_the_handshake_does_not_wait_for_the_client(lender: Lender) -> None:
    first = await lender.tools.call(lender.token, request("server/discover"))
    assert first is not None
    assert first["error"]["code"] == -32601
    second = await lender.tools.call(lender.token, request("initialize", protocolVersion="2025-11-25"))
    assert second is not None
    assert second["result"]["protocolVersion"] == "2025-11-25"
    assert "tools" in second["result"]["capabilities"]
    assert await lender.tools.call(lender.token, {"method": "notifications/initialized"}) is None
    assert lender.sent == []


async def test_parked_calls_fail_softly_when_the_client_has_gone(lender: Lender) -> None:
    call = asyncio.create_task(lender.tools.call(lender.token, CALL))
    await lender.called()
    lender.tools.close("the client has closed the connection")
    answer = await call
    assert answer is not None
    assert answer["result"]["isError"] is True
    assert lender.changes[-1] == ([], [lender.token])


async def test_parked_calls_are_bounded(lender: Lender) -> None:
    calls = [asyncio.create_task(lender.tools.call(lender.token, CALL)) for _ in range(SIZES.lent_calls)]
    await lender.called(SIZES.lent_calls)
    answer = await lender.tools.call(lender.token, CALL)
    assert answer is not None
    assert answer["result"]["isError"] is True
    lender.tools.close("the end")
    await asyncio.gather(*calls)


async def test_the_client_is_told_when_grok_gives_up_and_answers_too_late(lender: Lender) -> None:
    call = asyncio.create_task(lender.tools.call(lender.token, CALL))
    sent = await lender.called()
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call
    assert lender.sent[-1]["method"] == "gateway/lent_call_given_up"
    assert lender.sent[-1]["params"] == {"id": sent["id"], "serverId": lender.token}
    lender.answer(sent, mcp(sent, CONTENT))
    assert lender.tools.counters["late"] == 1


@pytest.mark.parametrize("id_raw", ['"00000001.7"', "7", '"lent"'])
async def test_other_answers_are_left_to_others(lender: Lender, id_raw: str) -> None:
    message = parse_client(f'{{"jsonrpc":"2.0","id":{id_raw},"result":{{}}}}'.encode())
    assert not lender.tools.answered(message)


# -- HTTP --------------------------------------------------------------------------------------


class Grok:
    """The other end of a socket that was handed over."""

    def __init__(self, lender: Lender) -> None:
        self.ours, theirs = socket.socketpair()
        self.ours.setblocking(False)
        find = {lender.token: lender.tools}.get
        self._theirs, self._find = theirs, find
        self.serving: asyncio.Task[None] | None = None

    def post(
        self, token: str, body: bytes, method: str = "POST", headers: str = "", length: int = -1
    ) -> None:
        size = len(body) if length < 0 else length
        head = f"{method} /mcp/{token} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n{headers}\r\n"
        self.start(head.encode() + body)

    def start(self, head: bytes) -> None:
        self.serving = asyncio.create_task(lent_endpoint.serve(self._theirs, head, self._find))

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        loop, data = asyncio.get_running_loop(), b""
        async with asyncio.timeout(60):
            while piece := await loop.sock_recv(self.ours, 65536):
                data += piece
        self.ours.close()
        assert self.serving is not None
        await self.serving
        head, _, body = data.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        assert headers["connection"] == "close"
        return int(status.split()[1]), headers, body


@pytest.fixture
async def grok(lender: Lender) -> AsyncIterator[Grok]:
    grok = Grok(lender)
    yield grok
    grok.ours.close()
    if grok.serving is not None:
        await grok.serving


async def test_a_posted_call(lender: Lender, grok: Grok) -> None:
    lender.reply = lambda message: mcp(message, CONTENT)
    grok.post(lender.token, json.dumps(CALL).encode())
    status, headers, body = await grok.answer()
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body)["result"] == CONTENT


async def test_a_body_that_comes_in_pieces(lender: Lender, grok: Grok) -> None:
    lender.reply = lambda message: mcp(message, CONTENT)
    body = json.dumps(CALL).encode()
    grok.post(lender.token, body[:5], length=len(body))
    for byte in body[5:]:
        await asyncio.get_running_loop().sock_sendall(grok.ours, bytes([byte]))
    status, _, _ = await grok.answer()
    assert status == 200


async def test_a_client_that_wants_to_hear_100_first(lender: Lender, grok: Grok) -> None:
    lender.reply = lambda message: mcp(message, CONTENT)
    body = json.dumps(CALL).encode()
    grok.post(lender.token, b"", headers="Expect: 100-continue\r\n", length=len(body))
    loop = asyncio.get_running_loop()
    assert (await loop.sock_recv(grok.ours, 100)).startswith(b"HTTP/1.1 100")
    await loop.sock_sendall(grok.ours, body)
    assert (await grok.answer())[0] == 200


async def test_a_notification_is_taken(lender: Lender, grok: Grok) -> None:
    grok.post(lender.token, b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    status, _, body = await grok.answer()
    assert (status, body) == (202, b"")


@pytest.mark.parametrize(
    ("method", "body", "status"),
    [
        ("GET", b"", 405),
        ("DELETE", b"", 405),
        ("POST", b"not json", 400),
        ("POST", b"[]", 400),
        ("POST", b'[{"method":"ping","id":1}]', 400),
        ("POST", b"{}", 400),
        ("POST", b'{"method":7}', 400),
        ("POST", b"[" * 100_000, 400),
        ("POST", b"\xff", 400),
    ],
)
async def test_what_is_no_call_is_refused(
    lender: Lender, grok: Grok, method: str, body: bytes, status: int
) -> None:
    grok.post(lender.token, body, method)
    found, headers, _ = await grok.answer()
    assert found == status
    assert status != 405 or headers["allow"] == "POST"


async def test_an_unknown_token(lender: Lender, grok: Grok) -> None:
    grok.post(secrets.token_hex(16), json.dumps(CALL).encode())
    status, _, body = await grok.answer()
    assert status == 404
    assert lender.token.encode() not in body


async def test_a_body_above_the_limit_is_refused_before_it_is_read(lender: Lender, grok: Grok) -> None:
    grok.post(lender.token, b"", length=SIZES.lent_body + 1)
    assert (await grok.answer())[0] == 413


async def test_what_is_not_http_gets_400(grok: Grok) -> None:
    grok.start(b"\x16\x03\x01 hello\r\n\r\n")
    assert (await grok.answer())[0] == 400


async def test_a_connection_that_closes_gives_the_call_up(lender: Lender, grok: Grok) -> None:
    grok.post(lender.token, json.dumps(CALL).encode())
    await lender.called()
    grok.ours.close()
    assert grok.serving is not None
    await grok.serving
    assert lender.sent[-1]["method"] == "gateway/lent_call_given_up"


async def test_a_request_that_never_ends_leaves_nothing_behind(lender: Lender, grok: Grok) -> None:
    grok.post(lender.token, b"{", length=100)
    await asyncio.sleep(0)
    grok.ours.close()
    assert grok.serving is not None
    await grok.serving
    assert lender.sent == []
