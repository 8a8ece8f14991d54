"""The connection against a scripted model and against servers that misbehave."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from harness.model.client import ChatClient, refusal
from harness.model.endpoints import Endpoint, Secret
from harness.model.errors import Failure, ModelError
from harness.model.openai import Piece, Text, Thought, request_body
from harness.model.retry import persist
from tests.engines.scripted_model import ScriptedModel, steps

KEY = "sk-very-secret-key"
Serve = Callable[[Callable[[web.Request], Awaitable[web.StreamResponse]]], Awaitable[Endpoint]]


def endpoint(base: str, **fields: Any) -> Endpoint:
    return Endpoint("m", "scripted-1", "M", f"{base}/chat/completions", key=Secret(KEY), **fields)


@pytest.fixture
async def client() -> AsyncIterator[ChatClient]:
    client = ChatClient()
    yield client
    await client.close()


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    runners = list[web.AppRunner]()

    async def start(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Endpoint:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", handler)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return endpoint(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")

    yield start
    for runner in runners:
        await runner.cleanup()


def body(target: Endpoint, text: str) -> dict[str, Any]:
    return request_body(target, [{"role": "user", "content": text}], [])


async def test_an_answer_in_pieces(client: ChatClient, model: ScriptedModel) -> None:
    target = endpoint(model.url)
    told = list[Piece]()
    prompt = steps({"think": "hm", "text": "Hello", "tools": [{"name": "f", "args": {"a": 1}}], "chunks": 2})
    answer = await client.answer(target, body(target, prompt), told.append)
    assert told[:4] == [Thought("h"), Thought("m"), Text("Hel"), Text("lo")]
    assert (answer.text, answer.finish) == ("Hello", "tool_calls")
    assert answer.calls[0].arguments == '{"a": 1}'
    assert answer.usage.total > 0
    assert answer.seconds > 0
    assert model.calls(prompt)[-1].headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("times", [1, 3])
async def test_a_broken_stream_is_made_again(client: ChatClient, model: ScriptedModel, times: int) -> None:
    target = endpoint(model.url)
    told = list[Piece]()
    tries = list[Any]()

    async def at_once(_: float) -> None: ...

    marker = model.script([{"text": "The whole text of it", "chunks": 5, "drop": True, "times": times}])
    answer = await persist(client, target, body(target, marker), told.append, tries.append, wait=at_once)
    assert answer.text == "The whole text of it"
    assert "".join(p.text for p in told if isinstance(p, Text)) == answer.text
    assert len(tries) == times


@pytest.mark.parametrize(
    ("status", "kind", "transient", "told"),
    [
        (401, Failure.AUTH, False, "refused the key"),
        (403, Failure.API, False, "403 Forbidden"),
        (404, Failure.API, False, "[model.m]"),
        (429, Failure.RATE_LIMITED, True, "rate"),
        (500, Failure.API, True, "500"),
        (503, Failure.API, True, "503"),
    ],
)
async def test_refusals(
    client: ChatClient, model: ScriptedModel, status: int, kind: Failure, transient: bool, told: str
) -> None:
    target = endpoint(model.url)
    prompt = steps({"status": status, "text": f"nothing for {KEY}"})
    with pytest.raises(ModelError) as caught:
        await client.answer(target, body(target, prompt), lambda _: None)
    error = caught.value
    assert (error.kind, error.transient, error.status) == (kind, transient, status)
    assert told in error.message
    assert "nothing for" in error.message
    assert KEY not in error.message


async def test_nobody_listens(client: ChatClient, free_port: int) -> None:
    target = endpoint(f"http://127.0.0.1:{free_port}/v1")
    with pytest.raises(ModelError, match="cannot be reached") as caught:
        await client.answer(target, {}, lambda _: None)
    assert caught.value.transient


async def test_a_silent_server_is_given_up(client: ChatClient, serve: Serve) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await asyncio.sleep(5)
        return response

    found = await serve(handler)
    target = endpoint(found.url.removesuffix("/chat/completions"), idle_timeout=0.2)
    with pytest.raises(ModelError, match=r"sent nothing for 0\.2 s") as caught:
        await client.answer(target, {}, lambda _: None)
    assert (caught.value.kind, caught.value.transient) == (Failure.TIMEOUT, True)


async def test_a_server_that_does_not_stream(client: ChatClient, serve: Serve) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        choice = {"index": 0, "message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}
        return web.json_response({"choices": [choice]})

    told = list[Piece]()
    answer = await client.answer(await serve(handler), {}, told.append)
    assert (answer.text, told) == ("whole", [Text("whole")])


async def test_a_redirect_does_not_take_the_key_elsewhere(client: ChatClient, serve: Serve) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect("http://127.0.0.1:1/elsewhere")

    with pytest.raises(ModelError, match="points elsewhere"):
        await client.answer(await serve(handler), {}, lambda _: None)


async def test_a_page_for_browsers_is_not_repeated(client: ChatClient, serve: Serve) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=502, text="<html>bad gateway</html>")

    with pytest.raises(ModelError) as caught:
        await client.answer(await serve(handler), {}, lambda _: None)
    assert "html" not in caught.value.message


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("3", 3), ("0.5", 0.5), ("", None), ("soon", None), ("Wed, 21 Oct 2015 07:28:00 GMT", 0)],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    error = refusal(endpoint("http://h/v1"), 429, {"Retry-After": value} if value else {}, b"")
    assert error.retry_after == seconds


def test_secrets_in_the_address_are_not_told() -> None:
    target = endpoint("http://user:pass@h:8/v1")
    error = refusal(target, 500, {}, b"")
    assert "pass" not in error.message
    assert "http://h:8/v1" in error.message


def test_the_engine_starts_without_aiohttp() -> None:
    code = "import harness.model.client, harness.model.retry, sys; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


async def test_text_that_is_no_unicode_reaches_the_model(client: ChatClient, model: ScriptedModel) -> None:
    target = endpoint(model.url)
    prompt = steps({"text": "x"}) + "f\udcff"
    assert (await client.answer(target, body(target, prompt), lambda _: None)).text == "x"
