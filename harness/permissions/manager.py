"""The order in which a call is judged, as a table of steps; the first that decides, decides.

A step sees a `Case` and returns an `Outcome` or None.  The order is the original's: what a rule denies is
denied in every mode; always-approve skips what is left, except questions that the shell forces; a grant is
good unless a question binds; and only then do modes and built-in knowledge count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from enum import StrEnum

from harness.permissions.access import Access, AccessKind
from harness.permissions.commands import peeled
from harness.permissions.grants import Grants
from harness.permissions.modes import Mode
from harness.permissions.policy import Ruling
from harness.permissions.shell import classify
from harness.permissions.shell.parse import Command
from harness.permissions.shell.reach import Reach

__all__ = ["STEPS", "Act", "Case", "Outcome", "judge"]


class Act(StrEnum):
    ALLOW = "allow"
    DENY = "deny"  # the model is told, the turn goes on
    REJECT = "reject"  # the user has said never: the turn ends
    ASK = "ask"


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """``code`` names the reason in events; ``why`` explains it."""

    act: Act
    code: str
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Case:
    """One call and all that bears on it.

    ``protected``: why its target must be confirmed each time.  ``outside``: it makes a file or folder
    outside of the workspace.
    ``plan_edit``: every target is the file of the plan.  ``git_hazard``: the repository's configuration may
    make a git command run something.
    """

    access: Access
    ruling: Ruling
    mode: Mode
    grants: Grants = dataclasses.field(default_factory=Grants)
    reach: Reach | None = None
    protected: str = ""
    outside: bool = False
    git_hazard: bool = False
    edits_granted: bool = False
    plan_edit: bool = False

    @property
    def binding(self) -> bool:
        """Whether a question has to be put that no grant answers."""
        return bool(self.ruling.ask or self.ruling.forced or self.protected)

    @property
    def bash(self) -> bool:
        return self.access.kind is AccessKind.BASH


_NOOPS = frozenset({"true", "false", ":"})
_READS = frozenset({AccessKind.NONE, AccessKind.READ, AccessKind.GREP, AccessKind.WEB_SEARCH})


def _denied(case: Case) -> Outcome | None:
    if case.ruling.deny is not None:
        return Outcome(Act.DENY, "policy_deny", str(case.ruling.deny))
    return None


def _plan(case: Case) -> Outcome | None:
    if case.mode is Mode.PLAN and case.access.kind is AccessKind.EDIT:
        if case.plan_edit:
            return Outcome(Act.ALLOW, "plan_file")
        return Outcome(Act.DENY, "plan_mode", "while a plan is made, only the plan itself may be edited")
    return None


def _always(case: Case) -> Outcome | None:
    if case.mode is not Mode.BYPASS:
        return None
    if case.bash and case.ruling.forced:
        return Outcome(Act.ASK, "bash_command_gate_ask", case.ruling.forced)
    if case.bash and case.ruling.ask is not None:
        return Outcome(Act.ASK, "policy_ask", str(case.ruling.ask))
    return Outcome(Act.ALLOW, "yolo")


def _refused(case: Case) -> Outcome | None:
    """What the user has refused for good is not asked again, whatever else would cover it."""
    if case.grants.refuses(case.access, case.reach):
        return Outcome(Act.REJECT, "session_deny", "it was refused for this project before")
    return None


def _granted(case: Case) -> Outcome | None:
    if case.bash:
        script = case.access.subject or ""
        some = any(case.grants.command_granted(c) for c in case.reach.top) if case.reach else False
        granted = case.grants.script_granted(script) or (some and _each(case, _safe_or_granted))
        return Outcome(Act.ALLOW, "persisted_grant") if granted and not case.binding else None
    if case.binding:
        return None
    if case.access.kind is AccessKind.EDIT and case.edits_granted:
        return Outcome(Act.ALLOW, "session_grant")
    if case.grants.allows(case.access):
        return Outcome(Act.ALLOW, "persisted_grant")
    return None


def _asked(case: Case) -> Outcome | None:
    """A question that binds is put, or denied where nobody may be asked."""
    if case.ruling.ask is not None:
        return _question(case, "policy_ask", str(case.ruling.ask))
    if case.ruling.forced:
        return _question(case, "shell_file_gate_ask", case.ruling.forced)
    if case.protected and (case.access.kind is AccessKind.EDIT or case.bash):
        return _question(case, "protected_target", case.protected)
    return None


def _auto(case: Case) -> Outcome | None:
    """What auto mode lets pass without a classifier; all else is asked, there is none here."""
    if case.mode is not Mode.AUTO:
        return None
    if case.ruling.allow or case.access.kind in _READS or case.access.kind is AccessKind.EDIT:
        return Outcome(Act.ALLOW, "auto_fast_path")
    if case.bash and _each(case, lambda c, command: command.name in _NOOPS and not command.redirects):
        return Outcome(Act.ALLOW, "auto_fast_path")
    return None


def _allowed(case: Case) -> Outcome | None:
    return Outcome(Act.ALLOW, "policy_allow") if case.ruling.allow else None


def _builtin(case: Case) -> Outcome | None:
    if case.access.kind in _READS:
        return Outcome(Act.ALLOW, "read_only")
    if case.access.kind is AccessKind.EDIT and case.mode is Mode.ACCEPT_EDITS:
        return Outcome(Act.ALLOW, "accept_edits")
    if case.bash and _each(case, _safe_or_granted):
        return Outcome(Act.ALLOW, "safe_command")
    return None


def _rest(case: Case) -> Outcome | None:
    return _question(case, "needs_user", "")


#: Facts first, then the user's standing wishes, then the mode, then what is known to be harmless.
STEPS: tuple[Callable[[Case], Outcome | None], ...] = (
    _denied,
    _plan,
    _always,
    _refused,
    _granted,
    _asked,
    _auto,
    _allowed,
    _builtin,
    _rest,
)


def judge(case: Case) -> Outcome:
    """The outcome for a case: there always is one, the last step decides everything."""
    return next(outcome for step in STEPS if (outcome := step(case)) is not None)


def _question(case: Case, code: str, why: str) -> Outcome:
    if case.mode is Mode.DONT_ASK:
        return Outcome(Act.DENY, "prompt_deny", why or "nothing has approved it beforehand")
    return Outcome(Act.ASK, code, why)


def _each(case: Case, good: Callable[[Case, Command], bool]) -> bool:
    """Whether a script is a plain list of commands and each of them is good; an empty one is."""
    reach = case.reach
    if reach is None or reach.obstacles or not reach.script.listed:
        return False
    return all(good(case, command) for command in reach.top)


def _safe_or_granted(case: Case, command: Command) -> bool:
    return _safe(case, command) or (
        classify.quiet_redirects(command) and case.grants.command_granted(command)
    )


def _safe(case: Case, command: Command) -> bool:
    if case.outside:
        return False
    forms = (command, *peeled(command))
    if any(form.name == "git" for form in forms) and case.git_hazard:
        return False
    return any(classify.harmless(form) for form in forms)
