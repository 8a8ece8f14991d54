"""The compatibility family: other keys and layouts over the same decisions."""

from __future__ import annotations

import os
from typing import Any

import pytest

from harness.limits import SIZES
from harness.outcome import Completeness
from harness.tools import default_registry
from harness.tools.opencode import Edit, Glob, Grep, Read, TodoWrite
from tests.harness.tools.conftest import Workbench

EDIT, READ, GREP, GLOB, TODO = Edit(), Read(), Grep(), Glob(), TodoWrite()


def edit(path: str, old: str, new: str, **more: Any) -> dict[str, Any]:
    return {"filePath": path, "oldString": old, "newString": new, **more}


def test_the_family_is_registered() -> None:
    registry = default_registry()
    for name in ("bash", "read", "edit", "write", "grep", "glob", "todowrite"):
        assert registry.get(f"OpenCode:{name}") is not None


class TestEdit:
    async def test_success_shows_the_place(self, bench: Workbench) -> None:
        bench.tree.put("a.txt", "1\n2\n3\n")
        output = await bench.call(EDIT, edit("a.txt", "2", "two"))
        assert bench.tree.get("a.txt") == b"1\ntwo\n3\n"
        assert "2→two" in output.prompt.split("\n")
        assert output.fields["EditsApplied"]["old_string"] == "2"
        assert bench.told[0].kind == "file_written"

    async def test_refusals_use_its_own_keys(self, bench: Workbench) -> None:
        bench.tree.put("a.txt", "a a\n")
        many = await bench.call(EDIT, edit("a.txt", "a", "b"))
        assert "replaceAll" in many.prompt
        assert "replace_all" not in many.prompt
        full = await bench.call(EDIT, edit("a.txt", "", "b"))
        assert "oldString" in full.prompt
        assert "old_string" not in full.prompt
        assert bench.tree.get("a.txt") == b"a a\n"

    async def test_all_and_new(self, bench: Workbench) -> None:
        await bench.call(EDIT, edit("new/a.txt", "", "a a"))
        await bench.call(EDIT, edit("new/a.txt", "a", "b", replaceAll=True))
        assert bench.tree.get("new/a.txt") == b"b b"

    async def test_it_warns_of_a_changed_file_too(self, bench: Workbench) -> None:
        bench.tree.put("a.txt", "1\n2\n")
        await bench.call(READ, {"filePath": "a.txt"})
        bench.tree.put("a.txt", "0\n1\n2\n")
        assert "Warning" in (await bench.call(EDIT, edit("a.txt", "2", "two"))).prompt


class TestRead:
    async def test_every_line_has_its_number(self, bench: Workbench) -> None:
        bench.tree.put("a.txt", "a\nb\n")
        assert (await bench.call(READ, {"filePath": "a.txt"})).prompt == "1→a\n2→b\n3→"
        assert (await bench.call(READ, {"filePath": "a.txt", "offset": 2, "limit": 1})).prompt == "2→b"

    async def test_bounds(self, bench: Workbench) -> None:
        bench.tree.put("lines.txt", "x\n" * 3000)
        bench.tree.put("wide.txt", ("y" * 5000 + "\n") * 100)
        lines = await bench.call(READ, {"filePath": "lines.txt"})
        assert lines.completeness is Completeness.TRUNCATED
        assert f"{SIZES.compat_read_lines + 1} to 3001" in lines.prompt
        wide = await bench.call(READ, {"filePath": "wide.txt"})
        assert len(wide.fields["FileContent"]["content"].encode()) <= SIZES.compat_read_bytes
        first = wide.prompt.split("\n")[0]
        assert first == "1→" + "y" * SIZES.compat_read_line

    async def test_missing(self, bench: Workbench) -> None:
        assert (await bench.call(READ, {"filePath": "missing"})).is_error


class TestGrep:
    async def test_include_and_bound(self, bench: Workbench) -> None:
        bench.tree.put("a.txt", "hit\n" * 500)
        bench.tree.put("b.py", "hit\n")
        output = await bench.call(GREP, {"pattern": "hit", "include": "*.py"})
        assert output.fields["match_count"] == 1
        many = await bench.call(GREP, {"pattern": "hit"})
        assert many.fields["match_count"] == SIZES.compat_grep
        assert many.completeness is Completeness.TRUNCATED

    async def test_failure(self, bench: Workbench) -> None:
        output = await bench.call(GREP, {"pattern": "("})
        assert output.fields["exit_code"] == 2


class TestGlob:
    async def test_newest_first(self, bench: Workbench) -> None:
        for age, name in enumerate(("src/old.ts", "src/a/new.ts", "src/x.py", ".hidden.ts")):
            bench.tree.put(name, "")
            if bench.tree.fs.blocking:
                os.utime(f"{bench.tree.root}/{name}", (1_000_000 + age, 1_000_000 + age))
        output = await bench.call(GLOB, {"pattern": "**/*.ts"})
        names = output.prompt.split("\n")
        assert names == [f"{bench.tree.root}/{name}" for name in (".hidden.ts", "src/a/new.ts", "src/old.ts")]
        below = await bench.call(GLOB, {"pattern": "*.ts", "path": "src/a"})
        assert below.prompt == f"{bench.tree.root}/src/a/new.ts"

    async def test_bound_and_none(self, bench: Workbench) -> None:
        for number in range(120):
            bench.tree.put(f"d/{number:03}.txt", "")
        output = await bench.call(GLOB, {"pattern": "*.txt"})
        assert output.completeness is Completeness.TRUNCATED
        assert len(output.prompt.split("\n")) == SIZES.glob_files + 1
        assert (await bench.call(GLOB, {"pattern": "*.rs"})).prompt == "No files."

    @pytest.mark.parametrize("arguments", [{"pattern": "["}, {"pattern": "*", "path": "missing"}])
    async def test_failures(self, bench: Workbench, arguments: dict[str, Any]) -> None:
        assert (await bench.call(GLOB, arguments)).is_error


class TestTodo:
    async def test_rewrites(self, bench: Workbench) -> None:
        steps = [
            {"content": "a", "status": "pending", "priority": "high"},
            {"content": "b", "status": "completed"},
        ]
        output = await bench.call(TODO, {"todos": steps})
        assert output.prompt == "- [pending] 1: a\n- [completed] 2: b\n"
        assert output.fields["TodosUpdated"]["todos"][0]["priority"] == "high"
        output = await bench.call(TODO, {"todos": [{"id": "x", "content": "c", "status": "pending"}]})
        assert output.prompt == "- [pending] x: c\n"
        twice = [{"id": "x", "content": "c", "status": "pending"}] * 2
        assert (await bench.call(TODO, {"todos": twice})).is_error
        assert (await bench.call(TODO, {"todos": []})).prompt != output.prompt
