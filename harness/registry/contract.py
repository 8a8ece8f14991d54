"""The contract of a tool: what it says about itself, and what it is given for a call.

A `ToolSpec` is data, so that composition, renaming and explanation are decided without running anything.
Inside the engine a tool is known by its qualified id (``GrokBuild:read_file``) and its parameters by their
canonical names; a client may call both differently, and only `Names` and the bridge know how.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from harness.outcome import Notification, ToolOutput
from harness.registry.requirements import TRUE, Expr

if TYPE_CHECKING:
    from harness.workspace.session import WorkspaceSession

__all__ = [
    "CallContext",
    "ClientContract",
    "ClientRequests",
    "Names",
    "Persistent",
    "Resource",
    "Resources",
    "Tool",
    "ToolKind",
    "ToolSpec",
]

T = TypeVar("T")


class ToolKind(StrEnum):
    """What a tool does, independent of its family: capability, templates and labels go by it."""

    READ = "read"
    EDIT = "edit"
    DELETE = "delete"
    LIST_DIR = "list_dir"
    WRITE = "write"
    MOVE = "move"
    SEARCH = "search"
    LSP = "lsp"
    EXECUTE = "execute"
    PLAN = "plan"
    WEB_SEARCH = "web_search"
    WEB_FETCH = "web_fetch"
    BACKGROUND_TASK = "background_task_action"
    WAIT_TASKS = "wait_tasks_action"
    KILL_TASK = "kill_task_action"
    LIST = "list"
    SKILL = "skill"
    MEMORY_SEARCH = "memory_search"
    MEMORY_GET = "memory_get"
    TASK = "task"
    ENTER_PLAN = "enter_plan"
    EXIT_PLAN = "exit_plan"
    ASK_USER = "ask_user"
    IMAGE_GEN = "image_gen"
    VIDEO_GEN = "video_gen"
    IMAGE_TO_VIDEO = "image_to_video"
    REFERENCE_TO_VIDEO = "reference_to_video"
    DEPLOY_APP = "deploy_app"
    SEARCH_TOOL = "search_tool"
    USE_TOOL = "use_tool"
    MONITOR = "monitor"
    GOAL_UPDATE = "goal_update"
    WORKFLOW = "workflow"
    OTHER = "other"

    @property
    def read_only(self) -> bool:
        return self in _READ_ONLY

    @property
    def label(self) -> str:
        return _LABELS.get(self, "Tool")

    @classmethod
    def _missing_(cls, value: object) -> ToolKind:
        return cls.OTHER


_READ_ONLY = frozenset(
    {
        ToolKind.READ,
        ToolKind.SEARCH,
        ToolKind.LSP,
        ToolKind.LIST_DIR,
        ToolKind.LIST,
        ToolKind.MEMORY_SEARCH,
        ToolKind.MEMORY_GET,
        ToolKind.WEB_SEARCH,
        ToolKind.WEB_FETCH,
        ToolKind.ENTER_PLAN,
        ToolKind.EXIT_PLAN,
        ToolKind.ASK_USER,
    }
)

_LABELS: Mapping[ToolKind, str] = {
    ToolKind.READ: "Read",
    ToolKind.EDIT: "Edit",
    ToolKind.WRITE: "Write",
    ToolKind.DELETE: "Delete",
    ToolKind.MOVE: "Move",
    ToolKind.LIST_DIR: "List Files",
    ToolKind.LIST: "List Files",
    ToolKind.SEARCH: "Search",
    ToolKind.LSP: "Code Intelligence",
    ToolKind.EXECUTE: "Run Command",
    ToolKind.PLAN: "Plan",
    ToolKind.WEB_SEARCH: "Web Search",
    ToolKind.WEB_FETCH: "Web Fetch",
    ToolKind.BACKGROUND_TASK: "Background Task",
    ToolKind.WAIT_TASKS: "Wait for Tasks",
    ToolKind.KILL_TASK: "Kill Task",
    ToolKind.SKILL: "Skill",
    ToolKind.MEMORY_SEARCH: "Memory Search",
    ToolKind.MEMORY_GET: "Memory Read",
    ToolKind.TASK: "Subagent",
    ToolKind.ENTER_PLAN: "Enter Plan Mode",
    ToolKind.EXIT_PLAN: "Exit Plan Mode",
    ToolKind.ASK_USER: "Ask User",
    ToolKind.IMAGE_GEN: "Generate Image",
    ToolKind.VIDEO_GEN: "Generate Video",
    ToolKind.IMAGE_TO_VIDEO: "Generate Video",
    ToolKind.REFERENCE_TO_VIDEO: "Generate Video",
    ToolKind.DEPLOY_APP: "Deploy App",
    ToolKind.SEARCH_TOOL: "Search Tools",
    ToolKind.USE_TOOL: "Use Tool",
    ToolKind.MONITOR: "Monitor",
    ToolKind.GOAL_UPDATE: "Update Goal",
    ToolKind.WORKFLOW: "Workflow",
}


@dataclasses.dataclass(frozen=True, eq=False)
class ToolSpec:
    """Everything that can be known of a tool without calling it.

    ``params_rules`` are expressions over the parameters alone, each with what is wrong when it fails;
    ``managed`` tools have versions of their behaviour (only ``current`` exists here).  A ``verbatim`` input
    schema was written by somebody else and is neither shaped nor enforced: its server does that.
    ``description`` and the descriptions inside ``input_schema`` are templates (`harness.registry.templates`).
    ``params_schema`` describes the configuration parameters; ``open_params`` lets unknown ones pass.
    ``concessions`` are overlays of parameters under which the tool can do without something that is
    missing (a terminal without its background); the composer tries them in order before it drops the tool.
    ``input_when`` says under which own parameters an input property is offered; ``unadvertised`` properties
    are accepted and not shown.  ``aliases`` are other keys for an input property that are understood, in
    ``scalar_lists`` a single value counts as a list of one.  ``figures`` fill the ``{name}`` placeholders of
    descriptions (a parameter of the same name wins); ``shape`` may adjust the offered schema by parameters.
    ``variant`` is the tag of the parsed input in a client's ``rawInput``, ``shown_defaults`` what stands
    there for properties that were left out; ``shown`` may rewrite the rest of it.  ``reads`` maps the keys
    of the small input projection that every tool-call event carries to input properties; ``reads_as`` says
    what stands there instead of a value (None: nothing).
    """

    namespace: str
    id: str
    kind: ToolKind
    description: str
    input_schema: Mapping[str, Any]
    params_schema: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    default_params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    open_params: bool = False
    params_rules: tuple[tuple[Expr, str], ...] = ()
    managed: bool = False
    requires: Expr = TRUE
    concessions: tuple[Mapping[str, Any], ...] = ()
    input_when: Mapping[str, Expr] = dataclasses.field(default_factory=dict)
    unadvertised: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    scalar_lists: frozenset[str] = frozenset()
    verbatim: bool = False
    figures: Mapping[str, int] = dataclasses.field(default_factory=dict)
    shape: Callable[[dict[str, Any], Mapping[str, Any]], None] | None = None
    read_only: bool | None = None
    notifications: tuple[str, ...] = ()
    reads: Mapping[str, str] = dataclasses.field(default_factory=dict)
    variant: str = ""
    shown_defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    shown: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    reads_as: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.namespace}:{self.id}"

    @property
    def is_read_only(self) -> bool:
        return self.kind.read_only if self.read_only is None else self.read_only

    @property
    def input_properties(self) -> Mapping[str, Any]:
        properties: Mapping[str, Any] = self.input_schema.get("properties", {})
        return properties


class Tool(Protocol):
    """One tool: its spec and its work.  ``run`` returns logical failures and raises `ToolFault` else."""

    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput: ...


class Resource(StrEnum):
    """What session and client may provide beside tools; requirements name them."""

    NOTIFICATIONS = "notifications"  # somebody hears what is told between two results
    QUESTIONS = "questions"  # somebody answers a question of the model
    PLAN_APPROVAL = "plan_approval"  # somebody approves a plan


@dataclasses.dataclass(frozen=True)
class ClientContract:
    """What the client brings: the resources it offers and its own names for tools and parameters.

    ``renames`` maps a qualified id to the client's name of the tool (or None) and of its parameters.
    """

    offers: frozenset[str] = frozenset(Resource)
    renames: Mapping[str, tuple[str | None, Mapping[str, str]]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Names:
    """What the client calls the tools and their parameters; texts for the model ask here."""

    tools: Mapping[ToolKind, str] = dataclasses.field(default_factory=dict)
    params: Mapping[ToolKind, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    own_params: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def tool(self, kind: ToolKind) -> str:
        """The client's name of the first tool of a kind, or an empty text."""
        return self.tools.get(kind, "")

    def param(self, kind: ToolKind, canonical: str) -> str:
        return self.params.get(kind, {}).get(canonical, canonical)

    def own(self, canonical: str) -> str:
        """The client's name of a parameter of the tool that is being called."""
        return self.own_params.get(canonical, canonical)


