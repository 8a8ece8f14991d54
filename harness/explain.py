"""``grok-gateway tools``: which tools a session here has, why the others are absent, and one call told whole.

Without ``--explain`` nothing runs.  With it a real call runs in the folder, through the same registry,
bridge, permission gate and workspace as in a turn, and every step says what it made of it::

    advertised  name, identity and parameters, or why the tool is absent
    parsed      canonical arguments, or what is wrong with them
    gate        whether it may run, and whose decision that is
    path, cwd   where each path leads, and what is special there
    effect      what changed, and how long it took
    client, model   the two projections, and how complete they are

What the gate would ask about is not run unless ``--yes`` answers it.  Run as ``python -m harness.explain``.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.limits import SIZES
from harness.model.endpoints import engine_home
from harness.outcome import Notification, ToolFault, ToolOutput
from harness.permissions import GrantStore, PermissionGate, load_settings, project_root
from harness.registry.capabilities import CapabilityMode
from harness.registry.contract import ClientContract, Resource
from harness.registry.overview import overview, render
from harness.registry.presets import DEFAULT, PRESETS, PresetError, preset, wanted
from harness.registry.toolset import Toolset
from harness.session.gate import Gate, GateCall
from harness.session.presentation import view_call
from harness.toolbridge import ParsedCall, ToolBridge
from harness.tools import default_registry
from harness.tools.plan_mode import PlanMode
from harness.workspace.containment import Containment, ProfileName, contain, profile_named
from harness.workspace.executor import HostExecutor
from harness.workspace.host_filesystem import HostFileSystem
from harness.workspace.session import WorkspaceSession
from harness.workspace.terminal import Terminal

__all__ = ["Record", "explain", "main"]

DONE, FAILED, USAGE = 0, 1, 2
CALL = "explained"

#: The keys of a tool's small input projection that are paths.
_PATHS = ("path", "directory", "cwd")


# -- one call --------------------------------------------------------------------------------------


@dataclasses.dataclass
class Record:
    """The steps of one call, each a heading and its lines; ``ran`` and ``failed`` say how it ended."""

    steps: list[tuple[str, list[str]]] = dataclasses.field(default_factory=list)
    ran: bool = False
    failed: bool = True

    def add(self, heading: str, *lines: str) -> None:
        self.steps.append((heading, [part for line in lines for part in line.splitlines() or [""]]))

    def __str__(self) -> str:
        rows = list[str]()
        for heading, lines in self.steps:
            for i, line in enumerate(lines):
                rows.append(f"{heading if i == 0 else '':<12}{line}".rstrip())
        return "\n".join(rows)


class _Terminal:
    """The person at this terminal as a client: permissions are given or not, questions are not answered."""

    def __init__(self, yes: bool) -> None:
        self._yes = yes
        self.asked = False

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if method != "session/request_permission":
            return {"outcome": "cancelled"}
        self.asked = True
        kind = "allow_once" if self._yes else "reject_once"
        chosen = next(option["optionId"] for option in params["options"] if option["kind"] == kind)
        return {"outcome": {"outcome": "selected", "optionId": chosen}}


async def explain(
    bridge: ToolBridge, session: WorkspaceSession, name: str, arguments: str, *, yes: bool = False
) -> Record:
    """Run one call and tell every step of it."""
    record = Record()
    record.add("call", f"{name} {_cut(arguments)}".rstrip())
    tool = bridge.toolset.named(name)
    if tool is None:
        reason = bridge.why_absent(name)
        record.add("advertised", "no", *(f"{reason.stage}: {reason.text}" for reason in (reason,) if reason))
    else:
        params = ", ".join(f"{key}={value!r}" for key, value in tool.params.items())
        changes = "changes nothing" if tool.spec.is_read_only else "may change something"
        record.add(
            "advertised",
            f"yes: {tool.name} is {tool.spec.key} ({tool.spec.kind}), {changes}",
            params or "no parameters",
        )
    parsed = bridge.parse(name, arguments)
    if isinstance(parsed, ToolOutput):
        record.add("parsed", f"no ({parsed.fields['failure']})")
        _add_model(record, parsed.prompt, "complete")
        return record
    record.add("parsed", _json(parsed.raw_input), *parsed.reminders)
    person = _Terminal(yes)
    if not await _passes(record, _gate(session, person), parsed, session, person):
        return record
    await _add_paths(record, parsed, session)
    record.add("cwd", session.cwd, f"commands contained: {_contained(session.containment)}")
    return await _run(record, bridge, session, parsed, person)


def _gate(session: WorkspaceSession, person: _Terminal) -> PermissionGate:
    """The gate that a session in this folder has, with its rules, modes and remembered answers."""
    home, user = engine_home(session.env), session.env.get("HOME") or "/"
    root = project_root(session.cwd)
    settings = load_settings(session.cwd, root, home, Path(user), session.env)
    return PermissionGate(
        session.id,
        session.cwd,
        session.fs,
        person,
        settings,
        GrantStore(home, root),
        grok_home=str(home),
        home=user,
    )


async def _passes(
    record: Record, gate: Gate, parsed: ParsedCall, session: WorkspaceSession, person: _Terminal
) -> bool:
    view = view_call(parsed.tool.spec.kind, parsed.name, parsed.arguments)
    shown = {"toolCallId": CALL, "kind": view.kind, "title": view.title, "rawInput": parsed.raw_input}
    shown["_meta"] = {"x.ai/tool": parsed.card()}
    spec = parsed.tool.spec
    decision = await gate.decide(
        GateCall(CALL, spec.kind, parsed.name, parsed.arguments, shown, session.cwd, spec.is_read_only)
    )
    allowed = str(decision.verdict) == "allow"
    if allowed:
        who = "asked for, and --yes answered" if person.asked else "allowed without asking"
    elif person.asked:
        who = "a person would be asked; --yes allows it here"
    else:
        who = f"{decision.verdict}: {decision.text}"
    record.add("gate", who)
    return allowed


async def _add_paths(record: Record, parsed: ParsedCall, session: WorkspaceSession) -> None:
    """Where each path of the arguments leads."""
    lines = list[str]()
    for key in _PATHS:
        given = parsed.arguments.get(parsed.tool.spec.reads.get(key, ""))
        if isinstance(given, str) and given:
            lines.append(f"{given} → {await _leads_to(session, given)}")
    record.add("path", *(lines or ["none in the arguments"]))


def _contained(held: Containment) -> str:
    report = held.report()
    if not held.contained:
        return f"no, {report['reason']}"
    network = "" if report["network"] else ", no network"
    return f"{report['contained']}, may write {', '.join(report['writable']) or 'nothing'}{network}"


async def _leads_to(session: WorkspaceSession, given: str) -> str:
    try:
        path = await session.resolve(given)
        ignored = ", ignored by git" if await session.ignored(path) else ""
    except (ToolFault, OSError) as error:
        return f"nowhere: {error}"
    repaired = ", a blank in its name repaired" if path.repaired else ""
    return f"{path.real}{repaired}{ignored}"


async def _run(
    record: Record, bridge: ToolBridge, session: WorkspaceSession, parsed: ParsedCall, person: _Terminal
) -> Record:
    told = list[Notification]()
    started = time.monotonic()
    try:
        result = await bridge.call(parsed, CALL, notify=told.append, client=person)
    except ToolFault as fault:
        record.add("effect", *_effects(told, bridge), f"raised {fault.kind}: {fault.message}")
        return record
    took = (time.monotonic() - started) * 1000
    record.add("effect", *_effects(told, bridge), f"took {took:.1f} ms")
    record.ran, record.failed = True, result.output.is_error
    error = ", a failure that the model can mend" if result.output.is_error else ""
    record.add("client", f"{result.output.completeness}{error}", _cut(_json(result.output.raw())))
    for place in result.output.locations:
        record.add("", f"shows {place.path}{'' if place.line is None else f':{place.line}'}")
    _add_model(record, result.prompt_text, str(result.prompt_completeness))
    return record


def _effects(told: Sequence[Notification], bridge: ToolBridge) -> list[str]:
    """What can be seen of the effect: files, what was told, tasks that go on."""
    lines = [_written(one.fields) for one in told if one.kind == "file_written"]
    kinds = dict.fromkeys(one.kind for one in told if one.kind != "file_written")
    lines += [f"told {kind} × {sum(one.kind == kind for one in told)}" for kind in kinds]
    lines += [
        f"task {task.task_id} runs in the background, and is ended with this program: {task.label}"
        for task in bridge.list_tasks()
        if not task.completed
    ]
    return lines or ["no file changed, no task left"]


def _written(fields: Mapping[str, Any]) -> str:
    """A file that was written, in bytes before and after."""
    size = len(str(fields["content"]).encode(errors="surrogateescape"))
    previous = fields["previous_content"]
    if previous is None:
        return f"created {fields['absolute_path']}: {size} bytes"
    return (
        f"changed {fields['absolute_path']}: {len(previous.encode(errors='surrogateescape'))} → {size} bytes"
    )


def _add_model(record: Record, text: str, completeness: str) -> None:
    record.add("model", completeness, *(f"| {line}" for line in _cut(text).splitlines()))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _cut(text: str) -> str:
    size = SIZES.explained
    return text if len(text) <= size else f"{text[:size]}… ({len(text)} characters)"


# -- the program -----------------------------------------------------------------------------------


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="grok-gateway tools", description="The tools of a session of the embedded engine."
    )
    parser.add_argument("--explain", metavar="CALL", help="run one call here: NAME {JSON arguments}")
    parser.add_argument("--yes", action="store_true", help="allow what a person would be asked about")
    parser.add_argument("--cwd", metavar="DIR", default=".", help="the session's folder (this one)")
    parser.add_argument("--preset", metavar="NAME", default=DEFAULT, help=f"one of {', '.join(PRESETS)}")
    parser.add_argument("--mode", choices=[str(mode) for mode in CapabilityMode], default="all")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        choices=[str(one) for one in Resource],
        help="the client lacks this",
    )
    parser.add_argument(
        "--contain",
        metavar="PROFILE",
        choices=[str(name) for name in ProfileName],
        help=f"what commands may reach: {', '.join(ProfileName)} ($GROK_SANDBOX)",
    )
    parser.add_argument("--json", action="store_true", help="the toolset as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 the call failed or may not run, 2 usage."""
    parser = _arguments()
    args = parser.parse_args(argv)
    registry = default_registry()
    contract = ClientContract(offers=frozenset(map(str, Resource)) - set(args.without))
    try:
        toolset = registry.compose(preset(args.preset, registry), CapabilityMode(args.mode), contract)
    except PresetError as error:
        parser.error(str(error))
    cwd = Path(args.cwd).resolve()
    if not cwd.is_dir():
        parser.error(f"{cwd} is no folder")
    if args.explain is None:
        document = overview(toolset, registry, wanted(args.preset) if args.preset in PRESETS else ())
        print(json.dumps(document, indent=2)) if args.json else _print_overview(document)
        return DONE
    name, _, rest = args.explain.strip().partition(" ")
    try:
        held = contain(profile_named(args.contain or os.environ.get("GROK_SANDBOX", "")), str(cwd))
    except ValueError as error:
        parser.error(str(error))
    record = asyncio.run(_explained(toolset, cwd, name, rest.strip(), held, args.yes))
    print(record)
    return FAILED if record.failed else DONE


def _print_overview(document: Mapping[str, Any]) -> None:
    from rich.console import Console

    render(document, Console(highlight=False, markup=False))


async def _explained(
    toolset: Toolset, cwd: Path, name: str, arguments: str, held: Containment, yes: bool
) -> Record:
    """One call in a session of its own, whose logs and plan go with it."""
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="grok-gateway-explain-") as logs:
        terminal = Terminal(log_directory=logs, environ=environment, wrap=held.wrap)
        session = WorkspaceSession(
            f"explain-{secrets.token_hex(4)}",
            str(cwd),
            fs=HostFileSystem(),
            env=environment,
            executor=HostExecutor(environment, held.wrap),
            terminal=terminal,
            mode=toolset.mode,
            containment=held,
        )
        session.toolset = toolset
        bridge = ToolBridge(toolset, session)
        bridge.resources.get(PlanMode).path = f"{logs}/plan.md"  # not a file in the person's folder
        try:
            return await explain(bridge, session, name, arguments, yes=yes)
        finally:
            await terminal.close()


if __name__ == "__main__":
    sys.exit(main())
