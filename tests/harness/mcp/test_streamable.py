"""A connection to an HTTP server: what goes out, what comes back, and what is done when it does not."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from aiohttp import web

from harness.limits import LIMITS, SIZES
from harness.mcp.protocol import Failing, McpError
from harness.mcp.results import result_text
from tests.harness.mcp.conftest import Connect
from tests.harness.mcp.support import ECHO, KEY, HttpMcp, Message, dropped, event, events, opened, said

HANDSHAKE = ["initialize", "notifications/initialized"]


def on(method: str, answer: Any, times: int = 1_000_000) -> Any:
    """A special answer to this method, so many times."""
    count = 0

    async def special(request: web.Request, message: Message) -> web.StreamResponse | None:
        nonlocal count
        if message.get("method", request.method) != method or count >= times:
            return None
        count += 1
        result = answer(request, message) if callable(answer) else answer
        response: web.StreamResponse = await result if asyncio.iscoroutine(result) else result
        return response

    return special


def reply(message: Message, result: Message) -> Message:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_and_all_that_is_sent_for_it(http: HttpMcp, connect: Connect, stream: bool) -> None:
    http.stream, http.session = stream, "session-of-the-server"
    connection = connect(http.entry())
    assert [tool.name for tool in await connection.tools()] == ["echo"]
    assert result_text(await connection.call("echo", {"text": "é"})) == "echo: é"
    assert connection.instructions == "Handle with care."
    await http.until(lambda: "GET" in http.methods())
    await connection.close()
    sent = [seen for seen in http.seen if seen.verb == "POST"]
    assert [seen.method for seen in sent] == [*HANDSHAKE, "tools/list", "tools/call"]
    assert http.methods()[-1] == "DELETE"
    assert sent[0].message["params"]["protocolVersion"] == "2025-11-25"
    assert sent[0].message["params"]["clientInfo"]["name"] == "grok-shell-srv"
    first, *later = (seen.headers for seen in http.seen)
    ours = {
        "Host",
        "User-Agent",
        "Accept",
        "Accept-Encoding",
        "Authorization",
        "Content-Type",
        "Content-Length",
    }
    assert set(first) == ours
    for headers in (first, *later):
        assert headers["Authorization"] == KEY
        assert not {"Cookie", "Referer", "Origin"} & set(headers)
    for headers in later:
        assert headers["Mcp-Session-Id"] == "session-of-the-server"
        assert headers["MCP-Protocol-Version"] == "2025-11-25"


async def test_a_server_without_sessions_is_left_without_a_word(http: HttpMcp, connect: Connect) -> None:
    connection = connect(http.entry())
    await connection.tools()
    await connection.close()
    assert http.methods() == [*HANDSHAKE, "tools/list"]


async def test_cookies_and_headers_of_the_protocol_are_not_for_others_to_set(
    http: HttpMcp, connect: Connect
) -> None:
    async def bakes(request: web.Request, message: Message) -> web.StreamResponse | None:
        if message.get("method") != "initialize":
            return None
        return web.json_response(reply(message, http.result(message)), headers={"Set-Cookie": "a=b; Path=/"})

    http.special = bakes
    pairs = {"Content-Length": "0", "MCP-Session-Id": "forged", "user-agent": "mine", "X-More": "1"}
    headers = [{"name": name, "value": value} for name, value in pairs.items()]
    by_name = http.url.replace("127.0.0.1", "localhost")  # an address would get no cookies anyway
    await connect({**http.entry(), "url": by_name, "headers": headers}).tools()
    last = http.seen[-1].headers
    assert "Cookie" not in last
    assert "Mcp-Session-Id" not in last
    named = {name.lower(): value for name, value in last.items()}
    assert (named["user-agent"], named["x-more"]) == ("mine", "1")


async def test_no_proxy_and_no_password_of_the_environment(
    http: HttpMcp, connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password mine\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    await connect({**http.entry(), "headers": []}).tools()
    assert all("Authorization" not in seen.headers for seen in http.seen)


async def test_pages_are_turned_until_there_are_no_more(http: HttpMcp, connect: Connect) -> None:
    pages = {"": (["a", "b"], "2"), "2": (["b", "c"], "3"), "3": (["d"], None)}

    def page(_: web.Request, message: Message) -> web.Response:
        names, cursor = pages[message["params"].get("cursor", "")]
        tools = [{**ECHO, "name": name} for name in names]
        return web.json_response(reply(message, {"tools": tools, "nextCursor": cursor}))

    http.special = on("tools/list", page)
    assert [tool.name for tool in await connect(http.entry()).tools()] == ["a", "b", "c", "d"]


async def test_pages_without_an_end_have_one(http: HttpMcp, connect: Connect) -> None:
    def circle(_: web.Request, message: Message) -> web.Response:
        number = int(message["params"].get("cursor", "0"))
        return web.json_response(reply(message, {"tools": [], "nextCursor": str(number + 1)}))

    http.special = on("tools/list", circle)
    assert await connect(http.entry()).tools() == []
    assert http.methods().count("tools/list") == SIZES.mcp_pages


async def test_within_an_answer_the_server_may_say_and_ask_things(http: HttpMcp, connect: Connect) -> None:
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}
    ping = {"jsonrpc": "2.0", "id": "ping-1", "method": "ping"}
    asks = {"jsonrpc": "2.0", "id": 99, "method": "roots/list"}
    other = {"jsonrpc": "2.0", "id": True, "result": said("not yours")}

    async def talks(request: web.Request, message: Message) -> web.StreamResponse:
        response = await opened(request)
        for one in (progress, ping, asks, other):
            await event(response, one)
        await http.until(lambda: len(answers()) == 2)
        await event(response, reply(message, said("done")))
        return response

    def answers() -> list[Message]:
        return [seen.message for seen in http.seen if "method" not in seen.message and seen.verb == "POST"]

    http.special = on("tools/call", talks)
    assert result_text(await connect(http.entry()).call("echo", {})) == "done"
    by_id = {answer["id"]: answer for answer in answers()}
    assert by_id["ping-1"]["result"] == {}
    assert by_id[99]["error"]["code"] == -32601


async def test_a_flood_of_questions_is_not_answered_without_end(http: HttpMcp, connect: Connect) -> None:
    held = asyncio.Event()

    async def floods(request: web.Request, message: Message) -> web.StreamResponse | None:
        if message.get("method") == "tools/call":
            pings = [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(500)]
            return await events(request, [*pings, reply(message, said("ok"))])
        if "method" not in message:
            await held.wait()
        return None

    def answers() -> list[Any]:
        return [seen for seen in http.seen if "method" not in seen.message]

    http.special = floods
    connection = connect(http.entry())
    assert result_text(await connection.call("echo", {})) == "ok"
    await http.until(lambda: len(answers()) >= SIZES.mcp_errands)
    assert await connection.tools()  # what else was on its way has come before
    assert len(answers()) == SIZES.mcp_errands
    held.set()


# -- a second time, or not -------------------------------------------------------------------------


async def test_a_session_that_the_server_forgot_is_begun_again(http: HttpMcp, connect: Connect) -> None:
    http.session = "one"
    connection = connect(http.entry())
    await connection.tools()
    http.special = on("tools/call", web.Response(status=404), times=1)
    http.session = "two"
    assert result_text(await connection.call("echo", {"text": "x"})) == "echo: x"
    calls = [seen for seen in http.seen if seen.method == "tools/call"]
    assert [seen.headers["Mcp-Session-Id"] for seen in calls] == ["one", "two"]
    assert http.methods().count("initialize") == 2


@pytest.mark.parametrize(("times", "asked"), [(1, 2), (9, 2)])
async def test_a_connection_closed_without_an_answer_is_tried_once_more(
    http: HttpMcp, connect: Connect, times: int, asked: int
) -> None:
    connection = connect(http.entry())
    await connection.tools()
    http.special = on("tools/call", lambda request, _: dropped(request), times=times)
    if times == 1:
        assert result_text(await connection.call("echo", {"text": "x"})) == "echo: x"
    else:
        with pytest.raises(McpError, match="the connection to http://127"):
            await connection.call("echo", {})
    assert len(http.calls()) == asked
    assert http.methods().count("initialize") == 2


async def cut(request: web.Request, _: Message) -> web.StreamResponse:
    response = await opened(request)
    await response.write(b"data: {")
    return dropped(request)


async def finished(request: web.Request, _: Message) -> web.StreamResponse:
    return await events(request, [])


def error(_: web.Request, message: Message) -> web.Response:
    failure = {"code": -32603, "message": "inside"}
    return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": failure})


def wrong_id(_: web.Request, message: Message) -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": 4711, "result": said("another's")})


def moved(_: web.Request, message: Message) -> web.Response:
    return web.Response(status=307, headers={"Location": "/elsewhere"})


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (lambda *_: web.Response(status=500, text="ill"), Failing.REFUSED, "status 500: ill"),
        (lambda *_: web.Response(status=404, text="what?"), Failing.REFUSED, "status 404"),
        (lambda *_: web.Response(status=403), Failing.AUTH, "status 403"),
        (lambda *_: web.Response(text="<html>", content_type="text/html"), Failing.NONSENSE, "no JSON"),
        (lambda *_: web.Response(status=202), Failing.BROKEN, "without a result"),
        (lambda *_: web.json_response([]), Failing.BROKEN, "without a result"),
        (moved, Failing.REFUSED, "redirects are not followed"),
        (error, Failing.ERROR, "MCP error -32603: inside"),
        (wrong_id, Failing.BROKEN, "without a result"),
        (finished, Failing.BROKEN, "without a result"),
        (cut, Failing.BROKEN, "broke"),
    ],
)
async def test_what_was_answered_somehow_is_never_asked_again(
    http: HttpMcp, connect: Connect, answer: Any, kind: Failing, text: str
) -> None:
    connection = connect(http.entry())
    await connection.tools()
    http.special = on("tools/call", answer, times=1)
    with pytest.raises(McpError, match=text) as caught:
        await connection.call("echo", {})
    assert caught.value.kind is kind
    assert len(http.calls()) == 1
    assert "/elsewhere" not in str(http.methods())
    assert result_text(await connection.call("echo", {"text": "again"})) == "echo: again"


@pytest.mark.parametrize("stream", [False, True])
async def test_an_endless_answer_is_not_taken_into_memory(
    http: HttpMcp, connect: Connect, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr(SIZES, "mcp_message", 100_000)
    monkeypatch.setattr(SIZES, "model_event", 100_000)
    connection = connect(http.entry())
    await connection.tools()
    written = 0

    async def endless(request: web.Request, _: Message) -> web.StreamResponse:
        nonlocal written
        kind = "text/event-stream" if stream else "application/json"
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while written < 1 << 30:
                await response.write(b"data: " + b"x" * 65536)
                written += 65536
        return response

    http.special = on("tools/call", endless)
    with pytest.raises(McpError) as caught:
        await connection.call("echo", {})
    assert caught.value.kind is Failing.NONSENSE
    assert written < 1 << 30


# -- giving up -------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["cancelled", "too slow"])
async def test_a_call_that_is_given_up_is_called_off(http: HttpMcp, connect: Connect, why: str) -> None:
    gone = asyncio.Event()

    async def never(request: web.Request, message: Message) -> web.StreamResponse:
        try:
            await asyncio.sleep(3600)
        finally:
            gone.set()
        raise AssertionError

    http.special = on("tools/call", never)
    times = {"toolTimeoutMs": 300} if why == "too slow" else {}
    connection = connect(http.entry(), **times)
    await connection.tools()
    call = asyncio.ensure_future(connection.call("echo", {}))
    await http.until(http.calls)
    if why == "cancelled":
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    else:
        with pytest.raises(McpError, match=r"no answer within 0\.3 s"):
            await call
    told = await http.until(lambda: [seen for seen in http.seen if seen.method == "notifications/cancelled"])
    (asked,) = (seen for seen in http.seen if seen.method == "tools/call")
    assert told[0].message["params"]["requestId"] == asked.message["id"]
    http.special = None
    assert result_text(await connection.call("echo", {"text": "next"})) == "echo: next"


async def test_a_handshake_has_its_time(http: HttpMcp, connect: Connect) -> None:
    async def never(*_: Any) -> web.StreamResponse:
        await asyncio.sleep(3600)
        raise AssertionError

    http.special = on("initialize", never)
    with pytest.raises(McpError) as caught:
        await connect(http.entry(), startupTimeoutMs=200).tools()
    assert caught.value.kind is Failing.TIMEOUT
    assert "notifications/cancelled" not in http.methods()  # a handshake cannot be called off


async def test_a_stream_in_the_place_of_an_empty_answer_holds_nothing_up(
    http: HttpMcp, connect: Connect
) -> None:
    async def open_end(request: web.Request, _: Message) -> web.StreamResponse:
        await opened(request)
        await asyncio.sleep(3600)
        raise AssertionError

    http.special = on("notifications/initialized", open_end)
    assert [tool.name for tool in await connect(http.entry()).tools()] == ["echo"]


async def test_nobody_at_the_address(http: HttpMcp, connect: Connect) -> None:
    await http.stop()
    with pytest.raises(McpError, match=r"http://127\.0\.0\.1:\d+ cannot be reached: ") as caught:
        await connect(http.entry()).tools()
    assert "secret-part" not in str(caught.value)


async def test_a_refusal_that_repeats_our_key_is_told_without_it(http: HttpMcp, connect: Connect) -> None:
    def tells(request: web.Request, _: Message) -> web.Response:
        return web.Response(status=401, text=f"no: {request.headers['Authorization']} at {request.path}")

    http.special = on("initialize", tells)
    with pytest.raises(McpError) as caught:
        await connect(http.entry()).tools()
    assert caught.value.kind is Failing.AUTH
    assert "status 401: no: … at /mcp/…" in str(caught.value)


# -- the stream of its own -------------------------------------------------------------------------


async def test_changes_come_on_the_servers_own_stream_also_when_that_was_cut(
    http: HttpMcp, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LIMITS, "mcp_listen_first", 0.01)
    http.session = "s"
    http.special = on("GET", cut, times=2)
    connection = connect(http.entry())
    changed = asyncio.Event()
    connection._tools_changed = changed.set
    await connection.tools()
    await http.until(lambda: http.methods().count("GET") == 3)
    http.events.put_nowait({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    await asyncio.wait_for(changed.wait(), 60)


async def test_a_server_without_such_a_stream_is_asked_once(http: HttpMcp, connect: Connect) -> None:
    http.session = "s"
    http.special = on("GET", web.Response(status=405))
    connection = connect(http.entry())
    await connection.tools()
    await http.until(lambda: "GET" in http.methods())
    await connection.call("echo", {})
    assert http.methods().count("GET") == 1


async def test_calls_side_by_side_share_one_handshake(http: HttpMcp, connect: Connect) -> None:
    connection = connect(http.entry())
    results = await asyncio.gather(*(connection.call("echo", {"text": str(n)}) for n in range(5)))
    assert [result_text(result) for result in results] == [f"echo: {n}" for n in range(5)]
    assert http.methods().count("initialize") == 1
    ids = [seen.message["id"] for seen in http.seen if "id" in seen.message]
    assert len(set(ids)) == len(ids) == 6


async def test_a_closed_connection_is_not_made_again(http: HttpMcp, connect: Connect) -> None:
    connection = connect(http.entry())
    await connection.tools()
    await connection.close()
    with pytest.raises(McpError, match="ended"):
        await connection.call("echo", {})
    assert http.calls() == []
