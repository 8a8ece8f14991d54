"""``grep``: what is shown of a result, and how it is counted."""

from __future__ import annotations

from typing import Any

import pytest

from harness.limits import SIZES
from harness.outcome import Completeness, ToolOutput
from harness.tools.grep import Grep, HiddenFiles, cut
from harness.workspace.search import Mode, SearchResult
from tests.harness.tools.conftest import Workbench

GREP = Grep()


async def grep(bench: Workbench, pattern: str, **arguments: Any) -> ToolOutput:
    return await bench.call(GREP, {"pattern": pattern, **arguments})


def lines(output: ToolOutput) -> list[str]:
    first, *rest, last = output.prompt.split("\n")
    assert first.startswith("<workspace_result workspace_path=")
    assert last == "</workspace_result>"
    return rest


async def test_content(bench: Workbench) -> None:
    bench.tree.put("a.txt", "one\nneedle\n")
    bench.tree.put("b/c.py", "needle()\nx\nneedle\n")
    output = await grep(bench, "needle")
    root = bench.tree.root
    assert lines(output) == [
        "3 matching lines:",
        *(f"{root}/a.txt", "2:needle", "", f"{root}/b/c.py", "1:needle()", "3:needle"),
    ]
    assert bytes(output.fields["stdout"]).decode() == output.prompt
    assert output.fields["exit_code"] == 0
    assert output.fields["match_count"] == 3
    assert output.fields["file_matches"] == [
        {"path": f"{root}/a.txt", "matches": [{"line_number": 2, "content": "needle"}]},
        {
            "path": f"{root}/b/c.py",
            "matches": [{"line_number": 1, "content": "needle()"}, {"line_number": 3, "content": "needle"}],
        },
    ]
    assert output.completeness is Completeness.COMPLETE
    assert output.locations[0].line == 2


@pytest.mark.parametrize(
    ("mode", "first"),
    [
        ("files_with_matches", "2 files:"),
        ("count", "3 matches in 2 files:"),
        ("content", "3 matching lines:"),
    ],
)
async def test_modes(bench: Workbench, mode: str, first: str) -> None:
    bench.tree.put("a.txt", "needle\n")
    bench.tree.put("b.txt", "needle\nneedle\n")
    assert lines(await grep(bench, "needle", output_mode=mode))[0] == first


async def test_options(bench: Workbench) -> None:
    bench.tree.put("a.txt", "1\n2\nNEEDLE\n4\n5\n")
    bench.tree.put("a.py", "needle\n")
    assert lines(await grep(bench, "needle", glob="*.txt", **{"-i": True, "-C": 1}))[2:] == [
        *("2-2", "3:NEEDLE", "4-4")
    ]
    assert lines(await grep(bench, "needle", type="py"))[0] == "1 matching lines:"
    assert lines(await grep(bench, r"2\nNEEDLE", multiline=True))[0] == "2 matching lines:"
    assert lines(await grep(bench, "NEEDLE", **{"-C": 1, "-A": 0}))[2:] == ["2-2", "3:NEEDLE"]


async def test_nothing_is_no_error(bench: Workbench) -> None:
    output = await grep(bench, "needle")
    assert lines(output) == ["No matches."]
    assert not output.is_error
    assert output.fields["exit_code"] == 1


async def test_failures(bench: Workbench) -> None:
    missing = await grep(bench, "needle", path="missing")
    assert "does not exist" in missing.prompt
    assert missing.fields["exit_code"] == 2
    wrong = await grep(bench, "(")
    assert "unclosed group" in wrong.prompt
    assert wrong.fields["exit_code"] == 2
    assert bytes(wrong.fields["stderr"])


@pytest.mark.parametrize(
    ("limit", "shown", "truncated"),
    [(None, SIZES.grep_lines, True), (5, 5, True), (0, 0, True), (5000, 2000, True)],
)
async def test_limits(bench: Workbench, limit: int | None, shown: int, truncated: bool) -> None:
    bench.tree.put("a.txt", "".join(f"hit {n}\n" for n in range(3000)))
    output = await grep(bench, "hit", **({} if limit is None else {"head_limit": limit}))
    first, *rest = lines(output)
    assert len(rest) == shown
    assert first == f"at least {max(0, shown - 1)} matching lines:"
    assert output.completeness is Completeness.TRUNCATED


async def test_an_exact_fit_is_complete(bench: Workbench) -> None:
    bench.tree.put("a.txt", "hit\n" * 4)
    output = await grep(bench, "hit", head_limit=5)
    assert lines(output)[0] == "4 matching lines:"
    assert output.completeness is Completeness.COMPLETE


async def test_denied_globs_win(bench: Workbench) -> None:
    bench.tree.put("a.txt", "needle\n")
    bench.tree.put("secret/b.txt", "needle\n")
    output = await bench.call(GREP, {"pattern": "needle", "glob": "*.txt"}, deny_globs=["secret/**"])
    assert lines(output)[0] == "1 matching lines:"


async def test_hidden_files_may_change_while_the_session_lives(bench: Workbench) -> None:
    bench.tree.put("a.txt", "needle\n")
    bench.tree.put("secret/b.txt", "needle\n")
    hidden = list[str]()
    bench.resources.insert(HiddenFiles(lambda: hidden))
    assert lines(await grep(bench, "needle"))[0] == "2 matching lines:"
    hidden.append(f"{bench.tree.root}/secret/**")
    assert lines(await grep(bench, "needle"))[0] == "1 matching lines:"


async def test_a_named_file_is_searched_whatever_is_ignored(bench: Workbench) -> None:
    bench.tree.put(".hidden", "needle\n")
    assert lines(await grep(bench, "needle"))[0] == "No matches."
    assert lines(await grep(bench, "needle", path=".hidden"))[0] == "1 matching lines:"


async def test_a_path_that_is_quoted_cannot_leave_its_attribute() -> None:
    from harness.tools.grep import wrapped

    assert wrapped('/a"b&', ["x"]).startswith('<workspace_result workspace_path="/a&quot;b&amp;">')


def test_long_lines_and_bodies() -> None:
    data = b"/a\n1:" + b"x" * 2000 + b"\n"
    (_, line) = cut(SearchResult(0, data), Mode.CONTENT, 10).lines
    assert line.startswith("1:" + "x" * (SIZES.grep_line - 2) + " [")
    assert "2002" in line
    wide = b"/a\n" + b"".join(b"%d:%s\n" % (n, b"x" * 900) for n in range(1, 200))
    found = cut(SearchResult(0, wide), Mode.CONTENT, 1000)
    assert sum(len(line) + 1 for line in found.lines) <= SIZES.grep_body
    assert found.dropped == 200 - len(found.lines)
    assert found.truncated


def test_half_a_line_is_not_shown() -> None:
    found = cut(SearchResult(0, b"/a\n1:x\n2:y", truncated=True), Mode.CONTENT, 10)
    assert found.lines == ("/a", "1:x")
    assert found.truncated


def test_carriage_returns_are_not_shown() -> None:
    assert cut(SearchResult(0, b"/a\n1:x\r\n"), Mode.CONTENT, 10).lines == ("/a", "1:x")
