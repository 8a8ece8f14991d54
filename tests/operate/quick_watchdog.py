"""The real watchdog with short limits: what it does in half a minute it does here in a few seconds."""

from __future__ import annotations

import sys

from gateway.wire.limits import LIMITS

for row, seconds in {
    "probe_interval": 1.0,
    "probe_timeout": 1.0,
    "worker_hang": 4.0,
    "fatal_rest": 3.0,
    "supervisor_gone": 2.0,
    "terminate": 1.0,
}.items():
    object.__setattr__(LIMITS, row, seconds)  # before any other module copies it into a default

from gateway.operate.watchdog import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
