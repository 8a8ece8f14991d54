"""Rules: what a user wrote, as values.  ``deny`` beats ``ask`` beats ``allow``, whatever their order.

A rule is a text, ``Bash(git *)``, or a table, ``{action, tool, pattern}``.  What cannot be read never
weakens the set: a broken ``allow`` is dropped, a broken ``deny`` or ``ask`` becomes an ``ask`` for the whole
tool it was meant for, or for all tools when even that is unknown.  A rule about a tool that does not exist
here (the same files serve other agents) restricts nothing and is only reported.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from harness.limits import SIZES

__all__ = [
    "Action",
    "Rule",
    "RuleSet",
    "Target",
    "parse_rule",
    "parse_section",
    "parse_table",
    "unreadable",
]


class Action(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Target(StrEnum):
    """What a rule is about; the names are those of the structured form."""

    BASH = "bash"
    READ = "read"
    EDIT = "edit"
    GREP = "grep"
    MCP = "mcp"
    WEB_FETCH = "webfetch"
    WEB_SEARCH = "websearch"
    ANY = "any"


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """``pattern`` empty: every call of the tool.  ``prefix``: it was written ``Bash(x:*)``.

    ``domain``: the pattern is a host.  ``problem``: why this stands for a rule that could not be read.
    """

    action: Action
    target: Target
    pattern: str = ""
    prefix: bool = False
    domain: bool = False
    source: str = ""
    problem: str = ""

    def __str__(self) -> str:
        if self.problem:
            return f"{self.source}: {self.problem}"
        return f"{self.action} {self.target}" + (f" {self.pattern!r}" if self.pattern else "")


@dataclasses.dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules of a session, and what was skipped, for the log."""

    rules: tuple[Rule, ...] = ()
    notes: tuple[str, ...] = ()

    def of(self, action: Action, *targets: Target) -> tuple[Rule, ...]:
        return tuple(r for r in self.rules if r.action is action and r.target in (*targets, Target.ANY))

    def restricts(self, *targets: Target) -> bool:
        """Whether anything denies or asks for one of these."""
        return bool(self.of(Action.DENY, *targets) or self.of(Action.ASK, *targets))

    def joined(self, other: RuleSet) -> RuleSet:
        return RuleSet((*self.rules, *other.rules), (*self.notes, *other.notes))


_NAMES: Mapping[str, Target] = {
    "Bash": Target.BASH,
    "Read": Target.READ,
    "Edit": Target.EDIT,
    "Write": Target.EDIT,
    "MultiEdit": Target.EDIT,
    "Grep": Target.GREP,
    "Glob": Target.GREP,
    "MCPTool": Target.MCP,
    "WebFetch": Target.WEB_FETCH,
    "WebSearch": Target.WEB_SEARCH,
    "*": Target.ANY,
}
_TABLE_NAMES: Mapping[str, Target] = {
    **{t.value: t for t in Target if t is not Target.ANY},
    **{name.lower(): target for name, target in _NAMES.items()},
    "write": Target.EDIT,
}
_SHAPE = re.compile(r"(?P<name>[A-Za-z_*][A-Za-z0-9_]*|\*)\s*(?:\((?P<content>.*)\))?", re.DOTALL)
_FOREIGN_MCP = re.compile(r"mcp__(?P<server>[^()]*?)(?:__(?P<tool>[^()]*))?(?:\(.*\))?", re.DOTALL)


def parse_rule(text: object, action: Action, source: str) -> RuleSet:
    """One rule as a text."""
    if not isinstance(text, str) or len(text) > SIZES.rule_pattern:
        return _broken(action, Target.ANY, source, "a rule must be a text of moderate length")
    text = text.strip()
    if text.startswith("mcp__"):
        return _foreign_mcp(text, action, source)
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        name = re.match(r"[A-Za-z*]+", text)
        target = _NAMES.get(name[0]) if name else None
        if target is None and name and "(" in text:
            return RuleSet((), (f"{source}: {text!r} names no tool known here",))
        return _broken(action, target or Target.ANY, source, f"{text!r} is not written like a rule")
    target = _NAMES.get(shape["name"])
    if target is None:
        return RuleSet((), (f"{source}: {text!r} names no tool known here",))
    content = re.sub(r"\\([()])", r"\1", shape["content"] or "").strip()
    return RuleSet((_rule(action, target, content, source),))


