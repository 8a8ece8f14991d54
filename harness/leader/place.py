"""Where a leader listens, by nothing but strings: a bridge asks for it, and pathlib takes long to import."""

from __future__ import annotations

import os.path

__all__ = ["leader_place"]


def leader_place(option: str | None) -> str:
    """The socket's file: the option, ``GROK_LEADER_SOCKET``, or a name in the engine's home."""
    named = option or os.environ.get("GROK_LEADER_SOCKET")
    if named:
        return os.path.abspath(named)  # noqa: PTH100
    home = os.environ.get("GROK_HOME") or os.path.expanduser("~/.grok")  # noqa: PTH111
    return os.path.join(home, "leader.sock")  # noqa: PTH118
