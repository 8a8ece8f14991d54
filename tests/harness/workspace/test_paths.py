"""What models write around a path, and which file it is."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.workspace.filesystem import canonical
from harness.workspace.memory_filesystem import MemoryFileSystem
from harness.workspace.paths import Base, PathHints, absolute, clean, confine, hints, name_too_long, resolve

from .conftest import MemoryTree, Tree

HOME = "/home/me"


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("a.txt", "a.txt"),
        (" a.txt ", "a.txt"),
        ("a.txt\n", "a.txt"),
        ('"a.txt"', "a.txt"),
        ("'a.txt'", "a.txt"),
        ('"a.txt', "a.txt"),
        ('a.txt"', "a.txt"),
        ("\"a.txt'", "a.txt"),
        ('""a.txt""', "a.txt"),
        ("'\"a.txt\"'", "a.txt"),
        ('" a.txt "', "a.txt"),
        ('"a.txt" ', "a.txt"),
        (r'"a.txt\n"', "a.txt"),
        (r'"a.txt\n\r\n"', "a.txt"),
        (r"'a.txt\n\t'", "a.txt"),
        (r'"a.txt \n"', "a.txt"),
        (r"a.txt\n", r"a.txt\n"),  # not quoted: a name may end so
        (r'"a.txt\n', r"a.txt\n"),
        ("`a.txt`", "`a.txt`"),
        ("it's", "it's"),
        ("", ""),
        ('"', ""),
        ('""', ""),
        ("   ", ""),
    ],
)
def test_cleaning(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", "/work/tree/a"),
        ("/a", "/a"),
        ("~", HOME),
        ("~/a", HOME + "/a"),
        ("~root/a", "/work/tree/~root/a"),
        ("", "/work/tree/"),
        ("/shown/a", "/work/tree/a"),
        ("/shown", "/work/tree"),
        ("/shownelsewhere/a", "/shownelsewhere/a"),
        ("/work/tree/a", "/work/tree/a"),
    ],
)
def test_below_the_base(text: str, path: str) -> None:
    assert absolute(text, Base("/work/tree", HOME, "/shown")) == path


def test_without_a_home_a_tilde_is_a_name() -> None:
    assert absolute("~/a", Base("/work")) == "/work/~/a"


def find(tree: Tree, text: str, **base: str) -> str:
    real = resolve(tree.fs, text, Base(tree.root, HOME, **base)).real
    return os.path.relpath(real, tree.root)


def test_a_lost_slash_is_put_back(tree: Tree) -> None:
    tree.put("a", "1")
    assert find(tree, tree.root[1:] + "/a") == "a"
    assert find(tree, tree.root[1:]) == "."


def test_not_where_the_name_exists_below() -> None:
    memory = MemoryFileSystem({"/app/app/main.py": "1", "/app/other": "2"})
    assert resolve(memory, "app/main.py", Base("/app")).real == "/app/app/main.py"
    assert resolve(memory, "app/new.py", Base("/app")).real == "/app/app/new.py"
    memory = MemoryFileSystem({"/app/main.py": "1"})
    assert resolve(memory, "app/main.py", Base("/app")).real == "/app/main.py"


@pytest.mark.parametrize(
    ("names", "asked", "found"),
    [
        (["nb\u00a0sp"], "nb sp", "nb\u00a0sp"),
        (["5.00\u202fPM.png"], "5.00 PM.png", "5.00\u202fPM.png"),
        (["plain sp"], "plain\u00a0sp", "plain sp"),
        (["nb\u00a0sp", "nb sp"], "nb sp", "nb sp"),  # the exact one
        (["nb\u00a0sp", "nb\u202fsp"], "nb sp", "nb sp"),  # two: neither
        (["th\u2009in"], "th in", "th in"),
        (["it\u2019s"], "it's", "it's"),
        (["en\u2013dash"], "en-dash", "en-dash"),
        (["Case sp"], "case sp", "case sp"),
    ],
)
def test_unusual_blanks_in_names(tree: Tree, names: list[str], asked: str, found: str) -> None:
    for name in names:
        tree.put(name, "1")
    resolved = resolve(tree.fs, asked, Base(tree.root))
    assert resolved.real == f"{tree.root}/{found}"
    assert resolved.repaired == (found != asked)


def test_links_are_followed_for_the_act_and_kept_for_the_show(tree: Tree) -> None:
    tree.put("dir/file", "1")
    tree.symlink("link", "dir")
    resolved = resolve(tree.fs, " link/file", Base(tree.root))
    assert resolved.real == f"{tree.root}/dir/file"
    assert resolved.path == f"{tree.root}/link/file"
    assert resolved.shown == f"{tree.root}/ link/file"
    assert resolve(tree.fs, "dir/", Base(tree.root)).directory


def test_outputs_show_the_directory_a_fork_knows(tree: Tree) -> None:
    tree.put("file", "1")
    for text in ("file", "/shown/file"):
        resolved = resolve(tree.fs, text, Base(tree.root, HOME, "/shown"))
        assert (resolved.shown, resolved.real) == ("/shown/file", f"{tree.root}/file")


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30))
def test_resolving_never_raises_and_leaves_no_link(text: str) -> None:
    memory = MemoryTree()
    memory.put("a b/c", "1")
    memory.symlink("loop", "loop")
    memory.symlink("up", "../..")
    resolved = resolve(memory.fs, text, Base(memory.root, HOME))
    assert resolved.real.startswith("/")
    assert canonical(memory.fs, resolved.real) == resolved.real


@pytest.mark.parametrize("text", ["loop", "loop/x", "x" * 300, "closed/x", "file/x"])
def test_what_the_disk_holds_is_told_by_the_act(tree: Tree, text: str) -> None:
    tree.symlink("loop", "loop")
    tree.put("closed/x", "1")
    tree.put("file", "1")
    resolve(tree.fs, text, Base(tree.root))


def test_names_too_long() -> None:
    assert name_too_long("/a/" + "x" * 256)
    assert name_too_long("/a/" + "é" * 128 + "/b")
    assert not name_too_long("/a/" + "x" * 255)


# -- hints -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "similar"),
    [
        ("main", ("main.py", "main_test.py")),
        ("MAIN.PY", ("main.py",)),
        ("xmainx.py", ("main.py",)),  # the other way round, from four letters of a stem on
        ("m", ()),
        ("abc.txt", ()),
        ("a", ()),
        ("one", ("one1", "one2", "one3")),
        ("missing/main", ()),
    ],
)
def test_similar_names(tree: Tree, asked: str, similar: tuple[str, ...]) -> None:
    for name in ("main.py", "main_test.py", "abc", "one1", "one2", "one3", "one4"):
        tree.put(name, "1")
    base = Base(tree.root)
    assert hints(tree.fs, resolve(tree.fs, asked, base), base) == PathHints(tree.root, None, similar)


def test_the_missing_directory(tree: Tree) -> None:
    tree.put("repo/src/a.py", "1")
    base = Base(f"{tree.root}/repo")
    beside = resolve(tree.fs, f"{tree.root}/src/a.py", base)
    assert hints(tree.fs, beside, base).corrected == f"{tree.root}/repo/src/a.py"
    shown = Base(f"{tree.root}/repo", None, "/shown")
    assert hints(tree.fs, beside, shown) == PathHints("/shown", "/shown/src/a.py")
    assert hints(tree.fs, resolve(tree.fs, f"{tree.root}/src/b.py", base), base).corrected is None


# -- a root that must not be left ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["", "../x", "a/../../x", "/etc/passwd", "out", "out/x", "dangling-out", "in/../../x"]
)
def test_confined(tree: Tree, path: str) -> None:
    tree.put("root/a/file", "1")
    tree.put("outside/x", "1")
    tree.symlink("root/out", "../outside")
    tree.symlink("root/dangling-out", "../outside/not-yet")
    tree.symlink("root/in", "a")
    root = f"{tree.root}/root"
    with pytest.raises((PermissionError, FileNotFoundError)):
        confine(tree.fs, root, path)
    for inside, real in (("a/file", "a/file"), ("in/file", "a/file"), ("new/one", "new/one"), (".", "")):
        assert confine(tree.fs, root, inside).rstrip("/") == f"{root}/{real}".rstrip("/")
