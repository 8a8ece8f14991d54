"""``grep``: a regular expression in files, printed as ``rg`` prints it and cut to what a model can use."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from harness.limits import LIMITS, SIZES
from harness.outcome import Completeness, Location, ToolOutput
from harness.registry.contract import CallContext, Names, Tool, ToolKind, ToolSpec
from harness.workspace.search import Mode, SearchRequest, SearchResult

__all__ = ["TOOLS", "Found", "Grep", "HiddenFiles", "cut", "denied_globs", "wrapped"]

_MATCH = re.compile(r"(\d+):(.*)", re.DOTALL)


class HiddenFiles:
    """Files that the person does not want read, as globs that may change while the session lives."""

    def __init__(self, globs: Callable[[], Sequence[str]] = tuple) -> None:
        self.globs = globs


def denied_globs(context: CallContext) -> tuple[str, ...]:
    """Exclusions that come last, so that no glob of the model outdoes them."""
    hidden = (*context.params.get("deny_globs", ()), *context.resources.get(HiddenFiles).globs())
    root = (context.cwd or context.session.cwd).rstrip("/")
    # A glob with a leading slash is rooted where the search is, not at the host's root.
    return tuple(f"!{glob.removeprefix(root) if glob.startswith(f'{root}/') else glob}" for glob in hidden)


class Grep:
    spec: ClassVar = ToolSpec(
        namespace="GrokBuild",
        id="grep",
        kind=ToolKind.SEARCH,
        variant="Grep",
        shown_defaults={"path": None, "glob": None, "-i": False, "type": None, "multiline": False},
        managed=True,
        reads={"pattern": "pattern", "path": "path"},
        unadvertised=frozenset({"output_mode"}),
        figures={"lines": SIZES.grep_lines, "entries": SIZES.grep_entries},
        description=(
            "Search the contents of files with a regular expression, as ripgrep does.\n\n"
            "- Characters with a meaning in expressions are escaped to be taken literally: `call\\(`; in Go, "
            "`interface\\{\\}` finds interface{}. The pattern is given bare, without quotes around it.\n"
            "- What git ignores and names that begin with a dot are skipped, unless "
            "`${{ params.search.glob }}` names them.\n"
            "- `${{ params.search.type }}` and `${{ params.search.glob }}` only help where you are sure of "
            "the kind of file; a program may import .js and have .ts.\n"
            "- Results are grouped by file; ':' stands behind the number of a matching line, '-' behind that "
            "of a line of context. Long results are cut and counted as 'at least'."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "description": "The regular expression (rg --regexp)"},
                "path": {
                    "type": ["string", "null"],
                    "description": "File or directory to search in. The workspace if it is left out.",
                },
                "glob": {
                    "type": ["string", "null"],
                    "description": 'Only files that fit this glob (rg --glob), for instance "*.js" or '
                    '"*.{ts,tsx}".',
                },
                "-B": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Lines shown before each match (rg -B).",
                },
                "-A": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Lines shown after each match (rg -A).",
                },
                "-C": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Lines shown before and after each match (rg -C).",
                },
                "-i": {
                    "type": "boolean",
                    "default": False,
                    "description": "Take upper and lower case for the same (rg -i).",
                },
                "type": {
                    "type": ["string", "null"],
                    "description": "Only files of this type (rg --type): js, py, rust, go, java and so on. "
                    "Faster than a glob.",
                },
                "head_limit": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "Only the first lines or entries of the result. Left out: {lines} lines "
                    "or {entries} entries.",
                },
                "multiline": {
                    "type": "boolean",
                    "default": False,
                    "description": "Let matches span lines, and . match the end of a line "
                    "(rg -U --multiline-dotall).",
                },
                "output_mode": {"type": "string", "enum": ["content", "files_with_matches", "count"]},
            },
            "required": ["pattern"],
        },
        params_schema={
            "type": "object",
            "properties": {"deny_globs": {"type": "array", "items": {"type": "string"}}},
        },
        default_params={"deny_globs": []},
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        where = context.cwd or context.session.cwd
        path = await context.session.resolve(arguments.get("path") or where, cwd=context.cwd)
        try:
            await context.session.stat(path)
        except OSError as error:
            told = "does not exist" if isinstance(error, FileNotFoundError) else "cannot be searched"
            return _output(f"Error: {path.shown} {told}.", SearchResult(2, b""), 0, [])
        mode = Mode(arguments.get("output_mode", "content"))
        around = arguments.get("-C", 0)
        request = SearchRequest(
            pattern=arguments["pattern"],
            path=path.path,
            cwd=where,
            mode=mode,
            globs=(*_globs(arguments.get("glob")), *denied_globs(context)),
            file_type=arguments.get("type") or None,
            before=arguments.get("-B", around),
            after=arguments.get("-A", around),
            ignore_case=bool(arguments.get("-i", False)),
            multiline=bool(arguments.get("multiline", False)),
        )
        result = await context.session.search(request, cancelled=context.cancelled)
        shown = context.session.display(where)
        if result.exit_code > 1 and not result.stdout:
            reason = _text(result.stderr).rstrip()
            text = f"The search failed: {reason}\n(exit {result.exit_code}, in {shown})"
            return _output(text, result, 0, [])
        found = cut(result, mode, _budget(mode, arguments.get("head_limit")))
        text = wrapped(shown, found.told(mode, context.names))
        whole = Completeness.TRUNCATED if found.truncated else Completeness.COMPLETE
        output = _output(text, result, found.count, found.matches(mode))
        return dataclasses.replace(output, completeness=whole, locations=_locations(found, mode))


def _globs(glob: str | None) -> tuple[str, ...]:
    return (glob,) if glob else ()


def _budget(mode: Mode, wanted: int | None) -> int:
    if mode is Mode.CONTENT:
        return min(SIZES.grep_lines if wanted is None else wanted, SIZES.grep_lines_most)
    return min(SIZES.grep_entries if wanted is None else wanted, SIZES.grep_entries_most)


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """The lines that are shown; ``dropped`` more would have been within the budget of lines."""

    lines: tuple[str, ...]
    count: int
    truncated: bool
    timed_out: bool = False
    dropped: int = 0

    def told(self, mode: Mode, names: Names) -> list[str]:
        """A line that counts, and the result."""
        if not self.lines and not self.truncated:
            return ["No matches."]
        least = "at least " if self.truncated else ""
        entries = len(self.lines)
        counted = {
            Mode.CONTENT: f"{least}{self.count} matching lines",
            Mode.COUNT: f"{self.count} matches in {least}{entries} files",
        }.get(mode, f"{least}{entries} files")
        notes = list[str]()
        if self.dropped:
            notes.append(f"({self.dropped} more lines of this result were left out for their length)")
        if self.timed_out:
            narrower = f"{names.own('path')} or {names.own('glob')}"
            notes.append(f"(the search was ended after {LIMITS.search:g} s; narrow it with {narrower})")
        return [f"{counted}:", *self.lines, *notes]

    def matches(self, mode: Mode) -> list[dict[str, Any]]:
        """By file, for a client; only where lines are shown."""
        if mode is not Mode.CONTENT:
            return []
        files = list[dict[str, Any]]()
        path: str | None = None
        for line in self.lines:
            if not line:
                path = None
            elif path is None:
                path = line
                files.append({"path": path, "matches": []})
            elif found := _MATCH.fullmatch(line):
                files[-1]["matches"].append({"line_number": int(found[1]), "content": found[2]})
        return [file for file in files if file["matches"]]


def cut(result: SearchResult, mode: Mode, budget: int, matches: int | None = None) -> Found:
    """What of a result is shown: so many lines or matches, none too long, and not too much in all."""
    lines = _text(result.stdout).split("\n")
    if lines[-1] == "" or result.truncated or result.timed_out:
        del lines[-1]  # the end, or half a line
    if matches is not None:
        budget = min(budget, _end_of(lines, matches))
    truncated = result.truncated or result.timed_out or len(lines) > budget
    lines = [_clipped(line.removesuffix("\r")) for line in lines[:budget]]
    size = 0
    kept = list[str]()
    for line in lines:
        size += len(line.encode(errors="replace")) + 1
        if size > SIZES.grep_body:
            break
        kept.append(line)
    dropped = len(lines) - len(kept)
    if mode is Mode.CONTENT:
        count = sum(_MATCH.fullmatch(line) is not None for line in kept)
    elif mode is Mode.COUNT:
        count = sum(int(line.rpartition(":")[2]) for line in kept)
    else:
        count = len(kept)
    return Found(tuple(kept), count, truncated or dropped > 0, result.timed_out, dropped)


def _end_of(lines: Sequence[str], matches: int) -> int:
    """How many lines it takes to show so many matches."""
    for number, line in enumerate(lines):
        matches -= _MATCH.fullmatch(line) is not None
        if matches == 0:
            return number + 1
    return len(lines)


def _clipped(line: str) -> str:
    if len(line) <= SIZES.grep_line:
        return line
    return f"{line[: SIZES.grep_line]} [cut: {len(line)} characters in all]"


def wrapped(workspace: str, lines: Sequence[str]) -> str:
    """Marked off from the conversation, because a file may say anything."""
    attribute = workspace.replace("&", "&amp;").replace('"', "&quot;")
    body = "\n".join(lines)
    return f'<workspace_result workspace_path="{attribute}">\n{body}\n</workspace_result>'


def _output(text: str, result: SearchResult, count: int, matches: list[dict[str, Any]]) -> ToolOutput:
    fields = {
        "stdout": list(text.encode(errors="replace")),
        "stderr": list(result.stderr),
        "exit_code": result.exit_code,
        "match_count": count,
        "file_matches": matches,
    }
    return ToolOutput("GrepSearch", fields, text)


def _locations(found: Found, mode: Mode) -> tuple[Location, ...]:
    return tuple(
        Location(file["path"], file["matches"][0]["line_number"])
        for file in found.matches(mode)[: SIZES.edit_lines]
    )


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


TOOLS: tuple[Tool, ...] = (Grep(),)
