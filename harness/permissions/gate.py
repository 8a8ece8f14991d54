"""The permissions of one session: gathers what bears on a call, has it judged, and asks the user.

Everything that decides is elsewhere and pure; here are the files, the clock of the turn and the client.
Calls are judged one after the other, so that what the user answers to one counts for the next.  Whatever
goes wrong on the way, the call does not run.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable

from harness.permissions import prompts
from harness.permissions.access import Access, AccessKind, access_of
from harness.permissions.grant_store import GrantError, GrantStore
from harness.permissions.grants import Grants
from harness.permissions.manager import Act, Case, Outcome, judge
from harness.permissions.modes import Mode
from harness.permissions.paths import Paths
from harness.permissions.policy import rule
from harness.permissions.prompts import Answer, Choice
from harness.permissions.rules import Action, Target
from harness.permissions.shell.reach import reach
from harness.permissions.sources import Settings
from harness.permissions.surroundings import Surroundings
from harness.registry.contract import ClientRequests
from harness.session.gate import GateCall, Verdict
from harness.workspace.filesystem import FileSystem

__all__ = ["Decision", "PermissionGate"]


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """``text``: result of a call that does not run.  ``reason``: why the turn ends.  ``code``: for events."""

    verdict: Verdict
    text: str = ""
    reason: str = ""
    followup: str = ""
    code: str = ""


class PermissionGate:
    """A session's gate.  ``on_decision`` hears of every decision, ``on_prompt`` of every question."""

    def __init__(
        self,
        session_id: str,
        cwd: str,
        fs: FileSystem,
        client: ClientRequests | None,
        settings: Settings,
        store: GrantStore,
        *,
        grok_home: str,
        home: str,
        mode: Mode | None = None,
        on_prompt: Callable[[GateCall], None] = lambda call: None,
        on_decision: Callable[[GateCall, Decision], None] = lambda call, decision: None,
    ) -> None:
        self.settings = settings
        self.plan_file: str | None = None
        self.edits_granted = False
        self._session_id, self._cwd, self._fs, self._client = session_id, cwd, fs, client
        self._store, self._grok_home, self._home = store, grok_home, home
        self._memory = Grants()  # what could not be written down holds for the session at least
        self._mode = settings.clamped(mode or settings.mode)
        self._on_prompt, self._on_decision = on_prompt, on_decision
        self._turn = asyncio.Lock()

    @property
    def mode(self) -> Mode:
        return self._mode

    def set_mode(self, mode: Mode) -> Mode:
        """Enter a mode; returns the one that really holds (an administrator may have locked one)."""
        self._mode = self.settings.clamped(mode)
        return self._mode

    @property
    def hidden_globs(self) -> tuple[str, ...]:
        """Patterns of files that no search may look into."""
        return tuple(r.pattern for r in self.settings.rules.of(Action.DENY, Target.READ) if r.pattern)

    async def decide(self, call: GateCall, /) -> Decision:
        """Decide on one call.  Raises nothing but the cancellation of the turn."""
        async with self._turn:
            try:
                decision = await self._decide(call)
            except Exception as error:
                text = f"`{call.name}` was not run: whether it may could not be decided ({error})."
                decision = Decision(Verdict.DENY, text, code="undecided")
        self._on_decision(call, decision)
        return decision

    async def _decide(self, call: GateCall) -> Decision:
        access = access_of(call.kind, call.name, call.arguments)
        if access.kind is AccessKind.OTHER and call.read_only:
            access = Access(AccessKind.NONE)
        case = await asyncio.to_thread(self._case, call, access)
        outcome = judge(case)
        if outcome.act is Act.ALLOW:
            return Decision(Verdict.ALLOW, code=outcome.code)
        if outcome.act is Act.DENY:
            return Decision(Verdict.DENY, _denial(call.name, outcome), code=outcome.code)
        if outcome.act is Act.REJECT:
            return _rejection(call.name, "User rejected the execution", outcome.code)
        return await self._ask(call, case, outcome)

    # -- what bears on it ------------------------------------------------------------------------
    def _case(self, call: GateCall, access: Access) -> Case:
        paths = Paths(self._fs, call.cwd or self._cwd, self._home, base=self._cwd)
        if access.folder:
            place = paths.place(access.folder)
            paths = dataclasses.replace(paths, cwd=place.real or place.lexical)
        taken_apart = reach(access.subject or "") if access.kind is AccessKind.BASH else None
        ruling = rule(access, self.settings.rules, paths, taken_apart)
        try:
            grants = self._store.read().joined(self._memory)
        except GrantError as error:  # it may hold refusals: nothing passes unasked
            grants = self._memory
            if access.kind in (AccessKind.BASH, AccessKind.MCP, AccessKind.WEB_FETCH):
                ruling = dataclasses.replace(ruling, forced=ruling.forced or str(error))
        around = Surroundings(paths, self._cwd, self._grok_home)
        return Case(
            access,
            ruling,
            self._mode,
            grants,
            taken_apart,
            protected=around.protected(access, taken_apart),
            outside=taken_apart is not None and around.creates_outside(taken_apart),
            git_hazard=taken_apart is not None and around.git_hazard(taken_apart),
            edits_granted=self.edits_granted,
            plan_edit=around.only(access, self.plan_file),
        )

    # -- asking ----------------------------------------------------------------------------------
    async def _ask(self, call: GateCall, case: Case, outcome: Outcome) -> Decision:
        kind, remember = case.access.kind, self.settings.remember
        answer = Answer(Choice.BROKEN, "there is nobody to ask")
        if self._client is not None:
            params = {
                "sessionId": self._session_id,
                "toolCall": dict(call.tool_call),
                "options": prompts.options(kind, remember=remember),
            }
            self._on_prompt(call)
            try:
                result = await self._client.request("session/request_permission", params)
                answer = prompts.read_answer(result, kind, remember=remember)
            except Exception as error:
                answer = Answer(Choice.BROKEN, str(error) or type(error).__name__)
        return await self._answered(call, case, outcome, answer)

    async def _answered(self, call: GateCall, case: Case, outcome: Outcome, answer: Answer) -> Decision:
        name, choice = call.name, answer.choice
        if choice is Choice.ALLOW_EDITS:
            self.edits_granted = True
        elif choice is Choice.ALLOW_ALWAYS:
            await self._remember(lambda grants: grants.with_allowed(case.access, case.reach))
        elif choice is Choice.REJECT_ALWAYS:
            await self._remember(lambda grants: grants.with_refused(case.access))
        if choice in (Choice.ALLOW, Choice.ALLOW_ALWAYS, Choice.ALLOW_EDITS):
            return Decision(Verdict.ALLOW, code=outcome.code)
        if choice is Choice.CANCEL:
            return Decision(Verdict.CANCEL, f"The user cancelled `{name}` before it ran.", code="cancelled")
        if choice is Choice.FOLLOWUP:
            text = f"The user does not want `{name}` to run; it was not run. What they want follows."
            return Decision(Verdict.FOLLOWUP, text, followup=answer.message, code="followup")
        if choice is Choice.BROKEN:
            reason = f"No usable answer to the permission request: {answer.message}"
            return _rejection(name, reason, "no_answer")
        return _rejection(name, "User rejected the execution", "user_reject")

    async def _remember(self, change: Callable[[Grants], Grants]) -> None:
        """For the session at once, for the project if the disk lets us."""
        self._memory = change(self._memory)
        with contextlib.suppress(GrantError):
            await asyncio.to_thread(self._store.change, change)


def _denial(name: str, outcome: Outcome) -> str:
    if outcome.code == "policy_deny":
        return f"`{name}` was not run. A permission rule forbids it: {outcome.why}."
    return f"`{name}` was not run: {outcome.why}."


def _rejection(name: str, reason: str, code: str) -> Decision:
    return Decision(Verdict.REJECT, f"{reason} (tool `{name}`; it was not run)", reason, code=code)
