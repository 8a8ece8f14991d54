"""What files do, in memory and on the host alike."""

from __future__ import annotations

import errno
import os

import pytest

from harness.workspace.filesystem import ABSENT, Entry, FileKind, PathChangedError, canonical

from .conftest import Tree


def at(tree: Tree, path: str) -> str:
    return os.path.join(tree.root, path)


def test_looking_follows_links_and_lstat_does_not(tree: Tree) -> None:
    tree.put("dir/file", "12345", 0o640)
    tree.symlink("link", "dir/file")
    stat = tree.fs.stat(at(tree, "link"))
    assert (stat.kind, stat.size, stat.mode) == (FileKind.FILE, 5, 0o640)
    assert tree.fs.lstat(at(tree, "link")).kind is FileKind.SYMLINK
    assert tree.fs.readlink(at(tree, "link")) == "dir/file"
    assert sorted(tree.fs.listdir(tree.root), key=lambda entry: entry.name) == [
        Entry("dir", FileKind.DIRECTORY),
        Entry("link", FileKind.SYMLINK),
    ]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("missing", FileNotFoundError),
        ("missing/deeper", FileNotFoundError),
        ("file/deeper", NotADirectoryError),
        ("dir", IsADirectoryError),
        ("x" * 256, OSError),
    ],
)
def test_what_cannot_be_read(tree: Tree, path: str, error: type[OSError]) -> None:
    tree.put("file", "1")
    tree.put("dir/inner", "1")
    with pytest.raises(error) as caught:
        tree.fs.read(at(tree, path))
    assert caught.value.filename == at(tree, path)
    assert not isinstance(caught.value, PathChangedError)
    if error is OSError:
        assert caught.value.errno == errno.ENAMETOOLONG


@pytest.mark.parametrize(
    ("limit", "data", "cut"),
    [(None, b"12345", False), (5, b"12345", False), (4, b"1234", True), (0, b"", True)],
)
def test_a_limit_cuts_and_says_so(tree: Tree, limit: int | None, data: bytes, cut: bool) -> None:
    tree.put("file", "12345")
    content = tree.fs.read(at(tree, "file"), limit)
    assert (content.data, content.truncated) == (data, cut)
    assert content.stat == tree.fs.stat(at(tree, "file"))


def test_a_new_file_and_an_old_one(tree: Tree) -> None:
    path = at(tree, "file")
    made = tree.fs.replace_atomic(path, b"one")
    assert made == tree.fs.stat(path)
    tree.chmod("file", 0o750)
    first = tree.fs.stat(path)
    tree.fs.replace_atomic(path, b"two")
    second = tree.fs.stat(path)
    assert tree.get("file") == b"two"
    assert second.mode == 0o750
    assert second.inode != first.inode  # another file took the place; the old one was never half written
    tree.fs.replace_atomic(path, b"three", mode=0o600)
    assert tree.fs.stat(path).mode == 0o600
    assert tree.names("") == ["file"]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("dir", IsADirectoryError),
        ("missing/file", FileNotFoundError),
        ("file/deeper", NotADirectoryError),
        ("x" * 256, OSError),
        ("link", PathChangedError),
        ("dangling", PathChangedError),
        ("linked-dir/file", PathChangedError),
    ],
)
def test_what_cannot_be_written(tree: Tree, path: str, error: type[OSError]) -> None:
    tree.put("file", "1")
    tree.put("dir/file", "1")
    tree.symlink("link", "file")
    tree.symlink("dangling", "nowhere")
    tree.symlink("linked-dir", "dir")
    before = tree.names("")
    with pytest.raises(error):
        tree.fs.replace_atomic(at(tree, path), b"2")
    assert tree.names("") == before
    assert tree.names("dir") == ["file"]
    assert (tree.get("file"), tree.get("dir/file")) == (b"1", b"1")


def test_acting_refuses_links_everywhere(tree: Tree) -> None:
    tree.put("dir/file", "1")
    tree.symlink("to-file", "dir/file")
    tree.symlink("to-dir", "dir")
    for path in ("to-file", "to-dir/file"):
        with pytest.raises(PathChangedError):
            tree.fs.read(at(tree, path))
    for path in ("to-dir", "to-dir/new", "to-dir/new/deeper"):
        with pytest.raises(PathChangedError):
            tree.fs.mkdirs(at(tree, path))
    with pytest.raises(PathChangedError):
        tree.fs.remove(at(tree, "to-dir/file"))
    tree.fs.remove(at(tree, "to-file"))  # the link itself, as unlink does
    assert tree.names("") == ["dir", "to-dir"]
    assert tree.names("dir") == ["file"]


