"""The rules against git's own answers."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from harness.workspace.host_filesystem import HostFileSystem
from harness.workspace.ignore import IgnoreRules

from .conftest import Tree

NAMES = [
    "a",
    "b",
    "log",
    "build",
    "x.log",
    "y.tmp",
    "c.txt",
    "A",
    "a b",
    "é",
    "#h",
    "!n",
    "d",
    "node_modules",
]
TEXT = """
*.log  !x.log  build/  /build  a/  !a/  a/b  **/log  log/**  a/**/b  *.tmp  [ab]  [!ab].txt  ?.txt  \\#h  \\!n
a\\ b  a b  # note  /*  !/a  *  !*/  !*.txt
d/*  !d/c.txt  node_modules  é  x.*  **  /**/c.txt  a**  [a-  \\  !  /
A  b/..  ./a  a//b
"""
PATTERNS = ["", "c.txt ", *(pattern for line in TEXT.splitlines() for pattern in line.split("  ") if pattern)]
SEEDS = range(24)


def git(root: Path, *argv: str, stdin: bytes = b"", home: Path) -> subprocess.CompletedProcess[bytes]:
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"}
    return subprocess.run(["git", *argv], cwd=root, input=stdin, capture_output=True, env=env, check=False)


def ignored_by_git(root: Path, paths: list[str], home: Path) -> set[str]:
    asked = b"\0".join(os.fsencode(path) for path in paths) + b"\0"
    done = git(root, "check-ignore", "--no-index", "-z", "--stdin", stdin=asked, home=home)
    assert done.returncode in (0, 1), done.stderr
    return {os.fsdecode(path) for path in done.stdout.split(b"\0") if path}


def some_patterns(rng: random.Random) -> str:
    return "\n".join(rng.sample(PATTERNS, rng.randint(0, 7))) + "\n"


def plant(rng: random.Random, root: Path) -> list[str]:
    """A random tree; the paths in it and some that do not exist."""
    paths: set[str] = set()
    for _ in range(60):
        parts = [rng.choice(NAMES) for _ in range(rng.randint(1, 4))]
        full = root.joinpath(*parts)
        if any(p.is_file() or p.is_symlink() for p in full.parents) or os.path.lexists(full):
            continue
        full.parent.mkdir(parents=True, exist_ok=True)
        match rng.randint(0, 5):
            case 0:
                full.mkdir()
            case 1:
                full.symlink_to(rng.choice(["..", "nowhere", "a"]))
            case _:
                full.touch()
        paths.update("/".join(parts[: n + 1]) for n in range(len(parts)))
    for directory in [root, *(path for path in root.rglob("*") if path.is_dir() and not path.is_symlink())]:
        if ".git" not in directory.parts and rng.random() < 0.3:
            (directory / ".gitignore").write_text(some_patterns(rng))
    missing = {"/".join(rng.choice(NAMES) for _ in range(rng.randint(1, 4))) for _ in range(30)}
    return sorted(p for p in paths | missing if not _beyond_a_link(root, p))


def _beyond_a_link(root: Path, path: str) -> bool:
    """Git refuses to judge these; a canonical path has no link in it."""
    return any((root / parent).is_symlink() for parent in list(Path(path).parents)[:-1])


@pytest.mark.parametrize("seed", SEEDS)
def test_as_git_says(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    home, root = tmp_path / "home", tmp_path / "root"
    home.mkdir()
    root.mkdir()
    git(root, "init", "-q", home=home)
    paths = plant(rng, root)
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text(some_patterns(rng))
    if rng.random() < 0.5:
        (home / "mine").write_text(some_patterns(rng))
        (home / ".gitconfig").write_text("[core]\n\texcludesFile = ~/mine\n")
    else:
        (home / ".config/git").mkdir(parents=True)
        (home / ".config/git/ignore").write_text(some_patterns(rng))

    rules = IgnoreRules.of(HostFileSystem(), str(root), {"HOME": str(home)})
    assert rules is not None
    ours = {path for path in paths if rules.ignored(f"{rules.root}/{path}")}
    assert ours == ignored_by_git(root, paths, home)


def test_a_worktree_shares_the_exclude_list(tmp_path: Path) -> None:
    root, linked = tmp_path / "root", tmp_path / "linked"
    root.mkdir()
    git(root, "init", "-q", home=tmp_path)
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    git(root, *identity, "commit", "-q", "--allow-empty", "-m", "x", home=tmp_path)
    git(root, "worktree", "add", "-q", str(linked), home=tmp_path)
    (root / ".git/info/exclude").write_text("secret\n")
    rules = IgnoreRules.of(HostFileSystem(), str(linked), {"HOME": str(tmp_path)})
    assert rules is not None
    assert rules.root == str(linked)
    assert rules.ignored(f"{linked}/secret")
    assert ignored_by_git(linked, ["secret"], tmp_path) == {"secret"}


def checkout(tree: Tree) -> None:
    tree.put(".git/HEAD", "ref: refs/heads/main\n")


def rules_of(tree: Tree, **env: str) -> IgnoreRules:
    rules = IgnoreRules.of(tree.fs, f"{tree.root}/sub", env)
    assert rules is not None
    return rules


def test_the_nearest_file_decides_and_parents_count(tree: Tree) -> None:
    checkout(tree)
    tree.put(".gitignore", "*.log\nout/\n")
    tree.put("sub/.gitignore", "!keep.log\n")
    tree.put("out/.gitignore", "!*\n")
    rules = rules_of(tree)
    answers = {
        path: rules.ignored(f"{tree.root}/{path}")
        for path in ("a.log", "sub/keep.log", "sub/other.log", "out/x", "out/deep/er/x", "sub/new.txt", "out")
    }
    assert answers == {
        "a.log": True,
        "sub/keep.log": False,
        "sub/other.log": True,
        "out/x": True,  # nothing below an ignored directory comes back
        "out/deep/er/x": True,  # nor need it exist
        "sub/new.txt": False,
        "out": True,
    }


def test_a_changed_file_counts_from_the_next_look_on(tree: Tree) -> None:
    checkout(tree)
    tree.put(".gitignore", "one\n")
    rules = rules_of(tree)
    one, two = f"{tree.root}/one", f"{tree.root}/two"
    assert (rules.ignored(one), rules.ignored(two)) == (True, False)
    tree.put(".gitignore", "two # longer\ntwo\n")
    assert rules.ignored(one)  # the same look
    rules.refresh()
    assert (rules.ignored(one), rules.ignored(two)) == (False, True)


def test_outside_of_the_checkout_nothing_is_ignored(tree: Tree) -> None:
    checkout(tree)
    tree.put(".gitignore", "*\n")
    rules = rules_of(tree)
    assert not rules.ignored("/etc/passwd")
    assert not rules.ignored(tree.root)
    assert not rules.ignored(tree.root + "-other/x")


def test_no_checkout_no_rules(memory: Tree) -> None:
    memory.put(".gitignore", "*\n")
    assert IgnoreRules.of(memory.fs, memory.root, {}) is None


def test_a_linked_gitignore_is_not_read(tree: Tree) -> None:
    checkout(tree)
    tree.put("elsewhere", "*\n")
    tree.symlink(".gitignore", "elsewhere")
    assert not rules_of(tree).ignored(f"{tree.root}/a")


def test_a_byte_order_mark_is_no_part_of_the_first_pattern(tree: Tree) -> None:
    checkout(tree)
    tree.put(".gitignore", b"\xef\xbb\xbfone\n")
    assert rules_of(tree).ignored(f"{tree.root}/one")


def test_names_that_are_no_utf8(tree: Tree) -> None:
    checkout(tree)
    tree.put(".gitignore", b"caf\xe9\n")
    assert rules_of(tree).ignored(f"{tree.root}/" + os.fsdecode(b"caf\xe9"))
