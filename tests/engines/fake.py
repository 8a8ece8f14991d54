"""Makes an executable of the fake engine, with a file of knobs beside it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

__all__ = ["FakeEngine", "do"]

_SOURCE = Path(__file__).resolve().parent


def do(*actions: dict[str, Any]) -> str:
    """The prompt text that makes the fake engine play these actions."""
    return f"[[do {json.dumps(list(actions))} ]]"


class FakeEngine:
    """``path`` is an executable to be named as GROK_GATEWAY_GROK; `set` changes its behaviour, also later."""

    def __init__(self, folder: Path, **knobs: Any) -> None:
        self.path, self.knobs = folder / "fake-grok", folder / "knobs.json"
        self.set(**knobs)
        # No site packages, no user environment: a bridge must start as fast as grok's does.
        self.path.write_text(
            f"#!{os.path.realpath(sys.executable)} -SE\n"
            f"import sys\nsys.path.insert(0, {str(_SOURCE)!r})\n"
            f"from fake_engine import main\nmain({str(self.knobs)!r}, sys.argv[1:])\n",
            "utf-8",
        )
        self.path.chmod(0o755)

    def set(self, **knobs: Any) -> None:
        """Replace all knobs: ``version``, ``leader`` and ``bridge`` (see `tests.engines.fake_engine`)."""
        fresh = self.knobs.with_suffix(".new")
        fresh.write_text(json.dumps(knobs), "utf-8")
        fresh.replace(self.knobs)  # a reader never sees half a file
