"""Files that run things or decide what may run: an edit of them is confirmed each time.

No grant and no rule that allows edits covers them, for whoever writes a git hook or a shell's start file
has every later command.  Always-approve does, as in the original: it is a decision to be asked nothing.
"""

from __future__ import annotations

import re

from harness.permissions.paths import Paths, Place

__all__ = ["protected"]

#: Anywhere in a path.
_PARTS = re.compile(
    r"(?:^|/)(?:\.git/(?:hooks|config|info/attributes|modules/.*/(?:hooks|config))|\.ssh|\.gnupg|"
    r"\.grok/(?:hooks|config\.toml|requirements\.toml|sandbox[^/]*|managed_config\.toml|"
    r"trusted_folders\.toml|sessions/[^/]+/permission[^/]*)|"
    r"\.claude/(?:settings[^/]*\.json|hooks)|\.cursor/(?:hooks[^/]*)|\.envrc|\.husky|\.mcp\.json|"
    r"\.gitconfig|\.bazelrc|\.npmrc|\.vscode/(?:tasks|settings)\.json)(?:/|$)",
    re.IGNORECASE,
)
#: Directly in the home folder.
_AT_HOME = re.compile(
    r"\.(?:bashrc|bash_profile|bash_login|bash_logout|bash_aliases|profile|zshrc|zprofile|zshenv|zlogin|zlogout|"
    r"kshrc|cshrc|tcshrc|login|logout|inputrc|xinitrc|xprofile|xsessionrc|pam_environment|curlrc|wgetrc|netrc|"
    r"config/(?:fish|git|systemd|autostart|environment\.d)(?:/.*)?|local/bin/.*|ssh/.*|gnupg/.*)|bin/.*"
)
_SYSTEM = ("/etc", "/boot", "/usr", "/bin", "/sbin", "/lib", "/dev", "/proc", "/sys", "/var/spool/cron")
_HARMLESS_DEVICES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})


def protected(place: Place, paths: Paths, grok_home: str) -> str:
    """Why an edit there needs a word of the user each time; empty when it does not."""
    if place.real is None:
        return "where the path leads cannot be told"
    for path in (place.lexical, place.real):
        if path in _HARMLESS_DEVICES:
            continue
        if any(path == folder or path.startswith(folder + "/") for folder in _SYSTEM):
            return "it belongs to the system"
        if _PARTS.search(path):
            return "it decides what runs"
        at_home = _below(path, paths.home)
        if at_home is not None and _AT_HOME.fullmatch(at_home):
            return "a shell or a session of the user reads it"
        own = _below(path, grok_home)
        if own is not None and not re.fullmatch(r"sessions/[^/]+/[^/]+/.+", own):
            return "it belongs to the agent itself"
    return ""


def _below(path: str, folder: str) -> str | None:
    """The rest of a path below a folder."""
    start = folder.rstrip("/") + "/"
    return path[len(start) :] if path.startswith(start) else None