@runtime_checkable
class Persistent(Protocol):
    """A resource that survives with the session; ``state`` is ready for JSON."""

    state_key: str

    def state(self) -> Any: ...

    def restore(self, state: Any) -> None: ...


class Resources:
    """State that the tools of one session share, one value a type (todo list, plan mode, skills, …)."""

    def __init__(self) -> None:
        self._values: dict[type[Any], Any] = {}
        self._saved: dict[str, Any] = {}

    def get(self, kind: type[T]) -> T:
        """The value of a type, made without arguments when it is first asked for."""
        if kind not in self._values:
            self.insert(kind())
        value: T = self._values[kind]
        return value

    def find(self, kind: type[T]) -> T | None:
        return self._values.get(kind)

    def insert(self, value: object) -> None:
        """Put a value in the place of its type; what was saved under its key is given back to it."""
        self._values[type(value)] = value
        if isinstance(value, Persistent) and value.state_key in self._saved:
            value.restore(self._saved.pop(value.state_key))

    def state(self) -> dict[str, Any]:
        """What has to survive.  A value that nobody has asked for since it was restored is kept as it is."""
        kept = (value for value in self._values.values() if isinstance(value, Persistent))
        return {**self._saved, **{value.state_key: value.state() for value in kept}}

    def restore(self, saved: Mapping[str, Any]) -> None:
        self._saved = dict(saved)
        for value in self._values.values():
            if isinstance(value, Persistent) and value.state_key in self._saved:
                value.restore(self._saved.pop(value.state_key))


class ClientRequests(Protocol):
    """A way to ask the client and wait: questions, approval of a plan."""

    async def request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]: ...


@dataclasses.dataclass
class CallContext:
    """What one call is given.  ``params`` are the tool's effective configuration parameters."""

    call_id: str
    session: WorkspaceSession
    params: Mapping[str, Any]
    names: Names
    cancelled: asyncio.Event
    notify: Callable[[Notification], None]
    client: ClientRequests | None
    resources: Resources
    cwd: str | None = None
