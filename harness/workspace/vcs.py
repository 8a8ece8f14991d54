"""Git, read through an executor: status, diffs, branches, what is checked out.

Nothing here changes a repository.  Every command runs without optional locks: a status that refreshes
the index would make the person's own ``git`` fail while it holds the lock.  Output is asked for in the
forms made for programs, with NUL between names, because a name may hold anything else.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import posixpath
from collections.abc import Iterator, Sequence

from harness.limits import SIZES
from harness.workspace.executor import Executed, Execution, Executor
from harness.workspace.filesystem import FileContent, FileSystem
from harness.workspace.paths import confine
from harness.workspace.repository import Repository, find_repository

__all__ = ["Branch", "Change", "Diff", "Git", "GitError", "Info", "Status", "parse_status"]

_ENV = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "LC_ALL": "C.UTF-8",
}
_DIFF = ("diff", "--no-ext-diff", "--no-textconv")
#: The letters of a status and what they mean to a client.
_KINDS = {"A": "create", "D": "delete", "R": "rename", "C": "copy", "M": "edit", "T": "edit", "U": "conflict"}


class GitError(Exception):
    """Git could not do it; the text is its own complaint."""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One path in the index or in the work tree; ``old_path`` where it was renamed or copied from."""

    path: str
    type: str
    staged: bool
    old_path: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Status:
    branch: str | None = None
    commit: str | None = None
    upstream: str | None = None
    ahead: int = 0
    behind: int = 0
    staged: tuple[Change, ...] = ()
    unstaged: tuple[Change, ...] = ()
    untracked: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Diff:
    """One path's change since HEAD; counts are None where lines cannot be counted."""

    path: str
    type: str
    additions: int | None
    deletions: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Branch:
    name: str
    current: bool
    remote: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Info:
    root: str
    main_root: str
    is_worktree: bool
    branch: str | None
    commit: str | None
    remotes: tuple[str, ...]


class Git:
    """The checkout that a directory is in."""

    def __init__(self, executor: Executor, fs: FileSystem, repository: Repository) -> None:
        self._executor = executor
        self._fs = fs
        self.repository = repository

    @classmethod
    def of(cls, executor: Executor, fs: FileSystem, directory: str) -> Git | None:
        repository = find_repository(fs, directory)
        return None if repository is None else cls(executor, fs, repository)

    async def status(self) -> Status:
        out = await self._run("status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all")
        return parse_status(out)

    async def diffs(self, paths: Sequence[str] = ()) -> list[Diff]:
        """What differs from the last commit, untracked files included, by path."""
        head = await self._base()
        kinds = _by_path(await self._run(*_DIFF, "--name-status", "--no-renames", "-z", head, "--", *paths))
        counts = await self._run(*_DIFF, "--numstat", "--no-renames", "-z", head, "--", *paths)
        found = [
            Diff(path, _KINDS.get(kinds.get(path, "M"), "edit"), added, removed)
            for path, added, removed in _counts(counts)
        ]
        others = await self._run("ls-files", "--others", "--exclude-standard", "-z", "--", *paths)
        for path in _names(others):
            lines = await asyncio.to_thread(self._lines, path)
            found.append(Diff(path, "untracked", lines, 0 if lines is not None else None))
        return sorted(found, key=lambda diff: diff.path)

    async def patch(self, paths: Sequence[str] = (), *, staged: bool = False) -> str:
        """A unified diff; of the work tree against the index, or of the index against HEAD."""
        cached = ["--cached"] if staged else []
        out = await self._run(*_DIFF, "--no-color", *cached, "--", *paths)
        return out.decode("utf-8", "replace")

    async def change_of(self, diff: Diff) -> str:
        """The unified diff of one of `diffs`, an untracked file's against nothing."""
        if diff.type == "untracked":
            out = await self._run(*_DIFF, "--no-color", "--no-index", "--", os.devnull, diff.path, differs=1)
        else:
            out = await self._run(*_DIFF, "--no-color", "--no-renames", await self._base(), "--", diff.path)
        return out.decode("utf-8", "replace")

    async def branches(self, *, remote: bool = False) -> list[Branch]:
        refs = ["refs/heads", *(["refs/remotes"] if remote else [])]
        out = await self._run("for-each-ref", "--format=%(HEAD)%00%(refname)%00%(symref)", *refs)
        return list(_branches(out))

    async def info(self, status: Status | None = None) -> Info:
        """``status``, where it is known already, saves asking again."""
        status = status or await self.status()
        remotes = await self._run("config", "--get-regexp", r"^remote\..*\.url$", absent=1)
        urls = [line.partition(" ")[2] for line in os.fsdecode(remotes).splitlines()]
        return Info(
            root=self.repository.root,
            main_root=self.repository.main_root,
            is_worktree=self.repository.is_worktree,
            branch=status.branch,
            commit=status.commit,
            remotes=tuple(urls),
        )

    async def current_commit(self) -> str | None:
        out = await self._run("rev-parse", "--verify", "--quiet", "HEAD", absent=1)
        return out.decode().strip() or None

    async def at_revision(self, path: str, revision: str = "HEAD") -> bytes | None:
        """A file's content there, None where it does not exist; ``path`` is below the checkout's root."""
        if revision.startswith("-"):
            raise GitError(f"no revision is called {revision}")
        done = await self._execute("cat-file", "blob", f"{revision}:{path}")
        if done.truncated or done.timed_out:
            raise GitError(f"{path} is too large")
        return done.stdout if done.exit_code == 0 else None

    async def present(self, path: str) -> bytes | None:
        """What the work tree holds; a path that leads out of it is refused."""

        def read() -> FileContent:
            return self._fs.read(confine(self._fs, self.repository.root, path), SIZES.vcs_output)

        try:
            content = await asyncio.to_thread(read)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise GitError(f"{path}: {error.strerror}") from error
        if content.truncated:
            raise GitError(f"{path} is too large")
        return content.data

    def _lines(self, path: str) -> int | None:
        """Lines of an untracked file; None for a binary one, a large one, or one that is gone."""
        try:
            content = self._fs.read(posixpath.join(self.repository.root, path), SIZES.untracked_file)
        except OSError:
            return None
        if content.truncated or b"\0" in content.data:
            return None
        return content.data.count(b"\n") + (not content.data.endswith((b"\n",)) and bool(content.data))

    # -- inside --------------------------------------------------------------------------------------

    async def _base(self) -> str:
        """HEAD, or the empty tree before the first commit."""
        if await self.current_commit():
            return "HEAD"
        return (await self._run("hash-object", "-t", "tree", os.devnull)).decode().strip()

    async def _run(self, *argv: str, absent: int | None = None, differs: int | None = None) -> bytes:
        """Its output; ``absent`` and ``differs`` are exit codes that mean nothing there, and a difference."""
        done = await self._execute(*argv)
        if done.ok or (done.exit_code is not None and done.exit_code == differs):
            return done.stdout
        if done.exit_code is not None and done.exit_code == absent:
            return b""
        if done.timed_out:
            raise GitError(f"git {argv[0]} did not end in time")
        if done.truncated:
            raise GitError(f"git {argv[0]} has more to say than {SIZES.vcs_output} bytes")
        raise GitError(os.fsdecode(done.stderr).strip() or f"git {argv[0]} failed")

    async def _execute(self, *argv: str) -> Executed:
        # What a checkout configures to be run, a file-system monitor for instance, is foreign code.
        guard = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "--literal-pathspecs")
        try:
            return await self._executor.run(Execution(("git", *guard, *argv), self.repository.root, _ENV))
        except OSError as error:
            raise GitError(f"git cannot be started: {error.strerror}") from error


