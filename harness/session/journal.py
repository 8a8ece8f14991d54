"""What one session keeps on disk while it lives, in a folder of its own:

====================== =================================================================================
``updates.jsonl``      the history: what clients were told and what they load again
``running_text.jsonl`` the text that is being written, chunk by chunk; one entry of the history afterwards
``chat_history.jsonl`` the conversation with the model, without its opening, which each load makes anew
``summary.json``       folder, title, model and what else a list of sessions shows
``resources_state.json`` what tools remember: steps of the plan, plan mode, tasks that were told
====================== =================================================================================

An update is here before a client has it.  Everything happens on the loop, so that an update is either in
what a load reads or is sent behind it, never both or neither.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.limits import SIZES
from harness.session import history, transcript
from harness.session.appendfile import AppendFile, dump
from harness.session.history import Entry, Text
from harness.session.recovery import endings
from harness.session.summary import Summary
from harness.session.updates import Update, Updates

__all__ = ["Journal", "Saved"]

_LOG = logging.getLogger("store")


@dataclasses.dataclass(frozen=True)
class Saved:
    """A session as it was kept."""

    messages: list[dict[str, Any]]
    turns: int
    first_event: int
    resources: Mapping[str, Any]


class Journal:
    """Raises OSError where the folder cannot be used, BlockingIOError when another process has it."""

    def __init__(self, folder: Path, summary: Summary) -> None:
        self.folder = folder
        self.summary = summary
        self.resources: Callable[[], Mapping[str, Any]] = dict
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._updates = AppendFile(folder / "updates.jsonl")
        self._running = AppendFile(folder / "running_text.jsonl")
        self._chat = AppendFile(folder / "chat_history.jsonl")
        self._text: Text | None = None
        self._cuts = 0  # how often the history was shortened
        self._resources = b""
        self._closed = False

    def restore(self) -> Saved:
        """Take up what another process left, and tell the end of what it was doing."""
        entries = self._updates.values()
        self._take_text(entries)
        entries = self._updates.values()
        last = max((event for kept in entries if (event := history.event_of(kept)) is not None), default=-1)
        # Updates that are not kept had numbers, too; none may be given twice.
        updates = Updates(self.summary.id, first=last + SIZES.event_gap)
        found = history.lost(entries)
        for update in endings(found, updates, self.summary.prompt_id, self._printed, time.time):
            self.record(update)
        lines = self._chat.values()
        messages = transcript.from_lines(line for line in lines if isinstance(line, dict))
        for message in transcript.closing(messages, interrupted=found.turn):
            messages.append(message)
            self.message(message)
        return Saved(messages, history.turns_begun(entries), updates.next_event, self._read_resources())

    # -- what happens --------------------------------------------------------------------------------
    def record(self, update: Update) -> None:
        """Keep an update that is about to be sent."""
        if self._closed or not history.is_kept(update):
            return
        params = update.params
        if history.is_chunk(update):
            if self._text is not None and self._text.takes(params):
                self._running.append(dump(self._text.add(params)))
            else:
                self._settle()
                self._text = Text(params)
                self._running.append(dump(params))
            return
        self._settle()
        self._updates.append(_fitting(history.entry(update.method, params, int(time.time()))))
        self.summary.messages += 1
        if params["update"].get("status") in ("completed", "failed"):
            self._keep_resources()

    def message(self, message: Mapping[str, Any]) -> None:
        """Keep a message of the conversation."""
        if not self._closed:
            self._chat.append(*map(dump, transcript.to_lines(message, self.summary.model_name)))

    def replaced(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """The conversation is another one now, shorter as a rule."""
        if self._closed:
            return
        lines = [line for m in messages for line in transcript.to_lines(m, self.summary.model_name)]
        try:
            self._chat.replace(b"".join(dump(line) + b"\n" for line in lines))
        except OSError as error:
            _LOG.error("%s: %s; the former conversation is kept", self._chat.path, error.strerror)

    def began(self, prompt_id: str) -> None:
        """A turn begins."""
        if self._updates.size > SIZES.session_history:
            self._shorten()
        self.note(prompt_id=prompt_id)

    def ended(self) -> None:
        """A turn has ended."""
        self.note()

    def note(self, **fields: Any) -> None:
        """Other settings: fields of the summary."""
        if not self._closed:
            for name, value in fields.items():
                setattr(self.summary, name, value)
            self._keep_resources()
            self.summary.updated_ms = int(time.time() * 1000)
            self._replace("summary.json", json.dumps(self.summary.wire(), indent=2).encode())

    def close(self) -> None:
        if not self._closed:
            self._settle()
            self._closed = True
            for file in (self._updates, self._running, self._chat):
                file.close()

    # -- what is read --------------------------------------------------------------------------------
    async def entries(self) -> list[Entry]:
        """The whole history, the text that is being written included.

        Long ones are read in a thread.  What came meanwhile is read behind it, without leaving the loop:
        what the caller sends before it waits again is all there was.
        """
        read, found, cuts = 0, list[Entry](), self._cuts
        while not self._closed and self._updates.size - read > SIZES.session_at_once:
            end = self._updates.size
            found += await asyncio.to_thread(self._updates.values, read, end)
            read = end
            if cuts != self._cuts:
                read, found, cuts = 0, [], self._cuts
        if self._closed:
            return found
        found += self._updates.values(read)
        if self._text is not None:
            found.append(history.entry("session/update", self._text.whole(), int(time.time())))
        return found

    # -- the running text ----------------------------------------------------------------------------
    def _settle(self) -> None:
        """The text is whole: an entry of the history."""
        if self._text is not None:
            text, self._text = self._text, None
            kept = history.entry("session/update", text.whole(), int(time.time()))
            self._updates.append(_fitting(kept))
            self._running.clear()

    def _take_text(self, entries: list[Entry]) -> None:
        """The text that the last process was writing; unless it had settled it, too."""
        values = self._running.values()
        if values and isinstance(values[0], dict):
            text = Text(values[0])
            for noted in values[1:]:
                if isinstance(noted, list) and len(noted) == 2:
                    text.restore(*noted)
            kept = history.entry("session/update", text.whole(), int(time.time()))
            last = max((history.event_of(e) or 0 for e in entries), default=-1)
            if (history.event_of(kept) or 0) > last:
                self._updates.append(_fitting(kept))
        self._running.clear()

    # -- small things --------------------------------------------------------------------------------
    def _shorten(self) -> None:
        """Drop the oldest turns: a load sends all that is kept."""
        self._settle()
        entries = self._updates.values()
        starts = history.prompt_starts(entries)
        sizes = [len(dump(kept)) + 1 for kept in entries]
        offset = 0
        wanted = self._updates.size - SIZES.session_history // 2
        for place, size in enumerate(sizes):
            if offset >= wanted and place in starts:
                break
            offset += size
        try:
            self._updates.replace(self._updates.raw(offset))
            self._cuts += 1
        except OSError as error:
            _LOG.error("%s cannot be shortened: %s", self.folder, error.strerror)

    def _keep_resources(self) -> None:
        """Written when they are others than before."""
        data = dump(self.resources())
        if data != self._resources and not self._closed:
            self._resources = data
            self._replace("resources_state.json", data)

    def _read_resources(self) -> Mapping[str, Any]:
        try:
            self._resources = (self.folder / "resources_state.json").read_bytes()
            found = json.loads(self._resources)
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _replace(self, name: str, data: bytes) -> None:
        """The old content or the new, never a part of it."""
        path, temporary = self.folder / name, self.folder / f"{name}.new"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                if os.write(fd, data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(fd)
            temporary.rename(path)
        except OSError as error:
            _LOG.error("%s: %s", path, error.strerror)

    def _printed(self, call_id: str) -> str:
        """What a command had printed when its process ended: its log is written before anybody is told."""
        path = self.folder / "terminal" / f"{Path(call_id).name}.log"
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                half = SIZES.command_output // 2
                data = file.read(half) if size > 2 * half else file.read(2 * half)
                if size > 2 * half:
                    file.seek(size - half)
                    data += b"\n[...]\n" + file.read(half)
        except OSError:
            return ""
        return data.decode("utf-8", "replace")


def _fitting(kept: Entry) -> bytes:
    """The line of an entry that a load can send: texts beyond measure are cut."""
    line = dump(kept)
    return line if len(line) <= SIZES.session_line else dump(_cut(kept))


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        most = SIZES.session_line // 8
        return value if len(value) <= most else f"{value[:most]}\n[cut: {len(value) - most} characters]"
    if isinstance(value, Mapping):
        return {name: _cut(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(inner) for inner in value[: SIZES.session_line // 8]]
    return value
