"""``read_file``: ranges, anchors, bounds, what is no text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.limits import SIZES
from harness.outcome import Completeness, ToolOutput
from harness.tools.read import Read
from harness.tools.reading import is_binary, numbered, take_window, tokens
from tests.harness.tools.conftest import Workbench

READ = Read()
LINES = "".join(f"line {n}\n" for n in range(1, 26))


def content(output: ToolOutput) -> dict[str, Any]:
    fields: dict[str, Any] = output.fields["FileContent"]
    return fields


@pytest.mark.parametrize(
    ("text", "offset", "limit", "expected"),
    [
        ("a\nb", None, None, "1→a\nb"),
        ("a\nb\n", None, None, "1→a\nb\n"),
        ("\n", None, None, "1→\n"),
        ("a\n\n\nb\n", None, None, "1→a\n\n\nb\n"),
        ("a\r\nb\r\nc", None, None, "1→a\nb\nc"),
        ("a\rb\n", None, None, "1→a\rb\n"),
        (LINES, 5, 3, "5→line 5\nline 6\nline 7"),
        (LINES, 9, 3, "9→line 9\n10→line 10\nline 11"),
        (LINES, 0, 2, "1→line 1\nline 2"),
        (LINES, -3, None, "24→line 24\nline 25\n"),
        (LINES, -26, 2, "1→line 1\nline 2"),
        (LINES, -100, 1, "1→line 1"),
        (LINES, 25, None, "25→line 25\n"),
        (LINES, 26, None, "26→"),
        ("a\nb", -1, None, ""),
        ("a\nb", -2, None, "2→b"),
        (LINES, 27, None, ""),
        (LINES, 1, 0, ""),
    ],
)
def test_window(text: str, offset: int | None, limit: int | None, expected: str) -> None:
    assert numbered(take_window(text, offset, limit, SIZES.read_lines)) == expected


@given(st.text(alphabet="ab\n\r", max_size=60), st.integers(-70, 70), st.integers(0, 70))
def test_a_window_is_a_slice(text: str, offset: int, limit: int) -> None:
    window = take_window(text, offset, limit, 20)
    fields = [line.removesuffix("\r") for line in text.split("\n")]
    assert window.total == len(fields)
    assert window.first >= 1
    assert len(window.lines) <= min(limit, 20)
    assert list(window.lines) == fields[window.first - 1 :][: min(limit, 20)]


async def test_the_card(bench: Workbench) -> None:
    bench.tree.put("a.txt", LINES)
    output = await bench.call(READ, {"target_file": "a.txt", "offset": 5, "limit": 2})
    assert content(output) == {
        "content": "5→line 5\nline 6",
        "content_concise": "5→line 5\nline 6",
        "absolute_path": f"{bench.tree.root}/a.txt",
        "offset": 5,
        "limit": 2,
        "raw_output": "line 5\nline 6\n",
        "total_lines": 26,
    }
    assert output.completeness is Completeness.COMPLETE
    assert output.prompt == "5→line 5\nline 6"


async def test_raw_keeps_line_ends(bench: Workbench) -> None:
    bench.tree.put("a.txt", b"a\r\nb\r\nc")
    whole = content(await bench.call(READ, {"target_file": "a.txt"}))
    assert whole["raw_output"] == "a\r\nb\r\nc"
    part = content(await bench.call(READ, {"target_file": "a.txt", "limit": 2}))
    assert part["raw_output"] == "a\r\nb\n"


async def test_a_long_file_is_cut_and_says_so(bench: Workbench) -> None:
    bench.tree.put("a.txt", "".join(f"row {n}\n" for n in range(1, 2501)))
    output = await bench.call(READ, {"target_file": "a.txt"})
    assert output.completeness is Completeness.TRUNCATED
    assert content(output)["content"].endswith("\n1000→row 1000")
    assert "1001 to 2501" in output.prompt
    more = await bench.call(READ, {"target_file": "a.txt", "limit": 3000, "offset": 2})
    assert more.completeness is Completeness.TRUNCATED
    asked = await bench.call(READ, {"target_file": "a.txt", "limit": 10})
    assert asked.completeness is Completeness.COMPLETE


async def test_no_lines(bench: Workbench) -> None:
    bench.tree.put("a.txt", LINES)
    bench.tree.put("empty.txt", "")
    behind = await bench.call(READ, {"target_file": "a.txt", "offset": 100})
    assert not behind.is_error
    assert "26" in behind.prompt
    assert content(behind)["content"] == ""
    empty = await bench.call(READ, {"target_file": "empty.txt"})
    assert "empty" in empty.prompt
    assert content(empty)["total_lines"] == 0


async def test_too_many_tokens(bench: Workbench) -> None:
    bench.tree.put("many.txt", ("y" * 200 + "\n") * 900)
    bench.tree.put("one.txt", "x" * 120_000 + "\n")
    many = await bench.call(READ, {"target_file": "many.txt"})
    assert "45358" in many.prompt
    assert "25000" in many.prompt
    assert "offset" in many.prompt
    assert "grep" in many.prompt
    assert "run_terminal_command" not in many.prompt
    one = await bench.call(READ, {"target_file": "one.txt"})
    assert "30001" in one.prompt
    assert "run_terminal_command" in one.prompt
    assert many.is_error
    assert not (await bench.call(READ, {"target_file": "many.txt", "limit": 10})).is_error


@pytest.mark.parametrize("path", ["skills/foo/SKILL.md", "AGENTS.md", "sub/CLAUDE.md", "skills/x.md"])
async def test_instructions_come_whole(bench: Workbench, path: str) -> None:
    bench.tree.put(path, "".join(f"{'s' * 100} {n}\n" for n in range(1500)))
    output = await bench.call(READ, {"target_file": path, "offset": 3, "limit": 3})
    assert content(output)["total_lines"] == 1501
    assert "limit" not in content(output)
    assert content(output)["content"].count("\n") == 1500


@pytest.mark.parametrize(
    ("path", "variant"),
    [
        ("missing.txt", "FileNotFound"),
        ("dang", "FileNotFound"),
        ("sub", "IsADirectory"),
        ("sub/", "IsADirectory"),
        ("", "IsADirectory"),
        ("a.txt/x", "FileReadError"),
        ("z" * 300, "FileReadError"),
        ("nul.txt", "FileReadError"),
        ("x.exe", "FileReadError"),
        ("control.txt", "FileReadError"),
    ],
)
async def test_refusals(bench: Workbench, path: str, variant: str) -> None:
    bench.tree.put("a.txt", "a")
    bench.tree.put("sub/x", "x")
    bench.tree.symlink("dang", "gone")
    bench.tree.put("nul.txt", b"a\x00b\n")
    bench.tree.put("x.exe", b"MZ text")
    bench.tree.put("control.txt", bytes(range(1, 32)) * 10)
    output = await bench.call(READ, {"target_file": path})
    assert output.is_error
    assert list(output.fields) == [variant]
    assert output.fields[variant] == output.prompt


async def test_a_link_tells_where_it_leads(bench: Workbench) -> None:
    bench.tree.put("a.txt", "a\n")
    bench.tree.symlink("link", "a.txt")
    assert content(await bench.call(READ, {"target_file": "link"}))["absolute_path"].endswith("/a.txt")


async def test_bytes_that_are_no_text_are_marked(bench: Workbench) -> None:
    bench.tree.put("a.txt", b"a\xffb\n")
    assert content(await bench.call(READ, {"target_file": "a.txt"}))["content"] == "1→a\ufffdb\n"


def test_binary_is_judged_by_its_beginning() -> None:
    assert not is_binary("/a.txt", b"x" * SIZES.binary_sample + b"\0")
    assert is_binary("/a.txt", b"x\0")
    assert is_binary("/a.PNG", b"x")
    assert not is_binary("/png", b"x")
    assert not is_binary("/a.txt", "naïve – “text”\t\x1b[1m\n".encode())
    assert not is_binary("/a.txt", b"")


def test_tokens_are_bytes_by_four() -> None:
    assert tokens("é" * 4) == 2
