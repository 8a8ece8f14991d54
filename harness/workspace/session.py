"""One session's view of the workspace: where it is, what it may do, and its way to the host.

Tools reach files, programs and tasks only through the methods here.  A path goes in as the model wrote
it (`resolve`), and what acts on it afterwards takes the `ResolvedPath`: the file that was resolved is the
file that is read or written, whatever was put in its place meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from harness.outcome import Notification
from harness.workspace.filesystem import Entry, Expected, FileContent, FileSystem, Stat
from harness.workspace.paths import PathHints, ResolvedPath

if TYPE_CHECKING:
    from harness.workspace.search import SearchRequest, SearchResult
    from harness.workspace.terminal import Terminal

__all__ = ["WalkEntry", "WorkspaceSession"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class WalkEntry:
    """One entry met on a walk; ``relative`` is its path below the start."""

    relative: str
    entry: Entry
    depth: int


class WorkspaceSession:
    """State and effects of one session; `harness.workspace.ops` creates, forks and drops them."""

    id: str
    cwd: str
    display_cwd: str | None
    env: Mapping[str, str]
    fs: FileSystem
    terminal: Terminal

    async def resolve(self, text: str, *, cwd: str | None = None) -> ResolvedPath:
        """The path a model meant; ``cwd`` overrides the session's for this call."""
        raise NotImplementedError

    async def ignored(self, path: ResolvedPath) -> bool:
        """Whether git would ignore it; also for a path that does not exist."""
        raise NotImplementedError

    async def stat(self, path: ResolvedPath | str) -> Stat:
        raise NotImplementedError

    async def read(self, path: ResolvedPath, limit: int | None = None) -> FileContent:
        """Bytes with the state they belong to; hand ``.stat`` to `write_atomic` as ``expected``."""
        raise NotImplementedError

    async def read_bytes(self, path: ResolvedPath, limit: int | None = None) -> bytes:
        return (await self.read(path, limit)).data

    async def write_atomic(
        self, path: ResolvedPath, data: bytes, *, expected: Expected = None, mode: int | None = None
    ) -> Stat:
        """Write in one step; parents are created."""
        raise NotImplementedError

    async def remove(self, path: ResolvedPath) -> None:
        raise NotImplementedError

    async def listdir(self, path: ResolvedPath | str) -> list[Entry]:
        raise NotImplementedError

    async def walk(
        self, path: ResolvedPath | str, *, limit: int, hidden: bool = False, ignored: bool = False
    ) -> list[WalkEntry]:
        """Breadth first, links not followed, at most ``limit`` entries; ``ignored``: those too."""
        raise NotImplementedError

    async def similar(self, path: ResolvedPath) -> PathHints:
        """What the model may have meant by a path that does not exist."""
        raise NotImplementedError

    async def search(self, request: SearchRequest) -> SearchResult:
        """Search file contents with ``rg`` where it is present, else with our own search."""
        raise NotImplementedError

    def record_write(
        self, call_id: str, path: ResolvedPath, content: str, previous: str | None
    ) -> Notification:
        """Tell hunks and rewind points of a write, and make the notification of it."""
        raise NotImplementedError
