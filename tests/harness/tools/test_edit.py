"""``search_replace`` and ``write`` on files in memory and on the host."""

from __future__ import annotations

import errno
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.limits import SIZES
from harness.outcome import FaultKind, ToolFault
from harness.tools.edit import Edit
from harness.tools.editing.replace import Rules, Verdict, decide
from harness.tools.read import Read
from harness.tools.write import Write
from harness.workspace.filesystem import os_error
from harness.workspace.memory_filesystem import MemoryFileSystem
from tests.harness.tools.conftest import Changed, Workbench, make_workbench
from tests.harness.tools.test_editing import TABLE, garbage, texts
from tests.harness.workspace.conftest import MemoryTree

EDIT, READ, WRITE = Edit(), Read(), Write()

VARIANTS = {
    Verdict.CREATE: "EditsApplied",
    Verdict.REPLACE: "EditsApplied",
    Verdict.NOT_TEXT: "InvalidInput",
    Verdict.SAME: "InvalidInput",
    Verdict.NOT_EMPTY: "FileAlreadyExists",
    Verdict.MISSING: "FileNotFound",
    Verdict.NO_MATCH: "NoMatchesFound",
    Verdict.MANY: "MultipleMatchesFound",
    Verdict.OVERLAP: "MultipleMatchesFound",
}


def edit(path: str, old: str, new: str, **more: Any) -> dict[str, Any]:
    return {"file_path": path, "old_string": old, "new_string": new, **more}


def variant(fields: Any) -> str:
    (name,) = fields
    return str(name)


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
async def test_the_whole_table(
    bench: Workbench, row: tuple[str, bytes | None, str, str, Rules, Verdict, bytes | None]
) -> None:
    _, before, old, new, rules, verdict, after = row
    if before is not None:
        bench.tree.put("a.txt", before, 0o640)
    output = await bench.call(
        EDIT,
        edit("a.txt", old, new, replace_all=rules.replace_all),
        empty_old_string_does_not_override=not rules.overwrite,
        unicode_normalized_fallback=rules.folded,
    )
    assert output.type == "SearchReplace"
    assert variant(output.fields) == VARIANTS[verdict]
    assert output.is_error == (after is None)
    if after is None:
        assert bench.told == []
        names = bench.tree.names(".")
        assert names == ([] if before is None else ["a.txt"])
        assert before is None or bench.tree.get("a.txt") == before
        return
    assert bench.tree.get("a.txt") == after
    assert bench.tree.names(".") == ["a.txt"], "a temporary file was left"
    (told,) = bench.told
    assert told.kind == "file_written"
    assert told.fields["tool_call_id"] == "call-1"
    assert told.fields["absolute_path"] == f"{bench.tree.root}/a.txt"
    assert told.fields["content"].encode("utf-8", "surrogateescape") == after
    previous = told.fields["previous_content"]
    assert (None if previous is None else previous.encode("utf-8", "surrogateescape")) == before
    if before is not None:
        assert bench.tree.fs.stat(f"{bench.tree.root}/a.txt").mode == 0o640


async def test_the_card_has_the_places_with_their_surroundings(bench: Workbench) -> None:
    bench.tree.put("a.txt", "1\n2\n3\n4\n5\n6\n7\n")
    output = await bench.call(EDIT, edit("a.txt", "4", "four"))
    applied = output.fields["EditsApplied"]
    assert applied["absolute_path"] == f"{bench.tree.root}/a.txt"
    assert applied["edits"]["details"] == [
        {
            "old_string": "4",
            "old_line": 4,
            "new_string": "four",
            "new_line": 4,
            "context_before": "1\n2\n3\n",
            "context_after": "5\n6\n7\n",
            "line_prefix": "",
        }
    ]
    assert output.diffs[0].old_text == "4"
    assert output.locations[0].line == 4
    assert "a.txt" in output.prompt
    assert output.prompt != applied["edits"]
    assert "1\n2\n3" not in output.prompt, "the model needs no diff of what it wrote itself"


