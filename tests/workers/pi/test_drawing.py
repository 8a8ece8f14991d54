"""Entries as lines, and what came with the extension."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gateway.front.pi_models import SHIPPED
from tests.conftest import ROOT
from workers.pi import protocol
from workers.pi.drawing import tool_lines, turn_lines
from workers.pi.program import version_of

CALL: dict[str, Any] = {
    "tool": "run",
    "n": 3,
    "input": {"command": "x" * 200},
    "status": "failed",
    "output": "\x1b[2Jout\t" + "y" * 900,
    "durationMs": 1234,
}


def text(line: dict[str, Any]) -> str:
    return "".join(part for _, part in line["spans"])


def test_a_call_is_one_line_and_more_when_it_is_unfolded() -> None:
    head, body = tool_lines(CALL)
    assert text(head) == '[grok run] #3 {"command":"' + "x" * 88 + "… failed 1.2 s"
    assert [colour for colour, _ in head["spans"]] == ["toolTitle", "muted", "error"]
    assert "expanded" not in head
    assert body["expanded"]
    assert text(body) == "  out  " + "y" * 595, "neither escapes nor tabs, 600 characters"
    quick = CALL | {"status": "completed", "durationMs": 40, "output": "", "input": "plain\ntext"}
    assert text(tool_lines(quick)[0]) == "[grok run] #3 plain text completed"


def test_reasons_diffs_and_subagents() -> None:
    more = {"denyReason": "z" * 300, "hookContext": "checked", "diff": "--- a\n+b\n c", "subagent": "a look"}
    head, reason, context, *diff = tool_lines(CALL | more)
    assert text(head).startswith("[grok a look › run] #3")
    assert text(reason) == f"  {'z' * 160}…"
    assert "expanded" not in reason
    assert (text(context), context["expanded"]) == ("  checked", True)
    assert [line["spans"][0][0] for line in diff] == ["error", "success", "muted"]


def test_a_turn_of_its_own_is_told_in_full() -> None:
    tool = {**CALL, "lines": tool_lines(CALL)}
    head, *tools, first, second = turn_lines("a task has ended", [tool], "w" * 5000 + "\nend")
    assert text(head) == "Grok went on by itself: a task has ended"
    assert tools == tool["lines"]
    assert (first, second) == ({"text": "w" * 5000}, {"text": "end"})


def test_what_the_extension_ships_is_what_is_decided_here() -> None:
    shipped = json.loads((ROOT / "workers/pi/extension/shipped.json").read_text("utf-8"))
    assert shipped == {"models": SHIPPED, "commands": protocol.COMMANDS}


def test_the_version_of_a_pi(tmp_path: Path) -> None:
    program = tmp_path / "pi/dist/bundle/cli.js"
    program.parent.mkdir(parents=True)
    program.touch()
    (tmp_path / "link").symlink_to(program)
    assert version_of(str(program)) == ""
    (tmp_path / "pi/dist/package.json").write_text('{"type": "module"}')
    (tmp_path / "pi/package.json").write_text('{"name": "@x/pi-coding-agent", "version": "1.6.0"}')
    assert version_of(str(tmp_path / "link")) == "1.6.0"
    assert version_of("") == ""
