"""One session's view of the workspace: where it is, what it may do, and its way to the host.

Tools reach files, programs and tasks only through the methods here.  A path goes in as the model wrote
it (`resolve`), and what acts on it afterwards takes the `ResolvedPath`: the file that was resolved is the
file that is read or written, whatever was put in its place meanwhile.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import errno
import functools
import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from harness.limits import LIMITS, SIZES
from harness.outcome import FaultKind, Notification, ToolFault
from harness.registry.capabilities import CapabilityMode, allows
from harness.registry.contract import ToolKind
from harness.workspace import paths
from harness.workspace.containment import Containment, contain
from harness.workspace.filesystem import (
    Entry,
    Expected,
    FileContent,
    FileKind,
    FileSystem,
    Stat,
    canonical,
    os_error,
)
from harness.workspace.hunks import HunkTracker, Restored
from harness.workspace.ignore import IgnoreRules
from harness.workspace.paths import Base, PathHints, ResolvedPath
from harness.workspace.rewind import RewindPoints

if TYPE_CHECKING:
    from harness.workspace.executor import Executor
    from harness.workspace.search import SearchRequest, SearchResult
    from harness.workspace.terminal import Terminal

__all__ = ["WalkEntry", "WorkspaceSession"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class WalkEntry:
    """One entry met on a walk; ``relative`` is its path below the start, ``depth`` counts from 1."""

    relative: str
    entry: Entry
    depth: int


class WorkspaceSession:
    """State and effects of one session; `harness.workspace.ops` creates, forks and drops them."""

    def __init__(
        self,
        session_id: str,
        cwd: str,
        *,
        fs: FileSystem,
        env: Mapping[str, str],
        executor: Executor,
        terminal: Terminal,
        mode: CapabilityMode = CapabilityMode.ALL,
        hunks: HunkTracker | None = None,
        containment: Containment | None = None,
        display_cwd: str | None = None,
        depth: int = 0,
        fork_budget: int | None = None,
    ) -> None:
        self.id = session_id
        self.cwd = cwd
        self.display_cwd = display_cwd
        self.fs = fs
        self.env = dict(env)
        self.executor = executor
        self.mode = mode
        #: What bounds the programs this session runs; `report` says so.
        self.containment = containment or contain(None, cwd)
        self.hunks = hunks or HunkTracker()
        self.rewind = RewindPoints()
        self.depth = depth
        #: How many generations of forks may still follow; None: no bound.
        self.fork_budget = fork_budget
        #: Ends with the session.  A toolset that an agent brought along works with the agent's own.
        self.own_terminal = terminal
        self.bound_terminal: Terminal | None = None
        #: The toolset and what it was made from; `harness.workspace.ops` alone exchanges them.
        self.toolset: Any = None
        self.turn_active = False
        self.in_flight = 0
        self.prompt_index = 0
        self._rules: tuple[IgnoreRules | None] | None = None

    # -- where things are ----------------------------------------------------------------------------

    @property
    def terminal(self) -> Terminal:
        """What commands run in: the agent's terminal where it brought its toolset, else the session's."""
        return self.bound_terminal or self.own_terminal

    def base(self, cwd: str | None = None) -> Base:
        return Base(cwd or self.cwd, self.env.get("HOME"), self.display_cwd if cwd is None else None)

    def display(self, path: str) -> str:
        """A path as the session's person and model know it."""
        if self.display_cwd is None or not paths.below(path, self.cwd):
            return path
        return self.display_cwd + path[len(self.cwd.rstrip("/")) :]

    async def resolve(self, text: str, *, cwd: str | None = None) -> ResolvedPath:
        """The path a model meant; ``cwd`` overrides the session's for this call."""
        if "\0" in text or not _encodes(text):
            raise ToolFault(FaultKind.INVALID_ARGUMENTS, "the path holds a character that no file name can")
        return await self._disk(paths.resolve, self.fs, text, self.base(cwd))

    async def similar(self, path: ResolvedPath) -> PathHints:
        """What the model may have meant by a path that does not exist."""
        try:
            async with asyncio.timeout(LIMITS.path_hints):
                return await self._disk(paths.hints, self.fs, path, self.base())
        except TimeoutError:
            return PathHints(self.display_cwd or self.cwd)

    async def ignored(self, path: ResolvedPath) -> bool:
        """Whether git would ignore it; also for a path that does not exist."""
        return await self._disk(self._ignored, path.real)

    # -- looking -------------------------------------------------------------------------------------

    async def stat(self, path: ResolvedPath | str) -> Stat:
        return await self._disk(self.fs.stat, str(path))

    async def read(self, path: ResolvedPath, limit: int | None = None) -> FileContent:
        """Bytes with the state they belong to; hand ``.stat`` to `write_atomic` as ``expected``."""
        content = await self._disk(self.fs.read, path.real, limit)
        if path.directory:
            raise os_error(errno.ENOTDIR, path.real)
        return content

    async def read_bytes(self, path: ResolvedPath, limit: int | None = None) -> bytes:
        return (await self.read(path, limit)).data

    async def listdir(self, path: ResolvedPath | str) -> list[Entry]:
        return await self._disk(self.fs.listdir, str(path))

    async def walk(
        self, path: ResolvedPath | str, *, limit: int, hidden: bool = False, ignored: bool = False
    ) -> list[WalkEntry]:
        """Breadth first, links not followed, at most ``limit`` entries.

        Names that begin with a dot and what git ignores are left out unless asked for.
        """

        def collected() -> list[WalkEntry]:
            # The rules know canonical paths only; a session's own directory may be a link.
            return list(self._walk(canonical(self.fs, str(path)), limit, hidden, ignored))

        return await self._disk(collected)

    async def search(self, request: SearchRequest, *, cancelled: asyncio.Event | None = None) -> SearchResult:
        """Search file contents with ``rg`` where it is present, else with our own search."""
        from harness.workspace.search.run import search

        return await search(self.fs, self.executor, self.env, request, cancelled or asyncio.Event())

    # -- acting --------------------------------------------------------------------------------------

    async def write_atomic(
        self, path: ResolvedPath, data: bytes, *, expected: Expected = None, mode: int | None = None
    ) -> Stat:
        """Write in one step; parents are created."""
        self._may_write(path)
        if path.directory:
            raise os_error(errno.EISDIR, path.real)

        def write() -> Stat:
            self.fs.mkdirs(posixpath.dirname(path.real))
            return self.fs.replace_atomic(path.real, data, mode=mode, expected=expected)

        return await self._to_its_end(write)

    async def remove(self, path: ResolvedPath) -> None:
        self._may_write(path)
        await self._to_its_end(lambda: self.fs.remove(path.real))

    def record_write(
        self, call_id: str, path: ResolvedPath, content: str, previous: str | None
    ) -> Notification:
        """Tell hunks and rewind points of a write, and make the notification of it.

        Texts carry bytes that are no UTF-8 as surrogate escapes, so that going back restores them.
        """
        before = None if previous is None else previous.encode("utf-8", "surrogateescape")
        self.rewind.wrote(path.real, before, content.encode("utf-8", "surrogateescape"))
        if max(len(content), len(previous or "")) <= SIZES.hunk_file:
            self.hunks.agent_wrote(path.real, content, previous, self.prompt_index)
        return Notification(
            "file_written",
            {
                "tool_call_id": call_id,
                "absolute_path": self.display(path.real),
                "content": content,
                "previous_content": previous,
                "is_new_file": previous is None,
            },
        )

    async def restore(self, restored: list[Restored]) -> None:
        """Write what rejected hunks leave behind."""
        for item in restored:
            data = None if item.content is None else item.content.encode("utf-8", "surrogateescape")
            await self._to_its_end(functools.partial(self._put_back, item.path, data))

    # -- prompts -------------------------------------------------------------------------------------

    def begin_prompt(self, preview: str = "") -> int:
        """A turn starts; the index of its rewind point."""
        point = self.rewind.begin(preview)
        self.prompt_index = point.prompt_index
        self.turn_active = True
        return point.prompt_index

    def end_prompt(self) -> None:
        self.turn_active = False

    async def rewind_conflicts(self, prompt_index: int) -> dict[str, str]:
        """Files that going back would take from somebody else, and what was done to them."""
        found = {}
        for path in self.rewind.before(prompt_index):
            data: bytes | None
            try:
                data = (await self._disk(self.fs.read, path)).data
            except OSError:
                data = None
            if self.rewind.changed_since(path, data):
                found[path] = "deleted_externally" if data is None else "modified_externally"
        return found

    async def rewind_to(self, prompt_index: int, *, forget: bool = True) -> list[str]:
        """Put every file back to what it held before that prompt; the paths that were written.

        With ``forget`` the prompts from there on are no points any more; without, only their files are.
        """
        wanted = self.rewind.before(prompt_index)
        for path, data in wanted.items():
            await self._to_its_end(functools.partial(self._put_back, path, data))
            text = None if data is None else data.decode("utf-8", "surrogateescape")
            self.hunks.file_changed(path, text)
        if forget:
            self.rewind.forget_from(prompt_index)
            self.prompt_index = prompt_index
        else:
            self.rewind.forget_files_from(prompt_index)
        return sorted(wanted)

    @contextlib.contextmanager
    def call_in_flight(self) -> Iterator[None]:
        """Around a tool call: a toolset is not taken away from under it."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    # -- inside --------------------------------------------------------------------------------------

    async def _disk(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """In a thread where a disk may make it wait."""
        if not self.fs.blocking:
            return work(*args, **kwargs)
        return await asyncio.to_thread(work, *args, **kwargs)

    async def _to_its_end(self, work: Callable[[], _T]) -> _T:
        """Like `_disk`; a cancelled caller is told so when the write is over, not while it goes on."""
        task = asyncio.ensure_future(self._disk(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            raise

    def _may_write(self, path: ResolvedPath) -> None:
        if not allows(self.mode, ToolKind.WRITE):
            raise os_error(errno.EROFS, path.real)

    def _put_back(self, path: str, data: bytes | None) -> None:
        if data is None:
            with contextlib.suppress(FileNotFoundError):
                self.fs.remove(path)
            return
        self.fs.mkdirs(posixpath.dirname(path))
        self.fs.replace_atomic(path, data)

    def _ignored(self, path: str) -> bool:
        rules = self._fresh_rules()
        return rules is not None and rules.ignored(path)

    def _fresh_rules(self) -> IgnoreRules | None:
        """The checkout is looked for until there is one: a session may begin before ``git init``."""
        if self._rules is None or self._rules[0] is None:
            self._rules = (IgnoreRules.of(self.fs, self.cwd, self.env),)
        if self._rules[0] is not None:
            self._rules[0].refresh()
        return self._rules[0]

    def _rules_in(self, top: str) -> IgnoreRules | None:
        """The rules for a walk that starts there, which may be another checkout."""
        rules = self._fresh_rules()
        if rules is None or not paths.below(top, rules.root):
            rules = IgnoreRules.of(self.fs, top, self.env)
        if rules is not None and rules.ignored(top, True):
            return None  # whoever asks for an ignored directory by its name wants to see what is in it
        return rules

    def _walk(self, top: str, limit: int, hidden: bool, ignored: bool) -> Iterator[WalkEntry]:
        rules = None if ignored else self._rules_in(top)
        queue = collections.deque([("", 1)])
        left = limit
        while queue:
            relative, depth = queue.popleft()
            try:
                entries = self.fs.listdir(posixpath.join(top, relative) if relative else top)
            except OSError:
                if not relative:
                    raise
                continue  # gone meanwhile, or not ours to read
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name.startswith(".") and not hidden:
                    continue
                name = posixpath.join(relative, entry.name)
                is_dir = entry.kind is FileKind.DIRECTORY
                if rules is not None and rules.excludes_path(posixpath.join(top, name), is_dir):
                    continue
                if left == 0:
                    return
                left -= 1
                yield WalkEntry(name, entry, depth)
                if is_dir:
                    queue.append((name, depth + 1))


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True
