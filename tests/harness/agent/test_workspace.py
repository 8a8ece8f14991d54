"""A client asks for the repository, the hunks and the rewind points of a session."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from tests.engines.scripted_model import steps
from tests.harness.agent.conftest import TestClient


async def test_repository_hunks_and_points(new_client: Callable[..., TestClient]) -> None:
    client = new_client()
    await client.open(yoloMode=True)
    named = {"sessionId": client.session}
    answer = await client.call("_x.ai/git/status", named)
    assert answer["error"]["code"] == -32603  # no repository yet

    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    (client.work / "a").write_text("1\n2\n3\n")
    for argv in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run(["git", *argv], cwd=client.work, env={**os.environ, **identity}, check=True)

    edit = {"file_path": "a", "old_string": "2\n", "new_string": "two\n"}
    text = steps({"tools": [{"name": "search_replace", "args": edit}]}, {"text": "done"})
    await client.turn(text)
    status = (await client.result("_x.ai/git/status", named))["result"]
    assert (status["branch"], [change["path"] for change in status["unstaged"]]) == ("main", ["a"])
    (hunk,) = (await client.result("_x.ai/hunk-tracker/get-hunks", named))["result"]["hunks"]
    assert hunk["source"] == {"type": "agentEdit", "prompt_index": 0}
    points = (await client.result("_x.ai/rewind/points", named))["rewind_points"]
    assert [(point["prompt_index"], point["num_file_snapshots"]) for point in points] == [(0, 1)]
    assert points[0]["prompt_preview"] == text[:57] + "..."

    decision = {**named, "hunkId": hunk["id"], "action": "reject"}
    assert (await client.result("_x.ai/hunk-tracker/hunk-action", decision))["result"]["success"] is True
    assert (client.work / "a").read_text() == "1\n2\n3\n"
    wrong = await client.call("_x.ai/hunk-tracker/hunk-action", {**named, "hunkId": "x"})
    assert wrong["error"]["code"] == -32602
    assert (await client.call("_x.ai/git/bogus", named))["error"]["code"] == -32601
