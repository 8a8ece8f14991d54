"""Beside the original: what grok 1.0.41 decided about the same calls, recorded from the running program.

Each difference is stricter than the original, and each is listed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.permissions import Mode
from tests.harness.permissions.support import call, gate, word

RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("recorded.json").read_text())
STRICTNESS = {"allow": 0, "ask": 1, "deny": 2, "reject": 2}

#: Set: what is asked or denied here and let through there, each for the reason in front.
STRICTER = {
    # sets the clock, names the machine, changes branches, writes outside of the workspace
    *("date -s 2020-01-01", "date -s x", "date --set=x", "hostname foo", "hostname -F x"),
    *("git branch -D foo", "git branch newname", "touch /nonex/x", "mkdir /nonex/y"),
    # another repository, whose configuration nobody looked at; a helper program for each file
    *("git -C . status", "git -C /tmp status", "rg -z x"),
    # a list that only the shell expands
    "ls {a,b}",
    # a denied command behind a path, an escape, a wrapper or a shell that reads its input
    *("/bin/sed x", "\\sed x", "$'\\x73ed' x", "xargs sed x", "echo a | xargs sed x", "sudo sed x"),
    *("nohup sed x", "time sed x", "eval sed x", "eval 'sed x'", "find . -exec sed x {} \\;", "coproc sed x"),
    *("trap 'sed x' EXIT", "alias q=sed; q x", "setsid sed x", "watch sed x", "ssh h sed x", "busybox sed x"),
    *(
        "script -c 'sed x' /dev/null",
        "flock f sed x",
        "unshare sed x",
        "bash <<<'sed x'",
        "echo 'sed x' | sh",
    ),
    *("cat <<'EOF' | bash\nsed x\nEOF", "bash <<'EOF'\nsed x\nEOF"),
    # a program that may read a file which must not be read
    *("python3 secret.txt", "git add secret.txt"),
    # auto mode without a classifier asks
    "python3 -V",
}


@pytest.mark.parametrize("recorded", RECORDED, ids=[r["name"] for r in RECORDED])
async def test_every_difference_is_listed(recorded: dict[str, Any], tmp_path: Path) -> None:
    mode = Mode(recorded["mode"]) if recorded["mode"] else None
    ours = gate(tmp_path, recorded["rules"], mode=mode)
    for name, arguments, theirs in recorded["calls"]:
        verdict = word(await ours.decide(call(name, arguments)))
        said = arguments.get("command", "")
        if verdict == theirs or (name == "grep" and arguments.get("glob") == "secret.txt"):
            continue
        if recorded["name"] == "auto" and name in ("use_tool", "spawn_subagent", "scheduler_create"):
            assert verdict == "ask"  # where the classifier would have blocked it, a person is asked
            continue
        assert STRICTNESS[verdict] > STRICTNESS[theirs], (name, arguments, theirs, verdict)
        assert said in STRICTER, (name, arguments, theirs, verdict)


def test_no_difference_is_listed_in_vain() -> None:
    recorded = {c[1].get("command") for r in RECORDED for c in r["calls"]}
    assert recorded >= STRICTER