def _rule(action: Action, target: Target, content: str, source: str) -> Rule:
    if content == "*":
        content = ""
    if target is Target.BASH and content.endswith(":*"):
        return Rule(action, target, content[:-2], prefix=True, source=source)
    if target is Target.WEB_FETCH and content.startswith("domain:"):
        return Rule(action, target, content[len("domain:") :].strip(), domain=True, source=source)
    return Rule(action, target, content, source=source)


def _foreign_mcp(text: str, action: Action, source: str) -> RuleSet:
    """``mcp__server``, ``mcp__server__tool``, ``mcp__server__*`` and ``mcp__*``."""
    shape = _FOREIGN_MCP.fullmatch(text)
    if shape is None or not shape["server"]:
        return _broken(action, Target.MCP, source, f"{text!r} names no MCP server")
    server, tool = shape["server"], shape["tool"]
    pattern = "" if server == "*" and not tool else f"{server}__{tool or '*'}"
    return RuleSet((Rule(action, Target.MCP, pattern, source=source),))


def parse_table(table: object, source: str) -> RuleSet:
    """One rule in structured form; an action that is not said means deny."""
    if not isinstance(table, Mapping):
        return _broken(Action.DENY, Target.ANY, source, "an entry of `rules` must be a table")
    word = table.get("action", "deny")
    action = next((a for a in Action if a.value == str(word).lower()), None)
    target = _TABLE_NAMES.get(str(table.get("tool", "")).lower())
    if str(table.get("tool", "")) == "*":
        target = Target.ANY
    if action is None:
        return _broken(Action.DENY, target or Target.ANY, source, f"{word!r} is no action")
    if target is None:
        return RuleSet((), (f"{source}: {table.get('tool')!r} names no tool known here",))
    pattern, mode = table.get("pattern", ""), table.get("pattern_mode", "glob")
    if not isinstance(pattern, str) or len(pattern) > SIZES.rule_pattern or mode not in ("glob", "domain"):
        return _broken(action, target, source, "the pattern of a rule cannot be read")
    if mode == "domain":
        return RuleSet((Rule(action, target, pattern, domain=True, source=source),))
    return RuleSet((_rule(action, target, pattern.strip(), source),))


def _broken(action: Action, target: Target, source: str, problem: str) -> RuleSet:
    note = f"{source}: {problem}"
    if action is Action.ALLOW:
        return RuleSet((), (note,))
    return RuleSet((Rule(Action.ASK, target, source=source, problem=problem),), (note,))


def parse_section(section: object, source: str, *, allow: bool = True) -> RuleSet:
    """The ``[permission]`` table of a config.toml, or ``permissions`` of a settings.json.

    ``allow`` False leaves the allowing rules out: of a project that nobody has trusted yet.
    """
    found = RuleSet()
    if section is None:
        return found
    if not isinstance(section, Mapping):
        return _broken(Action.DENY, Target.ANY, source, "the permission section must be a table")
    for action in Action:
        for entry in _entries(section.get(action.value)):
            found = found.joined(parse_rule(entry, action, source))
    rules = section.get("rules")
    for entry in rules if isinstance(rules, list) else [] if rules is None else [rules]:
        found = found.joined(parse_table(entry, source))
    if not allow:
        kept = tuple(r for r in found.rules if r.action is not Action.ALLOW)
        skipped = len(found.rules) - len(kept)
        notes = (f"{source}: {skipped} allowing rules wait until the folder is trusted",) if skipped else ()
        return RuleSet(kept, (*found.notes, *notes))
    return found


def _entries(value: object) -> Iterable[Any]:
    """The rules under ``allow``, ``ask`` or ``deny``; a single text counts as a list of one."""
    if value is None:
        return ()
    return value if isinstance(value, list) else (value,)


def unreadable(source: str, why: str) -> RuleSet:
    """What stands for a file of rules that cannot be read: nobody knows what it forbids."""
    return _broken(Action.DENY, Target.ANY, source, why)