def test_expected_states(tree: Tree) -> None:
    path = at(tree, "file")
    tree.put("file", "1")
    seen = tree.fs.read(path).stat
    tree.put("file", "22")
    with pytest.raises(PathChangedError):
        tree.fs.replace_atomic(path, b"mine", expected=seen)
    with pytest.raises(PathChangedError):
        tree.fs.replace_atomic(path, b"mine", expected=ABSENT)
    assert tree.get("file") == b"22"
    tree.fs.replace_atomic(path, b"mine", expected=tree.fs.stat(path))
    assert tree.get("file") == b"mine"
    seen = tree.fs.stat(path)
    tree.fs.remove(path)
    with pytest.raises(PathChangedError):
        tree.fs.replace_atomic(path, b"mine", expected=seen)
    assert tree.names("") == []
    assert tree.fs.replace_atomic(path, b"new", expected=ABSENT) == tree.fs.stat(path)
    assert tree.names("") == ["file"]


def test_directories(tree: Tree) -> None:
    tree.fs.mkdirs(at(tree, "a/b/c"))
    tree.fs.mkdirs(at(tree, "a/b/c"))
    assert tree.fs.stat(at(tree, "a/b/c")).is_dir
    tree.put("file", "1")
    for path in ("file", "file/x"):
        with pytest.raises(NotADirectoryError):
            tree.fs.mkdirs(at(tree, path))
    with pytest.raises(NotADirectoryError):
        tree.fs.listdir(at(tree, "file"))
    with pytest.raises((IsADirectoryError, PermissionError)):
        tree.fs.remove(at(tree, "a"))
    with pytest.raises(FileNotFoundError):
        tree.fs.remove(at(tree, "missing"))


def test_names_that_are_no_utf8(tree: Tree) -> None:
    name = os.fsdecode(b"caf\xe9")
    tree.fs.replace_atomic(at(tree, name), b"1")
    assert [entry.name for entry in tree.fs.listdir(tree.root)] == [name]
    assert tree.fs.read(at(tree, name)).data == b"1"


# -- canonical paths -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "real"),
    [
        ("dir/file", "dir/file"),
        ("./dir//file/", "dir/file"),
        ("to-file", "dir/file"),
        ("to-dir/file", "dir/file"),
        ("to-dir/new/one", "dir/new/one"),  # does not exist yet
        ("to-deep/../file", "dir/file"),  # the kernel's way: up from where the link leads
        ("dir/../to-file", "dir/file"),
        ("dangling", "nowhere/at/all"),
        ("dangling/x", "nowhere/at/all/x"),
        ("chain", "dir/file"),
        ("missing/../dir", "dir"),
        ("dir/file/beyond", "dir/file/beyond"),
    ],
)
def test_canonical(tree: Tree, given: str, real: str) -> None:
    tree.put("dir/file", "1")
    tree.put("dir/deep/x", "1")
    tree.symlink("to-file", "dir/file")
    tree.symlink("to-dir", at(tree, "dir"))
    tree.symlink("to-deep", "dir/deep")
    tree.symlink("dangling", "nowhere/at/all")
    tree.symlink("chain", "to-dir/../to-file")
    assert canonical(tree.fs, at(tree, given)) == at(tree, real)


def test_canonical_ends_in_a_loop_and_says_so_when_asked(tree: Tree) -> None:
    tree.symlink("a", "b")
    tree.symlink("b", "a")
    canonical(tree.fs, at(tree, "a"))
    with pytest.raises(OSError, match=r"[Tt]oo many") as caught:
        canonical(tree.fs, at(tree, "a"), strict=True)
    assert caught.value.errno == errno.ELOOP
    with pytest.raises(FileNotFoundError):
        canonical(tree.fs, at(tree, "missing"), strict=True)


def test_forty_links_in_a_row_are_followed(tree: Tree) -> None:
    tree.put("l0", "end")
    for number in range(40):
        tree.symlink(f"l{number + 1}", f"l{number}")
    assert canonical(tree.fs, at(tree, "l40"), strict=True) == at(tree, "l0")
    assert tree.fs.stat(at(tree, "l40")).size == 3