async def test_missing_parents_are_made(bench: Workbench) -> None:
    output = await bench.call(EDIT, edit("new/deep/f.txt", "", "text\n"))
    assert not output.is_error
    assert bench.tree.get("new/deep/f.txt") == b"text\n"
    assert bench.told[0].fields["is_new_file"] is True


@pytest.mark.parametrize("path", ["dir", "dir/", "", "."])
async def test_a_directory_is_refused(bench: Workbench, path: str) -> None:
    bench.tree.put("dir/x.txt", "x")
    output = await bench.call(EDIT, edit(path, "x", "y"))
    assert variant(output.fields) == "InvalidInput"
    assert "directory" in output.prompt


async def test_a_long_name_is_refused_before_anything_else(bench: Workbench) -> None:
    output = await bench.call(EDIT, edit("x" * 300, "", "y"))
    assert variant(output.fields) == "FilenameTooLong"
    assert "300" in output.prompt
    assert str(SIZES.path_component) in output.prompt


async def test_gitignored(bench: Workbench) -> None:
    bench.tree.put(".git/HEAD", "ref: refs/heads/main\n")
    bench.tree.put(".git/config", "[core]\n\trepositoryformatversion = 0\n")
    bench.tree.put(".git/objects/x", "")
    bench.tree.put(".git/refs/x", "")
    bench.tree.put(".gitignore", "secret.txt\nbuild/\n")
    bench.tree.put("secret.txt", "hush\n")
    for path in ("secret.txt", "build/new.txt"):
        output = await bench.call(EDIT, edit(path, "same", "same"), respect_gitignore=True)
        assert variant(output.fields) == "InvalidInput"
        assert ".gitignore" in output.prompt
    assert (await bench.call(READ, {"target_file": "secret.txt"}, respect_gitignore=True)).is_error
    assert not (await bench.call(EDIT, edit("secret.txt", "hush", "x"))).is_error


async def test_below_a_file_is_a_fault(bench: Workbench) -> None:
    bench.tree.put("a.txt", "a")
    with pytest.raises(ToolFault) as caught:
        await bench.call(EDIT, edit("a.txt/b", "x", "y"))
    assert caught.value.kind is FaultKind.EXECUTION


async def test_a_link_is_followed_and_stays(bench: Workbench) -> None:
    bench.tree.put("real.txt", "x\n")
    bench.tree.symlink("link.txt", "real.txt")
    output = await bench.call(EDIT, edit("link.txt", "x", "y"))
    assert output.fields["EditsApplied"]["absolute_path"] == f"{bench.tree.root}/real.txt"
    assert bench.tree.get("real.txt") == b"y\n"
    assert bench.tree.fs.readlink(f"{bench.tree.root}/link.txt") == "real.txt"


async def test_a_dangling_link_is_written_through(bench: Workbench) -> None:
    bench.tree.symlink("link.txt", "target.txt")
    output = await bench.call(EDIT, edit("link.txt", "", "new"))
    assert output.fields["EditsApplied"]["absolute_path"] == f"{bench.tree.root}/link.txt"
    assert bench.tree.get("target.txt") == b"new"


async def test_changed_since_it_was_read(bench: Workbench) -> None:
    bench.tree.put("a.txt", "one\ntwo\nthree\n")
    await bench.call(READ, {"target_file": "a.txt"})
    bench.tree.put("a.txt", "zero\none\ntwo\nthree\n")
    output = await bench.call(EDIT, edit("a.txt", "two", "2"))
    assert bench.tree.get("a.txt") == b"zero\none\n2\nthree\n"
    assert "Warning" in output.prompt
    assert "3→2" in output.prompt.replace("\n", "|") or "1→zero" in output.prompt
    again = await bench.call(EDIT, edit("a.txt", "three", "3"))
    assert "Warning" not in again.prompt, "its own write is no surprise"


