"""What a project and a person have written down for an agent: rules and skills, found at fixed places.

Only files are looked at, in a fixed order; what is done with them is the session's business.  A project's
own files count when its folder is trusted: whoever writes them tells the model what to do.
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Literal

from harness.limits import SIZES
from harness.workspace.filesystem import FileKind, FileSystem, canonical
from harness.workspace.frontmatter import frontmatter
from harness.workspace.ignore import IgnoreRules
from harness.workspace.paths import below
from harness.workspace.repository import find_repository

__all__ = ["Places", "RuleFile", "SkillFile", "discover_rules", "discover_skills"]

#: In one directory, in this order; all that exist count.
RULE_NAMES = (
    "Agents.md",
    "Claude.md",
    "CLAUDE.md",
    "CLAUDE.local.md",
    "AGENT.md",
    "AGENTS.md",
)
_PROJECT_NAMES = (*RULE_NAMES, ".claude/CLAUDE.md", ".claude/CLAUDE.local.md")
_RULE_DIRECTORIES = (".grok/rules", ".claude/rules", ".cursor/rules")
#: Skills have a directory each, commands are single files.
_SKILL_ROOTS = (".grok", ".agents", ".claude", ".cursor")
_SKILL_NAME = re.compile(r"[^\w-]+")

Scope = Literal["local", "repo", "user"]


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """Where to look: the session's directory, the person's home and the engine's own one."""

    cwd: str
    home: str | None
    grok_home: str | None
    trusted: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class RuleFile:
    path: str
    content: str
    scope: Literal["user", "project"]


@dataclasses.dataclass(frozen=True, slots=True)
class SkillFile:
    """A skill's head; the model reads the rest itself.  ``command``: a file of a ``commands`` directory."""

    name: str
    description: str
    path: str
    scope: Scope
    described: bool = True  # the description was written as one, not taken from the text
    when_to_use: str = ""
    argument_hint: str = ""
    user_invocable: bool = True
    model_invocable: bool = True
    command: bool = False


def discover_rules(fs: FileSystem, places: Places, env: Mapping[str, str]) -> list[RuleFile]:
    """The person's first, then the project's from its root down to the directory: the nearest counts most."""
    seen: set[tuple[int, int]] = set()
    found: list[RuleFile] = []
    for root in _homes(places):
        for path in _rule_paths(fs, root, RULE_NAMES, ("rules",)):
            _take(fs, path, "user", seen, found)
    if not places.trusted:
        return found
    rules = IgnoreRules.of(fs, places.cwd, env)
    for directory in reversed(_up_to_root(fs, places.cwd)):
        for path in _rule_paths(fs, directory, _PROJECT_NAMES, _RULE_DIRECTORIES):
            if rules is None or not rules.ignored(path):
                _take(fs, path, "project", seen, found)
    return found


def discover_skills(fs: FileSystem, places: Places) -> list[SkillFile]:
    """The nearest first; of two with one name the nearer stays.  What git ignores counts too."""
    found: dict[str, SkillFile] = {}
    for scope, root in _skill_roots(fs, places):
        for path, name, command in _skill_paths(fs, root):
            skill = _skill(fs, path, name, scope, command)
            if skill is not None:
                found.setdefault(skill.name, skill)
    return list(found.values())


# -- places --------------------------------------------------------------------------------------------


def _homes(places: Places) -> Iterator[str]:
    if places.grok_home:
        yield places.grok_home
    if places.home:
        yield posixpath.join(places.home, ".claude")
        yield posixpath.join(places.home, ".cursor")


def _up_to_root(fs: FileSystem, cwd: str) -> list[str]:
    """The directory and those above it in its checkout; it alone outside of one."""
    here = canonical(fs, cwd)
    repository = find_repository(fs, here)
    found = [here]
    while repository is not None and here != repository.root and below(here, repository.root):
        here = posixpath.dirname(here)
        found.append(here)
    return found


def _skill_roots(fs: FileSystem, places: Places) -> Iterator[tuple[Scope, str]]:
    if places.trusted:
        for number, directory in enumerate(_up_to_root(fs, places.cwd)):
            for root in _SKILL_ROOTS:
                yield ("repo" if number else "local"), posixpath.join(directory, root)
    if places.grok_home:
        yield "user", places.grok_home
    if places.home:
        for root in _SKILL_ROOTS[1:]:
            yield "user", posixpath.join(places.home, root)


# -- rules ---------------------------------------------------------------------------------------------


def _rule_paths(
    fs: FileSystem, root: str, names: tuple[str, ...], directories: tuple[str, ...]
) -> Iterator[str]:
    for name in names:
        yield posixpath.join(root, name)
    for directory in directories:
        path = posixpath.join(root, directory)
        for name, _ in _entries(fs, path):
            if name.endswith(".md"):
                yield posixpath.join(path, name)


def _take(
    fs: FileSystem,
    path: str,
    scope: Literal["user", "project"],
    seen: set[tuple[int, int]],
    found: list[RuleFile],
) -> None:
    """Read it, unless it is a file that was read under another name (links, letter case)."""
    try:
        content = fs.read(canonical(fs, path), SIZES.instructions)
    except OSError:
        return
    identity = (content.stat.device, content.stat.inode)
    text = content.data.decode("utf-8", "replace").removeprefix("\ufeff")
    if identity not in seen and text.strip():
        seen.add(identity)
        found.append(RuleFile(path, text, scope))


# -- skills --------------------------------------------------------------------------------------------


def _skill_paths(fs: FileSystem, root: str) -> Iterator[tuple[str, str, bool]]:
    """Path, name to fall back on, and whether it is a command."""
    skills, commands = posixpath.join(root, "skills"), posixpath.join(root, "commands")
    for name, kind in _entries(fs, skills):
        if kind in (FileKind.DIRECTORY, FileKind.SYMLINK):
            yield posixpath.join(skills, name, "SKILL.md"), name, False
    for name, _ in _entries(fs, commands):
        if name.endswith(".md"):
            yield posixpath.join(commands, name), name.removesuffix(".md"), True


def _skill(fs: FileSystem, path: str, fallback: str, scope: Scope, command: bool) -> SkillFile | None:
    try:
        content = fs.read(canonical(fs, path), SIZES.instructions)
    except OSError:
        return None
    head, body = frontmatter(content.data.decode("utf-8", "replace"))
    name = _skill_name(head.get("name") or fallback)
    description = head.get("description") or ""
    if not name:
        return None
    return SkillFile(
        name=name,
        description=description or _first_paragraph(body),
        path=path,
        scope=scope,
        described=bool(description),
        when_to_use=head.get("when-to-use", ""),
        argument_hint=head.get("argument-hint", ""),
        user_invocable=head.get("user-invocable", "").lower() != "false",
        model_invocable=head.get("disable-model-invocation", "").lower() != "true",
        command=command,
    )


def _skill_name(text: str) -> str:
    return _SKILL_NAME.sub("-", text.strip().lower().replace("_", "-")).strip("-")[: SIZES.skill_name]


def _first_paragraph(body: str) -> str:
    for paragraph in re.split(r"\n\s*\n", body):
        text = " ".join(line.strip() for line in paragraph.splitlines() if not line.startswith("#")).strip()
        if text:
            return text
    return ""


def _entries(fs: FileSystem, path: str) -> list[tuple[str, FileKind]]:
    try:
        return sorted((entry.name, entry.kind) for entry in fs.listdir(path))
    except OSError:
        return []
