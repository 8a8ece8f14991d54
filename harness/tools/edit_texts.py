"""The words of an edit: what was done, or why not and what to do next."""

from __future__ import annotations

import dataclasses

from harness.limits import SIZES
from harness.registry.contract import Names, ToolKind
from harness.tools.editing.details import numbered_snippet
from harness.tools.editing.hints import confusable_lines, nearest_line
from harness.tools.editing.replace import Decision, Rules, Verdict
from harness.tools.file_access import hinted
from harness.workspace.paths import PathHints

__all__ = ["EditRequest", "Words"]


@dataclasses.dataclass(frozen=True, slots=True)
class EditRequest:
    """What is asked, free of how a family of tools spells it."""

    path: str
    old: str
    new: str
    rules: Rules
    old_name: str = "old_string"
    all_name: str = "replace_all"


class Words:
    """The texts of one edit; tools and parameters are called what the client calls them."""

    def __init__(
        self, request: EditRequest, shown: str, current: bytes | None, decision: Decision, names: Names
    ) -> None:
        self.request, self.decision, self.names = request, decision, names
        self.shown, self.current = shown, current

    def applied(self, stale: bool) -> str:
        parts = [self.applied_briefly()]
        if self.decision.folded:
            parts.append("It was found only by taking typographic characters for their ASCII look-alikes.")
        if self.decision.line_ends_unified:
            parts.append("Its lines ended partly with LF and partly with CRLF; all end with CRLF now.")
        if not stale:
            return " ".join(parts)
        parts.append(
            "Warning: this file was changed by something else since you last saw it. The place was "
            "unmistakable, so the edit was made; around it the file now reads:"
        )
        return " ".join(parts) + "\n" + numbered_snippet(self.decision)

    def applied_briefly(self) -> str:
        path = self.request.path
        if self.decision.verdict is Verdict.CREATE:
            written = "overwritten" if self.current else "created"
            return f"The file {path} was {written}."
        if self.request.rules.replace_all:
            return f"The file {path} was updated: every occurrence is replaced."
        return f"The file {path} was updated."

    def refusal(self, hints: PathHints | None) -> tuple[str, str]:
        old = self.names.own(self.request.old_name)
        match self.decision.verdict:
            case Verdict.SAME:
                return "InvalidInput", "The text to replace and its replacement are the same."
            case Verdict.NOT_TEXT:
                return "InvalidInput", "A text holds half of a surrogate pair, which no file can contain."
            case Verdict.NOT_EMPTY:
                return "FileAlreadyExists", (
                    f"Error: {self.shown} exists and is not empty. An empty {old} only creates "
                    f"files; to change this one, put the text that is to be replaced into {old}."
                )
            case Verdict.MISSING:
                return (
                    "FileNotFound",
                    f"Error: {self.shown} does not exist.{hinted(hints)}",
                )
            case Verdict.MANY | Verdict.OVERLAP:
                return "MultipleMatchesFound", self._ambiguous()
            case _:
                return "NoMatchesFound", self._not_found(old)

    def _ambiguous(self) -> str:
        if self.decision.verdict is Verdict.OVERLAP:
            return (
                "The text to replace occurs only in part of a typographic character, so it is not clear what "
                "is meant. Copy it as it stands in the file."
            )
        return (
            "The text to replace occurs more than once in the file. Take in surrounding lines so that only "
            f"one place fits, or set {self.names.own(self.request.all_name)} to change all of them."
        )

    def _not_found(self, old: str) -> str:
        current = self.current or b""
        reader = self.names.tool(ToolKind.READ)
        advice = f"; look at it with {reader}" if reader else ""
        missing = f"The text to replace does not occur in the file{advice}."
        parts = [f"{missing} The user may have changed it since you last read it."]
        if nearest := nearest_line(current, self.request.old):
            parts.append(_bounded(f"The line that comes nearest is {nearest.number}: {nearest.text}"))
        if lines := confusable_lines(current, self.request.old):
            parts.append(self._confusable(old, lines))
        return "\n\n".join(parts)

    def _confusable(self, old: str, lines: list[int]) -> str:
        listed = ", ".join(str(number) for number in lines[: SIZES.edit_lines])
        if more := len(lines) - SIZES.edit_lines if len(lines) > SIZES.edit_lines else 0:
            listed += f" and {more} more"
        shell = self.names.tool(ToolKind.EXECUTE)
        other = f", or change it by a short script with {shell}" if shell else ""
        return (
            "The same text with typographic characters (curly quotes, dashes, an ellipsis, a no-break space) "
            f"stands in line {listed}. They look like ASCII and are other bytes. Read the file again and "
            f"choose a shorter {old} of plain ASCII beside them{other}."
        )


def _bounded(hint: str) -> str:
    data = hint.encode(errors="replace")
    if len(data) <= SIZES.edit_nearest:
        return hint
    return data[: SIZES.edit_nearest - len("…".encode())].decode(errors="ignore") + "…"
