"""A turn on its way to Pi: its events are numbered, its end is kept until Pi has it.

Thin: what a turn says is `workers.pi.turn`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from workers.pi.blocks import Event
from workers.pi.turn import End, Turn

__all__ = ["Running"]


@dataclasses.dataclass(slots=True, eq=False)
class Running:
    """One ``turn`` of the extension.  ``notify`` sends to it."""

    id: str
    session: str  #: of Pi; "" for a side call
    grok: str  #: the Grok session
    stream: Turn
    notify: Callable[[str, Mapping[str, Any]], None]
    window: int = 0  #: tokens of the model's context
    delivered: str = ""
    seq: int = 0
    heard: bool = True  #: the extension follows; not between a lost socket and its resume
    written: bool = False  #: the engine has the prompt
    whole: bool = True  #: nothing of its beginning is lost
    ended: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def emit(self, events: Iterable[Event]) -> None:
        """Send events, and the end once the turn has one."""
        for event in events:
            self.seq += 1
            if self.heard:
                self.notify("turn/event", {"turn": self.id, "seq": self.seq, **event})
        if self.stream.end is not None and not self.ended.is_set():
            self.ended.set()
            if self.heard:
                self._tell_end()

    def stop(self, end: End) -> None:
        """End it for a reason of ours."""
        self.emit(self.stream.stopped(end))

    def resume(self, seq: int, known: Iterable[Mapping[str, Any]]) -> None:
        """The extension is back and has these blocks: go on with what it lacks."""
        self.seq = max(self.seq, seq)
        self.heard = True
        for event in self.stream.blocks.missing(known):
            self.seq += 1
            self.notify("turn/event", {"turn": self.id, "seq": self.seq, **event})
        if self.ended.is_set():
            self._tell_end()
        else:
            self.emit(())

    def give_all(self) -> None:
        """Tell everything from the start: a turn that was there before the extension asked for it."""
        self.resume(self.seq, ())

    def _tell_end(self) -> None:
        end, stream = self.stream.end, self.stream
        assert end is not None
        self.seq += 1
        params: dict[str, Any] = {
            "turn": self.id,
            "seq": self.seq,
            "stop": end.stop,
            "raw_stop": end.raw,
            "usage": stream.usage.for_pi(self.window),
            "delivered": self.delivered,
        }
        if end.error:
            params["error"] = end.error
        if texts := stream.blocks.texts():
            params["texts"] = texts
        self.notify("turn/end", params)
