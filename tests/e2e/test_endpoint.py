"""The port as a stranger meets it: refusals, their order, and what is open without a secret."""

from __future__ import annotations

import asyncio
import base64
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.gateway import Gateway
from tests.engines.fake import FakeEngine


async def head(gateway: Gateway, raw: str | bytes, wait: float = 10) -> tuple[int, dict[str, str], str]:
    """(status, headers, body) for raw request bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(raw.encode() if isinstance(raw, str) else raw)
    await writer.drain()
    async with asyncio.timeout(wait):
        top = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        body = b"" if " 101 " in top else await reader.read(65536)
    writer.close()
    lines = top.split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    return int(lines[0].split()[1]), fields, body.decode("utf-8", "replace")


def upgrade(gateway: Gateway, path: str = "/ws", **changed: str | None) -> str:
    """An upgrade request; a header given as None is left out."""
    fields: dict[str, str | None] = {
        "Host": f"127.0.0.1:{gateway.port}",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": base64.b64encode(secrets.token_bytes(16)).decode(),
        "Sec-WebSocket-Version": "13",
        "Authorization": f"Bearer {gateway.secret}",
        **{name.replace("_", "-"): value for name, value in changed.items()},
    }
    lines = [f"{name}: {value}\r\n" for name, value in fields.items() if value is not None]
    return f"GET {path} HTTP/1.1\r\n{''.join(lines)}\r\n"


async def test_the_right_request_is_taken(shared_fake: Gateway) -> None:
    status, fields, _ = await head(shared_fake, upgrade(shared_fake))
    assert status == 101
    assert len(fields["grok-gateway-connection"]) == 32
    assert fields["grok-gateway-received"] == "0"


@pytest.mark.parametrize("host", ["localhost:{port}", "127.0.0.1:{port}", "[::1]:{port}", "LOCALHOST:{port}"])
async def test_loopback_hosts_are_taken(shared_fake: Gateway, host: str) -> None:
    status, _, _ = await head(shared_fake, upgrade(shared_fake, Host=host.format(port=shared_fake.port)))
    assert status == 101


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"Host": "evil.example:{port}"}, 421),
        ({"Host": "127.0.0.1.evil.example:{port}"}, 421),
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Host": "localhost.:{port}"}, 421),
        ({"Origin": "http://127.0.0.1:{port}"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Origin": "https://evil.example", "Authorization": None}, 403),
        ({"Host": "evil.example:{port}", "Origin": "x"}, 421),
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Bearer " + "0" * 64}, 401),
        ({"Authorization": "Basic abc"}, 401),
        ({"Upgrade": None}, 426),
        ({"Grok_Gateway_Connection": "0" * 32, "Grok_Gateway_Received": "0"}, 410),
    ],
)
async def test_refusals_before_the_upgrade(
    shared_fake: Gateway, changed: dict[str, str | None], status: int
) -> None:
    filled = {k: v.format(port=shared_fake.port) if v else v for k, v in changed.items()}
    got, _, body = await head(shared_fake, upgrade(shared_fake, **filled))
    assert got == status
    assert shared_fake.secret not in body


@pytest.mark.parametrize("path", ["/", "/ws/", "/WS", "/other", "/../ws", "//ws", "/ws%2f"])
async def test_other_paths_are_not_there(shared_fake: Gateway, path: str) -> None:
    status, _, _ = await head(shared_fake, upgrade(shared_fake, path))
    assert status in (404, 400)


@pytest.mark.parametrize(
    "raw", ["hello\r\n\r\n", "GET\r\n\r\n", "GET /ws HTTP/2.0\r\n\r\n", "\x16\x03\x01\r\n\r\n"]
)
async def test_malformed_requests(shared_fake: Gateway, raw: str) -> None:
    status, _, _ = await head(shared_fake, raw)
    assert status in (400, 505)


async def test_a_head_that_never_ends(shared_fake: Gateway) -> None:
    status, _, _ = await head(shared_fake, "GET /ws HTTP/1.1\r\nX: " + "y" * 20_000)
    assert status == 431
    status, _, _ = await head(shared_fake, "GET /ws HTTP/1.1\r\nHost: ")
    assert status == 408


async def test_health_needs_no_secret_and_tells_nothing(shared_fake: Gateway) -> None:
    async with aiohttp.ClientSession() as http:
        for path, want in (("/healthz", 200), ("/readyz", 200), ("/status", 401), ("/metrics", 401)):
            async with http.get(shared_fake.http + path) as answer:
                assert answer.status == want
                assert len(await answer.text()) < 200
        headers = {"Authorization": f"Bearer {shared_fake.secret}"}
        for path in ("/status", "/metrics"):
            async with http.get(shared_fake.http + path, headers=headers) as answer:
                assert answer.status == 200
        async with http.get(shared_fake.http + "/healthz", headers={"Origin": "http://x"}) as answer:
            assert answer.status == 403


async def test_unknown_lent_tool_tokens_are_not_found(shared_fake: Gateway) -> None:
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}
    async with aiohttp.ClientSession() as http:
        for token in ("x", secrets.token_hex(32), "../secret", "%2e%2e"):
            async with http.post(f"{shared_fake.http}/mcp/{token}", json=body) as answer:
                assert answer.status in (400, 404)
                assert shared_fake.secret not in await answer.text()


async def test_only_loopback_is_bound(shared_fake: Gateway) -> None:
    bound = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    port = f"{shared_fake.port:04X}"
    assert f"0100007F:{port}" in bound
    assert f"00000000:{port}" not in bound


async def test_no_descriptors_are_lost(make_gateway: Callable[..., Gateway], fake_engine: FakeEngine) -> None:
    """After many connections every process has as many descriptors as after a few."""
    gateway = make_gateway(fake_engine.path, scale=0.02).up()  # a lost client is given up after 1.2 s

    async def burst(rounds: int) -> None:
        for _ in range(rounds):
            await asyncio.gather(*(head(gateway, upgrade(gateway)) for _ in range(4)))
            await asyncio.gather(*(head(gateway, "GET / HTTP/1.1\r\n\r\n") for _ in range(8)))

    def descriptors() -> dict[int, int]:
        pids = [gateway.pid("front"), *gateway.workers().values(), gateway.pid("watchdog")]
        return {pid: len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids}

    await burst(2)
    before = await settled(descriptors)
    await burst(20)
    after = await settled(descriptors)
    assert {pid: after[pid] - before[pid] for pid in before if after[pid] > before[pid] + 3} == {}


async def settled(count: Callable[[], dict[int, int]]) -> dict[int, int]:
    """The counts once they have stopped changing."""
    last = count()
    for _ in range(30):
        await asyncio.sleep(2)  # longer than a lost client is waited for
        now = count()
        if now == last:
            break
        last = now
    return last


async def test_a_taken_port_stops_up_and_touches_no_leader(
    make_gateway: Callable[..., Gateway], fake_engine: FakeEngine
) -> None:
    gateway = make_gateway(fake_engine.path)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", gateway.port))
        holder.listen()
        done = await gateway.run("up")
    assert done.returncode == 1
    assert str(gateway.port) in done.stdout + done.stderr
    assert not gateway.processes("leader")


async def test_a_second_instance_on_the_port_leaves_the_first_alone(
    make_gateway: Callable[..., Gateway], fake_engine: FakeEngine
) -> None:
    first = make_gateway(fake_engine.path).up()
    client, session = await first.session()
    second = make_gateway(fake_engine.path, GROK_GATEWAY_PORT=str(first.port))
    assert (await second.run("up")).returncode == 1
    assert not second.processes("leader")
    assert (await client.prompt(session, "here"))["stopReason"] == "end_turn"
    await client.close()


async def test_up_twice_is_up_once(shared_fake: Gateway) -> None:
    leader, front = shared_fake.pid("leader"), shared_fake.pid("front")
    done = await shared_fake.run("up")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (shared_fake.pid("leader"), shared_fake.pid("front")) == (leader, front)
