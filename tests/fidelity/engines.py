"""The two engines as commands, and the home that each play gives one.

Both get the same environment: nothing of the developer's own reaches them, and waits that last minutes in
everyday use are set to seconds through the variables that the original reads itself.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

from tests.engines.grok import write_offline_config

__all__ = ["ENGINES", "ROOT", "Engine", "MissingEngineError", "environment"]

ROOT = Path(__file__).resolve().parents[2]
_INSTALLED = ROOT / ".cache/grok/node_modules/@xai-official/grok/bin/grok-native"


class MissingEngineError(RuntimeError):
    """The command is not there.  Never a reason to skip: then nothing would be compared."""


@dataclasses.dataclass(frozen=True)
class Engine:
    """``program`` starts it; `command` speaks ACP on its standard streams."""

    name: str
    program: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        return (*self.program, "--permission-mode", "default", "agent", "--no-leader", "stdio")

    def leader(self, socket: Path) -> tuple[str, ...]:
        flags = (
            "--no-exit-on-disconnect",
            "--relay-on-demand",
            "--no-auto-update",
            "--leader-socket",
            str(socket),
        )
        return (*self.program, "--permission-mode", "default", "agent", "leader", *flags)

    def bridge(self, socket: Path) -> tuple[str, ...]:
        return (*self.program, "agent", "--leader", "stdio", "--leader-socket", str(socket))

    def check(self) -> None:
        if not os.access(self.program[0], os.X_OK):
            raise MissingEngineError(
                f"{self.name}: {self.program[0]} is not executable; `make test` installs it"
            )


_ORIGINAL = Engine("grok", (os.environ.get("GROK_GATEWAY_TEST_GROK") or str(_INSTALLED),))
_EMBEDDED = Engine("harness", (sys.executable, "-m", "harness"))

ENGINES = {engine.name: engine for engine in (_ORIGINAL, _EMBEDDED)}


def environment(home: Path, url: str, extra: dict[str, str]) -> dict[str, str]:
    """The whole environment of an engine whose models live at ``url``; writes its configuration."""
    grok_home = home / ".grok"
    write_offline_config(grok_home, url)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "GROK_HOME": str(grok_home),
        "PYTHONPATH": str(ROOT),
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TMPDIR": str(home.parent / "tmp"),
        **{name: os.environ[name] for name in ("GROK_GATEWAY_TEST_ID",) if name in os.environ},
        # Two decorations that the original makes with model calls of its own, beside every turn.
        "GROK_TURN_SUMMARY": "0",
        "GROK_TITLE_REFRESH": "0",
        **extra,
    }
