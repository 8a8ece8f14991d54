"""The plain instructions that the offline model obeys, and the tool calls they become.

One instruction a line, the verb first, in any case; quotes or backticks around an argument are taken
off, and ``\\n`` and ``\\t`` in double quotes are a line feed and a tab::

    run CMD                     write TEXT to PATH          replace A with B in PATH
    read PATH                   write PATH: TEXT            ask QUESTION? A | B | C
    list PATH                   search PATTERN in PATH      count to N

`parse` reads them, `call_for` finds a tool among those that a request offers and fills in its
arguments by its JSON schema.  Nothing here knows one agent's toolset: names and parameters are looked
up in the tables below, and a tool whose required parameters cannot be filled is not called.
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

__all__ = ["HELP", "Call", "Instruction", "Parsed", "Verb", "call_for", "parse"]

Verb = Literal["run", "read", "list", "search", "write", "replace", "ask", "count"]

HELP = (
    "I am not a language model, only a stand-in that obeys plain instructions, one a line:\n"
    "  run CMD · read PATH · list PATH · search PATTERN in PATH · write TEXT to PATH · write PATH: TEXT\n"
    "  replace A with B in PATH · ask QUESTION? A | B | C · count to N"
)

#: ``count to N`` above this would only waste time.
COUNT_MAX = 100_000


@dataclasses.dataclass(frozen=True, slots=True)
class Instruction:
    """``values`` are named as the rows of `_PARAMETERS` (run: command; write: text, path; …)."""

    verb: Verb
    values: Mapping[str, Any]

    def __str__(self) -> str:
        shown = (" | ".join(v) if isinstance(v, tuple) else str(v) for v in self.values.values())
        return f"{self.verb} {' · '.join(shown)}"


@dataclasses.dataclass(frozen=True, slots=True)
class Parsed:
    """The instructions of a block, in order, and the lines that are none."""

    instructions: tuple[Instruction, ...]
    unknown: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A tool call: name and JSON-ready arguments."""

    name: str
    arguments: Mapping[str, Any]


# -- reading ---------------------------------------------------------------------------------------

_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'[^']*'|`[^`]*`"


def _form(verb: Verb, template: str, **free: str) -> tuple[Verb, re.Pattern[str]]:
    """A line's pattern: ``<name>`` is an argument in quotes or what ``free[name]`` matches."""
    pattern = template.replace(" ", r"\s+")
    pattern = re.sub(r"<(\w+)>", lambda m: f"(?P<{m[1]}>{_QUOTED}|{free.get(m[1], '.+')})", pattern)
    return verb, re.compile(rf"(?:please\s+)?{pattern}", re.IGNORECASE)


#: Tried in this order; ``write PATH: TEXT`` before ``write TEXT to PATH``, whose text may hold a colon.
_FORMS: tuple[tuple[Verb, re.Pattern[str]], ...] = (
    _form("run", "run:? <command>"),
    _form("read", "read:? <path>"),
    _form("list", "list:? <path>"),
    _form("search", "search <pattern> in <path>"),
    _form("write", "write <path>: <text>", path=r"[^\s:]+"),
    _form("write", "write <text> to <path>"),
    _form("replace", "replace <old> with <new> in <path>", old=".+?"),
    _form("ask", "ask:? <question>"),
    _form("count", "count to <number>", number=r"\d+"),
)

_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\"": '"', r"\\": "\\"}


def parse(text: str) -> Parsed:
    """Read a block of text; empty lines count neither as instructions nor as unknown."""
    instructions = list[Instruction]()
    unknown = list[str]()
    for line in text.splitlines():
        line = _BULLET.sub("", line).strip()
        if not line:
            continue
        instruction = _parse_line(line)
        if instruction is None:
            unknown.append(line)
        else:
            instructions.append(instruction)
    return Parsed(tuple(instructions), tuple(unknown))


def _parse_line(line: str) -> Instruction | None:
    for verb, form in _FORMS:
        if found := form.fullmatch(line):
            values: dict[str, Any] = {name: _bare(value) for name, value in found.groupdict().items()}
            if verb == "ask":
                values = dict(zip(("question", "options"), _question(values["question"]), strict=True))
            elif verb == "count":
                values = {"number": min(int(values["number"][:9]), COUNT_MAX)}
            return Instruction(verb, values)
    return None


