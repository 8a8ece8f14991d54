"""A turn on the terminal: notifications in, pieces of text out.  No I/O, no clock.

The answer itself is one stream; thoughts, tool calls and notes are another (the command writes them
to standard error, so that ``answer=$(grok-gateway ask …)`` holds the answer and nothing else).  Where
both share a screen, the view ends a line before the other stream goes on.

What the engine sends is text of a model and of files: control characters are taken out, or a file
that the model quotes could move the cursor, change the title or answer for the user.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from gateway.wire import acp

__all__ = ["Piece", "TurnView", "clean", "one_line"]

Stream = Literal["answer", "thought", "note"]

#: C0 without tab and line feed, DEL, C1, and the characters that reorder a line.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")

#: What the gateway tells of itself.
_NOTES = {
    acp.LEADER_RESTARTED: "the engine was restarted; the session is loaded again",
    acp.TOO_FAR_BEHIND: "some of the output was lost while the connection was broken",
}

#: Characters of a line about a tool call.
LINE_MAX = 160


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """Text for one of the streams, line ends included."""

    stream: Stream
    text: str


def clean(text: str) -> str:
    """The text without escape sequences and control characters."""
    return _CONTROL.sub("", _ESCAPE.sub("", text))


def one_line(text: str, size: int = LINE_MAX) -> str:
    """The text on one line of at most ``size`` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= size else f"{line[: size - 1]}…"


class TurnView:
    """Renders the notifications of one session.

    ``session`` is set once its id is known.  ``shared`` says whether answer and notes appear on the
    same screen.
    """

    def __init__(self, session: str | None = None, *, shared: bool) -> None:
        self.session = session
        self._shared = shared
        self._open: Stream | None = None  # the stream whose last line is unfinished
        self._titles = dict[str, str]()  # of the calls that have begun
        self._shown = set[str]()

    def notification(self, message: Mapping[str, Any]) -> list[Piece]:
        """Pieces for a notification; other sessions (subagents have their own) and unknown kinds: none."""
        params = message.get("params")
        if not isinstance(params, dict):
            return []
        method = message.get("method")
        if method in _NOTES:
            return self.note(_NOTES[method])
        update = params.get("update")
        if params.get("sessionId") != self.session or not isinstance(update, dict):
            return []
        if method == acp.SESSION_UPDATE:
            return self._update(update)
        if method == acp.SESSION_NOTIFICATION and update.get("sessionUpdate") == "retry_state":
            return self._retry(update)
        return []

    def note(self, text: str) -> list[Piece]:
        """A line of our own."""
        return self._line(f"  {text}")

    def finish(self) -> list[Piece]:
        """End an unfinished line of any stream."""
        if self._open is None:
            return []
        stream, self._open = self._open, None
        return [Piece(stream, "\n")]

    def _update(self, update: Mapping[str, Any]) -> list[Piece]:
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                return self._stream("answer", _text(update.get("content")))
            case "agent_thought_chunk":
                return self._stream("thought", _text(update.get("content")))
            case "tool_call" | "tool_call_update":
                return self._call(update)
            case "plan":
                return self._plan(update.get("entries"))
        return []

    def _stream(self, stream: Stream, text: str) -> list[Piece]:
        text = clean(text)
        if not text:
            return []
        before = self._break(stream)
        self._open = None if text.endswith("\n") else stream
        return [*before, Piece(stream, text)]

    def _break(self, stream: Stream) -> list[Piece]:
        """End the other stream's line where both share the screen (a thought's always: it is no answer)."""
        if self._open in (None, stream) or (self._open == "answer" and not self._shared):
            return []
        return self.finish()

    def _line(self, text: str) -> list[Piece]:
        before = self._break("note")
        if self._open == "note":
            self._open = None
        return [*before, Piece("note", f"{text}\n")]

    def _call(self, update: Mapping[str, Any]) -> list[Piece]:
        """One line when a call has a title for people, one more only when it fails.

        The first message of a call knows no more than the tool's name; the next one brings the kind
        and a title that names the file or the command.
        """
        call = str(update.get("toolCallId"))
        if isinstance(title := update.get("title"), str) and call not in self._shown:
            self._titles[call] = title
        ended = update.get("status") in ("completed", "failed")
        pieces = list[Piece]()
        if call not in self._shown and ("kind" in update or ended):
            self._shown.add(call)
            pieces += self._line(f"● {one_line(self._titles.get(call, 'tool call'))}")
        if update.get("status") == "failed":
            reason = one_line(" ".join(_texts(update.get("content"))))
            pieces += self._line(f"✗ {one_line(self._titles.get(call, 'tool call'))}: {reason or 'failed'}")
        return pieces

    def _plan(self, entries: Any) -> list[Piece]:
        entries = [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
        done = sum(e.get("status") == "completed" for e in entries)
        current = next((e for e in entries if e.get("status") == "in_progress"), None)
        if current is None:
            return []
        return self._line(f"○ plan {done + 1}/{len(entries)}: {one_line(str(current.get('content')))}")

    def _retry(self, update: Mapping[str, Any]) -> list[Piece]:
        if update.get("type") != "retrying":
            return []
        reason = one_line(str(update.get("reason", "")))
        return self.note(f"the model is asked again ({update.get('attempt')}): {reason}")


def _text(content: Any) -> str:
    text = content.get("text") if isinstance(content, dict) else None
    return text if isinstance(text, str) else ""


def _texts(contents: Any) -> Iterable[str]:
    """The texts of a tool call's content blocks."""
    for block in contents if isinstance(contents, list) else ():
        if isinstance(block, dict):
            yield _text(block.get("content"))
