"""Small, large and too large: every size arrives whole, or is refused with a reason."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from pathlib import Path

import pytest

from tests.e2e.client import Client, ClosedError, RpcError
from tests.e2e.gateway import Gateway
from tests.engines.fake import do
from tests.engines.scripted_model import ScriptedModel, steps

MIB = 2**20
SIZES = [65_535, 65_536, 65_537, MIB, 20 * MIB]
TOO_LARGE = -32054


@pytest.mark.grok
@pytest.mark.parametrize("size", SIZES)
async def test_a_frame_of_this_size_reaches_the_model(
    shared: Gateway, model: ScriptedModel, size: int
) -> None:
    client, session = await shared.session()
    first, last = secrets.token_hex(6), secrets.token_hex(6)
    script = steps({"text": "got it"})
    prefix = (
        f'{{"jsonrpc":"2.0","id":"big","method":"session/prompt","params":{{"sessionId":"{session}",'
        f'"prompt":[{{"type":"text","text":"{first} '
    )
    suffix = f' {last} "}},{{"type":"text","text":{_quoted(script)}}}]}}}}'
    frame = prefix + "x" * (size - len(prefix) - len(suffix)) + suffix
    assert len(frame) == size
    await client.send(frame)
    answer = await client.wait_for(lambda m: m.get("id") == "big", timeout=90)
    assert answer["result"]["stopReason"] == "end_turn"
    assert model.calls(first)
    assert model.calls(last)
    await client.close()


@pytest.mark.grok
@pytest.mark.parametrize("size", SIZES)
async def test_a_chunk_of_this_size_reaches_the_client(
    shared: Gateway, model: ScriptedModel, size: int
) -> None:
    client, session = await shared.session()
    script = model.script([{"text": "0123456789abcdef", "repeat": size // 16}])
    await client.prompt(session, script, timeout=90)
    assert client.text(session) == "0123456789abcdef" * (size // 16)
    await client.close()


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, MIB, 60 * MIB])
async def test_one_line_of_exactly_this_size(shared_fake: Gateway, size: int) -> None:
    """Counted in bytes of the line, which a real engine does not let one choose."""
    client, session = await shared_fake.session()
    frame = f'{{"jsonrpc":"2.0","method":"_x.ai/test","params":{{"sessionId":"{session}","pad":""}}}}'
    line = frame[:-3] + "y" * (size - len(frame)) + frame[-3:]
    assert len(line) == size
    script = shared_fake.work / "line.json"
    script.write_text(line)
    await client.prompt(session, do({"raw_file": str(script)}), timeout=90)
    assert line.encode() in client.frames
    await client.close()


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@pytest.mark.parametrize("filler", ["z", '\\"'])
async def test_more_than_the_engine_can_take_is_refused(shared_fake: Gateway, filler: str) -> None:
    """Bytes + quotes + backslashes above 63 MiB: the engine would swallow it and be dead for good."""
    client, session = await shared_fake.session()
    count = 63 * MIB // (1 if filler == "z" else 4) + 1
    with pytest.raises(RpcError) as refused:
        await client.call("session/prompt", _prompt(session, filler, count))
    assert refused.value.code == TOO_LARGE
    assert refused.value.data["retryable"] is False
    assert (await client.prompt(session, "small"))["stopReason"] == "end_turn"
    await client.close()


async def test_just_under_the_rule_passes(shared_fake: Gateway) -> None:
    client, session = await shared_fake.session()
    result = await client.call("session/prompt", _prompt(session, "z", 62 * MIB), timeout=90)
    assert result["stopReason"] == "end_turn"
    await client.close()


def _prompt(session: str, filler: str, count: int) -> dict[str, object]:
    text = filler.replace('\\"', '"') * count
    return {"sessionId": session, "prompt": [{"type": "text", "text": text + do()}]}


async def test_a_frame_over_64_mib_closes_with_a_reason(shared_fake: Gateway) -> None:
    client = await shared_fake.client()
    other, theirs = await shared_fake.session()
    frame = b'{"jsonrpc":"2.0","id":1,"method":"' + b"q" * (64 * MIB) + b'"}'
    with contextlib.suppress(ClosedError, ConnectionError):  # the writer may learn of it first
        await client.send(frame)
    code, reason = await asyncio.wait_for(client.closed, 60)
    assert code == 1009
    assert reason
    assert (await other.prompt(theirs, "undisturbed"))["stopReason"] == "end_turn"
    await other.close()


async def test_a_burst_of_small_updates_is_not_a_reason_to_drop(shared_fake: Gateway) -> None:
    client, session = await shared_fake.session()
    await client.prompt(session, do({"updates": 10_000}), timeout=90)
    assert client.text(session) == "".join(f"{n} " for n in range(10_000))
    assert not client.closed.done()
    await client.close()


async def test_a_large_image_in_a_prompt(shared_fake: Gateway) -> None:
    client, session = await shared_fake.session()
    image = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo" * (20 * MIB // 11)}
    blocks = [image, {"type": "text", "text": "look"}]
    result = await client.call("session/prompt", {"sessionId": session, "prompt": blocks}, timeout=90)
    assert result["stopReason"] == "end_turn"
    await client.close()


async def test_masked_fragments_make_one_message(shared_fake: Gateway) -> None:
    client = await shared_fake.client()

    async def parts() -> object:
        for part in ('{"jsonrpc":"2.0","id":"f",', '"method":"session/list",', '"params":{}}'):
            yield part

    await client.socket.send(parts())
    answer = await client.wait_for(lambda m: m.get("id") == "f")
    assert "result" in answer
    await client.close()


async def test_work_goes_on_beside_a_large_transfer(shared_fake: Gateway) -> None:
    big, theirs = await shared_fake.session()
    small, own = await shared_fake.session()
    transfer = await big.start_prompt(theirs, do({"bytes": 40 * MIB}))
    for _ in range(20):
        assert (await small.prompt(own, "hello"))["stopReason"] == "end_turn"
    assert (await Client.answer_to(transfer, 90))["stopReason"] == "end_turn"
    await big.close()
    await small.close()


def test_the_limits_of_the_sizes_above_are_the_projects(tmp_path: Path) -> None:
    from gateway.wire.limits import SIZES as TABLE

    assert (TABLE.frame, TABLE.grok_line) == (64 * MIB, 63 * MIB)
