"""What tools do through a session, on both kinds of files."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

from harness.outcome import FaultKind, ToolFault
from harness.registry.capabilities import CapabilityMode
from harness.workspace.executor import Executed, Execution
from harness.workspace.filesystem import ABSENT, PathChangedError
from harness.workspace.hunks import HunkMode, HunkTracker, Source
from harness.workspace.session import WorkspaceSession
from harness.workspace.watch import look

from .conftest import HostTree, MemoryTree, Tree


class Git:
    """An executor that knows what git would say."""

    def __init__(self, status: bytes = b"", **files: bytes) -> None:
        self.status, self.files = status, files

    async def run(self, execution: Execution) -> Executed:
        if "status" in execution.argv:
            return Executed(0, self.status, b"")
        name = execution.argv[-1].removeprefix("HEAD:")
        return Executed(0, self.files[name], b"") if name in self.files else Executed(128, b"", b"")


def session_in(tree: Tree, **options: Any) -> WorkspaceSession:
    options = {"executor": Git(), "terminal": object(), "env": {"HOME": "/home/me"}} | options
    return WorkspaceSession("s", tree.root, fs=tree.fs, **options)


async def test_the_resolved_file_is_the_one_that_is_written(tree: Tree) -> None:
    tree.put("dir/file", "old")
    tree.put("outside/file", "safe")
    session = session_in(tree)
    path = await session.resolve("dir/file")
    tree.rename("dir", "moved")
    tree.symlink("dir", "outside")
    with pytest.raises(PathChangedError):
        await session.write_atomic(path, b"new")
    with pytest.raises(PathChangedError):
        await session.read(path)
    assert tree.get("outside/file") == b"safe"
    assert tree.get("moved/file") == b"old"


async def test_a_linked_file_is_written_where_it_is(tree: Tree) -> None:
    tree.put("real/file", "old")
    tree.symlink("link", "real/file")
    session = session_in(tree)
    await session.write_atomic(await session.resolve("link"), b"new")
    assert tree.get("real/file") == b"new"
    assert tree.fs.readlink(f"{tree.root}/link") == "real/file"


async def test_a_file_through_a_dangling_link_is_created_at_its_target(tree: Tree) -> None:
    tree.symlink("link", "not/yet")
    session = session_in(tree)
    await session.write_atomic(await session.resolve("link"), b"new", expected=ABSENT)
    assert tree.get("not/yet") == b"new"


async def test_parents_are_created(tree: Tree) -> None:
    session = session_in(tree)
    await session.write_atomic(await session.resolve("a/b/c"), b"1")
    assert tree.get("a/b/c") == b"1"


async def test_a_read_and_the_write_that_relies_on_it(tree: Tree) -> None:
    tree.put("file", "one")
    session = session_in(tree)
    path = await session.resolve("file")
    content = await session.read(path)
    assert await session.read_bytes(path, 2) == b"on"
    tree.put("file", "other")
    with pytest.raises(PathChangedError):
        await session.write_atomic(path, b"two", expected=content.stat)
    assert tree.get("file") == b"other"


async def test_a_slash_at_the_end_means_a_directory(tree: Tree) -> None:
    tree.put("file", "1")
    session = session_in(tree)
    with pytest.raises(NotADirectoryError):
        await session.read(await session.resolve("file/"))
    with pytest.raises(IsADirectoryError):
        await session.write_atomic(await session.resolve("new/"), b"1")
    assert tree.names("") == ["file"]


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
async def test_names_no_file_can_have(tree: Tree, text: str) -> None:
    with pytest.raises(ToolFault) as caught:
        await session_in(tree).resolve(text)
    assert caught.value.kind is FaultKind.INVALID_ARGUMENTS


@pytest.mark.parametrize(
    ("mode", "may"),
    [
        (CapabilityMode.ALL, True),
        (CapabilityMode.READ_WRITE, True),
        (CapabilityMode.EXECUTE, False),
        (CapabilityMode.READ_ONLY, False),
    ],
)
async def test_the_mode_holds_below_the_tools_too(tree: Tree, mode: CapabilityMode, may: bool) -> None:
    tree.put("file", "1")
    session = session_in(tree, mode=mode)
    path = await session.resolve("file")
    assert await session.read_bytes(path) == b"1"
    if may:
        await session.write_atomic(path, b"2")
        await session.remove(path)
        return
    for act in (session.write_atomic(path, b"2"), session.remove(path)):
        with pytest.raises(OSError, match="Read-only"):
            await act
    assert tree.get("file") == b"1"


async def test_the_directory_of_one_call(tree: Tree) -> None:
    tree.put("sub/file", "1")
    session = session_in(tree, display_cwd="/shown")
    path = await session.resolve("file", cwd=f"{tree.root}/sub")
    assert path.real == f"{tree.root}/sub/file"
    assert path.shown == f"{tree.root}/sub/file"
    assert session.display(path.real) == "/shown/sub/file"
    assert session.display("/etc/x") == "/etc/x"


# -- walking and ignoring --------------------------------------------------------------------------------


def plant(tree: Tree) -> None:
    tree.put(".git/HEAD", "ref: refs/heads/main\n")
    tree.put(".gitignore", "*.log\nout/\n")
    for name in ("b/one", "b/two.log", "b/deep/three", "a", "out/x", ".hidden/y", "out/sub/z"):
        tree.put(name, "1")
    tree.symlink("link", "b")


async def names(session: WorkspaceSession, path: str, **options: Any) -> list[str]:
    resolved = await session.resolve(path)
    return [found.relative for found in await session.walk(resolved, **{"limit": 100} | options)]


async def test_a_walk(tree: Tree) -> None:
    plant(tree)
    session = session_in(tree)
    assert await names(session, ".") == ["a", "b", "link", "b/deep", "b/one", "b/deep/three"]
    assert await names(session, ".", limit=3) == ["a", "b", "link"]
    assert "b/two.log" in await names(session, ".", ignored=True)
    assert ".hidden/y" in await names(session, ".", hidden=True)
    assert await names(session, "out") == ["sub", "x", "sub/z"]  # asked for by its name
    assert await names(session, "link") == ["deep", "one", "deep/three"]
    with pytest.raises(NotADirectoryError):
        await names(session, "a")
    with pytest.raises(FileNotFoundError):
        await names(session, "missing")


async def test_a_walk_in_another_checkout_follows_its_rules(tree: Tree) -> None:
    for root in ("one", "two"):
        tree.put(f"{root}/.git/HEAD", "ref: refs/heads/main\n")
        tree.put(f"{root}/.gitignore", f"{root}.log\n")
        tree.put(f"{root}/one.log", "1")
        tree.put(f"{root}/two.log", "1")
    session = session_in(tree)
    session.cwd = f"{tree.root}/one"
    assert await names(session, ".") == ["two.log"]
    assert await names(session, "../two") == ["one.log"]
    assert await session.ignored(await session.resolve("one.log"))
    assert not await session.ignored(await session.resolve("../two/two.log"))


async def test_a_session_in_a_linked_directory(tree: Tree) -> None:
    plant(tree)
    tree.symlink("way/in", tree.root)
    session = session_in(tree)
    session.cwd = f"{tree.root}/way/in"
    assert [found.relative for found in await session.walk(session.cwd, limit=3)] == ["a", "b", "link"]
    assert "out" not in [found.relative for found in await session.walk(session.cwd, limit=99)]
    assert await session.ignored(await session.resolve("x.log"))
    await write(session, "b/one", "new")
    assert tree.get("b/one") == b"new"


async def test_ignored(tree: Tree) -> None:
    plant(tree)
    session = session_in(tree)
    answers = {
        text: await session.ignored(await session.resolve(text))
        for text in ("a", "x.log", "out", "out/new/deep", "b/two.log", "link/two.log", "/elsewhere/x.log")
    }
    assert [text for text, ignored in answers.items() if ignored] == [
        "x.log",
        "out",
        "out/new/deep",
        "b/two.log",
        "link/two.log",
    ]


async def test_a_checkout_made_after_the_session_began(tree: Tree) -> None:
    tree.put("x.log", "1")
    session = session_in(tree)
    path = await session.resolve("x.log")
    assert not await session.ignored(path)
    plant(tree)
    assert await session.ignored(path)


async def test_hints(tree: Tree) -> None:
    tree.put("main.py", "1")
    session = session_in(tree)
    assert (await session.similar(await session.resolve("main"))).similar == ("main.py",)


async def test_hints_that_take_too_long_are_left_out(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = HostTree(tmp_path)
    tree.put("main.py", "1")
    session = session_in(tree)
    path = await session.resolve("main")
    gate = threading.Event()
    monkeypatch.setattr(type(tree.fs), "listdir", lambda *_: gate.wait(5) and [])
    try:
        assert await session.similar(path) == type(await session.similar(path))(tree.root)
    finally:
        gate.set()


async def test_a_cancelled_write_is_over_when_the_caller_is_told(tmp_path: Any) -> None:
    tree = HostTree(tmp_path)
    session = session_in(tree)
    path = await session.resolve("file")
    begun, go = threading.Event(), threading.Event()
    replace = tree.fs.replace_atomic

    def slow(*args: Any, **kwargs: Any) -> Any:
        begun.set()
        go.wait(5)
        return replace(*args, **kwargs)

    tree.fs.replace_atomic = slow  # type: ignore[method-assign]
    task = asyncio.create_task(session.write_atomic(path, b"1"))
    await asyncio.to_thread(begun.wait, 5)
    task.cancel()
    await asyncio.sleep(0.05)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert tree.get("file") == b"1"


# -- prompts, rewind points, hunks -----------------------------------------------------------------------


async def write(session: WorkspaceSession, name: str, content: str, call_id: str = "c") -> dict[str, Any]:
    path = await session.resolve(name)
    try:
        previous = (await session.read_bytes(path)).decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        previous = None
    await session.write_atomic(path, content.encode("utf-8", "surrogateescape"))
    note = session.record_write(call_id, path, content, previous)
    assert note.kind == "file_written"
    return dict(note.fields)


async def test_a_write_is_told(tree: Tree) -> None:
    session = session_in(tree, display_cwd="/shown")
    assert await write(session, "a", "1\n", "call-1") == {
        "tool_call_id": "call-1",
        "absolute_path": "/shown/a",
        "content": "1\n",
        "previous_content": None,
        "is_new_file": True,
    }
    told = await write(session, "a", "2\n", "call-2")
    assert (told["previous_content"], told["is_new_file"]) == ("1\n", False)


async def test_going_back(tree: Tree) -> None:
    odd = os.fsdecode(b"caf\xe9\n")
    tree.put("a", "first\n")
    tree.put("odd", b"caf\xe9\n", 0o750)
    session = session_in(tree)
    assert session.begin_prompt("zero " * 50) == 0
    await write(session, "a", "second\n")
    await write(session, "a", "third\n")
    session.end_prompt()
    assert session.begin_prompt("one") == 1
    await write(session, "a", "fourth\n")
    await write(session, "odd", odd + "more\n")
    await write(session, "sub/new", "1\n")
    session.end_prompt()

    points = session.rewind.points()
    assert [(p.prompt_index, len(p.files), len(p.preview)) for p in points] == [(0, 1, 60), (1, 3, 3)]

    assert len(await session.rewind_to(1)) == 3
    assert (tree.get("a"), tree.get("odd")) == (b"third\n", b"caf\xe9\n")
    assert tree.fs.stat(f"{tree.root}/odd").mode == 0o750
    assert tree.names("sub") == []
    assert [h.path for h in session.hunks.hunks()] == [f"{tree.root}/a"]
    assert session.begin_prompt("one again") == 1

    await session.rewind_to(0)
    assert tree.get("a") == b"first\n"
    assert session.rewind.points() == []
    assert session.hunks.hunks() == []


async def test_rejecting_writes_and_a_turn_can_be_taken_back(tree: Tree) -> None:
    tree.put("a", "1\n2\n3\n4\n5\n")
    session = session_in(tree)
    session.begin_prompt()
    await write(session, "a", "one\n2\n3\n4\n5\n")
    await write(session, "new", "x\n")
    session.begin_prompt()
    await write(session, "a", "one\n2\n3\n4\nfive\n")
    await session.restore(session.hunks.reject(h.id for h in session.hunks.hunks(prompt_index=0)))
    assert tree.get("a") == b"1\n2\n3\n4\nfive\n"
    assert tree.names("") == ["a"]


async def test_what_others_did(tree: Tree) -> None:
    tree.put("a", "1\n2\n3\n")
    session = session_in(tree)
    await write(session, "a", "one\n2\n3\n")
    assert await look(session) == []
    tree.put("a", "one\n2\nthree\n")
    tree.put("unknown", "x")
    assert await look(session) == [f"{tree.root}/a"]
    assert [h.origin.source for h in session.hunks.hunks()] == [Source.AGENT, Source.EXTERNAL_ON_AGENT_FILE]
    tree.put("a", b"bin\0ary")
    assert await look(session) == []  # nothing is known of it
    tree.fs.remove(f"{tree.root}/a")
    assert await look(session) == [f"{tree.root}/a"]
    assert session.hunks.current(f"{tree.root}/a") is None


async def test_what_git_calls_dirty(tree: Tree) -> None:
    plant(tree)
    for name, content in (("edited", "new\n"), ("fresh", "1\n"), (".secret", "x"), ("same", "s\n")):
        tree.put(name, content)
    entry = "1 .M N... 100644 100644 100644 h h {}\0"
    status = "".join(entry.format(name) for name in ("edited", "gone", "same")) + "? fresh\0? .secret\0"
    git = Git(status.encode(), edited=b"old\n", gone=b"g\n", same=b"s\n")
    session = session_in(tree, executor=git, hunks=HunkTracker(HunkMode.ALL_DIRTY))
    found = await look(session)
    assert [os.path.basename(path) for path in found] == ["edited", "fresh", "gone"]
    assert {h.origin.source for h in session.hunks.hunks()} == {Source.EXTERNAL}
    assert await look(session) == []


async def test_no_hunks_of_huge_files(memory: MemoryTree, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_in(memory)
    session.record_write("c", await session.resolve("big"), "x" * (5 << 20), None)
    assert session.hunks.paths() == []
