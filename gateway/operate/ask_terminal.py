"""Standard streams as a terminal: pieces of a turn are written, typed lines are read.

Lines are read by the loop, not by a thread: a thread that waits in ``read`` cannot be stopped, and
would hold the command open after the turn has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
from collections.abc import Iterable
from typing import TextIO

from gateway.operate.turn_view import Piece

__all__ = ["Terminal"]

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"

#: Bytes of one typed line; a terminal's own line buffer holds 4096.
_LINE_MAX = 4096


class Terminal:
    """``interactive``: a person can be asked.  ``shared``: answer and notes are on one screen."""

    def __init__(
        self, stdin: TextIO = sys.stdin, stdout: TextIO = sys.stdout, stderr: TextIO = sys.stderr
    ) -> None:
        self._stdin, self._stdout, self._stderr = stdin, stdout, stderr
        self.interactive = stdin.isatty() and stderr.isatty()
        self.shared = _same_file(stdout, stderr)
        self._colour = stderr.isatty() and "NO_COLOR" not in os.environ

    def show(self, pieces: Iterable[Piece]) -> None:
        """Write and flush.  Raises BrokenPipeError when the answer's reader is gone."""
        for piece in pieces:
            if piece.stream == "answer":
                self._write(self._stdout, piece.text)
            else:
                dim = self._colour and piece.stream == "thought"
                self._write(self._stderr, f"{_DIM}{piece.text}{_PLAIN}" if dim else piece.text)

    def ask(self, lines: Iterable[str]) -> None:
        """Show a dialog; what was typed before it appeared must not answer it."""
        with contextlib.suppress(termios.error):
            termios.tcflush(self._stdin.fileno(), termios.TCIFLUSH)
        self._write(self._stderr, "\n".join(lines))

    async def line(self) -> str | None:
        """The next typed line without its end, None at the end of input."""
        loop = asyncio.get_running_loop()
        got: asyncio.Future[bytes] = loop.create_future()

        def readable() -> None:
            # A terminal hands out whole lines, so one read is one line.
            loop.remove_reader(fd)
            if not got.done():
                got.set_result(os.read(fd, _LINE_MAX))

        fd = self._stdin.fileno()
        loop.add_reader(fd, readable)
        try:
            data = await got
        finally:
            loop.remove_reader(fd)
        return data.decode(errors="replace").rstrip("\r\n") if data else None

    @staticmethod
    def _write(stream: TextIO, text: str) -> None:
        stream.write(text)
        stream.flush()


def _same_file(first: TextIO, second: TextIO) -> bool:
    try:
        return os.path.sameopenfile(first.fileno(), second.fileno())
    except (OSError, ValueError):
        return False
