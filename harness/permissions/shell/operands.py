"""Files that a command names, so that rules about reading and editing hold in the shell as well.

Programs that are known tell by their place which operands they read and which they write.  An operand of a
program that is not known *may* be either: that is never enough for a denial, but enough to ask.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from enum import StrEnum

from harness.permissions.shell.parse import Command
from harness.permissions.shell.words import Word, names

__all__ = ["Operand", "Use", "moves_away", "operands"]


class Use(StrEnum):
    READS = "reads"
    WRITES = "writes"
    MAY = "may use"


@dataclasses.dataclass(frozen=True, slots=True)
class Operand:
    """``path`` None: which file it is, is decided only when it runs.  ``deep``: and all that is below."""

    use: Use
    path: str | None
    deep: bool = False


_READERS = names(
    """
    cat head tail less more sort uniq wc cut od xxd hexdump strings nl tac rev fold paste join comm
    expand unexpand column diff cmp base64 base32 md5sum sha1sum sha256sum sha512sum cksum sum file
    stat jq yq zcat bzcat xzcat zgrep view vi vim nano source . pr fmt split csplit tsort shuf look
    """
)
_WRITERS = names("tee touch mkdir rm rmdir unlink truncate shred mkfifo mknod chattr patch mktemp")
_CHANGERS = names("chmod chown chgrp setfacl")  # the first operand is no file
_SEARCHERS = names("grep egrep fgrep rg ag ack sed gsed awk gawk mawk perl")  # the first is a text
_COPIERS = names("cp mv ln install rsync scp")
_NO_FILES = names(
    """
    echo printf true false : sleep exit return shift break continue export unset set local declare
    typeset readonly kill pwd whoami hostname date uptime ps id uname test [ [[
    """
)
_DEEP = names("rm cp mv chmod chown chgrp rsync grep egrep fgrep rg ag ack tar zip scp")
_WRITING = frozenset({">", ">>", ">|", "&>", "&>>", "<>"})
#: Gives a searcher its text, so that all its operands are files.
_TEXT_OPTION = re.compile(r"-[A-Za-z]*[ef]|--(regexp|file|expression)")


def moves_away(command: Command) -> bool:
    """Whether later relative paths mean something else."""
    return command.name in ("cd", "pushd", "popd", "chroot")


def operands(command: Command) -> Iterator[Operand]:
    """Every file that this command names, redirections first."""
    for redirect in command.redirects:
        target = redirect.target
        if target is None or redirect.operator == "<<<":
            continue
        if redirect.operator in (">&", "<&") and re.fullmatch(r"\d+|-", target.text):
            continue
        use = Use.WRITES if redirect.operator in _WRITING or redirect.operator == ">&" else Use.READS
        yield Operand(use, target.text if target.fixed else None)
    if command.name in _NO_FILES or not command.words:
        return
    yield from _arguments(command.name, command.words[1:], more=command.more)


def _arguments(name: str, words: Sequence[Word], *, more: bool) -> Iterator[Operand]:
    deep = name in _DEEP
    if name == "dd":
        for word in words:
            key, _, value = word.text.partition("=")
            if key in ("if", "of"):
                yield Operand(Use.READS if key == "if" else Use.WRITES, value if word.fixed else None)
        return
    plain = [w for w in words if not w.text.startswith("-") or w.dynamic]
    for word in words:
        if word.text.startswith("-") and len(word.text) > 2 and not word.dynamic:
            for value in _option_values(word.text):
                yield Operand(_use(name, words), value)
    if name in _SEARCHERS and not any(
        re.match(r"-[A-Za-z]*[ef]|--(regexp|file|expression)", w.text) for w in words
    ):
        plain = plain[1:]
    if name in _CHANGERS:
        plain = plain[1:]
    for place, word in enumerate(plain):
        path = word.text if word.fixed else None
        if name in _COPIERS:
            last = place == len(plain) - 1
            yield Operand(Use.WRITES if last or name == "mv" else Use.READS, path, deep)
            if name == "mv" and not last:
                yield Operand(Use.READS, path, deep)
        else:
            yield Operand(_use(name, words), path, deep)
            if "=" in word.text or "@" in word.text:
                yield Operand(Use.MAY, re.split(r"[=@]", word.text, maxsplit=1)[1] if path else None)
    if more:
        yield Operand(_use(name, words), None)


def _option_values(text: str) -> Iterator[str]:
    """``--file=x`` and ``-fx``: what may be the name of a file in an option."""
    if "=" in text:
        yield text.partition("=")[2]
    elif not text.startswith("--"):
        yield text[2:]


def _use(name: str, words: Sequence[Word]) -> Use:
    if name in _WRITERS or name in _CHANGERS:
        return Use.WRITES
    if name in ("sed", "gsed", "perl") and any(re.match(r"-[A-Za-z]*i|--in-place", w.text) for w in words):
        return Use.WRITES
    if name in _READERS or name in _SEARCHERS:
        return Use.READS
    return Use.MAY