async def test_changed_and_ambiguous_now(bench: Workbench) -> None:
    bench.tree.put("a.txt", "one\n")
    await bench.call(READ, {"target_file": "a.txt"})
    bench.tree.put("a.txt", "one\none\n")
    output = await bench.call(EDIT, edit("a.txt", "one", "1"))
    assert variant(output.fields) == "MultipleMatchesFound"
    assert bench.tree.get("a.txt") == b"one\none\n"


async def test_never_read_is_no_reason_to_warn(bench: Workbench) -> None:
    bench.tree.put("a.txt", "one\n")
    assert "Warning" not in (await bench.call(EDIT, edit("a.txt", "one", "1"))).prompt


async def test_same_bytes_again_are_no_change(bench: Workbench) -> None:
    bench.tree.put("a.txt", "one\n")
    await bench.call(READ, {"target_file": "a.txt"})
    bench.tree.put("a.txt", "two\n")
    bench.tree.put("a.txt", "one\n")
    assert "Warning" not in (await bench.call(EDIT, edit("a.txt", "one", "1"))).prompt


async def test_somebody_writes_between_reading_and_writing(memory: MemoryTree) -> None:
    bench = make_workbench(memory)
    memory.put("a.txt", "one\ntwo\n")
    await bench.call(READ, {"target_file": "a.txt"})
    files = cast(MemoryFileSystem, memory.fs)

    def interfere(step: str, path: str) -> None:
        if step == "write":
            files.on_step = lambda _step, _path: None
            memory.put("a.txt", "zero\none\ntwo\n")

    files.on_step = interfere
    output = await bench.call(EDIT, edit("a.txt", "two", "2"))
    assert memory.get("a.txt") == b"zero\none\n2\n", "the other's line must not be lost"
    assert "Warning" in output.prompt


async def test_somebody_who_never_stops_writing(memory: MemoryTree) -> None:
    bench = make_workbench(memory)
    memory.put("a.txt", "one\n")
    files = cast(MemoryFileSystem, memory.fs)
    count = 0

    def interfere(step: str, path: str) -> None:
        nonlocal count
        if step == "write":
            count += 1
            memory.put("a.txt", "one\n" * 1 + "x" * count)

    files.on_step = interfere
    with pytest.raises(ToolFault):
        await bench.call(EDIT, edit("a.txt", "one", "1"))
    assert count == SIZES.edit_attempts
    assert bench.told == []


@pytest.mark.parametrize("step", ["open", "write", "rename"])
async def test_a_disk_that_is_full_changes_nothing(memory: MemoryTree, step: str) -> None:
    bench = make_workbench(memory)
    memory.put("a.txt", "one\n")
    files = cast(MemoryFileSystem, memory.fs)

    def full(at: str, path: str) -> None:
        if at == step:
            raise os_error(errno.ENOSPC, path)

    files.on_step = full
    with pytest.raises(ToolFault) as caught:
        await bench.call(EDIT, edit("a.txt", "one", "1"))
    assert "space" in caught.value.message
    files.on_step = lambda _step, _path: None
    assert memory.get("a.txt") == b"one\n"
    assert bench.told == []


async def test_no_permission(memory: MemoryTree) -> None:
    bench = make_workbench(memory)
    memory.put("a.txt", "one\n", 0o200)
    output = await bench.call(EDIT, edit("a.txt", "one", "1"))
    assert variant(output.fields) == "InvalidInput"
    assert "permission" in output.prompt


