"""The bridge between a model's tool calls and the tools of a session.

A call passes three steps.  `ToolBridge.parse` finds the tool under the client's name and turns what the
model wrote into canonical, valid arguments; permission and hooks look at that before anything happens.
`ToolBridge.call` runs the tool and returns two projections: the client's, which nothing touches, and the
model's text with reminders behind it.  Beside the calls stand the operations that no model asks for: tasks,
tools of servers, skills, the state that survives.

A failure that the model can mend is a value in both steps; `ToolFault` is raised when a tool could not work.
"""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness import reminders
from harness.foreign import ForeignTool, Handler, ToolServers
from harness.limits import SIZES
from harness.outcome import Completeness, FaultKind, Notification, ToolFault, ToolOutput
from harness.registry.arguments import ArgumentError, adapt, read_objects
from harness.registry.config import Reason
from harness.registry.contract import CallContext, ClientRequests, Resources, ToolKind
from harness.registry.toolset import Chosen, EffectiveTool, Toolset, extended
from harness.skills import Skill, SkillTracker
from harness.workspace.terminal.events import KillOutcome, KillSource

if TYPE_CHECKING:
    from harness.workspace.session import WorkspaceSession
    from harness.workspace.terminal.book import Snapshot

__all__ = ["ParsedCall", "Result", "ToolBridge"]

#: A family whose texts are terse; reminders would undo that.
_TERSE = "GrokBuildConcise"

ReminderSource = Callable[[ToolOutput], Iterable[str]]


@dataclasses.dataclass(frozen=True)
class ParsedCall:
    """A call that can be carried out: its tool, canonical arguments, and what the model must be told."""

    tool: EffectiveTool
    arguments: Mapping[str, Any]
    reminders: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def effective_name(self) -> str:
        """The name of the tool that does the work: behind the one that calls others, theirs."""
        if self.tool.spec.kind is ToolKind.USE_TOOL:
            return str(self.arguments.get("tool_name", self.name))
        return self.name

    @property
    def raw_input(self) -> dict[str, Any]:
        """The input as a client is shown it: tagged, canonical, in the schema's order."""
        spec = self.tool.spec
        if spec.verbatim:
            return spec.shown(dict(self.arguments)) if spec.shown is not None else dict(self.arguments)
        given = {**spec.shown_defaults, **self.arguments}
        if spec.shown is not None:
            given = spec.shown(given)
        tag = {"variant": spec.variant} if spec.variant else {}
        return {**tag, **{name: given[name] for name in spec.input_properties if name in given}}

    def card(self) -> dict[str, Any]:
        return self.tool.card(self.arguments)


@dataclasses.dataclass(frozen=True)
class Result:
    """What a call came to, in both projections."""

    output: ToolOutput
    prompt_text: str
    effective_tool_name: str

    @property
    def prompt_completeness(self) -> Completeness:
        return self.output.prompt_completeness or self.output.completeness


