"""``search_replace``: one exact text in a file for another.

The table of outcomes is `harness.tools.editing.replace`; here are its rows that need a look at the disk,
and the words.  A file that changed since it was read is edited all the same when the place is still
certain: the model is told, and sees what stands around it now.  Refusing would cost a reading for nothing
each time a formatter ran.
"""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Mapping
from typing import Any, ClassVar

from harness.limits import SIZES
from harness.outcome import Diff, FaultKind, Location, ToolFault, ToolOutput
from harness.registry.contract import CallContext, Tool, ToolKind, ToolSpec
from harness.registry.requirements import HasInput, HasKind, IfParams, ParamIs
from harness.tools import file_access
from harness.tools.edit_texts import EditRequest, Words
from harness.tools.editing.details import details
from harness.tools.editing.replace import Decision, Rules, Verdict, decide
from harness.tools.file_access import NOTHING, Found, SeenFiles, TooLargeError, find, place_of
from harness.workspace.filesystem import PathChangedError
from harness.workspace.paths import PathHints, ResolvedPath, name_too_long

_DIRECTORY = "The path is that of a directory, not of a file."

__all__ = [
    "TOOLS",
    "Edit",
    "FileState",
    "attempt",
    "file_state",
    "output_of",
    "refused",
]


@dataclasses.dataclass(frozen=True, slots=True)
class FileState:
    """The file that a request means, or why it cannot be edited at all."""

    path: ResolvedPath
    found: Found = NOTHING
    refusal: tuple[str, str] | None = None


class Edit:
    """The standard family's exact replacement."""

    spec: ClassVar = ToolSpec(
        namespace="GrokBuild",
        id="search_replace",
        kind=ToolKind.EDIT,
        variant="SearchReplace",
        managed=True,
        notifications=("file_written",),
        reads={"path": "file_path"},
        shown_defaults={"replace_all": False},
        description=(
            "Change a file by replacing one exact piece of its text.\n\n"
            "${% if tools.by_kind.read %}"
            "- The `LINE_NUMBER→` marks in what `${{ tools.by_kind.read }}` returns are not in the file. "
            "Copy only the text behind them, with its indentation as it is.\n"
            "${% endif %}"
            "- `${{ params.edit.old_string }}` has to occur exactly once. Where it occurs more often, take "
            "in neighbouring lines until it is unique, or set `${{ params.edit.replace_all }}` to change "
            "every occurrence, for instance of a name.\n"
            "- An empty `${{ params.edit.old_string }}` creates a new file."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "file_path": {
                    "type": "string",
                    "description": "The file to change: a path in the workspace, or an absolute one.",
                },
                "old_string": {"type": "string", "description": "The text that is replaced"},
                "new_string": {
                    "type": "string",
                    "description": "The text that takes its place; it has to differ from "
                    "${{ params.edit.old_string }}",
                },
                "replace_all": {
                    "type": "boolean",
                    "default": False,
                    "description": "Replace every occurrence of ${{ params.edit.old_string }} "
                    "(default false)",
                },
            },
            "required": ["file_path", "old_string", "new_string"],
        },
        params_schema={
            "type": "object",
            "properties": {
                "skip_read_before_edit": {"type": "boolean"},
                "empty_old_string_does_not_override": {"type": "boolean"},
                "unicode_normalized_fallback": {"type": "boolean"},
                "path_hints": {"type": "boolean"},
                "respect_gitignore": file_access.respect_gitignore_schema(),
            },
        },
        default_params={
            "skip_read_before_edit": False,
            "empty_old_string_does_not_override": True,
            "unicode_normalized_fallback": False,
            "path_hints": False,
            "respect_gitignore": False,
        },
        requires=IfParams(~ParamIs("skip_read_before_edit", True), HasKind(ToolKind.READ))
        & HasInput(ToolKind.EDIT, "old_string")
        & HasInput(ToolKind.EDIT, "new_string")
        & HasInput(ToolKind.EDIT, "replace_all"),
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        request = EditRequest(
            arguments["file_path"],
            arguments["old_string"],
            arguments["new_string"],
            Rules(
                replace_all=bool(arguments.get("replace_all", False)),
                overwrite=not context.params.get("empty_old_string_does_not_override", True),
                folded=bool(context.params.get("unicode_normalized_fallback", False)),
            ),
        )
        state, decision, stale = await attempt(request, context)
        if state.refusal is not None:
            return refused(*state.refusal)
        words = Words(request, state.path.shown, state.found.data, decision, context.names)
        if decision.verdict not in (Verdict.CREATE, Verdict.REPLACE):
            hints = await _path_hints(decision, state, context)
            variant, text = words.refusal(hints)
            fields = {}
            if decision.verdict is Verdict.NO_MATCH:
                fields["file_path"] = place_of(context, state.path, exists=True)
            return refused(variant, text, **fields)
        return output_of(
            request, state, decision, context, text=words.applied(stale), concise=words.applied_briefly()
        )


