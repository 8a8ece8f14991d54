"""The seam of a ``session/load`` in the middle of a stream: nothing missing, nothing twice, in order.

Sans-I/O.  When a bridge is lost while text streams, another one loads the session.  What the real
grok (1.0.41) then does, measured:

* The load replays the turn so far.  Chunks are merged; a merged chunk carries the ``eventId`` and
  ``chunkId`` of its *last* part.  ``chunkId`` counts by one within a model call (``streamStartMs``),
  over thoughts and text alike.  A tool call is collapsed to one ``tool_call`` in its newest state.
* The zero to two chunks that follow the replay's end reach nobody: neither the loader nor any other
  subscriber, whoever caused the load.  The *next* load replays them.

So updates that arrive after a load are held until one continues exactly where the replay ended; if
none does, the session is loaded again (20 ms).  A load that starts after the end of a model call has
all of its text.  What the client already has is read from the frames sent to it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any, Literal

from gateway.wire import acp

__all__ = ["Seam", "SeamState"]

SeamState = Literal["waiting", "hole", "settled"]

#: Updates after which no chunk of the model call before them can come any more.
_ENDS = ("tool_call", "turn_completed", "response_completed")
_FINAL = ("completed", "failed")
#: ``_meta`` key of a chunk made here: how many characters of its model call come before it.
_OFFSET = "gateway/offset"

#: One model call: (promptId, streamStartMs).
_Stream = tuple[Any, Any]


@dataclasses.dataclass(slots=True)
class _Update:
    """A ``session/update`` or x.ai session notification, taken apart."""

    message: dict[str, Any]
    load: int = 0  #: how many loads had been started when it arrived

    @classmethod
    def parse(cls, line: bytes, session_id: str) -> _Update | None:
        """None for anything that is not an update of this session."""
        if b'"sessionUpdate"' not in line:
            return None
        message = json.loads(line)
        params = message.get("params")
        if not isinstance(params, dict) or params.get("sessionId") != session_id:
            return None
        return cls(message) if isinstance(params.get("update"), dict) else None

    @property
    def update(self) -> dict[str, Any]:
        update: dict[str, Any] = self.message["params"]["update"]
        return update

    @property
    def meta(self) -> dict[str, Any]:
        return self.message["params"].get("_meta") or {}

    @property
    def kind(self) -> str:
        return str(self.update.get("sessionUpdate"))

    @property
    def text(self) -> str | None:
        """Text of a chunk; None if it is none."""
        content = self.update.get("content")
        return content.get("text") if self.kind in acp.CHUNKS and isinstance(content, dict) else None

    @property
    def stream(self) -> _Stream:
        return self.meta.get("promptId"), self.meta.get("streamStartMs")

    @property
    def chunk(self) -> int:
        return int(self.meta.get("chunkId") or 0)

    @property
    def event(self) -> int | None:
        return acp.event_number(self.meta)

    def line(self, **changes: Any) -> bytes:
        """The update as a live one: no replay marks, the live method's name, ``changes`` put in."""
        params = dict(self.message["params"])
        params["update"] = {**self.update, **changes}
        params["_meta"] = {k: v for k, v in self.meta.items() if k not in ("isReplay", "x.ai/leaderClientId")}
        method = self.message["method"]
        if method == "_x.ai/session/update":
            method = "_x.ai/session_notification"
        return json.dumps(
            {"jsonrpc": "2.0", "method": method, "params": params}, separators=(",", ":")
        ).encode()


@dataclasses.dataclass(slots=True)
class _Read:
    """What the client has of one model call."""

    chunk: int = 0
    chars: int | None = 0  #: None: its beginning is no longer in the frame buffer
    tail: str = ""  #: the newest of it, to find the place when ``chars`` is unknown


