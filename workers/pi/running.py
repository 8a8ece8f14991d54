"""A turn on its way to Pi: its events are numbered, its end answers the ``turn``.

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
    base: int = 0  #: blocks that Pi's message had before this turn was begun anew
    heard: bool = True  #: the extension follows; not between a lost socket and its resume
    written: bool = False  #: the engine has the prompt
    whole: bool = True  #: nothing of its beginning is lost
    ended: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def begin(self, seq: int, blocks: int) -> None:
        """The extension has so much of the message already, from a worker whose word is lost."""
        self.seq, self.base = seq, blocks

    def emit(self, events: Iterable[Event]) -> None:
        """Send events; the end is the answer to the ``turn``."""
        for event in events:
            self.seq += 1
            if self.heard:
                params = {"turn": self.id, "seq": self.seq, **event, "i": self.base + event["i"]}
                self.notify("turn/event", params)
        if self.stream.end is not None:
            self.ended.set()

    def stop(self, end: End) -> None:
        """End it for a reason of ours."""
        self.emit(self.stream.stopped(end))

    def resume(self, seq: int, known: Iterable[Mapping[str, Any]]) -> None:
        """The extension is back and has these blocks: go on with what it lacks."""
        self.seq = max(self.seq, seq)
        self.heard = True
        self.emit(self.stream.blocks.missing(tuple(known)[self.base :]))

    def give_all(self) -> None:
        """Tell everything from the start: a turn that was there before the extension asked for it."""
        self.emit(self.stream.blocks.missing(()))

    def answer(self) -> dict[str, Any]:
        """The result of the ``turn``; only after its end."""
        end, stream = self.stream.end, self.stream
        assert end is not None
        params: dict[str, Any] = {
            "stop": end.stop,
            "raw_stop": end.raw,
            "usage": stream.usage.for_pi(self.window),
            "delivered": self.delivered,
        }
        if end.error:
            params["error"] = end.error
        if texts := stream.blocks.texts():
            params["texts"] = {str(self.base + int(i)): text for i, text in texts.items()}
        return params
