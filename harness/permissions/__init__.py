"""Whether a tool may run: rules, modes, remembered grants, and the question to the user.

A call becomes an `access` (what it wants), the rules say what they say about it (`policy`), `manager` judges
by a table of steps, and `gate` asks the user where that is the judgement.  Everything but `gate`, `sources`
and `grant_store` is free of I/O.
"""

from harness.permissions.gate import Decision, PermissionGate
from harness.permissions.grant_store import GrantStore, project_root
from harness.permissions.modes import Mode, parse_mode
from harness.permissions.sources import Settings, load_settings

__all__ = [
    "Decision",
    "GrantStore",
    "Mode",
    "PermissionGate",
    "Settings",
    "load_settings",
    "parse_mode",
    "project_root",
]