class Seam:
    """One session that is being re-attached.

    ``frames``: what the client has been sent, oldest first (`workers.resume.FrameBuffer`).
    """

    def __init__(self, session_id: str, frames: Iterable[bytes]) -> None:
        self._session_id = session_id
        self._streams = dict[_Stream, _Read]()
        self._tools = dict[str, str | None]()  # toolCallId: status
        self._event = 0
        self._shown = set[int]()  # events of what may pass ahead of a lost chunk, see `_old`
        self._held = list[tuple[_Update | None, bytes]]()
        self._loads = 0
        self._replayed = list[_Update]()
        self.state: SeamState = "waiting"
        self._floor = 0  # up to here the client has everything
        for frame in frames:
            if update := _Update.parse(frame, session_id):
                self._seen(update)
                if not self._floor or update.text is not None or update.kind in _ENDS:
                    self._floor = max(self._floor, update.event or 0)

    def load_started(self) -> None:
        """A ``session/load`` is about to be written: what arrived before is covered by its replay."""
        self._loads += 1
        self._replayed = []

    def replay(self, line: bytes) -> None:
        """A line of the running load's replay."""
        if update := _Update.parse(line, self._session_id):
            self._replayed.append(update)

    def load_finished(self) -> list[bytes]:
        """The load has answered: frames for the client, what its replay has beyond what is known."""
        position = dict[_Stream, int]()
        lines = list[bytes]()
        for update in self._replayed:
            lines += self._beyond(update, position)
        self._replayed = []
        return lines + self.advance()

    def hold(self, line: bytes) -> None:
        """A line from the attached bridge after its load: kept until its place is known."""
        update = _Update.parse(line, self._session_id)
        if update is not None:
            update.load = self._loads
        self._held.append((update, line))

    def advance(self) -> list[bytes]:
        """Frames for the client that are safe now.  Afterwards ``state`` says what is next.

        ``waiting``: nothing has arrived that would show a hole (a session that has become idle is
        done all the same); ``hole``: load again; ``settled``: the rest passes untouched and this
        seam is done.
        """
        lines = list[bytes]()
        state: SeamState = "waiting"
        while self._held:
            update, line = self._held[0]
            if update is not None and (state == "waiting" or self._skips(update)):
                state = self._judge(update)
                if state == "hole":
                    break
            self._held.pop(0)
            if update is None or not self._covered(update):
                lines.append(line)
                if update is not None:
                    self._seen(update)
        self.state = state
        return lines

    def give_up(self) -> list[bytes]:
        """Everything held, whatever is missing: the bound on loads or time was reached."""
        self.state = "settled"
        held, self._held = self._held, []
        return [line for update, line in held if update is None or not self._covered(update)]

    def _judge(self, update: _Update) -> SeamState:
        if update.text is not None:
            read = self._streams.get(update.stream)
            if read is not None:
                following = update.chunk - read.chunk
                return "waiting" if following <= 0 else "settled" if following == 1 else "hole"
        if update.text is not None or update.kind in _ENDS:  # the model call before it is over
            return "waiting" if update.load < self._loads else "hole"
        return "waiting"

    def _skips(self, update: _Update) -> bool:
        """Whether a chunk does not follow what the client has of its model call: another load made a gap."""
        read = self._streams.get(update.stream) if update.text is not None else None
        return read is not None and update.chunk > read.chunk + 1

    def _covered(self, update: _Update) -> bool:
        """Whether the client has this update already, through a replay."""
        if update.text is not None:
            read = self._streams.get(update.stream)
            return read is not None and update.chunk <= read.chunk
        return update.event is not None and update.event <= self._event

    def _beyond(self, update: _Update, position: dict[_Stream, int]) -> list[bytes]:
        """What one replayed update adds to what the client has.  ``position``: characters of each
        model call replayed so far."""
        text = update.text
        if text is not None:
            return self._rest_of_chunk(update, text, position)
        if update.kind == "user_message_chunk":  # a live turn does not echo its prompt either
            return []
        if update.kind == "tool_call":
            return self._tool_state(update)
        if self._old(update):
            return []
        self._seen(update)
        return [update.line()]

    def _old(self, update: _Update) -> bool:
        """Whether the client has a replayed update, or had what was said after it when the seam began.

        Not by the newest event shown: one that a load brings about (the list of commands, of tasks)
        passes ahead of the chunk that was lost before it.  Nor by the newest event replayed: a tool
        call keeps its place in the replay but carries its newest event."""
        return update.event is None or update.event <= self._floor or update.event in self._shown

    def _rest_of_chunk(self, update: _Update, text: str, position: dict[_Stream, int]) -> list[bytes]:
        read = self._streams.get(update.stream)
        start = position.get(update.stream, 0)
        position[update.stream] = start + len(text)
        if read is None:
            if self._old(update):
                return []  # of a turn before those in the frame buffer
            rest = text
        elif update.chunk <= read.chunk:
            return []
        elif read.chars is not None:
            rest = text[max(0, read.chars - start) :]
        else:
            rest = text[_end_of(read.tail, text) :]
        if read is None or read.chars is not None:
            update.meta[_OFFSET] = start + len(text) - len(rest)
        self._seen(update, rest)
        return [update.line(content={**update.update["content"], "text": rest})] if rest else []

    def _tool_state(self, update: _Update) -> list[bytes]:
        call = str(update.update.get("toolCallId"))
        if call in self._tools:
            if self._tools[call] in _FINAL or update.update.get("status") not in _FINAL:
                return []
            self._seen(update)
            return [update.line(sessionUpdate="tool_call_update")]
        if self._old(update):
            return []  # of an earlier turn
        self._seen(update)
        return [update.line()]

    def _seen(self, update: _Update, text: str | None = None) -> None:
        """The client has this update now (``text``: so much of a chunk)."""
        self._event = max(self._event, update.event or 0)
        if update.kind in ("tool_call", "tool_call_update"):
            call = str(update.update.get("toolCallId"))
            self._tools[call] = update.update.get("status") or self._tools.get(call)
        text = update.text if text is None else text
        if text is None:
            self._shown.add(update.event or 0)
            return
        read = self._streams.get(update.stream)
        if read is None:
            before = update.meta.get(_OFFSET, 0 if update.chunk == 1 else None)
            read = self._streams[update.stream] = _Read(chars=before)
        read.chunk = max(read.chunk, update.chunk)
        if read.chars is not None:
            read.chars += len(text)
        else:
            read.tail += text


def _end_of(tail: str, text: str) -> int:
    """Where in a replayed chunk the client's newest text ends; the chunk may begin within it."""
    at = text.rfind(tail)
    if at >= 0:
        return at + len(tail)
    for length in range(min(len(tail), len(text)), 0, -1):
        if tail.endswith(text[:length]):
            return length
    return 0
