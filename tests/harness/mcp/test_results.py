"""A result of a server's tool as client and model get it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.limits import SIZES
from harness.mcp.results import result_text, tool_output
from tests.harness.mcp.support import said


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (said("a"), "a"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
         "[image of type image/png, about 3 bytes, not shown]"),
        ({"content": [{"type": "audio", "data": "", "mimeType": "audio/wav"}]},
         "[audio of type audio/wav, about 0 bytes, not shown]"),
        ({"content": [{"type": "resource", "resource": {"uri": "u", "text": "t"}}]}, "[resource u]\nt"),
        ({"content": [{"type": "resource", "resource": {"uri": "u", "mimeType": "m", "blob": "AA"}}]},
         "[resource u of type m, not shown]"),
        ({"content": [{"type": "resource_link", "uri": "u", "name": "n"}]}, "[resource u: n]"),
        ({"content": [{"type": "dance"}]}, "[content of the unknown type 'dance', not shown]"),
        ({"content": [], "structuredContent": {"a": [1, "é"]}}, '{"a":[1,"é"]}'),
        ({"content": [{"type": "text", "text": "a"}], "structuredContent": {"a": 1}}, "a"),
        ({"content": "text"}, ""),
        ({"content": [5, None]}, ""),
        ({}, ""),
    ],
)  # fmt: skip
def test_what_a_model_can_read_of_it(result: dict[str, Any], text: str) -> None:
    assert result_text(result) == text


def test_a_result_and_a_failure_on_the_wire(tmp_path: Path) -> None:
    good = tool_output("srv", "echo", said("hey"), "c", tmp_path / "mcp")
    names = {"tool_name": "echo", "server_name": "srv"}
    assert good.raw() == {"type": "MCP", **names, "output": {"OkayOutput": "hey"}}
    assert (good.prompt, good.is_error) == ("hey", False)
    bad = tool_output("srv", "echo", said("broke", isError=True), "c", tmp_path / "mcp")
    assert bad.raw() == {"type": "MCP", **names, "output": {"Error": "broke"}, "is_error": True}
    assert bad.is_error
    assert "broke" in bad.prompt
    assert not (tmp_path / "mcp").exists()


@pytest.mark.parametrize(
    ("text", "name"),
    [("é" * SIZES.mcp_output, "______call.txt"), (json.dumps(["x" * SIZES.mcp_output]), "______call.json")],
)
def test_a_long_one_is_cut_and_kept_whole(tmp_path: Path, text: str, name: str) -> None:
    folder = tmp_path / "mcp"
    output = tool_output("srv", "echo", said(text), "../../call", folder)
    shown = output.fields["output"]["OkayOutput"]
    assert output.prompt == shown
    assert len(shown.encode()) < SIZES.mcp_output + 500
    assert str(len(text.encode())) in shown
    assert str(folder / name) in shown
    assert (folder / name).read_text() == text
    assert (folder / name).stat().st_mode & 0o777 == 0o600
    assert output.completeness == "truncated"
    assert [path.name for path in tmp_path.iterdir()] == ["mcp"]


def test_exactly_the_bound_is_whole(tmp_path: Path) -> None:
    output = tool_output("srv", "echo", said("x" * SIZES.mcp_output), "c", tmp_path / "mcp")
    assert len(output.prompt) == SIZES.mcp_output
    assert output.completeness == "complete"


def test_what_cannot_be_kept_is_said(tmp_path: Path) -> None:
    (tmp_path / "mcp").write_text("a file in the way")
    output = tool_output("srv", "echo", said("x" * 30_000), "c", tmp_path / "mcp")
    assert "could not be kept" in output.prompt


def test_half_a_character_does_not_reach_the_model(tmp_path: Path) -> None:
    assert tool_output("srv", "echo", said("a\ud800b"), "c", tmp_path / "mcp").prompt == "a?b"