def _bare(value: str) -> str:
    """The value without the quotes around it."""
    value = value.strip()
    if len(value) >= 2 and re.fullmatch(_QUOTED, value):
        inner = value[1:-1]
        return re.sub(r"\\[nt\"\\]", lambda m: _ESCAPES[m[0]], inner) if value[0] == '"' else inner
    return value


def _question(text: str) -> tuple[str, tuple[str, ...]]:
    """Question and options of ``QUESTION? A | B``; without options yes or no."""
    question, mark, rest = text.rpartition("?")
    options = tuple(option.strip() for option in rest.split("|") if option.strip())
    if not mark or (rest.strip() and len(options) < 2):
        return text, ("Yes", "No")
    return f"{question}?", options or ("Yes", "No")


# -- calling ---------------------------------------------------------------------------------------

#: Names under which agents offer a tool for a verb, the most telling first.
_TOOLS: Mapping[Verb, Sequence[str]] = {
    "run": ("run_terminal_command", "run_terminal_cmd", "bash", "shell", "terminal", "execute_command"),
    "read": ("read_file", "hashline_read", "read", "view"),
    "list": ("list_dir", "list_directory", "ls", "list_files"),
    "search": ("grep", "hashline_grep", "search", "grep_search"),
    "write": ("write", "write_file", "create_file"),
    "replace": ("search_replace", "edit", "str_replace", "edit_file"),
    "ask": ("ask_user_question", "ask_user", "ask_question", "question"),
    "count": (),
}

#: Parameter names under which tools take one of our values.
_PARAMETERS: Mapping[str, Sequence[str]] = {
    "command": ("command", "cmd", "script"),
    "path": ("target_file", "file_path", "filepath", "path", "target_directory", "directory", "filename"),
    "pattern": ("pattern", "query", "regex"),
    "text": ("content", "contents", "text", "file_text"),
    "old": ("old_string", "oldText", "old_text", "old_str"),
    "new": ("new_string", "newText", "new_text", "new_str"),
    "question": ("question", "prompt", "message"),
}

#: Required parameters that only tell a person what happens.
_LABELS = ("description", "explanation", "reason", "title", "header")


def call_for(
    instruction: Instruction, tools: Sequence[Mapping[str, Any]], workspace: str | None = None
) -> Call | None:
    """The call that carries out ``instruction`` with one of ``tools``, None if none of them can.

    ``tools`` are functions in the chat-completions form: ``{name, parameters: JSON schema}``.
    ``workspace`` is the absolute folder that a path to be written is completed with: some agents'
    write tools take only absolute paths.
    """
    values = dict(instruction.values)
    if instruction.verb == "write" and workspace:
        values["path"] = posixpath.join(workspace, values["path"])
    by_name = {str(tool.get("name", "")).lower(): tool for tool in tools}
    for name in _TOOLS[instruction.verb]:
        if (tool := by_name.get(name)) is not None:
            arguments = _arguments(values, tool.get("parameters") or {}, str(instruction))
            if arguments is not None:
                return Call(str(tool["name"]), arguments)
    return None


def _arguments(values: Mapping[str, Any], schema: Mapping[str, Any], label: str) -> dict[str, Any] | None:
    """Arguments for a schema, None when a value finds no parameter or a requirement stays empty."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    if "options" in values:
        return _question_arguments(values, properties)
    arguments = dict[str, Any]()
    for key, value in values.items():
        parameter = next((p for p in _PARAMETERS[key] if p in properties), None)
        if parameter is None:
            return None
        arguments[parameter] = value
    for parameter in schema.get("required") or ():
        if parameter in arguments:
            continue
        if parameter not in _LABELS:
            return None
        arguments[parameter] = label
    return arguments


def _question_arguments(values: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any] | None:
    """A question tool takes a list of questions, each with options, or one question."""
    if "questions" in properties:
        items = (properties["questions"] or {}).get("items") or {}
        return {"questions": [_question_item(values, items.get("properties") or {})]}
    parameter = next((p for p in _PARAMETERS["question"] if p in properties), None)
    if parameter is None:
        return None
    item = _question_item(values, properties)
    return {parameter: values["question"], **{k: v for k, v in item.items() if k == "options"}}


def _question_item(values: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    options = (properties.get("options") or {}).get("items") or {}
    make: Callable[[str], Any] = lambda text: {"label": text, "description": text}  # noqa: E731
    if options.get("type") == "string":
        make = str
    item: dict[str, Any] = {"question": values["question"]}
    if "options" in properties:
        item["options"] = [make(option) for option in values["options"]]
    return item