def parse_status(out: bytes) -> Status:
    """``git status --porcelain=v2 --branch -z``."""
    fields = iter(os.fsdecode(out).split("\0"))
    head: dict[str, str] = {}
    staged: list[Change] = []
    unstaged: list[Change] = []
    untracked: list[str] = []
    for line in fields:
        match line[:2]:
            case "# ":
                name, _, value = line[2:].partition(" ")
                head[name.removeprefix("branch.")] = value
            case "1 ":
                _entry(line.split(" ", 8), None, staged, unstaged)
            case "2 ":
                _entry(line.split(" ", 9), next(fields), staged, unstaged)
            case "u ":
                unstaged.append(Change(line.split(" ", 10)[10], "conflict", staged=False))
            case "? ":
                untracked.append(line[2:])
    ahead, behind = (int(n) for n in head.get("ab", "+0 -0").split())
    return Status(
        branch=_unless(head.get("head"), "(detached)"),
        commit=_unless(head.get("oid"), "(initial)"),
        upstream=head.get("upstream"),
        ahead=ahead,
        behind=-behind,
        staged=tuple(staged),
        unstaged=tuple(unstaged),
        untracked=tuple(untracked),
    )


def _entry(parts: list[str], old: str | None, staged: list[Change], unstaged: list[Change]) -> None:
    index, tree = parts[1][0], parts[1][1]
    path = parts[-1]
    if index != ".":
        staged.append(Change(path, _KINDS.get(index, "edit"), True, old if index in "RC" else None))
    if tree != ".":
        unstaged.append(Change(path, _KINDS.get(tree, "edit"), False, old if tree in "RC" else None))


def _unless(value: str | None, empty: str) -> str | None:
    return None if value == empty else value


def _names(out: bytes) -> list[str]:
    return [name for name in os.fsdecode(out).split("\0") if name]


def _by_path(out: bytes) -> dict[str, str]:
    """``--name-status -z``: letter and path take turns."""
    parts = _names(out)
    return {path: letter[:1] for letter, path in zip(parts[::2], parts[1::2], strict=True)}


def _counts(out: bytes) -> Iterator[tuple[str, int | None, int | None]]:
    for line in _names(out):
        added, removed, path = line.split("\t", 2)
        yield path, _number(added), _number(removed)


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)


def _branches(out: bytes) -> Iterator[Branch]:
    for line in os.fsdecode(out).splitlines():
        head, name, symref = line.split("\0")
        if symref:  # origin/HEAD is another name of a branch, not one
            continue
        remote = name.startswith("refs/remotes/")
        short = name.removeprefix("refs/remotes/" if remote else "refs/heads/")
        yield Branch(short, head == "*", remote)
