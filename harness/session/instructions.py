"""What a model is told before the first prompt: how to work, where it is, the rules of the user."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from harness.registry.contract import Names, ToolKind
from harness.session.conversation import reminder
from harness.workspace.discovery import RuleFile

__all__ = ["opening"]


def opening(
    *,
    cwd: str,
    shell: str,
    names: Names,
    today: date,
    rules: str = "",
    override: str = "",
    rule_files: Sequence[RuleFile] = (),
    skills: str = "",
) -> list[dict[str, Any]]:
    """The messages at the head of a conversation.

    ``override`` takes the place of our instructions; ``rules`` are the client's, ``rule_files`` those that
    the user and the project keep; ``skills`` is a listing.
    """
    system = override or _instructions(names)
    if rules:
        system = f"{system}\n\n<human_rules>\n{rules}\n</human_rules>"
    place = "\n\n".join(part for part in (_place(cwd, shell, today), _rules(rule_files)) if part)
    told = [place, reminder(skills)] if skills else [place]
    return [{"role": "system", "content": system}, *({"role": "user", "content": text} for text in told)]


def _place(cwd: str, shell: str, today: date) -> str:
    facts: Mapping[str, str] = {
        "OS Version": platform.system().lower(),
        "Shell": shell,
        "Workspace Path": cwd,
        "Today's date": today.isoformat(),
    }
    lines = "\n".join(f"{name}: {value}" for name, value in facts.items())
    return f"<user_info>\n{lines}\n</user_info>"


def _rules(files: Sequence[RuleFile]) -> str:
    """Rules from files, the user's first; the nearest of the project comes last and counts most."""
    own = "\n\n".join(file.content.strip() for file in files if file.scope == "user")
    parts = [f"<user_rules>\n{own}\n</user_rules>"] if own else []
    for file in files:
        if file.scope == "project":
            name = file.path.replace('"', "'")
            tag = "always_applied_workspace_rule"
            parts.append(f'<{tag} name="{name}">\n{file.content.strip()}\n</{tag}>')
    return f"<rules>\n{chr(10).join(parts)}\n</rules>" if parts else ""


_GENERAL = """\
You are a coding agent at work in a user's project. What the user asks stands in <user_query>; text in \
<system-reminder> comes from the program around you and is context, not a request.

Do what is asked, all of it and nothing else. Look before you change: read the files that matter and follow \
the conventions that you find there. Say that something works only when a tool has shown it.

Ask first before anything that cannot be undone or that reaches beyond this project: deleting work, \
rewriting history, publishing, changing shared systems. A permission given once is for that one act."""

#: Said of a tool if the session has one of that kind.
_OF_TOOLS: Mapping[ToolKind, str] = {
    ToolKind.EDIT: "Change files with `{}` and the tools beside it rather than with shell commands.",
    ToolKind.EXECUTE: """\
`{}` runs commands. Start what runs long (servers, builds, test suites) in the background and go on; its end \
is reported to you.""",
    ToolKind.PLAN: "For work of several steps keep a list with `{}` and keep it true.",
}

_ANSWERS = """\
Answer briefly and plainly, with the result first. Name files by their paths. Calls that do not depend on \
each other may be made together."""


def _instructions(names: Names) -> str:
    """Only tools that the session has are named."""
    of_tools = [text.format(name) for kind, text in _OF_TOOLS.items() if (name := names.tool(kind))]
    return "\n\n".join((_GENERAL, *of_tools, _ANSWERS))
