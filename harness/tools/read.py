"""``read_file``: a range of a text file's lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from harness.limits import SIZES
from harness.outcome import Completeness, Location, ToolOutput
from harness.registry.contract import CallContext, Names, Tool, ToolKind, ToolSpec
from harness.tools import file_access
from harness.tools.file_access import SeenFiles, TooLargeError, place_of
from harness.tools.reading import Window, is_binary, numbered, take_window, tokens, whole_file_names
from harness.workspace.filesystem import FileContent
from harness.workspace.paths import ResolvedPath, name_too_long

__all__ = ["TOOLS", "Read", "load"]


class Read:
    spec: ClassVar = ToolSpec(
        namespace="GrokBuild",
        id="read_file",
        kind=ToolKind.READ,
        variant="ReadFile",
        managed=True,
        reads={"path": "target_file", "offset": "offset", "limit": "limit"},
        reads_as={"offset": lambda offset: None if offset < 0 else max(1, offset)},
        figures={"max_lines_read": SIZES.read_lines},
        description=(
            "Read a text file.\n\n"
            "- ${{ params.read.target_file }} is a path in the workspace or an absolute one.\n"
            "- Without a range you get the first {max_lines_read} lines, which is also the most in one call. "
            "SKILL.md, AGENTS.md and CLAUDE.md always come whole, whatever range is given.\n"
            "- Line numbers count from 1 and stand as LINE_NUMBER→LINE_CONTENT at the first line that is "
            "returned and at every tenth line of the file. The lines between carry no number; count from the "
            "nearest one.\n"
            "- Images, PDF and other binary files cannot be read."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "target_file": {
                    "type": "string",
                    "description": "The file to read: a path in the workspace, or an absolute one.",
                },
                "offset": {
                    "type": "integer",
                    "default": 1,
                    "description": "The first line to return; negative counts from the end. Only for files "
                    "that are too large to be read at once.",
                },
                "limit": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "How many lines to return. Only for files that are too large to be read "
                    "at once.",
                },
            },
            "required": ["target_file"],
        },
        params_schema={
            "type": "object",
            "properties": {
                "respect_gitignore": file_access.respect_gitignore_schema(),
                "max_lines_read": {"type": "integer", "minimum": 1},
                "path_hints": {"type": "boolean"},
            },
        },
        default_params={
            "respect_gitignore": False,
            "max_lines_read": SIZES.read_lines,
            "path_hints": False,
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        path = await context.session.resolve(arguments["target_file"], cwd=context.cwd)
        content = await load(path, context)
        if isinstance(content, ToolOutput):
            return content
        place = place_of(context, path, exists=True)
        if is_binary(path.real, content.data):
            return _failed("FileReadError", f"{place} is a binary file and cannot be read as text.")
        if not content.data:
            return _empty(place, arguments)
        return self._shown(content.data.decode(errors="replace"), path, place, arguments, context)

    def _shown(
        self,
        text: str,
        path: ResolvedPath,
        place: str,
        arguments: Mapping[str, Any],
        context: CallContext,
    ) -> ToolOutput:
        offset, limit = arguments.get("offset"), arguments.get("limit")
        whole = whole_file_names(path.path)
        if whole:
            offset = limit = None
            window = take_window(text, None, None, None)
        else:
            window = take_window(text, offset, limit, context.params["max_lines_read"])
        shown = numbered(window)
        if not whole and tokens(shown) > SIZES.read_tokens:
            return _failed("FileTooLarge", _too_large(shown, window, context.names))
        # The most lines were returned, and fewer than were wanted.
        end = window.first + len(window.lines) - 1
        cut = end < window.total and len(window.lines) != limit and bool(window.lines)
        fields: dict[str, Any] = {
            "content": shown,
            "content_concise": shown,
            "absolute_path": place,
            "offset": None if offset is not None and offset < 0 else offset,
            "raw_output": _raw(text, window),
            "total_lines": window.total,
        }
        if limit is not None:
            fields["limit"] = limit
        return ToolOutput(
            "ReadFile",
            {"FileContent": fields},
            _prompt(shown, window, offset, cut, context.names),
            completeness=Completeness.TRUNCATED if cut else Completeness.COMPLETE,
            locations=(Location(place, window.first),),
        )


async def load(path: ResolvedPath, context: CallContext) -> FileContent | ToolOutput:
    """The bytes of a file, remembered as seen, or why there are none for the model."""
    if name_too_long(path.path):
        return _failed("FileReadError", f"{path.shown} has a name that is too long for any file.")
    try:
        is_dir = path.directory or (await context.session.stat(path)).is_dir
        if not is_dir and await file_access.is_ignored(context, path):
            return _failed(
                "FileReadError", f"Error: {path.shown} is ignored by .gitignore, so it is not read."
            )
        if is_dir:
            return _failed("IsADirectory", f"Error: {path.shown} is a directory, not a file.")
        found = await file_access.find(context, path)
    except TooLargeError:
        return _failed("FileTooLarge", _huge(path, context.names))
    except FileNotFoundError:
        return _failed("FileNotFound", await _missing(path, context))
    except OSError as error:
        if file_access.is_denied(error):
            return _failed("PermissionDenied", f"Error: no permission to read {path.shown}.")
        return _failed("FileReadError", f"{path.shown} cannot be read: {file_access.reason(error)}.")
    if found.data is None or found.stat is None:
        return _failed("FileNotFound", await _missing(path, context))
    context.resources.get(SeenFiles).saw(path, found.data)
    return FileContent(found.data, found.stat)


async def _missing(path: ResolvedPath, context: CallContext) -> str:
    text = f"Error: {path.shown} does not exist."
    if not context.params.get("path_hints"):
        return text
    return text + file_access.hinted(await context.session.similar(path))


def _failed(variant: str, text: str) -> ToolOutput:
    return ToolOutput("ReadFile", {variant: text}, text, is_error=True)


def _empty(place: str, arguments: Mapping[str, Any]) -> ToolOutput:
    fields = {
        "content": "",
        "absolute_path": place,
        "offset": arguments.get("offset"),
        "raw_output": "",
        "total_lines": 0,
    }
    if "limit" in arguments:
        fields["limit"] = arguments["limit"]
    return ToolOutput("ReadFile", {"FileContent": fields}, "The file is empty.", locations=(Location(place),))


def _raw(text: str, window: Window) -> str:
    """The same lines as they are in the file, with their ends."""
    fields = text.split("\n")
    picked = fields[window.first - 1 : window.first - 1 + len(window.lines)]
    open_end = window.first - 1 + len(picked) >= len(fields)
    # The original loses the carriage return of the last line; a client may count on equal texts.
    last = len(picked) - 1 - (picked[-1:] == [""] and open_end)
    if last >= 0:
        picked[last] = picked[last].removesuffix("\r")
    return "\n".join(picked) + ("" if open_end or not picked else "\n")


def _prompt(shown: str, window: Window, offset: int | None, cut: bool, names: Names) -> str:
    if not window.lines:
        if window.beyond and (offset or 0) > 0:
            return f"(no lines: the file has {window.total}, and the range begins behind them)"
        return "(no lines)"
    if not cut:
        return shown
    end = window.first + len(window.lines) - 1
    return f"{shown}\n(lines {end + 1} to {window.total} are not shown; {names.own('offset')} reads on)"


def _too_large(shown: str, window: Window, names: Names) -> str:
    search, shell = names.tool(ToolKind.SEARCH), names.tool(ToolKind.EXECUTE)
    text = (
        f"This would be {tokens(shown)} tokens, and {SIZES.read_tokens} are the most for one reading.\n"
        f"Read fewer lines with {names.own('offset')} and {names.own('limit')}"
    )
    text += f", or look for what you need with {search}." if search else "."
    if len(window.lines) - (window.lines[-1:] == ("",)) <= 1:
        text += "\nIt is one very long line, so a range of lines does not make it shorter."
        if shell:
            text += f" Take the part you need out of it with {shell} (`cut -c`, `jq`, `python3`)."
    return text


def _huge(path: ResolvedPath, names: Names) -> str:
    shell = names.tool(ToolKind.EXECUTE)
    text = f"{path.shown} has more than {SIZES.file_bytes} bytes and is not read."
    return f"{text} Take the part you need with {shell} (`sed -n`, `head -c`, `tail`)." if shell else text


TOOLS: tuple[Tool, ...] = (Read(),)
