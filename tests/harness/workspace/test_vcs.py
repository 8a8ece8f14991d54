"""Git's answers, with the real program and without it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.workspace.executor import Executed, Execution, HostExecutor
from harness.workspace.host_filesystem import HostFileSystem
from harness.workspace.repository import find_repository
from harness.workspace.vcs import Branch, Change, Diff, Git, GitError, Status, parse_status

from .conftest import MemoryTree


def environment(home: Path) -> dict[str, str]:
    identity = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", **identity}


class Checkout:
    def __init__(self, path: Path) -> None:
        self.env = environment(path)
        self.root = path / "a root"
        self.root.mkdir()
        self("init", "-q", "-b", "main")

    def __call__(self, *argv: str) -> str:
        done = subprocess.run(["git", *argv], cwd=self.root, env=self.env, capture_output=True, check=True)
        return done.stdout.decode()

    def put(self, name: str, content: str | bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    def git(self) -> Git:
        git = Git.of(HostExecutor(self.env), HostFileSystem(), str(self.root))
        assert git is not None
        return git


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


ODD = 'tab\there "and" é\nnewline'


async def test_status_and_diffs(checkout: Checkout) -> None:
    for name in ("edited", "gone", "old name", "both"):
        checkout.put(name, f"{name}\n1\n2\n3\n")
    checkout("add", "-A")
    checkout("commit", "-qm", "first")
    checkout.put("edited", "x\n1\n2\n3\nmore\n")
    (checkout.root / "gone").unlink()
    checkout("mv", "old name", "new name")
    checkout.put("both", "staged\n")
    checkout("add", "both")
    checkout.put("both", "later\n")
    checkout.put(ODD, "new\nlast")
    checkout.put("binary", b"\0\1")

    status = await checkout.git().status()
    assert status.branch == "main"
    assert status.commit == checkout("rev-parse", "HEAD").strip()
    assert set(status.staged) == {
        Change("new name", "rename", True, "old name"),
        Change("both", "edit", True),
    }
    assert set(status.unstaged) == {
        Change("edited", "edit", False),
        Change("gone", "delete", False),
        Change("both", "edit", False),
    }
    assert set(status.untracked) == {ODD, "binary"}

    assert await checkout.git().diffs() == sorted(
        [
            Diff("binary", "untracked", None, None),
            Diff("both", "edit", 1, 4),
            Diff("edited", "edit", 2, 1),
            Diff("gone", "delete", 0, 4),
            Diff("new name", "create", 4, 0),
            Diff("old name", "delete", 0, 4),
            Diff(ODD, "untracked", 2, 0),
        ],
        key=lambda diff: diff.path,
    )
    assert await checkout.git().diffs([ODD]) == [Diff(ODD, "untracked", 2, 0)]
    assert "+later" in await checkout.git().patch(["both"])
    assert "+staged" in await checkout.git().patch(["both"], staged=True)


async def test_before_the_first_commit(checkout: Checkout) -> None:
    checkout.put("staged", "1\n")
    checkout("add", "staged")
    git = checkout.git()
    status = await git.status()
    assert (status.branch, status.commit) == ("main", None)
    assert await git.current_commit() is None
    assert await git.diffs() == [Diff("staged", "create", 1, 0)]
    assert await git.branches() == []


async def test_branches_remotes_and_versions(checkout: Checkout) -> None:
    checkout.put("sub/file", b"caf\xe9\n")
    checkout("add", "-A")
    checkout("commit", "-qm", "first")
    checkout("branch", "other/one")
    checkout("remote", "add", "origin", "https://example.invalid/x.git")
    checkout("update-ref", "refs/remotes/origin/main", "HEAD")
    checkout("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    git = checkout.git()
    assert await git.branches() == [Branch("main", True, False), Branch("other/one", False, False)]
    assert Branch("origin/main", False, True) in await git.branches(remote=True)
    info = await git.info()
    assert (info.root, info.is_worktree, info.branch) == (str(checkout.root), False, "main")
    assert info.remotes == ("https://example.invalid/x.git",)
    assert await git.at_revision("sub/file") == b"caf\xe9\n"
    assert await git.at_revision("missing") is None
    with pytest.raises(GitError):
        await git.at_revision("x", "--help")


async def test_a_detached_head_and_a_worktree(checkout: Checkout, tmp_path: Path) -> None:
    checkout("commit", "-qm", "first", "--allow-empty")
    checkout("worktree", "add", "-q", "--detach", str(tmp_path / "linked"))
    git = Git.of(HostExecutor(checkout.env), HostFileSystem(), str(tmp_path / "linked"))
    assert git is not None
    info = await git.info()
    assert info.is_worktree
    assert info.main_root == str(checkout.root)
    assert info.branch is None
    assert info.commit == checkout("rev-parse", "HEAD").strip()


async def test_a_status_takes_no_lock(checkout: Checkout) -> None:
    checkout.put("a", "1")
    checkout("add", "-A")
    checkout("commit", "-qm", "first")
    checkout.put("a", "1")  # the same content: a status wants to refresh the index
    (checkout.root / ".git/index.lock").touch()
    assert (await checkout.git().status()).unstaged == ()


async def test_a_checkout_cannot_have_a_program_run(checkout: Checkout, tmp_path: Path) -> None:
    spy = tmp_path / "spy"
    spy.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    spy.chmod(0o755)
    checkout.put("a", "1\n")
    checkout.put(".gitattributes", "a diff=spy\n")
    checkout("add", "-A")
    checkout("commit", "-qm", "first")
    checkout.put("a", "2\n")
    for name in ("core.fsmonitor", "diff.external", "diff.spy.command", "diff.spy.textconv"):
        checkout("config", name, str(spy))
    git = checkout.git()
    await git.status()
    await git.diffs()
    await git.patch()
    assert not (tmp_path / "ran").exists()


class Table:
    """An executor that answers from a table."""

    def __init__(self, *answers: Executed) -> None:
        self.answers = list(answers)
        self.asked: list[Execution] = []

    async def run(self, execution: Execution) -> Executed:
        self.asked.append(execution)
        return self.answers.pop(0)


def without_git(memory: MemoryTree, *answers: Executed) -> tuple[Git, Table]:
    memory.put(".git/HEAD", "ref: refs/heads/main\n")
    repository = find_repository(memory.fs, f"{memory.root}/deep/er")
    assert repository is not None
    table = Table(*answers)
    return Git(table, memory.fs, repository), table


async def test_no_program_is_needed_to_test_it(memory: MemoryTree) -> None:
    memory.put("new", "one\ntwo\n")
    git, table = without_git(
        memory,
        Executed(0, b"abc\n", b""),
        Executed(0, b"M\0a b\0", b""),
        Executed(0, b"3\t1\ta b\0", b""),
        Executed(0, b"new\0", b""),
    )
    assert await git.diffs() == [Diff("a b", "edit", 3, 1), Diff("new", "untracked", 2, 0)]
    assert {execution.cwd for execution in table.asked} == {memory.root}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Executed(128, b"", b"fatal: bad thing\n"), "fatal: bad thing"),
        (Executed(None, b"", b"", timed_out=True), "did not end in time"),
        (Executed(None, b"x", b"", truncated=True), "more to say"),
    ],
)
async def test_failures_are_told(memory: MemoryTree, answer: Executed, text: str) -> None:
    git, _ = without_git(memory, answer)
    with pytest.raises(GitError, match=text):
        await git.status()


def test_a_conflict_is_one() -> None:
    line = "u UU N... 100644 100644 100644 100644 h1 h2 h3 a b c\0"
    assert parse_status(line.encode()) == Status(unstaged=(Change("a b c", "conflict", False),))


def test_no_checkout(memory: MemoryTree) -> None:
    assert Git.of(Table(), memory.fs, memory.root) is None
