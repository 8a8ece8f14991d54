"""``list_dir``: what is in a directory, as deep as it fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from harness.limits import SIZES
from harness.outcome import Completeness, Location, ToolOutput
from harness.registry.contract import CallContext, Names, Tool, ToolKind, ToolSpec
from harness.tools import file_access
from harness.tools.outline import Outline, grow, outline
from harness.workspace.filesystem import FileKind
from harness.workspace.paths import ResolvedPath

__all__ = ["TOOLS", "ListDir"]


class ListDir:
    spec: ClassVar = ToolSpec(
        namespace="GrokBuild",
        id="list_dir",
        kind=ToolKind.LIST,
        variant="ListDir",
        managed=True,
        read_only=True,
        reads={"directory": "target_directory"},
        description=(
            "List what is in a directory, with what is in the directories below it.\n"
            "The path may be relative to the workspace, or absolute.\n\n"
            "- Names that begin with a dot are left out"
            "${% if config.respect_gitignore %}, and so is what git ignores${% endif %}.\n"
            "- A directory with too much in it is summed up: how many files of which types."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "target_directory": {
                    "type": "string",
                    "description": "The directory to list, relative to the workspace or absolute.",
                }
            },
            "required": ["target_directory"],
        },
        params_schema={
            "type": "object",
            "properties": {"respect_gitignore": file_access.respect_gitignore_schema()},
        },
        default_params={"respect_gitignore": False},
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        path = await context.session.resolve(arguments["target_directory"], cwd=context.cwd)
        refusal = await _refusal(path, context)
        if refusal is not None:
            return ToolOutput("ListDir", {refusal[0]: refusal[1]}, refusal[1], is_error=True)
        try:
            found = await context.session.walk(
                path, limit=SIZES.list_items, ignored=not context.params.get("respect_gitignore")
            )
        except OSError as error:
            variant, text = _worded(path, error)
            return ToolOutput("ListDir", {variant: text}, text, is_error=True)
        tree = grow((_shown(one.relative), one.entry.kind is FileKind.DIRECTORY) for one in found)
        drawn = outline(f"- {_heading(path, context)}/", tree)
        text = _noted(drawn, len(found), context.names)
        root = file_access.place_of(context, path, exists=False)
        whole = drawn.complete and len(found) < SIZES.list_items
        return ToolOutput(
            "ListDir",
            {"Content": {"content": text, "absolute_root_path": root}},
            text,
            completeness=Completeness.COMPLETE if whole else Completeness.TRUNCATED,
            locations=(Location(root),),
        )


async def _refusal(path: ResolvedPath, context: CallContext) -> tuple[str, str] | None:
    try:
        stat = await context.session.stat(path)
    except OSError as error:
        return _worded(path, error)
    if stat.is_file:
        return "IsAFile", f"Error: {path.shown} is a file, not a directory."
    if not stat.is_dir:
        return "NotADirectory", f"Error: {path.shown} is no directory."
    return None


def _worded(path: ResolvedPath, error: OSError) -> tuple[str, str]:
    if isinstance(error, FileNotFoundError):
        return "NotFound", f"Error: {path.shown} does not exist."
    if file_access.is_denied(error):
        return "PermissionDenied", f"Error: no permission to list {path.shown}."
    if isinstance(error, NotADirectoryError):
        return "NotADirectory", f"Error: {path.shown} is no directory."
    raise file_access.host_fault(error) from error


def _heading(path: ResolvedPath, context: CallContext) -> str:
    if path.given.rstrip("/") in ("", ".") and not path.given.startswith("/"):
        return context.cwd or context.session.display_cwd or context.session.cwd
    return path.shown


def _shown(name: str) -> str:
    """A name that is no UTF-8 can be shown only with marks in place of its bytes."""
    return name.encode("utf-8", "surrogateescape").decode(errors="replace")


def _noted(drawn: Outline, visited: int, names: Names) -> str:
    if not drawn.cut and visited < SIZES.list_items:
        return drawn.text
    others = " or ".join(name for name in (names.tool(ToolKind.SEARCH), names.tool(ToolKind.EXECUTE)) if name)
    text = "Note: there is more in this directory than is listed. List a directory below it"
    return f"{drawn.text}\n\n{text}{f', or use {others}' if others else ''}."


TOOLS: tuple[Tool, ...] = (ListDir(),)
