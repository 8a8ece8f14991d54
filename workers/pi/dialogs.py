"""Dialogs in Pi: one at a time, in the order they were wanted, asked again after a lost socket.

Sans-I/O.  Pi shows the newest of several dialogs first, so they wait here.  A dialog has a stable id: the
extension joins it with the one that is still on screen when it is asked a second time.  States move
through `_MOVES`.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

__all__ = ["Dialog", "Dialogs", "Stage"]


class Stage(enum.Enum):
    WAITING = "waiting"  #: not sent, or sent on a socket that is lost
    SENT = "sent"  #: no word yet
    SHOWN = "shown"  #: the extension has it
    DONE = "done"


class _Event(enum.Enum):
    SEND = "sent to the extension"
    ACK = "the extension has it"
    LOST = "the socket is lost"
    END = "answered, withdrawn or given up"


_MOVES = {
    (Stage.WAITING, _Event.SEND): Stage.SENT,
    (Stage.SENT, _Event.ACK): Stage.SHOWN,
    (Stage.SENT, _Event.LOST): Stage.WAITING,
    (Stage.SHOWN, _Event.LOST): Stage.WAITING,
    (Stage.WAITING, _Event.END): Stage.DONE,
    (Stage.SENT, _Event.END): Stage.DONE,
    (Stage.SHOWN, _Event.END): Stage.DONE,
}


@dataclasses.dataclass(slots=True, eq=False)
class Dialog:
    """One question to the person at Pi; ``kind`` and ``args`` as in the protocol."""

    ask: str
    session: str
    kind: str
    args: Mapping[str, Any]
    stage: Stage = Stage.WAITING
    was_sent: bool = False  #: it may be on screen

    def move(self, event: _Event) -> None:
        self.stage = _MOVES.get((self.stage, event), self.stage)

    def params(self) -> dict[str, Any]:
        """Of ``ui/ask``."""
        return {"ask": self.ask, "session": self.session, "kind": self.kind, "args": dict(self.args)}


class Dialogs:
    """The dialogs of one Pi process."""

    def __init__(self) -> None:
        self._queue = collections.deque[Dialog]()
        self._here = False

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, dialog: Dialog) -> None:
        """Somebody wants it answered."""
        self._queue.append(dialog)

    def here(self, here: bool) -> None:
        """The extension is connected, or is not any more."""
        self._here = here
        if not here:
            for dialog in self._queue:
                dialog.move(_Event.LOST)

    def due(self) -> Dialog | None:
        """The dialog to send now; it counts as sent."""
        first = self._queue[0] if self._queue and self._here else None
        if first is None or first.stage is not Stage.WAITING:
            return None
        first.move(_Event.SEND)
        first.was_sent = True
        return first

    def shown(self, ask: str) -> Dialog | None:
        """The extension has the dialog."""
        first = self._queue[0] if self._queue else None
        if first is None or first.ask != ask:
            return None
        first.move(_Event.ACK)
        return first

    def end(self, dialog: Dialog) -> bool:
        """It is answered or given up; True if the extension may have it."""
        dialog.move(_Event.END)
        if dialog in self._queue:
            self._queue.remove(dialog)
        return dialog.was_sent
