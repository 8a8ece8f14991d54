"""What the rules say about one access: denied, to be asked, allowed, or nothing."""

from __future__ import annotations

import dataclasses
import posixpath
import re
from urllib.parse import urlsplit

from harness.permissions import commands
from harness.permissions.access import Access, AccessKind
from harness.permissions.paths import Paths, Place
from harness.permissions.rules import Action, Rule, RuleSet, Target
from harness.permissions.shell.operands import Use, moves_away, operands
from harness.permissions.shell.reach import Reach

__all__ = ["Ruling", "domain_matches", "host_of", "rule"]

_TARGETS: dict[AccessKind, tuple[Target, ...]] = {
    AccessKind.READ: (Target.READ,),
    AccessKind.GREP: (Target.READ, Target.GREP),
    AccessKind.EDIT: (Target.EDIT,),
    AccessKind.MCP: (Target.MCP,),
    AccessKind.WEB_FETCH: (Target.WEB_FETCH,),
    AccessKind.WEB_SEARCH: (Target.WEB_SEARCH,),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Ruling:
    """``forced``: why a shell command must be asked even where nothing else is (empty: it need not).

    ``shell``: the ask rule is about commands, so that always-approve does not skip it.
    """

    deny: Rule | None = None
    ask: Rule | None = None
    shell: bool = False
    forced: str = ""
    allow: bool = False


def rule(access: Access, rules: RuleSet, paths: Paths, reach: Reach | None) -> Ruling:
    """The ruling for an access; ``reach`` is the command taken apart, where there is one."""
    if access.kind is AccessKind.BASH and reach is not None:
        return _shell(rules, paths, reach)
    if access.kind in (AccessKind.READ, AccessKind.GREP, AccessKind.EDIT):
        return _files(access, rules, paths)
    targets = _TARGETS.get(access.kind, ())
    subject = access.subject or ""

    def first(action: Action) -> Rule | None:
        return next((r for r in rules.of(action, *targets) if _named(r, access.kind, subject)), None)

    return Ruling(first(Action.DENY), first(Action.ASK), allow=first(Action.ALLOW) is not None)


# -- names: MCP tools, pages, queries --------------------------------------------------------------


def _named(one: Rule, kind: AccessKind, subject: str) -> bool:
    if not one.pattern:
        return True
    if one.domain:
        return kind is AccessKind.WEB_FETCH and domain_matches(one.pattern, host_of(subject))
    if kind is AccessKind.WEB_SEARCH and one.action is not Action.ALLOW and subject.startswith(one.pattern):
        return True
    if kind is AccessKind.MCP and one.action is not Action.ALLOW:
        # servers are told apart by people: another case must not slip through
        return commands.glob_matches(one.pattern.lower(), subject.lower())
    return commands.glob_matches(one.pattern, subject)


def host_of(url: str) -> str:
    """The host of a web address in lower case; empty when it has none that can be trusted."""
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname or ""
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or "\\" in url or re.search(r"[\s\x00-\x1f]", url.strip()):
        return ""
    return host.rstrip(".")


def domain_matches(domain: str, host: str) -> bool:
    """The host itself or one below it; a leading ``www.`` on either side does not count."""
    wanted, given = (name.lower().rstrip(".").removeprefix("www.") for name in (domain, host))
    return bool(wanted) and bool(given) and (given == wanted or given.endswith("." + wanted))


# -- files -----------------------------------------------------------------------------------------


def _files(access: Access, rules: RuleSet, paths: Paths) -> Ruling:
    targets = _TARGETS[access.kind]
    written = [p for p in (access.subject, *access.further) if p is not None]
    places = [paths.place(path) for path in written]
    if access.kind is AccessKind.GREP:  # it reads below its folder whatever the glob lets through
        places = places or [paths.place(paths.cwd)]
        if access.pattern and not re.search(r"[*?\[{]", access.pattern):
            places += [paths.place(posixpath.join(place.lexical, access.pattern)) for place in places]
    restricted = rules.restricts(*targets)
    ask = _first(rules, Action.ASK, targets, places, paths)
    if ask is None and restricted and any(place.real is None for place in places):
        ask = Rule(Action.ASK, targets[0], problem="a link in the path cannot be followed", source="path")
    if ask is None and restricted and not places:
        ask = Rule(Action.ASK, targets[0], problem="the call names no file", source="path")
    allows = rules.of(Action.ALLOW, *targets)
    allowed = bool(places) and all(
        any(not r.pattern or paths.allowed(r.pattern, place) for r in allows) for place in places
    )
    whole = any(not r.pattern for r in allows)
    return Ruling(_first(rules, Action.DENY, targets, places, paths), ask, allow=allowed or whole)


def _first(
    rules: RuleSet, action: Action, targets: tuple[Target, ...], places: list[Place], paths: Paths
) -> Rule | None:
    for one in rules.of(action, *targets):
        if not one.pattern or any(paths.restricted(one.pattern, place) for place in places):
            return one
    return None


# -- shell -----------------------------------------------------------------------------------------


def _shell(rules: RuleSet, paths: Paths, reach: Reach) -> Ruling:
    deny = commands.denying(rules, Action.DENY, reach)
    ask = commands.denying(rules, Action.ASK, reach)
    forced = commands.doubts(rules, reach)
    files = _Touched(rules, paths)
    if rules.restricts(Target.READ, Target.EDIT):
        files.look(reach)
    ask = ask or files.ask
    allow = commands.allowing(rules, reach)
    return Ruling(deny or files.deny, ask, ask is not None, forced or files.doubt, allow)


class _Touched:
    """The files of a command against the rules for reading and editing."""

    def __init__(self, rules: RuleSet, paths: Paths) -> None:
        self.rules, self.paths = rules, paths
        self.deny: Rule | None = None
        self.ask: Rule | None = None
        self.doubt = ""

    def look(self, reach: Reach) -> None:
        if reach.obstacles:
            self.doubt = reach.obstacles[0]
        elsewhere = any(moves_away(command) for command in reach.commands)
        for command in reach.commands:
            for operand in operands(command):
                if operand.path is None:
                    self._doubtful("which files it uses is decided only when it runs")
                elif elsewhere and not operand.path.startswith(("/", "~")):
                    self._doubtful("it changes the folder that its paths are relative to")
                else:
                    self._one(operand.use, operand.path, deep=operand.deep)

    def _doubtful(self, why: str) -> None:
        self.doubt = self.doubt or why

    def _one(self, use: Use, path: str, *, deep: bool) -> None:
        place = self.paths.operand(path)
        if place.real is None:
            self._doubtful("a link in a path of it cannot be followed")
        targets = {
            Use.READS: (Target.READ,),
            Use.WRITES: (Target.EDIT,),
            Use.MAY: (Target.READ, Target.EDIT),
        }[use]
        deny = self._match(Action.DENY, targets, place, deep=deep and use is Use.WRITES)
        if deny is not None and use is not Use.MAY:
            self.deny = self.deny or deny
        elif deny is not None:
            self._doubtful(f"it may use a file for which {deny} holds")
        self.ask = self.ask or self._match(Action.ASK, targets, place, deep=False)
        if deep and use is not Use.WRITES and self._match(Action.DENY, targets, place, deep=True):
            self._doubtful("it may use files below a folder for which a rule holds")

    def _match(self, action: Action, targets: tuple[Target, ...], place: Place, *, deep: bool) -> Rule | None:
        for one in self.rules.of(action, *targets):
            if one.target is Target.ANY:
                continue  # said of the command itself already
            if not one.pattern or self.paths.restricted(one.pattern, place):
                return one
            if deep and self.paths.holds(one.pattern, place):
                return one
        return None
