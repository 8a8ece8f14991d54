"""A shell command against the rules: what it certainly runs, what it may run, and what covers it.

Denying looks at every layer, asking too; allowing looks only at the script's own simple commands, and all
of them have to be covered.  ``rm $X`` under a rule for ``rm -rf *`` is neither certain nor excluded: such a
command, and whatever the grammar cannot take apart, is asked about as soon as any rule restricts commands.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import re
from collections.abc import Iterator, Sequence

from harness.permissions.rules import Action, Rule, RuleSet, Target
from harness.permissions.shell.classify import FLOORED
from harness.permissions.shell.classify import quiet_redirects as quiet
from harness.permissions.shell.parse import Command
from harness.permissions.shell.reach import Reach
from harness.permissions.shell.wrappers import PEELED, unwrap

__all__ = ["allowing", "covers", "denying", "doubts", "glob_matches", "peeled", "text_of"]

_WILD = re.compile(r"[*?\[]")


@functools.lru_cache(maxsize=4096)
def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(pattern), re.DOTALL)


def glob_matches(pattern: str, text: str) -> bool:
    """Whether the whole text is an instance of the glob; without a wild card only the text itself is."""
    return bool(_glob(pattern).match(text))


def text_of(command: Command) -> str:
    """The words as the shell reads them, one blank between two."""
    return " ".join(w.text for w in command.words)


# -- deny and ask ----------------------------------------------------------------------------------


def _holds(rule: Rule, text: str) -> bool:
    """A restriction holds by its beginning, letter for letter, or as a glob for the whole."""
    pattern = rule.pattern
    if not pattern:
        return True
    return text.startswith(pattern) or (not rule.prefix and bool(_glob(pattern).match(text)))


def _spellings(command: Command) -> Iterator[str]:
    """The command as it stands, and without the folder of its program."""
    text = text_of(command)
    yield text
    head = command.words[0].text if command.words else ""
    if "/" in head:
        yield text[head.rindex("/") + 1 :]


def _texts(reach: Reach) -> Iterator[str]:
    for text in reach.texts:
        yield text.lstrip()
    for command in reach.commands:
        yield from _spellings(command)
        yield command.source


def denying(rules: RuleSet, action: Action, reach: Reach) -> Rule | None:
    """The first rule of this action (deny, ask) that certainly holds for something in it."""
    restrictions = rules.of(action, Target.BASH)
    if not restrictions:
        return None
    texts = list(dict.fromkeys(_texts(reach)))
    return next((rule for rule in restrictions if any(_holds(rule, text) for text in texts)), None)


def doubts(rules: RuleSet, reach: Reach) -> str:
    """Why a restriction may hold although none certainly does; empty when none can."""
    if not rules.restricts(Target.BASH):
        return ""
    if reach.obstacles:
        return reach.obstacles[0]
    restrictions = (*rules.of(Action.DENY, Target.BASH), *rules.of(Action.ASK, Target.BASH))
    for command in reach.commands:
        known = _known(command)
        if known is None:
            continue
        for rule in restrictions:
            head = rule.pattern if rule.prefix else _WILD.split(rule.pattern, maxsplit=1)[0]
            if any(head.startswith(text) or text.startswith(head) for text in known):
                return f"its arguments are decided only when it runs, and {rule} may hold"
    return ""


def _known(command: Command) -> list[str] | None:
    """What is fixed of a command that is not wholly fixed: its beginning, in both spellings."""
    fixed: list[str] = []
    for word in command.words:
        fixed.append(word.text)
        if not word.fixed:
            break
    else:
        if not command.more:
            return None
        fixed.append("")
    text = " ".join(fixed)
    head = command.words[0].text
    return [text, text[head.rindex("/") + 1 :]] if "/" in head and command.words[0].fixed else [text]


# -- allow -----------------------------------------------------------------------------------------


def covers(rule: Rule, text: str) -> bool:
    """An allow holds by a beginning that ends with a word, or as a glob for the whole."""
    pattern = rule.pattern
    if not pattern:
        return True
    if rule.prefix or not _WILD.search(pattern):
        return text == pattern or text.startswith(pattern if pattern.endswith(" ") else pattern + " ")
    return bool(_glob(pattern).match(text))


def allowing(rules: RuleSet, reach: Reach) -> bool:
    """Whether every command of the script is covered by some allow rule."""
    allows = rules.of(Action.ALLOW, Target.BASH)
    if not allows or reach.obstacles:
        return False
    if any(not rule.pattern for rule in allows):  # the whole tool: only the floor is left
        return not any(command.name in FLOORED for command in reach.commands)
    if not reach.script.listed:
        return False
    return all(_covered(allows, command) for command in reach.top)


def _covered(allows: Sequence[Rule], command: Command) -> bool:
    return any(
        _plain(form) and any(covers(rule, text_of(form)) for rule in allows)
        for form in (command, *peeled(command))
    )


def _plain(command: Command) -> bool:
    """Written so that nothing in it surprises: no variables set before it, no file written by it."""
    words = command.words
    if not words or command.assignments or command.more or not quiet(command):
        return False
    return words[0].plain and not any(w.dynamic for w in words) and command.name not in FLOORED


def peeled(command: Command) -> Iterator[Command]:
    """The command within wrappers such as ``timeout``, layer by layer."""
    while command.words and command.words[0].text in PEELED and not command.assignments:
        if command.name == "env" and any("=" in w.text or w.text[:1] == "-" for w in command.words[1:]):
            return  # it may change the environment
        inner = unwrap(command)
        if inner.obstacle or inner.scripts or len(inner.commands) != 1:
            return
        command = dataclasses.replace(inner.commands[0])
        yield command
