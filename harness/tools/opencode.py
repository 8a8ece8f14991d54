"""The compatibility family for models that learned OpenCode's tools: other names, keys and layouts.

Only the surface is another: what is read, replaced, found or run is decided by the same functions as in
the standard family.  ``write`` stands in its own file, because the default set has it too.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any, ClassVar

from harness.limits import LIMITS, SIZES
from harness.outcome import Completeness, Location, ToolOutput
from harness.registry.contract import CallContext, Tool, ToolKind, ToolSpec
from harness.tools import file_access
from harness.tools.edit import attempt, output_of, refused
from harness.tools.edit_texts import EditRequest, Words
from harness.tools.editing.details import numbered_snippet
from harness.tools.editing.replace import Rules, Verdict
from harness.tools.grep import cut, denied_globs, wrapped
from harness.tools.read import load
from harness.tools.reading import is_binary, take_window
from harness.tools.terminal import run_command
from harness.tools.todo import TodoList, written
from harness.workspace.search import Mode, SearchRequest

__all__ = ["TOOLS"]

_PATH = {"type": "string", "description": "The path of the file, absolute or in the workspace."}


class Bash:
    spec: ClassVar = ToolSpec(
        namespace="OpenCode",
        id="bash",
        kind=ToolKind.EXECUTE,
        variant="Bash",
        reads={"command": "command", "description": "description", "cwd": "workdir"},
        description=(
            "Run a bash command and get what it prints.\n\n"
            "- `${{ params.execute.workdir }}` is where it runs; use it instead of `cd`.\n"
            "- A command that has not ended at its limit is ended."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The bash command."},
                "timeout": {
                    "type": ["integer", "null"],
                    "minimum": 0,
                    "description": f"Limit in milliseconds, at most {round(LIMITS.compat_command * 1000)}.",
                },
                "workdir": {"type": ["string", "null"], "description": "The directory to run it in."},
                "description": {"type": "string", "description": "What it does, in a few words."},
            },
            "required": ["command", "description"],
        },
        params_schema={
            "type": "object",
            "properties": {
                "enabled_background": {"const": False},
                "auto_background_on_timeout": {"const": False},
                "timeout_secs": {"type": "number", "minimum": 0},
                "max_timeout_secs": {"type": "number", "minimum": 0},
                "output_byte_limit": {"type": "integer", "minimum": 2},
            },
        },
        default_params={
            "enabled_background": False,
            "auto_background_on_timeout": False,
            "timeout_secs": LIMITS.command_default,
            "max_timeout_secs": LIMITS.compat_command,
            "output_byte_limit": SIZES.command_output,
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        where = arguments.get("workdir")
        path = await context.session.resolve(where, cwd=context.cwd) if where else None
        return await run_command(
            context,
            arguments["command"],
            timeout_ms=arguments.get("timeout"),
            background=False,
            description=arguments.get("description"),
            cwd=None if path is None else path.real,
        )


class Read:
    spec: ClassVar = ToolSpec(
        namespace="OpenCode",
        id="read",
        kind=ToolKind.READ,
        variant="ReadFile",
        reads={"path": "filePath", "offset": "offset", "limit": "limit"},
        figures={
            "lines": SIZES.compat_read_lines,
            "characters": SIZES.compat_read_line,
            "bytes": SIZES.compat_read_bytes,
        },
        description=(
            "Read a text file. Every line comes with its number as NUMBER→LINE.\n\n"
            "- At most {lines} lines and {bytes} bytes a call, and {characters} characters of a line.\n"
            "- Binary files cannot be read."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "filePath": _PATH,
                "offset": {"type": "integer", "minimum": 0, "description": "The first line, counted from 1."},
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "default": SIZES.compat_read_lines,
                    "description": "How many lines.",
                },
            },
            "required": ["filePath"],
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        path = await context.session.resolve(arguments["filePath"], cwd=context.cwd)
        content = await load(path, context)
        if isinstance(content, ToolOutput):
            return content
        place = file_access.place_of(context, path, exists=True)
        if is_binary(path.real, content.data):
            text = f"{place} is a binary file and cannot be read as text."
            return ToolOutput("ReadFile", {"FileReadError": text}, text, is_error=True)
        text = content.data.decode(errors="replace")
        window = take_window(text, arguments.get("offset"), arguments.get("limit"), SIZES.compat_read_lines)
        lines = list[str]()
        size = 0
        for number, line in enumerate(window.lines, window.first):
            shown = f"{number}→{line[: SIZES.compat_read_line]}"
            size += len(shown.encode(errors="replace")) + 1
            if size > SIZES.compat_read_bytes:
                break
            lines.append(shown)
        end = window.first + len(lines) - 1
        shown = "\n".join(lines)
        cut_off = end < window.total and len(lines) != arguments.get("limit")
        note = f"\n(lines {end + 1} to {window.total} are not shown)" if cut_off and lines else ""
        fields = {
            "content": shown,
            "absolute_path": place,
            "offset": arguments.get("offset"),
            "raw_output": "\n".join(window.lines[: len(lines)]),
            "total_lines": window.total if content.data else 0,
        }
        return ToolOutput(
            "ReadFile",
            {"FileContent": fields},
            shown + note or "(no lines)",
            completeness=Completeness.TRUNCATED if cut_off else Completeness.COMPLETE,
            locations=(Location(place, window.first),),
        )


class Edit:
    spec: ClassVar = ToolSpec(
        namespace="OpenCode",
        id="edit",
        kind=ToolKind.EDIT,
        variant="SearchReplace",
        shown_defaults={"replaceAll": False},
        notifications=("file_written",),
        reads={"path": "filePath"},
        description=(
            "Change a file by replacing one exact piece of its text.\n\n"
            "- `${{ params.edit.oldString }}` has to occur exactly once; take in more lines, or set "
            "`${{ params.edit.replaceAll }}`.\n"
            "- An empty `${{ params.edit.oldString }}` creates a new file."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "filePath": _PATH,
                "oldString": {"type": "string", "description": "The text that is replaced"},
                "newString": {"type": "string", "description": "The text that takes its place"},
                "replaceAll": {
                    "type": "boolean",
                    "default": False,
                    "description": "Replace every occurrence",
                },
            },
            "required": ["filePath", "oldString", "newString"],
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        rules = Rules(replace_all=bool(arguments.get("replaceAll", False)))
        old, new = arguments["oldString"], arguments["newString"]
        request = EditRequest(
            arguments["filePath"], old, new, rules, old_name="oldString", all_name="replaceAll"
        )
        state, decision, stale = await attempt(request, context)
        if state.refusal is not None:
            return refused(*state.refusal)
        words = Words(request, state.path.shown, state.found.data, decision, context.names)
        if decision.verdict not in (Verdict.CREATE, Verdict.REPLACE):
            return refused(*words.refusal(None))
        text = words.applied(stale)
        if decision.verdict is Verdict.REPLACE and not stale:
            text += f" It now reads there:\n{numbered_snippet(decision)}"
        return output_of(request, state, decision, context, text=text, concise=words.applied_briefly())


class Grep:
    spec: ClassVar = ToolSpec(
        namespace="OpenCode",
        id="grep",
        kind=ToolKind.SEARCH,
        variant="Grep",
        reads={"pattern": "pattern", "path": "path"},
        figures={"most": SIZES.compat_grep},
        description="Search the contents of files with a regular expression; at most {most} matches.",
        input_schema={
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "The regular expression."},
                "path": {"type": ["string", "null"], "description": "File or directory to search in."},
                "include": {"type": ["string", "null"], "description": 'Files to look into, such as "*.ts".'},
            },
            "required": ["pattern"],
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        where = context.cwd or context.session.cwd
        path = await context.session.resolve(arguments.get("path") or where, cwd=context.cwd)
        include = arguments.get("include")
        request = SearchRequest(
            pattern=arguments["pattern"],
            path=path.path,
            cwd=where,
            globs=((include,) if include else ()) + denied_globs(context),
        )
        result = await context.session.search(request, cancelled=context.cancelled)
        if result.exit_code > 1 and not result.stdout:
            text = f"The search failed: {result.stderr.decode(errors='replace').rstrip()}"
            return ToolOutput("GrepSearch", {"exit_code": result.exit_code, "match_count": 0}, text)
        found = cut(result, Mode.CONTENT, SIZES.grep_lines_most, matches=SIZES.compat_grep)
        text = wrapped(context.session.display(where), found.told(Mode.CONTENT, context.names))
        fields = {
            "stdout": list(text.encode(errors="replace")),
            "stderr": list(result.stderr),
            "exit_code": result.exit_code,
            "match_count": found.count,
            "file_matches": found.matches(Mode.CONTENT),
        }
        whole = Completeness.TRUNCATED if found.truncated else Completeness.COMPLETE
        return ToolOutput("GrepSearch", fields, text, completeness=whole)


class Glob:
    spec: ClassVar = ToolSpec(
        namespace="OpenCode",
        id="glob",
        kind=ToolKind.LIST,
        variant="Glob",
        read_only=True,
        reads={"pattern": "pattern", "path": "path"},
        figures={"most": SIZES.glob_files},
        description="Find files by a glob such as `src/**/*.ts`; the {most} that changed last are listed.",
        input_schema={
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "The glob."},
                "path": {"type": ["string", "null"], "description": "The directory to look in."},
            },
            "required": ["pattern"],
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        where = context.cwd or context.session.cwd
        path = await context.session.resolve(arguments.get("path") or where, cwd=context.cwd)
        request = SearchRequest(
            pattern="",
            path=posixpath.normpath(path.path),
            cwd=path.real,
            mode=Mode.FILES,
            globs=(arguments["pattern"], "!.git", *denied_globs(context)),
            hidden=True,
            by_time=True,
        )
        try:
            if not (await context.session.stat(path)).is_dir:
                return _no_files(f"{path.shown} is no directory.")
        except OSError as error:
            return _no_files(f"{path.shown} cannot be searched: {file_access.reason(error)}.")
        result = await context.session.search(request, cancelled=context.cancelled)
        if result.exit_code > 1:
            return _no_files(f"The search failed: {result.stderr.decode(errors='replace').rstrip()}")
        names = result.stdout.decode(errors="replace").split("\n")[:-1]
        shown = names[: SIZES.glob_files]
        more = result.truncated or result.timed_out or len(names) > len(shown)
        text = "\n".join(shown) or "No files."
        if more:
            text += f"\n(more than {len(shown)} files; only those that changed last are listed)"
        whole = Completeness.TRUNCATED if more else Completeness.COMPLETE
        return ToolOutput("Text", {"text": text}, text, completeness=whole)


def _no_files(text: str) -> ToolOutput:
    return ToolOutput("Text", {"text": text}, text, is_error=True)


class TodoWrite:
    spec: ClassVar = ToolSpec(
        namespace="OpenCode",
        id="todowrite",
        kind=ToolKind.PLAN,
        variant="TodoWrite",
        description="Write the list of the steps of a task anew; the person sees it all the time.",
        input_schema={
            "type": "object",
            "properties": {
                "todos": {
                    "type": "array",
                    "description": "All steps, in their order.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": {"type": ["string", "null"]},
                            "content": {"type": "string"},
                            "status": {"enum": ["pending", "in_progress", "completed", "cancelled"]},
                            "priority": {"enum": ["high", "medium", "low", None]},
                        },
                        "required": ["content", "status"],
                    },
                }
            },
            "required": ["todos"],
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        todos = context.resources.get(TodoList)
        steps = [
            {**step, "id": step.get("id") or str(number)} for number, step in enumerate(arguments["todos"], 1)
        ]
        return written(todos, todos.rewrite(steps))


TOOLS: tuple[Tool, ...] = (Bash(), Read(), Edit(), Grep(), Glob(), TodoWrite())