class ToolBridge:
    """One session's toolset at work."""

    def __init__(
        self, toolset: Toolset, session: WorkspaceSession, resources: Resources | None = None
    ) -> None:
        self._base = toolset
        self._foreign = dict[str, Chosen]()
        self._toolset = toolset
        self._session = session
        self.resources = resources or Resources()
        self._sources: list[ReminderSource] = [self._completions, self._new_skills]
        self._extend()

    # -- the toolset -------------------------------------------------------------------------------

    @property
    def toolset(self) -> Toolset:
        return self._toolset

    def replace(self, toolset: Toolset) -> None:
        """Another toolset in the place of this one; resources, tasks and tools of servers stay."""
        self._base = toolset
        self._extend()

    def definitions(self, *, built_in_only: bool = False) -> list[dict[str, Any]]:
        """Function definitions for a model's request, in the toolset's order.

        Tools of servers may be many: where the session has a tool that calls others, they are behind it.
        """
        behind = any(tool.spec.kind is ToolKind.USE_TOOL for tool in self._toolset.tools)
        hidden = ("mcp", "hub") if built_in_only else ("mcp",) if behind else ()
        return [tool.definition() for tool in self._toolset.tools if tool.layer not in hidden]

    def why_absent(self, tool: str) -> Reason | None:
        return self._toolset.why_absent(tool)

    def register_mcp_tool(
        self, name: str, handler: Handler, schema: Mapping[str, Any], *, description: str = ""
    ) -> None:
        """Add a server's tool; a name that the session has already is refused."""
        if name in self._foreign or self._base.named(name) is not None:
            raise ToolFault(FaultKind.INVALID_ARGUMENTS, f"there is a tool {name} already")
        tool = ForeignTool(name, schema, handler, description=description)
        self._foreign[name] = Chosen(tool, name, {}, layer="mcp")
        self._extend()

    def unregister_mcp_tool(self, name: str) -> bool:
        found = self._foreign.pop(name, None) is not None
        self._extend()
        return found

    def unregister_mcp_prefix(self, prefix: str) -> list[str]:
        """Remove the tools of a server that went; their names."""
        gone = [name for name in self._foreign if name.startswith(prefix)]
        for name in gone:
            del self._foreign[name]
        self._extend()
        return gone

    def serve(self, server: str, tools: Sequence[ForeignTool]) -> None:
        """Have these tools of a server and no others of it."""
        self._foreign = {
            name: chosen for name, chosen in self._foreign.items() if not name.startswith(f"{server}__")
        }
        self._foreign |= {tool.spec.id: Chosen(tool, tool.spec.id, {}, layer="mcp") for tool in tools}
        self._extend()

    def tool_servers(self) -> ToolServers:
        """What the tools that call those of servers know of them."""
        return self.resources.get(ToolServers)

    def tool_name(self, kind: ToolKind) -> str:
        """What the client calls the session's own tool of a kind; empty when there is none."""
        return self._toolset.names.tool(kind)

    def _extend(self) -> None:
        self._toolset = extended(self._base, tuple(self._foreign.values()))
        served = self.tool_servers()
        tools = {tool.name: tool.tool for tool in self._toolset.tools if tool.layer == "mcp"}
        served.tools = {name: tool for name, tool in tools.items() if isinstance(tool, ForeignTool)}
        served.own = frozenset(tool.name for tool in self._toolset.tools) - served.tools.keys()

    # -- a call ------------------------------------------------------------------------------------

    def parse(self, name: str, arguments: str | Mapping[str, Any]) -> ParsedCall | ToolOutput:
        """A call that can be carried out, or the refusal for the model; nothing happens yet.

        Arguments are the model's text, or an object that a hook put in its place.
        """
        tool = self._toolset.named(name)
        text = arguments if isinstance(arguments, str) else ""
        if tool is None:
            why = f"There is no tool `{name}` in this session.{self._hint(name)}"
            return _refusal("unknown_tool", why, text)
        try:
            objects = read_objects(text) if isinstance(arguments, str) else [dict(arguments)]
            return _best(tool, objects)
        except ArgumentError as error:
            why = f"The arguments of `{name}` cannot be used: {error}. Nothing was done."
            return _refusal("invalid_arguments", why, text)

    async def call(
        self,
        parsed: ParsedCall,
        call_id: str,
        *,
        cancelled: asyncio.Event | None = None,
        notify: Callable[[Notification], None] | None = None,
        client: ClientRequests | None = None,
        cwd: str | None = None,
    ) -> Result:
        """Carry a call out; ``cwd`` counts for this call only, so that calls side by side may differ."""
        context = CallContext(
            call_id=call_id,
            session=self._session,
            params=parsed.tool.params,
            names=self._toolset.names_for(parsed.tool),
            cancelled=cancelled or asyncio.Event(),
            notify=notify or _unheard,
            client=client,
            resources=self.resources,
            cwd=cwd,
        )
        with self._session.call_in_flight():
            output = await _run(parsed, context)
        told = [*parsed.reminders, *self._reminders(output)]
        return Result(output, reminders.wrap(output.prompt, told), parsed.effective_name)

    def _hint(self, name: str) -> str:
        """What the model may have meant: another name of the same tool, or one that is written alike."""
        meant = next((tool for tool in self._toolset.tools if name in (tool.spec.id, tool.spec.key)), None)
        if meant is not None:
            return f" It is called `{meant.name}` here."
        if (reason := self._toolset.absent.get(name) or _short(self._toolset.absent, name)) is not None:
            return f" It is absent: {reason}."
        near = difflib.get_close_matches(name, [tool.name for tool in self._toolset.tools], 1)
        return f" Did you mean `{near[0]}`?" if near else ""

    # -- reminders ---------------------------------------------------------------------------------

    def add_reminders(self, source: ReminderSource) -> None:
        """Ask this source after every call, too."""
        self._sources.append(source)

    def _reminders(self, output: ToolOutput) -> list[str]:
        if any(tool.spec.namespace == _TERSE for tool in self._toolset.tools):
            return []
        return [text for source in self._sources for text in source(output)]

    def _completions(self, output: ToolOutput) -> list[str]:
        """The ends of background tasks that this result, an earlier one or a wake have not told."""
        terminal = self._session.terminal
        terminal.tell(output.settles)
        names, ended = self._toolset.names, self.drain_completions()
        own = output.fields.get("task_id", output.fields.get("taskId"))
        running = [t for t in terminal.tasks(self._session.id, with_output=False) if not t.completed]
        others = [t for t in reversed(running) if t.task_id != own]
        if output.type == "BackgroundTaskStarted":
            told = [reminders.others_running([(t.task_id, t.duration, _work(t)) for t in others], names)]
            return [*reminders.completions(ended, {}, names), *(told if others else ())]
        return reminders.completions(ended, {t.task_id: _work(t) for t in reversed(others)}, names)

    def _new_skills(self, _: ToolOutput) -> list[str]:
        listing = self.skills.announce()
        return [reminders.new_skills(listing)] if listing else []

    # -- tasks -------------------------------------------------------------------------------------

    def list_tasks(self) -> list[Snapshot]:
        """The session's background tasks, running and ended."""
        return list(self._session.terminal.tasks(self._session.id))

    async def kill_task(self, task_id: str, source: KillSource = KillSource.USER) -> KillOutcome:
        """End a task for somebody who is not the model, which then hears of it."""
        return await self._session.terminal.kill(task_id, source)

    async def kill_foreground_commands(self) -> None:
        """A cancelled turn ends what it was waiting for; the background goes on."""
        await self._session.terminal.kill_foreground(self._session.id)

    def background_foreground_command(self, call_id: str) -> bool:
        """The user sends a running command to the background; whether there was one."""
        return bool(self._session.terminal.background_foreground(call_id))

    def drain_completions(self) -> list[reminders.Ended]:
        """Ends that nobody has told or is about to tell; they count as told from here on."""
        terminal = self._session.terminal
        untold = {task.task_id: task for task in terminal.untold(self._session.id)}
        return [_ended(untold[task_id]) for task_id in terminal.tell(list(untold))]

    # -- skills and state --------------------------------------------------------------------------

    @property
    def skills(self) -> SkillTracker:
        return self.resources.get(SkillTracker)

    def announced_skills(self) -> frozenset[str]:
        return self.skills.announced

    def discover_skills(self, found: Iterable[Skill]) -> Sequence[Skill]:
        """Take in skills that were found; the next result announces the new ones."""
        return self.skills.add(found)

    def update_resource(self, value: object) -> None:
        """Put a value in the place of its type in the state that the tools share."""
        self.resources.insert(value)

    def state(self) -> dict[str, Any]:
        """What a resumed session needs: parameters by tool, state by resource."""
        params = {tool.spec.key: dict(tool.params) for tool in self._base.tools if tool.params}
        return {
            "params": params,
            "state": {**self.resources.state(), "told": sorted(self._session.terminal.told())},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take a saved state back; parameters come from the configuration, unknown keys are left alone."""
        saved = dict(state.get("state", {}))
        self._session.terminal.tell(saved.pop("told", ()))
        self.resources.restore(saved)


async def _run(parsed: ParsedCall, context: CallContext) -> ToolOutput:
    """The tool's work; whatever it raises that is not meant for others becomes a fault of the execution."""
    try:
        output = await parsed.tool.tool.run(parsed.arguments, context)
    except (ToolFault, asyncio.CancelledError):
        raise
    except Exception as error:
        text = f"{parsed.name} failed: {type(error).__name__}: {error}"
        raise ToolFault(FaultKind.EXECUTION, text) from error
    if not isinstance(output, ToolOutput):
        raise ToolFault(FaultKind.EXECUTION, f"{parsed.name} ended without a result")
    return output


def _best(tool: EffectiveTool, objects: Sequence[Mapping[str, Any]]) -> ParsedCall:
    """The first object that fits; when none does, the first one's error tells why."""
    first: ArgumentError | None = None
    for one in objects:
        try:
            arguments = adapt(tool.spec, tool.canonical(one), lambda name: tool.renames.get(name, name))
        except ArgumentError as error:
            first = first or error
            continue
        told = (reminders.concatenated(len(objects)),) if len(objects) > 1 else ()
        return ParsedCall(tool, arguments, told)
    raise first or ArgumentError("there are none")


def _refusal(failure: str, why: str, text: str) -> ToolOutput:
    """A call that came to nothing.  The model is shown what it wrote, since it may not know."""
    shown = text if len(text) <= SIZES.echoed_arguments else f"{text[: SIZES.echoed_arguments]}…"
    prompt = f"{why}\n\nThe arguments were:\n{shown}" if shown.strip() else why
    prompt = prompt.encode(errors="replace").decode()  # half a character could not be sent on
    return ToolOutput("", {"failure": failure}, prompt, is_error=True)


def _short(absent: Mapping[str, Reason], name: str) -> Reason | None:
    return next((reason for key, reason in absent.items() if key.rpartition(":")[2] == name), None)


def _work(task: Snapshot) -> str:
    return task.description or task.label


def _ended(task: Snapshot) -> reminders.Ended:
    outcome = f"signal {task.signal}" if task.signal else f"exit code {task.exit_code}"
    return reminders.Ended(
        task_id=task.task_id,
        outcome=outcome,
        description=task.description or task.label,
        seconds=task.duration,
        output=task.output,
        output_bytes=task.total_bytes,
        log=task.output_file,
        by_signal=task.signal is not None,
        by_user=task.explicitly_killed,
    )


def _unheard(_: Notification) -> None:
    """Nobody listens between two results."""
