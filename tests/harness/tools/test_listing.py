"""``list_dir``: order, bounds, what is summed up, what is left out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.limits import SIZES
from harness.outcome import Completeness, ToolOutput
from harness.tools.listing import ListDir
from harness.tools.outline import grow, outline
from tests.harness.tools.conftest import Workbench

LIST = ListDir()


async def listed(bench: Workbench, path: str = ".", **params: Any) -> ToolOutput:
    return await bench.call(LIST, {"target_directory": path}, **params)


def body(output: ToolOutput) -> list[str]:
    return output.prompt.split("\n")[1:]


async def test_order_and_kinds(bench: Workbench) -> None:
    for name in ("b.txt", "A.txt", "_u", "Z/one.py", "a_dir/f.rs", "a-b", "10.md", "2.md", ".hidden", "é"):
        bench.tree.put(name, "x")
    bench.tree.symlink("link", "Z")
    bench.tree.put("empty/.keep", "")
    output = await listed(bench)
    assert output.prompt.split("\n")[0] == f"- {bench.tree.root}/"
    assert body(output) == [
        "  - 10.md",
        "  - 2.md",
        "  - _u",
        "  - a-b",
        "  - A.txt",
        "  - a_dir/",
        "    - f.rs",
        "  - b.txt",
        "  - empty/",
        "  - link",
        "  - Z/",
        "    - one.py",
        "  - é",
    ]
    assert output.fields["Content"] == {
        "content": output.prompt,
        "absolute_root_path": f"{bench.tree.root}/.",
    }
    assert output.completeness is Completeness.COMPLETE


@pytest.mark.parametrize(("path", "heading"), [("", ""), (".", ""), ("./", ""), ("d", "/d"), ("d/", "/d/")])
async def test_heading_is_the_path_as_it_was_written(bench: Workbench, path: str, heading: str) -> None:
    bench.tree.put("d/x", "x")
    assert (await listed(bench, path)).prompt.split("\n")[0] == f"- {bench.tree.root}{heading}/"


async def test_an_empty_directory(bench: Workbench) -> None:
    bench.tree.put("d/.hidden", "x")
    assert (await listed(bench, "d")).prompt == f"- {bench.tree.root}/d/\n"


async def test_a_hidden_directory_is_listed_by_its_name(bench: Workbench) -> None:
    bench.tree.put(".d/x", "x")
    assert body(await listed(bench, ".d")) == ["  - x"]


async def test_a_big_directory_is_summed_up_and_hides_no_other(bench: Workbench) -> None:
    for number in range(400):
        bench.tree.put(
            f"big/a_rather_long_name_for_a_file_{number:05d}{('', '.py', '.PY', '.tar.gz')[number % 4]}", ""
        )
    bench.tree.put("small/x.c", "")
    output = await listed(bench)
    assert body(output) == [
        "  - big/",
        "    [400 files in subtree: 200 *.py, 100 *.gz, 100 *no-ext]",
        "  - small/",
        "    - x.c",
    ]
    assert output.completeness is Completeness.TRUNCATED


async def test_not_even_the_first_level_fits(bench: Workbench) -> None:
    for number in range(300):
        bench.tree.put(f"d/a_rather_long_file_name_{number:05d}.txt", "")
    output = await listed(bench, "d")
    lines = output.prompt.split("\n")
    assert lines[-3] == "    ..."
    assert "grep or run_terminal_command" in lines[-1]
    assert len("\n".join(lines[1:-3])) + 1 <= SIZES.list_text
    assert output.completeness is Completeness.TRUNCATED


async def test_ignored_ones_are_left_out_when_the_session_minds(bench: Workbench) -> None:
    bench.tree.put(".git/HEAD", "ref: refs/heads/main\n")
    bench.tree.put(".git/objects/x", "")
    bench.tree.put(".git/refs/x", "")
    bench.tree.put(".gitignore", "*.log\nbuild/\n")
    for name in ("a.log", "build/x", "keep.txt", "sub/b.log", "sub/keep"):
        bench.tree.put(name, "")
    shown = body(await listed(bench, respect_gitignore=True))
    assert shown == ["  - keep.txt", "  - sub/", "    - keep"]
    assert "  - a.log" in body(await listed(bench))
    assert body(await listed(bench, "build", respect_gitignore=True)) == ["  - x"]


@pytest.mark.parametrize(
    ("path", "variant"),
    [("missing", "NotFound"), ("a.txt", "IsAFile"), ("a.txt/x", "NotADirectory")],
)
async def test_refusals(bench: Workbench, path: str, variant: str) -> None:
    bench.tree.put("a.txt", "x")
    output = await listed(bench, path)
    assert output.is_error
    assert output.fields == {variant: output.prompt}


names = st.text(alphabet="abAB.", min_size=1, max_size=4).filter(lambda name: not name.startswith("."))
trees = st.recursive(
    st.none(), lambda children: st.dictionaries(names, children, max_size=6), max_leaves=40
).filter(lambda tree: tree is not None)


def flat(tree: dict[str, Any], prefix: str = "") -> list[tuple[str, bool]]:
    entries = list[tuple[str, bool]]()
    for name, child in tree.items():
        entries.append((prefix + name, child is not None))
        if child is not None:
            entries += flat(child, f"{prefix}{name}/")
    return entries


@given(trees, st.integers(0, 400))
def test_bounds_and_counts(tree: dict[str, Any], limit: int) -> None:
    entries = flat(tree)
    drawn = outline("- /x/", grow(entries), limit)
    lines = drawn.text.split("\n")[1:]
    if drawn.cut:
        assert len("\n".join(lines[:-1])) <= limit
        return
    assert len("\n".join(lines)) <= limit or lines == [""]
    files = sum(not is_dir for _, is_dir in entries)
    shown = sum(line.lstrip().startswith("- ") and not line.endswith("/") for line in lines)
    summed = sum(int(line.strip()[1:].split()[0]) for line in lines if line.strip().startswith("["))
    assert shown + summed == files
    # A folder may be left closed and say nothing: when there are only folders in it.
    assert drawn.complete == (sum(line.lstrip().startswith("- ") for line in lines) == len(entries))