async def test_too_large_a_file_is_left_alone(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.tree.put("a.txt", b"x" * 100)
    monkeypatch.setattr("harness.tools.file_access.SIZES", Changed(SIZES, file_bytes=99))
    output = await bench.call(EDIT, edit("a.txt", "x", "1"))
    assert variant(output.fields) == "InvalidInput"
    assert "run_terminal_command" in output.prompt
    output = await bench.call(READ, {"target_file": "a.txt"})
    assert variant(output.fields) == "FileTooLarge"


class TestWords:
    """Texts for the model use the client's names and say what to do next."""

    async def test_not_found(self, bench: Workbench) -> None:
        bench.tree.put("a.txt", "the identifier_long here\n")
        text = (await bench.call(EDIT, edit("a.txt", "say identifier_long now", "x"))).prompt
        assert "read_file" in text
        assert "1: the identifier_long here" in text

    async def test_the_quoted_line_is_bounded(self, bench: Workbench) -> None:
        bench.tree.put("a.txt", "é" * 400 + " word\n")
        text = (await bench.call(EDIT, edit("a.txt", "no word", "x"))).prompt
        hint = text.split("\n\n")[1]
        assert hint.endswith("…")
        assert len(hint.encode()) <= SIZES.edit_nearest

    async def test_confusables(self, bench: Workbench) -> None:
        bench.tree.put("a.txt", "".join(f"k{n} “q”\n" for n in range(12)))
        old = "".join(f'k{n} "q"\n' for n in range(12))
        text = (await bench.call(EDIT, edit("a.txt", old, "x"))).prompt
        assert "line 1, 2, 3, 4, 5, 6, 7, 8 and 4 more" in text
        assert "run_terminal_command" in text

    async def test_ambiguous(self, bench: Workbench) -> None:
        bench.tree.put("a.txt", "a a a\n")
        text = (await bench.call(EDIT, edit("a.txt", "a", "b"))).prompt
        assert "more than once" in text
        assert "replace_all" in text

    async def test_missing_with_hints(self, bench: Workbench) -> None:
        bench.tree.put("similar_name.py", "x")
        text = (await bench.call(EDIT, edit("name.py", "a", "b"), path_hints=True)).prompt
        assert "similar_name.py" in text
        assert bench.tree.root in text
        plain = (await bench.call(EDIT, edit("name.py", "a", "b"))).prompt
        assert "similar_name.py" not in plain


class TestWrite:
    async def test_new_and_over(self, bench: Workbench) -> None:
        first = await bench.call(WRITE, {"file_path": "x/y.txt", "content": "one"})
        second = await bench.call(WRITE, {"file_path": "x/y.txt", "content": ""})
        assert bench.tree.get("x/y.txt") == b""
        assert "created" in first.prompt
        assert "Replaced" in second.prompt
        assert second.fields["EditsApplied"]["old_string"] == "one"
        assert [note.fields["previous_content"] for note in bench.told] == [None, "one"]

    async def test_does_not_follow_the_ignore_rules(self, bench: Workbench) -> None:
        assert "respect_gitignore" not in WRITE.spec.default_params

    @pytest.mark.parametrize("path", ["dir", "dir/", "a.txt/b", "x" * 300])
    async def test_faults(self, bench: Workbench, path: str) -> None:
        bench.tree.put("a.txt", "a")
        bench.tree.put("dir/x", "x")
        with pytest.raises(ToolFault):
            await bench.call(WRITE, {"file_path": path, "content": "x"})
        assert bench.tree.get("a.txt") == b"a"

    async def test_half_a_surrogate_pair(self, bench: Workbench) -> None:
        with pytest.raises(ToolFault) as caught:
            await bench.call(WRITE, {"file_path": "a.txt", "content": "\ud800"})
        assert caught.value.kind is FaultKind.INVALID_ARGUMENTS


@settings(max_examples=60, deadline=None)
@given(garbage, texts, texts, st.booleans())
async def test_files_hold_what_the_table_decides(before: bytes, old: str, new: str, every: bool) -> None:
    tree = MemoryTree()
    tree.put("f", before)
    bench = make_workbench(tree)
    decision = decide(before, old, new, Rules(replace_all=every))
    output = await bench.call(EDIT, edit("f", old, new, replace_all=every))
    written = decision.verdict in (Verdict.CREATE, Verdict.REPLACE)
    assert output.is_error != written
    assert tree.get("f") == (decision.data if written else before)
    assert len(bench.told) == written
