"""Requests and their answers: ids, mixed clients, and everything that is no proper request."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any

import pytest

from tests.e2e.client import Client, RpcError
from tests.e2e.gateway import Gateway
from tests.engines.scripted_model import steps

pytestmark = pytest.mark.grok


async def exchange(client: Client, frame: str | bytes) -> tuple[bytes, dict[str, Any]]:
    """Send one raw frame; the next answer with an id (raw and parsed)."""
    since = len(client.messages)
    await client.send(frame)
    message = await client.wait_for(lambda m: "method" not in m, since=since)
    return client.frames[client.messages.index(message, since)], message


async def test_sockets_with_the_same_ids_get_their_own_answers(shared_fake: Gateway) -> None:
    """Eight sockets use the ids 1 to 150 at once; each answer names its request by a nonce."""

    async def ask(nonce: str) -> None:
        client, session = await shared_fake.session()
        requests = []
        for number in range(1, 151):
            meta = {"promptId": f"{nonce}-{number}"}
            blocks = [{"type": "text", "text": "x"}]
            params = {"sessionId": session, "prompt": blocks, "_meta": meta}
            requests.append(await client.start("session/prompt", params, number=number))
        for number, answer in enumerate(await asyncio.gather(*requests), 1):
            assert answer["id"] == number
            assert answer["result"]["_meta"]["promptId"] == f"{nonce}-{number}"
        await client.close()

    await asyncio.gather(*(ask(f"nonce-{secrets.token_hex(8)}") for _ in range(8)))


async def test_twenty_sockets_initialize_at_once(shared: Gateway) -> None:
    clients = await asyncio.gather(*(shared.client() for _ in range(20)))
    assert len({client.connection for client in clients}) == 20
    await asyncio.gather(*(client.close() for client in clients))


@pytest.mark.parametrize(
    "raw",
    [
        "0",
        "-1",
        "1180591620717411303424",
        "1.0",
        "1e3",
        "1e400",
        '"text"',
        '""',
        '"\\u00e9\\/"',
        '"é\U0001f600"',
        '"\\ud800"',
        '"4"',
        '"1.7"',
    ],
)
async def test_an_id_is_echoed_byte_for_byte(shared: Gateway, raw: str) -> None:
    client = await shared.client()
    for method in ("session/list", "no/such/method"):
        request = f'{{"jsonrpc":"2.0","id":{raw},"method":"{method}","params":{{}}}}'
        frame, message = await exchange(client, request)
        assert b'"id":' + raw.encode() + b"," in frame
        assert ("error" in message) == (method != "session/list")
    await client.close()


INVALID, PARSE = -32600, -32700
DEEP = '{"a":' * 2000 + "1" + "}" * 2000


@pytest.mark.parametrize(
    ("frame", "code", "echoed"),
    [
        ("hello", PARSE, None),
        ("", PARSE, None),
        ("{", PARSE, None),
        ('{"jsonrpc":"2.0","id":1,"method":"session/list","params":{}} {}', PARSE, None),
        ('{"jsonrpc":"2.0","id":NaN,"method":"session/list"}', PARSE, None),
        ('"text"', INVALID, None),
        ("7", INVALID, None),
        ("null", INVALID, None),
        ("[]", INVALID, None),
        ('[{"jsonrpc":"2.0","id":1,"method":"session/list","params":{}}]', INVALID, None),
        ('{"id":1,"method":"session/list"}', INVALID, 1),
        ('{"jsonrpc":"1.0","id":1,"method":"session/list"}', INVALID, 1),
        ('{"jsonrpc":"2.0","id":1}', INVALID, 1),
        ('{"jsonrpc":"2.0","id":1,"method":7}', INVALID, 1),
        ('{"jsonrpc":"2.0","id":1,"method":"session/list","params":"x"}', INVALID, 1),
        ('{"jsonrpc":"2.0","id":{},"method":"session/list"}', INVALID, None),
        ('{"jsonrpc":"2.0","id":true,"method":"session/list"}', INVALID, None),
        ('{"jsonrpc":"2.0","id":1,"id":2,"method":"session/list"}', INVALID, None),
        ('{"jsonrpc":"2.0","id":1,"method":"session/list","method":"session/new"}', INVALID, 1),
        ('{"jsonrpc":"2.0","id":1,"method":"session/list","params":{},"params":{}}', INVALID, 1),
        ('{"jsonrpc":"2.0","id":1,"method":"m","params":{"sessionId":"a","sessionId":"b"}}', INVALID, 1),
        ('{"jsonrpc":"2.0","id":1,"method":"m","params":' + DEEP + "}", INVALID, 1),
    ],
)  # fmt: skip
async def test_bad_frames_get_an_error_and_cost_nothing(
    shared: Gateway, frame: str, code: int, echoed: int | None
) -> None:
    client, session = await shared.session()
    _, message = await exchange(client, frame)
    assert message["error"]["code"] == code
    assert message["error"]["message"]
    assert message["id"] == echoed
    assert (await client.prompt(session, steps({"text": "fine"})))["stopReason"] == "end_turn"
    await client.close()


@pytest.mark.parametrize(
    "method",
    ["no/such", "session/fork", "x.ai/bogus", "_x.ai/bogus", "_x.ai/internal/evict_sessions", "_"],
)
async def test_unknown_methods_are_refused(shared: Gateway, method: str) -> None:
    client = await shared.client()
    with pytest.raises(RpcError) as refused:
        await client.call(method, {})
    assert refused.value.code in (-32601, -32055)
    await client.close()


async def test_a_duplicate_id_in_flight_is_refused(shared: Gateway, model: Any) -> None:
    client, session = await shared.session()
    gate = secrets.token_hex(4)
    blocks = [{"type": "text", "text": steps({"text": "x", "gate": gate})}]
    first = await client.start("session/prompt", {"sessionId": session, "prompt": blocks}, number="twice")
    await model.waiting(gate)
    _, message = await exchange(client, '{"jsonrpc":"2.0","id":"twice","method":"session/list","params":{}}')
    assert message["error"]["code"] == INVALID
    model.release(gate)
    # The refusal carried the same id, so the client's own table gave it to the first request: the
    # prompt's answer is the next message with this id.
    answer = await client.wait_for(lambda m: m.get("id") == "twice" and "result" in m)
    assert answer["result"]["stopReason"] == "end_turn"
    assert first.done()
    assert await client.call("session/list", {}, number="twice")  # free again
    await client.close()


async def test_a_binary_frame_closes_with_1003(shared: Gateway) -> None:
    client = await shared.client()
    await client.socket.send(b"\x00\x01")
    code, reason = await asyncio.wait_for(client.closed, 60)
    assert code == 1003
    assert reason


async def test_text_that_is_not_utf8_closes_with_1007(shared: Gateway) -> None:
    client = await shared.client()
    await client.send(b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}')
    code, _ = await asyncio.wait_for(client.closed, 60)
    assert code == 1007


async def test_a_lone_surrogate_costs_nobody_the_answer(shared: Gateway, model: Any) -> None:
    client, session = await shared.session()
    nonce = secrets.token_hex(4)
    # json.dumps writes the escape \ud800, which is legal JSON; Grok would drop such a line unread.
    result = await client.prompt(session, f"{nonce} \ud800 {steps({'text': 'a'})}")
    assert result["stopReason"] == "end_turn"
    assert model.calls(nonce)
    await client.close()


async def test_an_escaped_line_end_stays_one_message(shared: Gateway, model: Any) -> None:
    client, session = await shared.session()
    nonce = secrets.token_hex(4)
    blocks = json.dumps([{"type": "text", "text": f"{nonce}\nsecond line {steps({'text': 'ok'})}"}])
    frame = (
        f'{{"jsonrpc":"2.0",\n"id":"lines",\r\n"method":"session/prompt",'
        f'"params":{{"sessionId":"{session}",\n"prompt":{blocks}}}}}'
    )
    _, message = await exchange(client, frame)
    assert message["result"]["stopReason"] == "end_turn"
    assert f"{nonce}\nsecond line" in model.calls(nonce)[-1].text
    await client.close()


async def test_prompts_for_foreign_and_unknown_sessions(shared: Gateway) -> None:
    owner, session = await shared.session()
    stranger = await shared.client()
    for sid in (session, "00000000-0000-7000-8000-000000000000", "", "../../etc"):
        with pytest.raises(RpcError):
            await stranger.prompt(sid, steps({"text": "no"}))
    with pytest.raises(RpcError):
        await stranger.call("session/close", {"sessionId": session})
    await stranger.notify("session/cancel", {"sessionId": session})
    assert (await owner.prompt(session, steps({"text": "mine"})))["stopReason"] == "end_turn"
    await owner.close()
    await stranger.close()


@pytest.mark.parametrize("cwd", ["relative", "", 7, None])
async def test_a_bad_cwd_is_an_error(shared: Gateway, cwd: Any) -> None:
    client = await shared.client()
    with pytest.raises(RpcError):
        await client.call("session/new", {"cwd": cwd, "mcpServers": []})
    assert await client.new_session(shared.work)
    await client.close()


async def test_a_cwd_that_does_not_exist_is_answered(shared: Gateway) -> None:
    client = await shared.client()
    answer = await (await client.start("session/new", {"cwd": "/no/such/folder", "mcpServers": []}))
    assert ("result" in answer) != ("error" in answer)
    assert await client.new_session(shared.work)
    await client.close()


async def test_credentials_are_not_taken_from_clients(shared: Gateway) -> None:
    client = await shared.client()
    for method in ("_x.ai/auth/logout", "x.ai/auth/logout", "_x.ai/settings/update", "_x.ai/mcp/upsert"):
        with pytest.raises(RpcError) as refused:
            await client.call(method, {})
        assert refused.value.code in (-32055, -32601)
    await client.close()