async def attempt(request: EditRequest, context: CallContext) -> tuple[FileState, Decision, bool]:
    """Decide and write; once more when somebody else wrote in between, on what is there then.

    The last value says whether the file was another one than the model had seen.
    """
    for _ in range(SIZES.edit_attempts):
        try:
            state = await file_state(request.path, context)
        except PathChangedError:
            continue
        if state.refusal is not None:
            return state, Decision(Verdict.MISSING), False
        found = state.found
        decision = decide(found.data, request.old, request.new, request.rules)
        stale = found.data is not None and context.resources.get(SeenFiles).changed(state.path, found.data)
        if decision.verdict not in (Verdict.CREATE, Verdict.REPLACE):
            return state, decision, stale
        if await file_access.put(context, state.path, found, decision.data):
            return state, decision, stale
    raise ToolFault(FaultKind.EXECUTION, f"{request.path} is being written by something else all the time")


async def file_state(text: str, context: CallContext) -> FileState:
    """The rows of the table that look at the disk, in their order."""
    path = await context.session.resolve(text, cwd=context.cwd)
    if name_too_long(path.path):
        return FileState(path, refusal=("FilenameTooLong", _too_long(path)))
    try:
        if path.directory or (await context.session.stat(path)).is_dir:
            return FileState(path, refusal=("InvalidInput", _DIRECTORY))
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            return _unreadable(path, error)
    if await file_access.is_ignored(context, path):
        refusal = f"Error: {text} is ignored by .gitignore, so it is not edited."
        return FileState(path, refusal=("InvalidInput", refusal))
    try:
        return FileState(path, await find(context, path))
    except TooLargeError:
        shell = context.names.tool(ToolKind.EXECUTE)
        way_out = f" Edit it with `{shell}`." if shell else ""
        text = f"Error: {path.shown} has more than {SIZES.file_bytes} bytes.{way_out}"
        return FileState(path, refusal=("InvalidInput", text))
    except PathChangedError:
        raise
    except OSError as error:
        return _unreadable(path, error)


def _unreadable(path: ResolvedPath, error: OSError) -> FileState:
    if isinstance(error, IsADirectoryError):
        return FileState(path, refusal=("InvalidInput", _DIRECTORY))
    if file_access.is_denied(error):
        return FileState(path, refusal=("InvalidInput", f"Error: no permission to read {path.shown}."))
    if error.errno == errno.ENAMETOOLONG:
        return FileState(path, refusal=("FilenameTooLong", _too_long(path)))
    raise file_access.host_fault(error) from error


def _too_long(path: ResolvedPath) -> str:
    longest = max(len(part.encode(errors="surrogateescape")) for part in path.path.split("/"))
    return (
        f"Error: a name in this path has {longest} bytes, and {SIZES.path_component} is the most that a "
        "file system takes. Choose a shorter one."
    )


def refused(variant: str, text: str, **fields: Any) -> ToolOutput:
    """A row of the table that changes nothing."""
    value = {"message": text, **fields} if fields else text
    return ToolOutput("SearchReplace", {variant: value}, text, is_error=True)


def output_of(
    request: EditRequest,
    state: FileState,
    decision: Decision,
    context: CallContext,
    *,
    text: str,
    concise: str,
) -> ToolOutput:
    """The client's card of an edit that was made, and the text for the model."""
    records = details(decision, request.old, request.new)
    place = place_of(context, state.path, exists=state.found.data is not None)
    applied: dict[str, Any] = {
        "old_string": request.old,
        "new_string": request.new,
        "tool_output_for_prompt": text,
        "tool_output_for_prompt_concise": concise,
        "absolute_path": place,
        "edits": {"details": records},
    }
    if decision.folded:
        applied["unicode_normalized"] = True
    line = records[0]["new_line"] if records else None
    return ToolOutput(
        "SearchReplace",
        {"EditsApplied": applied},
        text,
        diffs=(Diff(place, request.old, request.new),),
        locations=(Location(place, line),),
    )


async def _path_hints(decision: Decision, state: FileState, context: CallContext) -> PathHints | None:
    if decision.verdict is not Verdict.MISSING or not context.params.get("path_hints"):
        return None
    return await context.session.similar(state.path)


TOOLS: tuple[Tool, ...] = (Edit(),)
