"""``todo_write``: the list of steps that the model keeps and the person sees."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from harness.outcome import ToolOutput
from harness.registry.contract import CallContext, Tool, ToolKind, ToolSpec

__all__ = ["TOOLS", "Todo", "TodoList", "TodoWrite", "written"]

_STATUSES = ("pending", "in_progress", "completed", "cancelled")


@dataclasses.dataclass(slots=True)
class Todo:
    content: str
    status: str = "pending"
    priority: str = "medium"

    def as_json(self) -> dict[str, str]:
        return {"content": self.content, "priority": self.priority, "status": self.status}


class TodoList:
    """The steps by id, in the order in which they came; lives as long as the session."""

    state_key = "todos"

    def __init__(self) -> None:
        self.items: dict[str, Todo] = {}

    def state(self) -> Any:
        return {key: item.as_json() for key, item in self.items.items()}

    def restore(self, state: Any) -> None:
        self.items = {}
        for key, item in state.items() if isinstance(state, dict) else ():
            if isinstance(item, dict) and item.get("status") in _STATUSES:
                content, priority = str(item.get("content", key)), str(item.get("priority", "medium"))
                self.items[str(key)] = Todo(content, item["status"], priority)

    def write(self, todos: Sequence[Mapping[str, Any]], *, merge: bool) -> str | None:
        """Change the list; the id that came twice, and then nothing is changed."""
        ids = [str(todo["id"]) for todo in todos]
        twice = next((key for place, key in enumerate(ids) if key in ids[:place]), None)
        if twice is not None:
            return twice
        if not merge and not self._only_refers(todos):
            self.items = {}
        for todo in todos:
            self._put(str(todo["id"]), todo.get("content"), todo.get("status"))
        return None

    def rewrite(self, todos: Sequence[Mapping[str, Any]]) -> str | None:
        """A wholly new list, with the priorities it names; the id that came twice, and then nothing."""
        before, self.items = self.items, {}
        twice = self.write(todos, merge=True)
        if twice is not None:
            self.items = before
            return twice
        for todo in todos:
            self.items[str(todo["id"])].priority = todo.get("priority") or "medium"
        return None

    def _only_refers(self, todos: Sequence[Mapping[str, Any]]) -> bool:
        """Whether every item names one that is there and says nothing of its content.

        A model that means to tick something off and forgets to merge would otherwise lose all texts.
        """
        known = all(str(todo["id"]) in self.items and not todo.get("content") for todo in todos)
        return bool(todos) and bool(self.items) and known

    def _put(self, key: str, content: str | None, status: str | None) -> None:
        item = self.items.get(key)
        if item is None:
            self.items[key] = Todo(content or key, status or "pending")
            return
        item.content = content or item.content
        item.status = status or item.status


class TodoWrite:
    spec: ClassVar = ToolSpec(
        namespace="GrokBuild",
        id="todo_write",
        kind=ToolKind.PLAN,
        variant="TodoWrite",
        shown_defaults={"merge": True},
        shown=lambda given: {**given, "todos": [_whole(item) for item in given["todos"]]},
        description=(
            "Keep a list of the steps of a task. The person sees it all the time; it is how they follow what "
            "you do.\n\nWorth it from three steps on; leave it for a single simple one."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "merge": {
                    "type": "boolean",
                    "default": True,
                    "description": "True, the default: the given items change the list by their ids, so send "
                    "only what changes; for a new status the id and the status will do. False: the given "
                    "items are the new list.",
                },
                "todos": {
                    "type": "array",
                    "description": "The items to write",
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": {"type": "string", "description": "What tells this item from others"},
                            "content": {
                                "type": ["string", "null"],
                                "description": "What is to be done",
                            },
                            "status": {
                                "type": ["string", "null"],
                                "enum": [*_STATUSES, None],
                                "description": "pending, in_progress, completed or cancelled",
                            },
                        },
                        "required": ["id"],
                    },
                },
            },
            "required": ["todos"],
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        todos = context.resources.get(TodoList)
        twice = todos.write(arguments["todos"], merge=arguments.get("merge", True))
        return written(todos, twice)


def _whole(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: item.get(key) for key in ("id", "content", "status")}


def written(todos: TodoList, twice: str | None) -> ToolOutput:
    """The list after a change, or why there was none."""
    if twice is not None:
        text = f'The id "{twice}" is given to more than one item. Nothing was changed.'
        return ToolOutput("Todo", {"DuplicateId": text}, text, is_error=True)
    lines = [f"- [{item.status}] {key}: {item.content}\n" for key, item in todos.items.items()]
    text = "".join(lines) or "The list is empty."
    updated = {
        "summary_for_prompt": text,
        "todos": [item.as_json() for item in todos.items.values()],
        "state": {"todos": todos.state()},
    }
    return ToolOutput("Todo", {"TodosUpdated": updated}, text)


TOOLS: tuple[Tool, ...] = (TodoWrite(),)
