"""What a user said once and for all: grants and refusals of one project, as a value.

The lists and their names are those of the original's ``permission.toml``, so that both engines honour each
other's.  A remembered command covers itself and longer forms of itself; a dangerous command, and one that
runs whatever it is given, is covered by exactly its own text only.  Permission to edit lives in a session's
memory and is never written down.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from harness.limits import SIZES
from harness.permissions import commands
from harness.permissions.access import Access, AccessKind
from harness.permissions.policy import domain_matches, host_of
from harness.permissions.shell.classify import dangerous
from harness.permissions.shell.parse import Command
from harness.permissions.shell.reach import Reach
from harness.permissions.shell.words import names

__all__ = ["Grants", "dump", "load"]

#: Programs that run what they are given: a beginning of such a command says nothing about the rest.
_VEHICLES = names(
    """
    bash sh dash zsh ksh mksh ash fish csh tcsh perl ruby php lua node nodejs deno bun Rscript
    osascript npx uvx pnpx bunx pipx tsx ts-node chroot doas docker podman find flock nsenter setsid
    ssh su sudo watch xargs env eval exec command parallel make time timeout nice nohup strace awk
    gawk mawk sed
    """
)
_VERSIONED = re.compile(r"(?:python|pypy|perl|ruby|node|php|lua)[0-9.]*")

_LISTS = {
    "allowed_commands": "allowed_bash_commands",
    "refused_commands": "disallowed_bash_commands",
    "allowed_globs": "allowed_bash_globs",
    "allowed_domains": "allowed_web_fetch_domains",
    "refused_domains": "disallowed_web_fetch_domains",
    "allowed_tools": "allowed_mcp_tools",
    "allowed_servers": "allowed_mcp_servers",
    "refused_tools": "disallowed_mcp_tools",
}


@dataclasses.dataclass(frozen=True)
class Grants:
    """``rest``: what else stands in the file, kept as it is."""

    allowed_commands: frozenset[str] = frozenset()
    refused_commands: frozenset[str] = frozenset()
    allowed_globs: frozenset[str] = frozenset()
    allowed_domains: frozenset[str] = frozenset()
    refused_domains: frozenset[str] = frozenset()
    allowed_tools: frozenset[str] = frozenset()
    allowed_servers: frozenset[str] = frozenset()
    refused_tools: frozenset[str] = frozenset()
    rest: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    # -- asking ----------------------------------------------------------------------------------
    def refuses(self, access: Access, reach: Reach | None) -> bool:
        """Whether the user has said never to this."""
        if access.kind is AccessKind.BASH and reach is not None:
            texts = {*reach.texts, *(commands.text_of(c) for c in reach.commands)}
            texts |= {text.strip() for text in texts}
            return any(_begins(text, refused) for text in texts for refused in self.refused_commands)
        if access.kind is AccessKind.MCP:
            return access.subject in self.refused_tools
        if access.kind is AccessKind.WEB_FETCH:
            host = host_of(access.subject or "")
            return any(domain_matches(domain, host) for domain in self.refused_domains)
        return False

    def allows(self, access: Access) -> bool:
        """Whether an MCP tool or a page has been granted (commands: `command_granted`)."""
        subject = access.subject or ""
        if access.kind is AccessKind.MCP:
            server = subject.partition("__")[0]
            return subject in self.allowed_tools or ("__" in subject and server in self.allowed_servers)
        if access.kind is AccessKind.WEB_FETCH:
            host = host_of(subject)
            return any(domain_matches(domain, host) for domain in self.allowed_domains)
        return False

    def script_granted(self, text: str) -> bool:
        """Whether exactly this script was granted, whatever is in it."""
        return text in self.allowed_commands

    def command_granted(self, command: Command) -> bool:
        """Whether one simple command is covered by what was granted."""
        return any(self._covers(form) for form in (command, *commands.peeled(command)))

    def _covers(self, command: Command) -> bool:
        words = command.words
        if not words or command.assignments or command.more or any(w.dynamic for w in words):
            return False
        text = commands.text_of(command)
        if text in self.allowed_commands:
            return True
        if dangerous(command) or command.name in _VEHICLES or _VERSIONED.fullmatch(command.name):
            return False
        return any(_begins(text, granted) for granted in self.allowed_commands if _simple(granted)) or any(
            commands.glob_matches(glob, text) for glob in self.allowed_globs if not catch_all(glob)
        )

    # -- remembering -----------------------------------------------------------------------------
    def with_allowed(self, access: Access, reach: Reach | None) -> Grants:
        """With what was just asked about granted for good; unchanged where it cannot be remembered."""
        subject = access.subject or ""
        if access.kind is AccessKind.BASH and reach is not None:
            if not _rememberable(subject):
                return self
            segments = (commands.text_of(c) for c in reach.top if not c.assignments and not c.more)
            listed = segments if reach.script.listed and not reach.obstacles else ()
            return self._adding("allowed_commands", [subject, *filter(None, listed)])
        if access.kind is AccessKind.MCP and subject:
            return self._adding("allowed_tools", [subject])
        if access.kind is AccessKind.WEB_FETCH and (host := host_of(subject)):
            return self._adding("allowed_domains", [host])
        return self

    def with_refused(self, access: Access) -> Grants:
        """With what was just asked about refused for good."""
        subject = access.subject or ""
        if access.kind is AccessKind.BASH and _rememberable(subject):
            return self._adding("refused_commands", [subject])
        if access.kind is AccessKind.MCP and subject:
            return self._adding("refused_tools", [subject])
        if access.kind is AccessKind.WEB_FETCH and (host := host_of(subject)):
            return self._adding("refused_domains", [host])
        return self

    def joined(self, other: Grants) -> Grants:
        """Both together."""
        both = {name: getattr(self, name) | getattr(other, name) for name in _LISTS}
        return Grants(**both, rest=self.rest)

    def _adding(self, name: str, entries: Iterable[str]) -> Grants:
        before: frozenset[str] = getattr(self, name)
        changes: dict[str, Any] = {name: before | frozenset(entries)}
        return dataclasses.replace(self, **changes)


def _rememberable(script: str) -> bool:
    return bool(script.strip()) and len(script) <= SIZES.grant_prompt


def _simple(granted: str) -> bool:
    """Whether a granted text is one plain command, so that a longer form of it is one too."""
    return not re.search(r"[;&|<>()$`\n\\'\"*?\[{]", granted)


def _begins(text: str, granted: str) -> bool:
    return text == granted or text.startswith(granted + " ")


def catch_all(glob: str) -> bool:
    """A pattern that would cover nearly everything; never honoured, whoever wrote it."""
    return not re.match(r"[^\s*?\[]+(\s|$)", glob)


# -- the file's text -------------------------------------------------------------------------------


def load(text: str) -> Grants:
    """Read a ``permission.toml``.  Raises ValueError when it is none."""
    data = tomllib.loads(text)
    values: dict[str, frozenset[str]] = {}
    for name, key in _LISTS.items():
        entries = data.pop(key, [])
        if not isinstance(entries, list) or not all(isinstance(e, str) for e in entries):
            raise ValueError(f"{key} must be a list of texts")
        values[name] = frozenset(entries)
    return Grants(**values, rest=data)


#: Entries that the original expects to find.
_BESIDES = {"edit_policy": "ask", "allow_bash_execute": False, "validated_mcp_server_grants_version": 1}


def dump(grants: Grants) -> str:
    """The text of the file, sorted, so that the same grants are always the same text."""
    lines = [f"{key} = {_value(value)}" for key, value in {**_BESIDES, **grants.rest}.items() if _flat(value)]
    for name, key in _LISTS.items():
        entries = "".join(f"    {_value(e)},\n" for e in sorted(getattr(grants, name)))
        lines.append(f"{key} = [\n{entries}]" if entries else f"{key} = []")
    return "\n".join(lines) + "\n"


def _flat(value: object) -> bool:
    return isinstance(value, (str, bool, int)) or (
        isinstance(value, list) and all(isinstance(v, str) for v in value)
    )


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    escaped = re.sub(
        r'[\\"\x00-\x1f\x7f]', lambda m: "\\" + m[0] if m[0] in '\\"' else f"\\u{ord(m[0]):04x}", str(value)
    )
    return f'"{escaped}"'
