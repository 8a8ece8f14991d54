"""``python -m tests.engines.afterwards TEXT…``: when standard input ends, end what carries a text.

Instances of the gateway are services and survive whoever started them.  A run of the tests holds the
other end of that input, so whole instances do not stay when it is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from tests.engines.processes import carriers

#: Seconds for an end in order (supervisord ends its instance), and again for what does not listen.
PATIENCE = 15.0


def main(texts: list[str]) -> None:
    sys.stdin.read()
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + PATIENCE
        for pid in _left(texts):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        while _left(texts) and time.monotonic() < deadline:
            time.sleep(0.1)


def _left(texts: list[str]) -> list[int]:
    return [pid for text in texts for pid in carriers(text) if pid != os.getpid()]


if __name__ == "__main__":
    main(sys.argv[1:])
