"""What a program may reach at most, whatever it was allowed to run for.

Permissions judge a command by its text; containment bounds what it can do once it runs.  It needs
``bwrap``, which gives a program a view of the filesystem in which only some places can be written.  Where
it is absent or the kernel refuses it, nothing is contained and that is said: a profile that silently does
nothing would be worse than none.

The view is built without new process ids: the terminal ends a command by its process group.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.limits import LIMITS

__all__ = ["PROFILES", "Containment", "Profile", "ProfileName", "contain", "profile_named"]


class ProfileName(enum.StrEnum):
    OFF = "off"
    WORKSPACE = "workspace"
    READ_ONLY = "read-only"
    STRICT = "strict"


@dataclasses.dataclass(frozen=True, slots=True)
class Profile:
    """``visible`` None: everything can be read.  ``denied`` paths show up empty and cannot be written."""

    writable_workspace: bool = True
    writable: tuple[str, ...] = ()
    visible: tuple[str, ...] | None = None
    network: bool = True
    denied: tuple[str, ...] = ()


_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/sys")

PROFILES: Mapping[ProfileName, Profile | None] = {
    ProfileName.OFF: None,
    ProfileName.WORKSPACE: Profile(writable=("/tmp", "/var/tmp")),  # noqa: S108 - named, not used
    ProfileName.READ_ONLY: Profile(writable_workspace=False),
    ProfileName.STRICT: Profile(visible=_SYSTEM, network=False),
}


def profile_named(name: str) -> Profile | None:
    """The profile a setting names.  A name that is none raises: nobody wants it to mean "off"."""
    try:
        return PROFILES[ProfileName(name or "off")]
    except ValueError as error:
        raise ValueError(f"no containment is called {name}; there are {', '.join(ProfileName)}") from error


#: Runs a command and says whether it ended well.
Probe = Callable[[Sequence[str]], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class Containment:
    """``reason`` says why nothing is contained; it is empty where something is."""

    profile: Profile | None
    program: str | None = None
    workspace: str = ""
    reason: str = ""

    @property
    def contained(self) -> bool:
        return self.program is not None

    def report(self) -> dict[str, Any]:
        """For a status or a tool that tells what holds here."""
        if not self.contained:
            return {"contained": "no", "reason": self.reason}
        assert self.profile is not None
        return {
            "contained": "bwrap",
            "writable": [
                *([self.workspace] if self.profile.writable_workspace else []),
                *self.profile.writable,
            ],
            "network": self.profile.network,
        }

    def wrap(self, argv: Sequence[str], cwd: str) -> list[str]:
        """The command line that runs ``argv`` contained; the same one where nothing is."""
        if self.program is None or self.profile is None:
            return list(argv)
        return [self.program, *_view(self.profile, self.workspace), "--chdir", cwd, "--", *argv]


def contain(
    profile: Profile | None,
    workspace: str,
    *,
    find: Callable[[str], str | None] = shutil.which,
    probe: Probe | None = None,
) -> Containment:
    """Containment as far as this machine has it."""
    if profile is None:
        return Containment(None, reason="no profile is chosen")
    program = find("bwrap")
    if program is None:
        return Containment(profile, reason="bwrap is not installed")
    # Installed is not enough: kernels and containers may forbid the namespaces it needs.
    if not (probe or _runs)([program, *_view(profile, workspace), "--", "true"]):
        return Containment(profile, reason="bwrap cannot build its namespaces here")
    return Containment(profile, program, workspace)


def _view(profile: Profile, workspace: str) -> list[str]:
    """Later arguments are laid over earlier ones: what may be written over what may be read."""
    view = ["--die-with-parent"]
    if profile.visible is None:
        view += ["--ro-bind", "/", "/"]
    else:
        for path in profile.visible:
            view += ["--ro-bind-try", path, path]
        view += ["--tmpfs", "/tmp"]  # noqa: S108 - a private one
    view += ["--dev", "/dev", "--proc", "/proc"]
    for path in profile.writable:
        view += ["--bind-try", path, path]
    view += ["--bind" if profile.writable_workspace else "--ro-bind", workspace, workspace]
    for path in profile.denied:
        view += ["--tmpfs", path] if _is_directory(path) else ["--ro-bind-try", os.devnull, path]
    if not profile.network:
        view += ["--unshare-net"]
    return view


def _is_directory(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - of the host, whose view is being built


def _runs(argv: Sequence[str]) -> bool:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=LIMITS.containment_probe, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
