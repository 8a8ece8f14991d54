"""``logs [NAME] [-f] [-n N]``: the last lines of the logs, and what is added to them."""

from __future__ import annotations

import collections
import os
import time
from collections.abc import Iterator
from pathlib import Path

from gateway.paths import Paths
from gateway.wire.limits import LIMITS, SIZES

__all__ = ["Follower", "names", "show"]


def names(paths: Paths) -> list[str]:
    """Logs that exist, by the name that `show` takes."""
    return sorted(file.stem for file in paths.logs.glob("*.log"))


def show(paths: Paths, name: str | None, lines: int, follow: bool) -> int:
    """Print the last ``lines`` of one log, or of all; exit code 1 for a log that does not exist."""
    known = names(paths)
    # `worker:worker_00` is what `status` calls the component
    wanted = known if name is None else [name.rpartition(":")[2]]
    if not known or not set(wanted) <= set(known):
        print(f"no log {name or ''} in {paths.logs}; there are: {', '.join(known) or 'none'}")
        return 1
    followers = {log: Follower(paths.log(log)) for log in wanted}
    for log, follower in followers.items():
        if len(wanted) > 1:
            print(f"==> {log} <==")
        for line in follower.last(lines):
            print(line)
    while follow:
        for log, follower in followers.items():
            for line in follower.added():
                print(f"{log} | {line}" if len(wanted) > 1 else line, flush=True)
        time.sleep(LIMITS.progress)
    return 0


class Follower:
    """One log file, followed over its rotations."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._position = 0
        self._inode = 0
        self._rest = b""

    def last(self, lines: int) -> list[str]:
        """The last lines; `added` goes on behind them."""
        kept = collections.deque(self.added(), maxlen=lines)
        return list(kept)

    def added(self) -> Iterator[str]:
        """Complete lines that are new since the last look."""
        try:
            stream = self._file.open("rb")
        except FileNotFoundError:  # in the middle of a rotation
            return
        with stream:
            status = os.fstat(stream.fileno())
            if status.st_ino != self._inode or status.st_size < self._position:
                self._inode, self._position, self._rest = status.st_ino, 0, b""
            stream.seek(self._position)
            while data := stream.read(SIZES.read):
                self._position += len(data)
                *complete, self._rest = (self._rest + data).split(b"\n")
                for line in complete:
                    yield line.decode("utf-8", "replace")
