"""What only the disk knows about a call: where its paths lead and how the repository is configured."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Iterator

from harness.limits import SIZES
from harness.permissions.access import Access, AccessKind
from harness.permissions.commands import peeled
from harness.permissions.paths import Paths, Place
from harness.permissions.protected import protected
from harness.permissions.shell.classify import git_config_hazard
from harness.permissions.shell.operands import Use, moves_away, operands
from harness.permissions.shell.reach import Reach
from harness.workspace.paths import below

__all__ = ["Surroundings"]

_MAKERS = frozenset({"touch", "mkdir"})


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """``workspace``: the folder of the session, whatever folder this one call runs in."""

    paths: Paths
    workspace: str
    grok_home: str

    def only(self, access: Access, file: str | None) -> bool:
        """Whether an edit touches this file and nothing else."""
        if file is None or access.kind is not AccessKind.EDIT or access.subject is None:
            return False
        wanted = self.paths.operand(file).real
        return wanted is not None and all(place.real == wanted for place in self._edited(access))

    def _edited(self, access: Access) -> Iterator[Place]:
        for path in (access.subject, *access.further):
            if path is not None:
                yield self.paths.place(path)

    def protected(self, access: Access, reach: Reach | None) -> str:
        """Why something that the call writes has to be confirmed each time."""
        if access.kind is AccessKind.EDIT:
            if access.subject is None:
                return "which file it edits is not said"
            places = list(self._edited(access))
        elif reach is not None:
            places = [p for p, use in self._operands(reach) if use is Use.WRITES]
        else:
            return ""
        whys = (protected(place, self.paths, self.grok_home) for place in places)
        return next((why for why in whys if why), "")

    def _operands(self, reach: Reach) -> Iterator[tuple[Place, Use]]:
        for command in reach.commands:
            for operand in operands(command):
                if operand.path is not None:
                    yield self.paths.operand(operand.path), operand.use

    def creates_outside(self, reach: Reach) -> bool:
        """Whether a command that only makes files or folders makes them outside of the workspace."""
        makers = [c for top in reach.top for c in (top, *peeled(top)) if c.name in _MAKERS]
        if not makers:
            return False
        if any(moves_away(command) for command in reach.commands):
            return True
        inside = self.paths.operand(self.workspace).real
        for command in makers:
            for operand in operands(command):
                real = self.paths.operand(operand.path).real if operand.path is not None else None
                if real is None or inside is None or not below(real, inside):
                    return True
        return False

    def git_hazard(self, reach: Reach) -> bool:
        """Whether the repository may make a git command that only looks run a program."""
        if not any(c.name == "git" for top in reach.top for c in (top, *peeled(top))):
            return False
        if any(moves_away(command) for command in reach.commands):
            return True
        try:
            folder = self._git_folder()
        except OSError:
            return True
        if folder is None:
            return False
        return any(self._hazardous(posixpath.join(folder, name)) for name in ("config", "config.worktree"))

    def _hazardous(self, file: str) -> bool:
        try:
            content = self.paths.fs.read(self.paths.operand(file).real or file, SIZES.git_config)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return content.truncated or git_config_hazard(content.data.decode("utf-8", "replace"))

    def _git_folder(self) -> str | None:
        """The folder with the configuration of the repository around the call; None outside of any."""
        here = self.paths.operand(self.paths.cwd).real or self.paths.cwd
        for folder in _upwards(here):
            git = posixpath.join(folder, ".git")
            try:
                found = self.paths.fs.stat(git)
            except (FileNotFoundError, NotADirectoryError):
                continue
            return git if found.is_dir else self._linked(git, folder)
        return None

    def _linked(self, file: str, base: str) -> str:
        """Where a ``.git`` that is a file leads: a worktree shares the configuration of its repository."""
        folder = self._pointer(file, base, "gitdir:")
        common = posixpath.join(folder, "commondir")
        try:
            self.paths.fs.stat(common)
        except FileNotFoundError:
            return folder
        return self._pointer(common, folder, "")

    def _pointer(self, file: str, base: str, mark: str) -> str:
        text = self.paths.fs.read(file, SIZES.git_pointer).data.decode("utf-8", "replace").strip()
        return posixpath.normpath(posixpath.join(base, text.removeprefix(mark).strip()))


def _upwards(path: str) -> Iterator[str]:
    """The folder itself and all above it."""
    while True:
        yield path
        if path == "/":
            return
        path = posixpath.dirname(path)
