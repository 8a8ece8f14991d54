"""Engines that write odd things: only JSON-RPC objects reach a client, whole and in order."""

from __future__ import annotations

import json

import pytest

from tests.e2e.client import RpcError
from tests.e2e.gateway import Gateway
from tests.engines.fake import FakeEngine, do

NOISE = [
    "Welcome to the engine!\n",
    "\x1b[31mERROR\x1b[0m something\n",
    "\n",
    "   \n",
    '"a string"\n',
    "[1]\n",
    "42\n",
    "null\n",
    '{"jsonrpc":"2.0","method":"session/update"\n',
    "{not json}\n",
    "\udcff\udcfe not UTF-8\n",
    "carriage\rreturn\n",
]


async def test_noise_on_stdout_goes_to_the_log(shared_fake: Gateway, knobs: FakeEngine) -> None:
    knobs.set(bridge={"noise": NOISE})
    client, session = await shared_fake.session()
    assert (await client.prompt(session, do({"say": "clean", "chunks": 5})))["stopReason"] == "end_turn"
    assert client.text(session) == "clean"
    for frame in client.frames:
        assert isinstance(json.loads(frame), dict)
    assert not any(b"Welcome" in frame or b"a string" in frame for frame in client.frames)
    await client.close()


async def test_a_bridge_that_loses_its_first_message_is_asked_again(
    shared_fake: Gateway, knobs: FakeEngine
) -> None:
    """Grok does when many connect at once; the same bridge answers everything else."""
    knobs.set(bridge={"lose_first": 1})
    client, session = await shared_fake.session()
    assert (await client.prompt(session, "heard"))["stopReason"] == "end_turn"
    assert client.text(session) == "heard"
    await client.close()


@pytest.mark.parametrize("setting", [{"pieces": 1}, {"pieces": 3}, {"pieces": 65_537}, {"crlf": True}])
async def test_lines_arrive_whole_however_they_are_written(
    shared_fake: Gateway, knobs: FakeEngine, setting: dict[str, object]
) -> None:
    knobs.set(bridge=setting)
    client, session = await shared_fake.session()
    text = "äß€\U0001f600 " * 200
    await client.prompt(session, do({"say": text, "chunks": 3}))
    assert client.text(session) == text
    assert not any(frame.endswith(b"\r") for frame in client.frames)
    await client.close()


async def test_a_byte_order_mark_costs_only_its_line(shared_fake: Gateway, knobs: FakeEngine) -> None:
    knobs.set(bridge={"noise": ['\ufeff{"jsonrpc":"2.0","method":"session/update","params":{}}\n']})
    client, session = await shared_fake.session()
    assert (await client.prompt(session, do({"say": "after"})))["stopReason"] == "end_turn"
    assert not any(frame.startswith(b"\xef\xbb\xbf") for frame in client.frames)
    await client.close()


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","method":"_x.ai/session_notification","params":{"sessionId":"%","a":"\\ud800"}}',
        '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"%","n":1180591620717411303424}}',
        '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"%","update":{"sessionUpdate":"new_kind"}}}',
        '{"jsonrpc":"2.0","method":"_x.ai/never/seen","params":{"sessionId":"%","f":1.0,"f":2.50}}',
    ],
)
async def test_unknown_lines_pass_byte_for_byte(shared_fake: Gateway, line: str) -> None:
    client, session = await shared_fake.session()
    line = line.replace("%", session)
    await client.prompt(session, do({"raw": line}))
    assert line.encode() in client.frames
    await client.close()


async def test_many_lines_in_one_write_are_many_frames(shared_fake: Gateway) -> None:
    client, session = await shared_fake.session()
    await client.prompt(session, do({"updates": 500}))
    updates = [m for m in client.messages if m.get("method") == "session/update"]
    assert len(updates) == 500
    assert all(b"\n" not in frame for frame in client.frames)
    await client.close()


async def test_a_line_over_the_engines_limit_costs_only_itself(shared_fake: Gateway) -> None:
    client, session = await shared_fake.session()
    script = do({"say": "before "}, {"bytes": 65 * 2**20}, {"say": "after"})
    assert (await client.prompt(session, script, timeout=90))["stopReason"] == "end_turn"
    assert client.text(session) == "before after"
    await client.close()


async def test_stderr_of_a_bridge_is_drained_and_kept_off_the_wire(
    shared_fake: Gateway, knobs: FakeEngine
) -> None:
    knobs.set(bridge={"stderr": "warning: nothing\n" * 100_000})
    client, session = await shared_fake.session()
    assert (await client.prompt(session, "hello"))["stopReason"] == "end_turn"
    assert not any(b"warning: nothing" in frame for frame in client.frames)
    await client.close()


async def test_a_bridge_that_exits_at_once_is_named(shared_fake: Gateway, knobs: FakeEngine) -> None:
    knobs.set(bridge={"exit_at_once": {"code": 7, "stderr": "this licence has run out\n"}})
    client = await shared_fake.connect()
    with pytest.raises(RpcError) as failed:
        await client.initialize()
    assert failed.value.code == -32051
    assert "7" in str(failed.value)
    assert "this licence has run out" in str(failed.value)


async def test_an_engine_that_does_not_answer_is_given_up(shared_fake: Gateway, knobs: FakeEngine) -> None:
    """set_* has the shortest limit of the table; the engine swallows it like an unknown session."""
    knobs.set(bridge={"hang_on": ["session/set_mode"]})
    client, session = await shared_fake.session()
    with pytest.raises(RpcError) as failed:
        await client.call("session/set_mode", {"sessionId": session, "modeId": "plan"})
    assert failed.value.code == -32053
    assert failed.value.data["retryable"] in (True, False)
    assert (await client.prompt(session, "alive"))["stopReason"] == "end_turn"
    await client.close()
