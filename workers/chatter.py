"""What a child says besides its messages: logged at a bounded rate, its end kept for error texts.

Each line logged costs the loop some 50 µs: a child that writes without end would stall every client of
its worker, and push everything worth reading out of the log.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence

from gateway.wire.limits import LIMITS, SIZES

__all__ = ["Chatter"]

# CSI and OSC sequences, and the two-byte ones.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


class Chatter:
    """One stream of lines.  ``tail`` is its end in at most ``SIZES.stderr_tail`` printable characters."""

    def __init__(self, log: logging.Logger, level: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._level, self._clock = log, level, clock
        self._began = clock()
        self._logged = self._left_out = 0
        self.tail = ""

    def add(self, label: str, lines: Sequence[bytes]) -> None:
        """Log what the rate allows of ``lines`` behind ``label``, keep their end."""
        if self._clock() - self._began >= LIMITS.chatter:
            self.flush(label)
            self._began, self._logged = self._clock(), 0
        allowed = lines[: SIZES.chatter - self._logged]
        for line in allowed:
            self._log.log(self._level, "%s: %s", label, _printable(line))
        self._logged += len(allowed)
        self._left_out += len(lines) - len(allowed)
        last = b"\n".join(lines[-SIZES.stderr_tail :])[-SIZES.stderr_tail :].split(b"\n")
        self.tail = "\n".join([self.tail, *map(_printable, last)]).strip()[-SIZES.stderr_tail :]

    def flush(self, label: str) -> None:
        """Say how many lines were left out."""
        if self._left_out:
            self._log.log(self._level, "%s: %d more lines left out", label, self._left_out)
            self._left_out = 0


def _printable(line: bytes) -> str:
    text = _ANSI.sub("", line[: SIZES.log_line].decode(errors="replace"))
    return "".join(c if c.isprintable() else " " for c in text).strip()
