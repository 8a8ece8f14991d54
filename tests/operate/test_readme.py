"""README's example client runs as it stands there."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

from tests.operate.fake_gateway import FakeGateway, Message, fake_gateway

ROOT = Path(__file__).resolve().parents[2]


async def test_the_example_client(short_tmp: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)

    async def turn(gateway: FakeGateway, message: Message) -> None:
        await gateway.say("it ")
        await gateway.say("works")
        await gateway.end(message)

    async with fake_gateway(short_tmp / "gg", turn) as gateway:
        secret = short_tmp / ".config/grok-gateway/secret"
        secret.parent.mkdir(parents=True)
        secret.write_text(f"{gateway.secret}\n")
        example = example.replace("ws://127.0.0.1:2419/ws", gateway.uri)
        env = {**gateway.environ, "HOME": str(short_tmp)}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", example), env=env, stdout=subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    assert out == b"it works"


def test_every_page_that_readme_names_exists() -> None:
    text = (ROOT / "README.md").read_text()
    pages = re.findall(r"\]\((docs/[\w.]+)\)", text)
    assert pages
    for page in pages:
        assert (ROOT / page).is_file(), page
