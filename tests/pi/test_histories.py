"""What Grok is told when Pi's history is not its own: other models, forks, the session tree, images."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.e2e.gateway import Gateway
from tests.engines.scripted_model import ScriptedModel
from tests.pi.pi import PiProcess, text_of

Start = Callable[..., Awaitable[PiProcess]]

#: A second extension: `/go-to ID` moves to an entry of the session tree, as a person does with /tree.
_GO_TO = """\
export default function (pi: any) {
  pi.registerCommand("go-to", {
    description: "test",
    handler: async (id: string, ctx: any) => {
      await ctx.navigateTree(id.trim(), { summarize: false });
      ctx.ui.notify("there", "info");
    },
  });
}
"""


def png() -> str:
    """One white pixel, base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\xff\xff\xff")) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + parts).decode()


def other_model(home: Path, url: str) -> Path:
    """A home whose Pi knows a model of its own as well, at the same scripted endpoint."""
    (home / "agent").mkdir(parents=True)
    provider = {
        "baseUrl": url,
        "api": "openai-completions",
        "apiKey": "none",
        "models": [{"id": "plain", "contextWindow": 100_000, "maxTokens": 4000}],
    }
    (home / "agent/models.json").write_text(json.dumps({"providers": {"other": provider}}))
    return home


async def test_another_models_turns_are_told_at_the_return(
    start_pi: Start, shared: Gateway, model: ScriptedModel, tmp_path: Path
) -> None:
    pi = await start_pi(shared, home=other_model(tmp_path / "home", model.url))
    one = model.script([{"text": "from grok"}])
    await pi.prompt(f"one {one}")
    await pi.call("set_model", provider="other", modelId="plain")
    two = model.script([{"text": "from the other model"}])
    assert text_of(await pi.prompt(f"two {two}")) == "from the other model"
    await pi.call("set_model", provider="grok", modelId="scripted")
    three = model.script([{"text": "back"}])
    assert text_of(await pi.prompt(f"three {three}")) == "back"
    (call,) = model.calls(three)
    assert call.text.count("from the other model") == 1
    assert call.text.count(one) == 1, "told twice what it knows"
    assert len({e["grok"] for e in pi.entries("grok-session")}) == 1
    four = model.script([{"text": "on"}])
    await pi.prompt(f"four {four}")
    (call,) = model.calls(four)
    assert call.text.count("from the other model") == 1


async def test_a_fork_and_a_step_back_in_the_tree_get_their_own_session(
    start_pi: Start, shared: Gateway, model: ScriptedModel, tmp_path: Path
) -> None:
    go_to = tmp_path / "go-to.ts"
    go_to.write_text(_GO_TO)
    pi = await start_pi(shared, "-e", str(go_to))
    scripts = [model.script([{"text": f"answer {n}"}]) for n in range(2)]
    for script in scripts:
        await pi.prompt(f"say {script}")
    first = pi.entries("grok-session")[-1]["grok"]
    entries = (await pi.call("get_entries"))["entries"]
    answers = [e for e in entries if e["type"] == "message" and e["message"]["role"] == "assistant"]
    start = len(pi.records)
    await pi.call("prompt", message=f"/go-to {answers[0]['id']}")
    await pi.until(lambda r: r.get("method") == "notify" and r["message"] == "there", start)
    aside = model.script([{"text": "another way"}])
    assert text_of(await pi.prompt(f"aside {aside}")) == "another way"
    (call,) = model.calls(aside)
    assert "answer 0" in call.text
    assert "answer 1" not in call.text, "of the branch that was left"
    assert pi.entries("grok-session")[-1]["grok"] != first
    users = [e for e in entries if e["type"] == "message" and e["message"]["role"] == "user"]
    await pi.call("fork", entryId=users[1]["id"])
    forked = model.script([{"text": "forked"}])
    assert text_of(await pi.prompt(f"fork {forked}")) == "forked"
    (call,) = model.calls(forked)
    assert "answer 0" in call.text
    assert "answer 1" not in call.text
    assert len({e["grok"] for e in pi.entries("grok-session")}) == 3


async def test_an_image_becomes_a_file_that_grok_can_read(
    pi: PiProcess, model: ScriptedModel, shared: Gateway
) -> None:
    script = model.script([{"text": "seen"}])
    image = {"type": "image", "data": png(), "mimeType": "image/png"}
    assert text_of(await pi.prompt(f"look {script}", images=[image])) == "seen"
    (call,) = model.calls(script)
    found = re.search(r"(/\S+\.png)", call.text)
    assert found, call.text[-500:]
    assert Path(found[1]).read_bytes() == base64.b64decode(png())
