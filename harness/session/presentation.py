"""How a call and its result are shown: titles, kinds, places and contents of a client's tool cards.

Two tables.  A call is shown by the kind of its tool, from its canonical arguments; a result by the tag of
its client projection.  A tool that has no row is shown by its name, with the text that the model gets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from harness.outcome import ToolOutput
from harness.registry.contract import ToolKind

__all__ = ["CallView", "ResultView", "view_call", "view_result"]

Arguments = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class CallView:
    """``content`` None: none is sent.  ``path`` is what the call works on, as the model wrote it."""

    kind: str
    title: str
    path: str = ""
    line: int | None = None
    content: tuple[Mapping[str, Any], ...] | None = None

    @property
    def locations(self) -> list[dict[str, Any]]:
        if not self.path:
            return []
        return [{"path": self.path} | ({"line": self.line} if self.line is not None else {})]


@dataclasses.dataclass(frozen=True, slots=True)
class ResultView:
    """``title`` None: the card keeps the one it has."""

    failed: bool
    content: tuple[Mapping[str, Any], ...] | None = None
    title: str | None = None


def text_content(text: str) -> tuple[Mapping[str, Any], ...]:
    return ({"type": "content", "content": {"type": "text", "text": text}},)


# -- calls -----------------------------------------------------------------------------------------


def _execute(a: Arguments) -> CallView:
    description = a.get("description")
    content = text_content(str(description)) if description else None
    return CallView("execute", f"Execute `{a.get('command', '')}`", content=content)


def _read(a: Arguments) -> CallView:
    path = _path(a)
    offset = a.get("offset")
    line = None if offset is None or offset < 0 else max(1, offset)  # from the end: not known yet
    return CallView("read", f"Read `{path}`", path, line)


def _edit(a: Arguments) -> CallView:
    path = _path(a)
    diff = {
        "type": "diff",
        "path": path,
        "oldText": a.get("old_string", ""),
        "newText": a.get("new_string", ""),
    }
    return CallView("edit", f"Edit `{path}`", path, content=(diff,))


def _write(a: Arguments) -> CallView:
    path = _path(a)
    diff = {"type": "diff", "path": path, "oldText": "", "newText": a.get("content", "")}
    return CallView("edit", f"Write `{path}`", path, content=(diff,))


def _list(a: Arguments) -> CallView:
    path = str(a.get("target_directory", a.get("path", ".")))
    return CallView("other", f"List `{path}`", path)


def _output(a: Arguments) -> CallView:
    ids = a.get("task_ids") or []
    return CallView("other", f"Get task output: {ids[0] if len(ids) == 1 else f'{len(ids)} tasks'}")


def _ask(a: Arguments) -> CallView:
    questions = a.get("questions") or []
    if len(questions) == 1:
        return CallView("other", f"Ask: {questions[0].get('question', '')}")
    return CallView("other", f"Ask {len(questions)} questions")


_CALLS: Mapping[ToolKind, Callable[[Arguments], CallView]] = {
    ToolKind.EXECUTE: _execute,
    ToolKind.READ: _read,
    ToolKind.EDIT: _edit,
    ToolKind.WRITE: _write,
    ToolKind.LIST_DIR: _list,
    ToolKind.LIST: _list,
    ToolKind.SEARCH: lambda a: CallView("search", str(a.get("pattern", ""))),
    ToolKind.PLAN: lambda a: CallView("think", "Updating plan"),
    ToolKind.BACKGROUND_TASK: _output,
    ToolKind.WAIT_TASKS: lambda a: CallView("other", f"Wait for {len(a.get('task_ids') or [])} tasks"),
    ToolKind.KILL_TASK: lambda a: CallView("other", f"Kill task: {a.get('task_id', '')}"),
    ToolKind.MONITOR: lambda a: CallView("other", f"Start monitor: {a.get('description', '')}"),
    ToolKind.ASK_USER: _ask,
    ToolKind.ENTER_PLAN: lambda a: CallView("other", "Plan: Enter"),
    ToolKind.EXIT_PLAN: lambda a: CallView("other", "Plan: Exit"),
    ToolKind.SEARCH_TOOL: lambda a: CallView("other", f'Search tools: "{a.get("query", "")}"'),
    ToolKind.USE_TOOL: lambda a: CallView("other", str(a.get("tool_name", ""))),
}


def view_call(kind: ToolKind, name: str, arguments: Arguments) -> CallView:
    """The card of a call that was understood."""
    show = _CALLS.get(kind)
    return show(arguments) if show else CallView("other", name)


def _path(a: Arguments) -> str:
    for name in ("target_file", "file_path", "path"):
        if name in a:
            return str(a[name])
    return ""


# -- results ---------------------------------------------------------------------------------------


def _bash(output: ToolOutput) -> ResultView:
    # A command that ends with a status of its own has done its work: the card is not a failed one.
    return ResultView(False, text_content(bytes(output.fields.get("output", ())).decode(errors="replace")))


def _file(output: ToolOutput) -> ResultView:
    content = output.fields.get("FileContent")
    if isinstance(content, Mapping):
        return ResultView(output.is_error, text_content(str(content.get("content", ""))))
    return ResultView(output.is_error, text_content(_said(output)))


def _replaced(output: ToolOutput) -> ResultView:
    applied = output.fields.get("EditsApplied")
    if not isinstance(applied, Mapping):
        return ResultView(output.is_error, text_content(_said(output)))
    diff = {
        "type": "diff",
        "path": applied.get("absolute_path", ""),
        "oldText": applied.get("old_string", ""),
        "newText": applied.get("new_string", ""),
        "_meta": {"details": (applied.get("edits") or {}).get("details", [])},
    }
    return ResultView(output.is_error, (diff,))


def _matches(output: ToolOutput) -> ResultView:
    return ResultView(output.is_error, text_content(f"found {output.fields.get('match_count', 0)} matches"))


def _todo(output: ToolOutput) -> ResultView:
    updated = "TodosUpdated" in output.fields
    return ResultView(output.is_error, None if updated else text_content(_said(output)))


def _plan_mode(title: str) -> Callable[[ToolOutput], ResultView]:
    def view(output: ToolOutput) -> ResultView:
        inner = next(iter(output.fields.values()), None)
        path = inner.get("plan_file_path") if isinstance(inner, Mapping) else None
        text = f"Plan file: {path}" if path else _said(output)
        return ResultView(output.is_error, text_content(text), None if output.is_error else title)

    return view


def _started(output: ToolOutput) -> ResultView:
    fields = output.fields
    title = f"[bg] {fields.get('command', '')} ({str(fields.get('task_id', ''))[:8]})"
    return ResultView(output.is_error, text_content(str(fields.get("summary", ""))), title)


def _task(output: ToolOutput) -> ResultView:
    if "TaskNotFound" in output.fields:
        return ResultView(True, None, "task not found")
    title, many, one = None, output.fields.get("MultiResult"), output.fields.get("Result")
    if isinstance(many, Mapping):
        title = f"multi-wait ({many.get('mode')})"
    elif isinstance(one, Mapping):
        short = str(one.get("task_id", ""))[:8]
        title = f"kill {short} ({one['outcome']})" if "outcome" in one else f"{one.get('command')} ({short})"
    return ResultView(output.is_error, None, title)


def _bare(output: ToolOutput) -> ResultView:
    return ResultView(output.is_error)


_RESULTS: Mapping[str, Callable[[ToolOutput], ResultView]] = {
    "Bash": _bash,
    "ReadFile": _file,
    "SearchReplace": _replaced,
    "ListDir": _bare,
    "GrepSearch": _matches,
    "Todo": _todo,
    "EnterPlanMode": _plan_mode("Plan mode entered"),
    "ExitPlanMode": _plan_mode("Plan mode exited"),
    "BackgroundTaskStarted": _started,
    "TaskOutput": _task,
    "KillTask": _task,
    "Monitor": _bare,
    "MCP": _bare,
    "SearchTool": lambda output: ResultView(output.is_error, text_content(output.prompt)),
}


def view_result(output: ToolOutput) -> ResultView:
    """The card of a call that has its result."""
    show = _RESULTS.get(output.type)
    return show(output) if show else ResultView(output.is_error, text_content(_said(output)))


def _said(output: ToolOutput) -> str:
    """The words of a result that has little else: its only text, its message, or what the model gets."""
    inner = next(iter(output.fields.values()), None) if len(output.fields) == 1 else None
    if isinstance(inner, str):
        return inner
    if isinstance(inner, Mapping) and isinstance(inner.get("message"), str):
        return str(inner["message"])
    return output.prompt
