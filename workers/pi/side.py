"""A call of Pi that is no conversation: a summary, a title, another extension's question.

It gets a Grok session of its own, with an empty folder, no tools and no trace: Pi's prompt in place of
Grok's, every tool denied, and afterwards everything of it removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from gateway.wire.jsonrpc import EngineLine
from workers.pi.binding import DENY_HOOKS
from workers.pi.engine import CallFailed, Engine
from workers.pi.models import Models
from workers.pi.protocol import Fields, UserError
from workers.pi.running import Running
from workers.pi.transcript import entries_of, side_text, system_text
from workers.pi.turn import Turn
from workers.pi.wording import disarmed

__all__ = ["Side", "SideDesk", "history_folder"]

log = logging.getLogger(__name__)

_PREFIX = "pi-side-"

_PLAIN = "Answer with text only. You have no tools."


class SideDesk(Protocol):
    """What a side call needs of the provider."""

    engine: Engine
    models: Models

    def running(self, turn: str, session: str, grok: str, stream: Turn) -> Running:
        """A turn that is told to the extension."""

    def grok_home(self) -> Path | None:
        """Where the engine keeps its sessions."""


class Side:
    """One such call, made by `open`; ``grok`` is its session, ``folder`` that session's, below ``root``."""

    def __init__(self, desk: SideDesk, grok: str, folder: Path, root: Path) -> None:
        self._desk, self.grok, self._folder, self._root = desk, grok, folder, root
        self.running: Running | None = None

    @classmethod
    async def open(cls, desk: SideDesk, fields: Fields, root: Path) -> Side:
        """Make the session.  Raises UserError."""
        model = fields.text("model")
        desk.models.check(model)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        meta = {
            "systemPromptOverride": system_text(fields.objects("system")) or _PLAIN,
            "x.ai/hooks": DENY_HOOKS,
            "yoloMode": False,
            "modelId": model,
        }
        try:
            params = {"cwd": str(folder), "mcpServers": [], "_meta": meta}
            result = await desk.engine.call("session/new", params)
        except CallFailed as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise UserError(disarmed(f"Grok could not open a session: {error}")) from None
        except asyncio.CancelledError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return cls(desk, str(result.get("sessionId")), folder, root)

    def begin(self, fields: Fields) -> Running:
        """The call as the extension sees it."""
        turn = fields.text("turn")
        running = self.running = self._desk.running(turn, "", self.grok, Turn(turn))
        running.begin(fields.number("seq"), len(fields.objects("blocks")))
        running.window, running.written = self._desk.models.window(fields.text("model")), True
        return running

    async def run(self, fields: Fields) -> None:
        """Ask and tell the answer; returns at its end."""
        turn, model, running = fields.text("turn"), fields.text("model"), self.running
        assert running is not None
        stream = running.stream
        text = side_text(entries_of(None, fields.objects("messages")))
        prompt = {
            "sessionId": self.grok,
            "prompt": [{"type": "text", "text": text}],
            "_meta": {"promptId": turn},
        }
        try:
            if effort := self._desk.models.effort(model, fields.text_or("effort")):
                option = {"sessionId": self.grok, "configId": "reasoning_effort", "value": effort}
                await self._desk.engine.call("session/set_config_option", option)
            running.emit(stream.answered(await self._desk.engine.call("session/prompt", prompt)))
        except CallFailed as error:
            running.emit(stream.failed(error.error))

    def update(self, line: EngineLine) -> None:
        """An update of its session."""
        update, meta = line.params.get("update"), line.params.get("_meta")
        if self.running is not None and line.session == self.grok and isinstance(update, dict):
            values = meta if isinstance(meta, dict) else {}
            self.running.emit(self.running.stream.update(line.session, self.grok, update, values))

    def abort(self, running: Running) -> None:
        """Pi has aborted the call."""
        if not running.ended.is_set():
            running.stream.aborted = True
            self._desk.engine.notify("session/cancel", {"sessionId": self.grok})

    async def close(self) -> None:
        """Close the session; delete it and what it has left, if it is a throwaway one."""
        params: Mapping[str, Any] = {"sessionId": self.grok}
        with contextlib.suppress(CallFailed):  # gone already
            await self._desk.engine.call("session/close", params)
        if self._is_throwaway:
            with contextlib.suppress(CallFailed):
                await self._desk.engine.call("_x.ai/session/delete", {**params, "cwd": str(self._folder)})
            self.discard()

    @property
    def _is_throwaway(self) -> bool:
        """Whether the folder is one of ours, and not somebody's project."""
        return self._folder.parent == self._root and self._folder.name.startswith(_PREFIX)

    def discard(self) -> None:
        """Remove its folder and the history that Grok keeps for that folder."""
        if not self._is_throwaway:
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        home = self._desk.grok_home()
        if home is not None:
            shutil.rmtree(history_folder(home, self._folder), ignore_errors=True)


def history_folder(home: Path, folder: Path) -> Path:
    """Where Grok keeps sessions and prompts of a folder."""
    return home / "sessions" / urllib.parse.quote(str(folder), safe="")
