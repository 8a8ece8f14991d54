"""Commands that everybody may run unasked, and commands that are never waved through.

`harmless` is a list of what is known to only look (or to make an empty file or folder where the session
works), each with the arguments that would make it do more.  It is a convenience, not a wall: whatever is not
on it is asked about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from harness.permissions.shell.parse import Command
from harness.permissions.shell.words import names

__all__ = ["DANGEROUS", "dangerous", "git_config_hazard", "harmless", "quiet_redirects"]

#: Redirections that change no file.
_QUIET_TARGETS = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin"})
_INPUTS = frozenset({"<", "<<", "<<-", "<<<"})

#: A remembered prefix or glob never covers these; only a grant for exactly this command does.
DANGEROUS = names("chattr chgrp chmod chown kill killall pkill rm")
#: Removing files is asked even where an allow rule covers it, as in the original.
FLOORED = frozenset({"rm"})

_GIT_LOOKS = names(
    """
    blame cat-file check-attr check-ignore count-objects describe diff for-each-ref grep log ls-
    files ls-tree merge-base name-rev rev-list rev-parse shortlog show show-ref status
    """
)
_GIT_BRANCH_LOOKS = re.compile(
    r"-[avrlqi]+|--(list|all|remotes|verbose|show-current|color(=.*)?|no-color|column(=.*)?|no-column|sort=.*|"
    r"format=.*|contains|no-contains|merged|no-merged|points-at|abbrev(=.*)?|no-abbrev|ignore-case)"
)


def quiet_redirects(command: Command) -> bool:
    """Whether what the command prints goes nowhere but to its caller."""
    for redirect in command.redirects:
        if redirect.operator in _INPUTS and redirect.operator != "<<<":
            if redirect.target is not None and not redirect.target.fixed:
                return False
            continue
        target = redirect.target
        if target is None or not target.fixed:
            return False
        if redirect.operator in (">&", "<&") and re.fullmatch(r"\d", target.text):
            continue
        if redirect.operator not in (">", ">>", "&>", "&>>") or target.text not in _QUIET_TARGETS:
            return False
    return True


def dangerous(command: Command) -> bool:
    """Whether a remembered prefix must not cover it."""
    return command.name in DANGEROUS or _words(command)[:2] == ["git", "push"]


def harmless(command: Command) -> bool:
    """Whether it may run unasked; written plainly, nothing in it decided only when it runs."""
    words = command.words
    if not words or command.assignments or command.more or not quiet_redirects(command):
        return False
    if not words[0].plain or not words[0].fixed or "/" in words[0].text:
        return False
    if any(w.dynamic for w in words):
        return False
    check = _CHECKS.get(words[0].text)
    return check is not None and check(_words(command)[1:])


def _words(command: Command) -> list[str]:
    return [w.text for w in command.words]


def _anything(_: Sequence[str]) -> bool:
    return True


def _without(*patterns: str) -> Callable[[Sequence[str]], bool]:
    """No argument up to ``--`` matches one of the patterns."""
    forbidden = re.compile("|".join(patterns))

    def check(arguments: Sequence[str]) -> bool:
        options = arguments[: arguments.index("--")] if "--" in arguments else arguments
        return not any(forbidden.fullmatch(a) for a in options)

    return check


def _abbreviated(name: str, least: int) -> str:
    """A long option and every abbreviation of it that is long enough to be unique."""
    tail = ""
    for char in reversed(name[least:]):
        tail = f"(?:{char}{tail})?"
    return f"--{name[:least]}{tail}(=.*)?"


_DATE_SHOWS = re.compile(
    r"\+.*|-[uR]+|-I.*|--(utc|universal|rfc-.*|iso-8601.*|date=.*|reference=.*|debug|help|version)", re.DOTALL
)


def _date(arguments: Sequence[str]) -> bool:
    """Telling the time; a date as an argument, or ``-s``, would set the clock."""
    shown, skip = True, False
    for argument in arguments:
        value_follows = argument in ("-d", "--date", "-r", "--reference")
        shown = shown and (skip or value_follows or _DATE_SHOWS.fullmatch(argument) is not None)
        skip = value_follows and not skip
    return shown


def _uniq(arguments: Sequence[str]) -> bool:
    """The second operand is the file it writes."""
    operands, skip = 0, False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in ("-f", "-s", "-w"):
            skip = True
        else:
            operands += not argument.startswith("-") or argument == "-"
    return operands < 2


def _ps(arguments: Sequence[str]) -> bool:
    """Without the letter that shows other processes' environments."""
    return not any(re.fullmatch(r"[A-Za-z]*e[A-Za-z]*", a) for a in arguments)


def _git(arguments: Sequence[str]) -> bool:
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        if rest[0] not in ("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"):
            return False
        del rest[0]
    if not rest:
        return False
    verb, options = rest[0], rest[1:]
    if verb == "branch":
        return all(_GIT_BRANCH_LOOKS.fullmatch(o) for o in options)
    if verb not in _GIT_LOOKS:
        return False
    forbidden = r"--ou?t?p?u?t?(=.*)?|--ext-diff|--textconv|--filters|-O.*|" + _abbreviated(
        "open-files-in-pager", 2
    )
    return _without(forbidden)(options)


def _kubectl(arguments: Sequence[str]) -> bool:
    identity = re.compile(
        r"--(kubeconfig|token|as.*|user|username|password|client-.*|certificate-authority|server|"
        r"insecure-.*|cluster|context|tls-.*|cache-dir|raw)(=.*)?|-s"
    )
    return (
        bool(arguments)
        and arguments[0] in ("get", "logs", "describe")
        and not any(identity.fullmatch(a) for a in arguments)
    )


_CHECKS: dict[str, Callable[[Sequence[str]], bool]] = {
    **dict.fromkeys(
        names("cat cd cut echo grep head ls mkdir pushd pwd sleep tail touch tr uptime wc whoami"), _anything
    ),
    "printf": _without(r"-v.*"),
    "set": _anything,
    "date": _date,
    "hostname": lambda arguments: all(
        re.fullmatch(r"-[fsiIdAy]|--(fqdn|long|short|ip-address|all-ip-addresses|domain|all-fqdns)", a)
        for a in arguments
    ),
    "ps": _ps,
    "uniq": _uniq,
    "sort": _without(r"-[A-Za-z]*o.*", _abbreviated("output", 1), _abbreviated("compress-program", 2)),
    "rg": _without(r"--pre(=.*)?|--pre-glob(=.*)?|--hostname-bin(=.*)?|--search-zip|-[A-Za-z]*z[A-Za-z]*"),
    "git": _git,
    "kubectl": _kubectl,
}


_HAZARDS = re.compile(
    r"^\s*(fsmonitor\s*=|command\s*=|textconv\s*=|external\s*=|hookspath\s*=|sshcommand\s*=|pager\s*=|"
    r"[\w.-]+\s*=\s*\"?\s*!|\[\s*(include|includeif|alias|pager)\b|path\s*=)|^\s*\[\s*[\w.-]+[^\]]*\]\s*"
    r"(fsmonitor|command|textconv|external|hookspath|pager)\b",
    re.IGNORECASE | re.MULTILINE,
)


def git_config_hazard(config: str) -> bool:
    """Whether a repository's own configuration may make a git command that only looks run a program."""
    return _HAZARDS.search(re.sub(r"(?im)^\s*fsmonitor\s*=\s*(true|false)\s*$", "", config)) is not None
