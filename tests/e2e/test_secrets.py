"""The secret, tokens and prompts never reach logs, command lines or error texts."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import stat
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.client import RpcError
from tests.e2e.gateway import Gateway
from tests.engines.processes import carriers
from tests.engines.scripted_model import steps

pytestmark = pytest.mark.grok


async def test_nothing_private_is_logged_or_shown(real: Gateway) -> None:
    """A full life with nonces in every private place, kills included; then everything is searched."""
    nonces = {name: f"{name}-{secrets.token_hex(12)}" for name in ("prompt", "rule", "answer", "tool")}
    nonces["token"] = secrets.token_hex(32)
    server = {"type": "http", "name": "pi", "url": f"{real.http}/mcp/{nonces['token']}", "headers": []}
    client = await real.client()
    params = {"cwd": str(real.work), "mcpServers": [server], "_meta": {"rules": nonces["rule"]}}
    session = (await client.call("session/new", params))["sessionId"]
    command = {"command": f"echo {nonces['tool']}", "description": "d"}
    script = steps({"tools": [{"name": "run_terminal_command", "args": command}]}, {"text": nonces["answer"]})
    await client.prompt(session, f"{nonces['prompt']} {script}")
    assert nonces["answer"] in client.text(session)
    for frame in (f'{{"{nonces["prompt"]}"', f'{{"jsonrpc":"2.0","id":1,"method":"{nonces["prompt"]}"}}'):
        await client.send(frame)
    with pytest.raises(RpcError):
        await client.prompt(nonces["token"], nonces["prompt"])
    os.kill(real.bridges()[0].pid, signal.SIGKILL)
    await client.wait_for(lambda m: m.get("method") == "gateway/reattached")
    await client.prompt(session, f"{nonces['prompt']} {steps({'text': 'x'})}")
    os.kill(real.pid("leader"), signal.SIGKILL)
    await client.wait_for(lambda m: m.get("method") == "gateway/leader_restarted")
    await client.prompt(session, f"{nonces['prompt']} {steps({'text': 'x'})}")
    status = (await real.run("status", "--json")).stdout
    doctor = (await real.run("doctor")).stdout
    for name, nonce in {**nonces, "secret": real.secret}.items():
        found = real.files_with(nonce)
        if name == "tool":  # the command itself has it in its arguments; our processes have not
            found = [place for place in found if "echo" not in place]
        assert not found, f"{name} in {found}"
        assert nonce not in status
        assert nonce not in doctor
    await client.close()


async def test_children_do_not_inherit_the_secret(shared: Gateway) -> None:
    client = await shared.client()
    for pid in carriers(str(shared.folder)):
        assert shared.secret.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    await client.close()


async def test_files_are_private(shared: Gateway) -> None:
    client, _ = await shared.session()
    for folder, names, files in os.walk(shared.folder / "gw"):
        for name in files:
            mode = os.lstat(os.path.join(folder, name)).st_mode
            private = stat.S_IMODE(mode) & 0o077 == 0 or folder_is_private(folder)
            assert private, f"{folder}/{name}: {oct(mode)}"
        names.sort()
    assert stat.S_IMODE(shared.paths.secret.stat().st_mode) == 0o600
    assert len(shared.secret) == 64
    journals = list(shared.paths.journals.iterdir())
    assert journals
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in journals)
    await client.close()


def folder_is_private(folder: str) -> bool:
    """Whether this folder or one above it inside the instance keeps others out."""
    while folder != "/":
        if stat.S_IMODE(os.stat(folder).st_mode) & 0o077 == 0:
            return True
        folder = os.path.dirname(folder)
    return False


async def test_journals_go_with_their_connections(shared: Gateway) -> None:
    client, _ = await shared.session()
    connection = client.connection
    assert any(connection in file.name for file in shared.paths.journals.iterdir())
    await client.close()
    async with asyncio.timeout(60):
        while any(connection in file.name for file in shared.paths.journals.iterdir()):
            await asyncio.sleep(0.05)


async def test_the_secret_is_read_again_at_each_use(real: Gateway) -> None:
    old = real.secret
    client = await real.client()
    fresh = secrets.token_hex(32)
    real.paths.secret.write_text(fresh)
    newcomer = await real.client()
    assert newcomer.connection
    await newcomer.close()
    assert not client.closed.done()
    assert await status_with(real, old) == 401
    await client.close()


async def status_with(gateway: Gateway, secret: str) -> int:
    headers: dict[str, Any] = {"Authorization": f"Bearer {secret}"}
    async with aiohttp.ClientSession() as http, http.get(f"{gateway.http}/status", headers=headers) as answer:
        return answer.status
