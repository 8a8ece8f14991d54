"""Who is told of what: listeners by owner."""

from __future__ import annotations

import logging
from collections.abc import Callable

from harness.workspace.terminal.events import Event, Listener

__all__ = ["Listeners"]

_log = logging.getLogger(__name__)


class Listeners:
    """A listener of one owner hears of that owner's tasks and of those that belong to nobody."""

    Remove = Callable[[], None]

    def __init__(self) -> None:
        self._listeners = dict[int, tuple[Listener, str | None]]()
        self._next = 0

    def add(self, listener: Listener, owner: str | None) -> Remove:
        key, self._next = self._next, self._next + 1
        self._listeners[key] = (listener, owner)

        def remove() -> None:
            self._listeners.pop(key, None)

        return remove

    def clear(self) -> None:
        self._listeners.clear()

    def wanted(self, owner: str | None) -> bool:
        """Whether anybody would hear of this owner's tasks."""
        return any(_hears(of, owner) for _, of in self._listeners.values())

    def tell(self, event: Event) -> None:
        for listener, of in list(self._listeners.values()):
            if _hears(of, event.owner):
                try:
                    listener(event)
                except Exception:  # one that fails must not keep the others, or the task, from their end
                    _log.exception("a listener failed at %s", type(event).__name__)


def _hears(listener: str | None, owner: str | None) -> bool:
    return listener is None or owner is None or listener == owner
