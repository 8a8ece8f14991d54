"""Plan mode: first a plan in a file of its own, which the person approves, then the work.

Here the mode is entered and left; that nothing but the plan is edited meanwhile is the gate's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from harness.outcome import FaultKind, Notification, ToolFault, ToolOutput
from harness.registry.contract import CallContext, Names, Tool, ToolKind, ToolSpec
from harness.registry.requirements import HasTool
from harness.tools import file_access
from harness.workspace.filesystem import ABSENT
from harness.workspace.paths import ResolvedPath

__all__ = ["METHOD", "TOOLS", "EnterPlanMode", "ExitPlanMode", "PlanMode"]

METHOD = "_x.ai/exit_plan_mode"
_FALLBACK = ".grok/plan.md"


class PlanMode:
    """Whether a session plans, and where its plan is; the session sets ``path`` to one of its own."""

    state_key = "plan_mode"

    def __init__(self) -> None:
        self.active = False
        self.path: str | None = None

    def state(self) -> Any:
        return {"active": self.active}

    def restore(self, state: Any) -> None:
        self.active = isinstance(state, dict) and state.get("active") is True

    def place(self, cwd: str) -> str:
        return self.path or f"{cwd.rstrip('/')}/{_FALLBACK}"


_EMPTY: Mapping[str, Any] = {"type": "object", "properties": {}, "required": []}


class EnterPlanMode:
    spec: ClassVar = ToolSpec(
        namespace="GrokBuild",
        id="enter_plan_mode",
        kind=ToolKind.ENTER_PLAN,
        variant="EnterPlanMode",
        notifications=("plan_mode_entered",),
        requires=HasTool("GrokBuild:exit_plan_mode"),
        input_schema=_EMPTY,
        description=(
            "Plan before you change anything. For tasks that can be done in more than one way, or when the "
            "user asks for a plan: nothing is edited; you look around and write a plan that the user may "
            "approve."
        ),
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        plan = context.resources.get(PlanMode)
        place = plan.place(context.session.cwd)
        seed = await _seed(await context.session.resolve(place), context)
        plan.active = True
        context.notify(Notification("plan_mode_entered", {"plan_file_path": place}))
        message = "Plan mode is on: look into the code and make a plan; change nothing yet."
        hints = {
            "ask_user": context.names.tool(ToolKind.ASK_USER),
            "exit_plan": context.names.tool(ToolKind.EXIT_PLAN),
            "task": context.names.tool(ToolKind.TASK),
        }
        entered = {
            "message": message,
            "plan_file_path": place,
            "tool_hints": {key: name for key, name in hints.items() if name},
            "plan_file_seed": seed,
        }
        text = f"{message}\n\n{_whereabouts(place, seed)}\n\n{_steps(context.names)}"
        return ToolOutput("EnterPlanMode", {"Entered": entered}, text)


async def _seed(path: ResolvedPath, context: CallContext) -> str:
    """Make the file where it is missing, never touch one that is there; what is in it."""
    try:
        return "non_empty" if await context.session.read_bytes(path, 1) else "empty"
    except FileNotFoundError:
        pass
    except OSError as error:
        return f"missing: {file_access.reason(error)}"
    try:
        await context.session.write_atomic(path, b"", expected=ABSENT)
    except OSError as error:
        return f"missing: {file_access.reason(error)}"
    return "empty"


def _whereabouts(place: str, seed: str) -> str:
    states = {"empty": "It is there and empty.", "non_empty": "It is there and has something in it already."}
    told = states.get(seed, f"It could not be made ({seed.removeprefix('missing: ')}); create it yourself.")
    return f"The plan goes into {place}. {told}"


def _steps(names: Names) -> str:
    asks, leaves = names.tool(ToolKind.ASK_USER), names.tool(ToolKind.EXIT_PLAN)
    steps = [
        "Read enough of the code to know how it does things.",
        "Find what resembles the task, how it is built, and what speaks for one way or another.",
        f"Where the way is open, ask with {asks}." if asks else "Note what is open.",
        "Decide on one way, concrete enough to be carried out.",
        "Write it into the file named above.",
        f"Then show it to the user with {leaves}.",
    ]
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))


class ExitPlanMode:
    spec: ClassVar = ToolSpec(
        namespace="GrokBuild",
        id="exit_plan_mode",
        kind=ToolKind.EXIT_PLAN,
        variant="ExitPlanMode",
        notifications=("plan_mode_exited",),
        requires=HasTool("GrokBuild:enter_plan_mode"),
        input_schema=_EMPTY,
        description=(
            "Show the plan to the user and leave plan mode when they approve it.\n\n"
            "Call it when the plan is written to its file."
        ),
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        from harness.tools.ask import request  # it knows of plan mode itself

        plan = context.resources.get(PlanMode)
        place = plan.place(context.session.cwd)
        content = await _plan_text(place, context)
        outcome, feedback = "approved", ""
        if context.client is not None:
            params = {
                "sessionId": context.session.id,
                "toolCallId": context.call_id,
                "planContent": content,
            }
            reply = await request(context, METHOD, params, None) or {}
            outcome = str(reply.get("outcome", ""))
            feedback = str(reply.get("feedback") or "").strip()
        if outcome not in ("approved", "abandoned"):
            return _said(_revise(content, feedback))
        plan.active = False
        context.notify(Notification("plan_mode_exited", {"plan_file_path": place, "outcome": outcome}))
        if outcome == "abandoned":
            again = context.names.tool(ToolKind.EXIT_PLAN)
            return _said(
                "The user dropped the plan, and plan mode is off. "
                f"{again} is not to be called again unless the user wants another plan."
            )
        return _approved(place, content)


async def _plan_text(place: str, context: CallContext) -> str | None:
    """What the file holds; None where there is nothing to show."""
    path = await context.session.resolve(place)
    try:
        data = (await file_access.find(context, path)).data
    except (OSError, file_access.TooLargeError) as error:
        raise ToolFault(FaultKind.EXECUTION, f"the plan in {place} cannot be read: {error}") from error
    text = (data or b"").decode(errors="replace")
    return text if text.strip() else None


def _approved(place: str, content: str | None) -> ToolOutput:
    if content is None:
        message = "The user agrees to leave plan mode. The plan is empty; go on."
        fields = {"EmptyPlan": {"message": message, "plan_file_path": place}}
        return ToolOutput("ExitPlanMode", fields, message)
    message = "The user approved the plan. Carry it out."
    ready = {"message": message, "plan_content": content, "plan_file_path": place}
    text = f"{message}\n\nIt is kept in: {place}\n\n## The plan:\n{content}"
    return ToolOutput("ExitPlanMode", {"PlanReady": ready}, text)


def _revise(content: str | None, feedback: str) -> str:
    if content is None:
        return "The user wants to stay in plan mode. Plan on, and ask what they would like."
    if feedback:
        return f"The user wants another plan. They say:\n{feedback}"
    return "The user wants another plan. Ask what should be different."


def _said(text: str) -> ToolOutput:
    """Nothing to draw a card from: the answer was the person's own."""
    return ToolOutput("", {}, text)


TOOLS: tuple[Tool, ...] = (EnterPlanMode(), ExitPlanMode())
