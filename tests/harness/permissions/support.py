"""A gate over files in memory, with a client that answers as it is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.permissions import Decision, GrantStore, Mode, PermissionGate, Settings
from harness.permissions.rules import RuleSet, parse_section
from harness.registry.contract import ToolKind
from harness.session.gate import GateCall
from harness.workspace.memory_filesystem import MemoryFileSystem

CWD, HOME, GROK_HOME = "/work/project", "/home/user", "/home/user/.grok"

KINDS = {
    "run_terminal_command": ToolKind.EXECUTE,
    "monitor": ToolKind.MONITOR,
    "write": ToolKind.WRITE,
    "search_replace": ToolKind.EDIT,
    "read_file": ToolKind.READ,
    "grep": ToolKind.SEARCH,
    "list_dir": ToolKind.LIST_DIR,
    "todo_write": ToolKind.PLAN,
    "use_tool": ToolKind.USE_TOOL,
    "web_fetch": ToolKind.WEB_FETCH,
    "web_search": ToolKind.WEB_SEARCH,
    "spawn_subagent": ToolKind.TASK,
    "scheduler_create": ToolKind.OTHER,
    "kill_command_or_subagent": ToolKind.KILL_TASK,
    "workflow": ToolKind.WORKFLOW,
    "search_tool": ToolKind.SEARCH_TOOL,
}


def rules(section: Mapping[str, Any] | None) -> RuleSet:
    return parse_section(section, "test")


def selected(option: str, followup: str = "") -> dict[str, Any]:
    answer: dict[str, Any] = {"outcome": {"outcome": "selected", "optionId": option}}
    return {**answer, "_meta": {"followup_message": followup}} if followup else answer


@dataclasses.dataclass
class Client:
    """Answers every request with ``answer`` (raised when it is an exception) and keeps what it was asked."""

    answer: Any = dataclasses.field(default_factory=lambda: selected("reject-once", "not that"))
    asked: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        assert method == "session/request_permission"
        self.asked.append(dict(params))
        if isinstance(self.answer, Exception):
            raise self.answer
        answer: dict[str, Any] = self.answer
        return answer


def tree() -> MemoryFileSystem:
    """The project: a git checkout with some files, a link, and a home folder."""
    fs = MemoryFileSystem()
    for folder in ("src", ".git/hooks", "sub"):
        fs.mkdirs(f"{CWD}/{folder}")
    fs.mkdirs(f"{HOME}/.ssh")
    for name in ("a", "b", "secret.txt", "src/m.py", "sub/x.py"):
        fs.replace_atomic(f"{CWD}/{name}", b"x\n")
    fs.replace_atomic(f"{CWD}/.git/config", b"[core]\n\tbare = false\n")
    fs.symlink(f"{CWD}/lnk", "secret.txt")
    fs.symlink(f"{CWD}/etc-link", "/etc")
    return fs


def gate(
    tmp_path: Path,
    section: Mapping[str, Any] | None = None,
    *,
    mode: Mode | None = None,
    client: Client | None = None,
    fs: MemoryFileSystem | None = None,
    settings: Settings | None = None,
    root: str = CWD,
) -> PermissionGate:
    return PermissionGate(
        "session",
        CWD,
        fs or tree(),
        client or Client(),
        settings or Settings(rules=rules(section)),
        GrantStore(tmp_path / "grok", root),
        grok_home=GROK_HOME,
        home=HOME,
        mode=mode,
    )


def call(name: str, arguments: Mapping[str, Any], *, read_only: bool = False) -> GateCall:
    shown = {"toolCallId": "c1", "title": name, "rawInput": dict(arguments)}
    return GateCall("c1", KINDS[name], name, dict(arguments), shown, CWD, read_only)


def command(text: str) -> GateCall:
    return call("run_terminal_command", {"command": text})


def word(decision: Decision) -> str:
    """allow, ask (the client was asked and declined), deny or reject."""
    return {"followup": "ask"}.get(str(decision.verdict), str(decision.verdict))
