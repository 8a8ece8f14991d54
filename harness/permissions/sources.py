"""Where rules come from: the files of the user, of the machine and of the project, read once a session.

The files and their shapes are the original's.  Two things differ, both so that a restriction is never lost:
a project's denying and asking rules count before its folder is trusted (only its allowing ones wait), and a
file that cannot be read asks for everything instead of nothing.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.limits import SIZES
from harness.permissions.modes import Mode, parse_mode
from harness.permissions.rules import Action, RuleSet, parse_rule, parse_section, unreadable

__all__ = ["Settings", "folder_trusted", "load_settings"]

_SYSTEM = Path("/etc/grok")


@dataclasses.dataclass(frozen=True)
class Settings:
    """``mode``: the one configured.  ``bypass_locked``: always-approve is not to be had."""

    rules: RuleSet = dataclasses.field(default_factory=RuleSet)
    mode: Mode = Mode.DEFAULT
    remember: bool = True
    bypass_locked: bool = False

    def clamped(self, mode: Mode) -> Mode:
        """The mode that may really be entered."""
        return Mode.DEFAULT if mode is Mode.BYPASS and self.bypass_locked else mode


class _UnreadableError(Exception):
    pass


def load_settings(
    cwd: str,
    root: str,
    grok_home: Path,
    home: Path,
    environ: Mapping[str, str],
    *,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    trusted: bool = False,
    system: Path = _SYSTEM,
) -> Settings:
    """Read everything.  ``allow`` and ``deny`` are rules of the command line."""
    load = _Loading()
    for text in allow:
        load.rules(parse_rule(text, Action.ALLOW, "command line"))
    for text in deny:
        load.rules(parse_rule(text, Action.DENY, "command line"))
    for folder in dict.fromkeys((system, grok_home)):
        load.toml(folder / "requirements.toml", administers=True)
        load.toml(folder / "managed_config.toml")
    load.toml(grok_home / "config.toml", own=True)
    for name in ("settings.json", "settings.local.json"):
        load.json(home / ".claude" / name, own=True)
    trusted = trusted or folder_trusted(cwd, root, grok_home, environ)
    for folder in _project(cwd, root):
        if folder not in (home, grok_home.parent):  # those files have been read as the user's own
            load.toml(folder / ".grok" / "config.toml", allow=trusted)
            for name in ("settings.json", "settings.local.json"):
                load.json(folder / ".claude" / name, allow=trusted, own=trusted)
    return load.settings()


def folder_trusted(cwd: str, root: str, grok_home: Path, environ: Mapping[str, str]) -> bool:
    """Whether files of the project may tell the engine and the model what to do."""
    return environ.get("GROK_FOLDER_TRUST") == "0" or _trusted(grok_home, cwd, root)


class _Loading:
    """Collects what the files say."""

    def __init__(self) -> None:
        self.found = RuleSet()
        self.mode: Mode | None = None
        self.foreign_mode: Mode | None = None
        self.remember = True
        self.locked = False

    def rules(self, rules: RuleSet) -> None:
        self.found = self.found.joined(rules)

    def settings(self) -> Settings:
        mode = self.mode or self.foreign_mode or Mode.DEFAULT
        plain = Settings(self.found, mode, self.remember, self.locked)
        return dataclasses.replace(plain, mode=plain.clamped(mode))

    def toml(self, file: Path, *, own: bool = False, administers: bool = False, allow: bool = True) -> None:
        data = self._read(file, tomllib.loads)
        if not data:
            return
        self.rules(parse_section(data.get("permission"), str(file), allow=allow))
        ui = data.get("ui")
        ui = ui if isinstance(ui, Mapping) else {}
        if own:
            self.mode = parse_mode(ui.get("permission_mode")) or self.mode
        if own or administers:
            self.remember = self.remember and ui.get("remember_tool_approvals") is not False
        if administers:
            pinned = data.get("disable_bypass_permissions_mode", ui.get("disable_bypass_permissions_mode"))
            self.locked = self.locked or pinned not in (None, False) or ui.get("yolo") is False

    def json(self, file: Path, *, own: bool = False, allow: bool = True) -> None:
        data = self._read(file, json.loads)
        if not data:
            return
        section = data.get("permissions")
        self.rules(parse_section(section, str(file), allow=allow))
        nested = section.get("defaultMode") if isinstance(section, Mapping) else None
        if own:
            self.foreign_mode = parse_mode(nested or data.get("defaultMode")) or self.foreign_mode

    def _read(self, file: Path, parse: Callable[[str], Any]) -> Mapping[str, Any]:
        try:
            return _object(file, parse)
        except _UnreadableError as error:
            self.rules(unreadable(str(file), str(error)))
            return {}


def _object(file: Path, parse: Callable[[str], Any]) -> Mapping[str, Any]:
    """The mapping in a file; empty when there is no file."""
    try:
        with file.open("rb") as stream:
            raw = stream.read(SIZES.config_file + 1)
        if len(raw) > SIZES.config_file:
            raise ValueError("it is too long")
        data = parse(raw.decode("utf-8-sig"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise _UnreadableError(f"the file cannot be read: {error}") from error
    if not isinstance(data, Mapping):
        raise _UnreadableError("the file must hold a table")
    return data


def _project(cwd: str, root: str) -> Iterator[Path]:
    """Folders from the root of the project down to where the session works."""
    here, top = Path(cwd), Path(root)
    if not here.is_relative_to(top):
        yield here
        return
    yield from reversed([here, *(p for p in here.parents if p.is_relative_to(top))])


def _trusted(grok_home: Path, cwd: str, root: str) -> bool:
    """Whether the user has trusted the project, or a folder above it, with the original or with us."""
    try:
        folders = _object(grok_home / "trusted_folders.toml", tomllib.loads).get("folders")
    except _UnreadableError:
        return False
    if not isinstance(folders, Mapping):
        return False
    return any(_says_yes(folders.get(name)) for name in _names(cwd, root))


def _names(cwd: str, root: str) -> Iterable[str]:
    return dict.fromkeys((root, cwd))


def _says_yes(entry: object) -> bool:
    return entry is True or (isinstance(entry, Mapping) and entry.get("trusted") is True)
