"""The Grok session of one Pi session: made, loaded, kept on the right model.

Grok loses a session's rules on every load that finds it not resident, and ends it with its last client.  So
after a load the rules go with the next prompt, and what Grok still does or has done since is read from
the replay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gateway.wire.acp import ErrorCode
from gateway.wire.jsonrpc import EngineLine
from gateway.wire.limits import LIMITS
from gateway.wire.records import Record
from workers.pi.binding import Binding, session_meta
from workers.pi.engine import CallFailed, Engine
from workers.pi.models import Models
from workers.pi.protocol import Fields, UserError
from workers.pi.settings import PiSettings
from workers.pi.transcript import Entry, position_of, rules_of
from workers.pi.turn import Turn
from workers.pi.wording import NOT_WRITTEN, disarmed
from workers.recovery import prompt_with_rules

__all__ = ["PASSING", "GrokSession", "NeedAll", "SessionOwner"]

log = logging.getLogger(__name__)

#: Errors after which the same message may be sent again: the engine never had it.
PASSING = (ErrorCode.LEADER_LOST, ErrorCode.BRIDGE_LOST, ErrorCode.DRAINING)


class NeedAll(Exception):  # noqa: N818 (a question to the extension)
    """The Grok session is new, or must be loaded: the whole transcript is needed."""


class SessionOwner(Protocol):
    """What a session needs of the provider."""

    engine: Engine
    settings: PiSettings
    models: Models

    def record(self, *records: Record) -> bool:
        """Write to the journal; False when that failed."""

    def attached(self, grok: str) -> bool:
        """The connection has this Grok session."""

    def notice(self, text: str) -> None:
        """Show a text to the person at Pi."""


class GrokSession:
    """``session`` and ``cwd`` are Pi's."""

    def __init__(self, owner: SessionOwner, session: str, cwd: str) -> None:
        self._owner = owner
        self.session, self.cwd = session, cwd
        self.binding: Binding | None = None
        self.fresh = False  #: it has had no prompt yet
        self.model = ""
        self.replay: dict[str, Turn] | None = None  #: by prompt id, while a load replays
        self._effort = ""
        self._rules_due = ""

    @property
    def id(self) -> str:
        """Grok's id of it, "" before there is one."""
        return self.binding.grok if self.binding else ""

    @property
    def attached(self) -> bool:
        return self._owner.attached(self.id)

    async def open(self, fields: Fields, branch: Sequence[Entry]) -> tuple[dict[str, Turn], str]:
        """Have it open, with the model and effort of a ``turn``.  Raises NeedAll and UserError.

        Returns what a load has replayed: turns by prompt id, and the id of the one that runs.
        """
        since, model = fields.text_or("since"), fields.text("model")
        self._owner.models.check(model)
        replayed: tuple[dict[str, Turn], str] = ({}, "")
        if since and (self.binding is None or not self.attached or since != self.binding.delivered):
            raise NeedAll
        rules = "" if since else rules_of(fields.objects("system"))
        try:
            if self.binding is not None and not since and position_of(branch, self.binding.delivered) is None:
                await self.leave()  # Pi's branch has left what Grok knows
            if self.binding is not None and self.attached and not self.binding.made:
                self._made(self.binding)  # the turn that made it was aborted before it knew
            if self.binding is not None and not self.attached:
                replayed = await self._load(rules)
            if self.binding is None:
                await self._new(rules, model)
            effort = self._owner.models.effort(model, fields.text_or("effort"))
            await self._set_options(model, effort)
        except CallFailed as error:
            text = f"{NOT_WRITTEN} {error}" if error.code in PASSING else ""
            raise UserError(text or disarmed(f"Grok could not open the session: {error}")) from None
        return replayed

    async def leave(self) -> None:
        """The next turn makes another one."""
        grok, attached = self.id, self.attached
        self.binding = None
        if attached:
            try:
                await self._owner.engine.call("session/close", {"sessionId": grok})
            except CallFailed as error:
                log.warning("a session could not be closed: %s", error)

    def prompt(self, prompt_id: str, text: str) -> Mapping[str, Any]:
        """Parameters of a session/prompt, with the rules in front if Grok has lost them."""
        params: Mapping[str, Any] = {
            "sessionId": self.id,
            "prompt": [{"type": "text", "text": text}],
            "_meta": {"promptId": prompt_id},
        }
        if self._rules_due and (with_rules := prompt_with_rules(params, self._rules_due)):
            params, self._rules_due = with_rules, ""
        return params

    def replayed(self, name: str, line: EngineLine, update: Mapping[str, Any]) -> bool:
        """Whether an update belongs to the replay of a load."""
        if self.replay is None or not line.is_replay:
            return False
        if name:
            self.replay.setdefault(name, Turn(name)).update(line.session, self.id, update, {})
        return True

    # -- calls ---------------------------------------------------------------------------------

    async def _new(self, rules: str, model: str) -> None:
        binding = self.binding = Binding.new(self.session, self.cwd)
        self._owner.record(binding.record())  # a worker that takes over makes the same one
        meta = {**session_meta(self._owner.settings, rules), "sessionId": binding.grok, "modelId": model}
        self.fresh, self.model, self._effort = True, model, ""
        try:
            params = {"cwd": self.cwd, "mcpServers": [], "_meta": meta}
            await self._owner.engine.call("session/new", params)
        except CallFailed:
            self.binding = None
            raise
        self._made(binding)

    def _made(self, binding: Binding) -> None:
        binding.made = True
        self._owner.record(binding.record())

    async def _load(self, rules: str) -> tuple[dict[str, Turn], str]:
        """Load the bound session; without a binding afterwards, a new one is needed."""
        binding = self.binding
        assert binding is not None
        if not binding.made:  # its worker died before it was, or before it knew
            self.binding = None
            return {}, ""
        meta = session_meta(self._owner.settings, rules)
        params = {"sessionId": binding.grok, "cwd": binding.cwd, "mcpServers": [], "_meta": meta}
        self.replay = {}
        try:
            result = await self._try_load(params)
        except CallFailed as error:
            if error.code in PASSING:
                raise
            self.binding = None
            why = "another Pi has it open" if error.code == ErrorCode.ATTACHED_ELSEWHERE else str(error)
            self._owner.notice(f"Grok goes on in a new session, with the transcript so far: {why}.")
            return {}, ""
        finally:
            replay, self.replay = self.replay or {}, None
        self._owner.record(binding.record())
        self._rules_due, self.model, self._effort = rules, "", ""
        running = _mapping(result.get("_meta")).get("x.ai/runningPromptId")
        return replay, running if isinstance(running, str) else ""

    async def _try_load(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A Pi that has just ended may not have let go yet."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LIMITS.cancel_settle
        while True:
            try:
                return await self._owner.engine.call("session/load", params)
            except CallFailed as error:
                if error.code != ErrorCode.ATTACHED_ELSEWHERE or loop.time() > deadline:
                    raise
            await asyncio.sleep(LIMITS.reconnect)

    async def _set_options(self, model: str, effort: str) -> None:
        engine = self._owner.engine
        if model != self.model:
            await engine.call("session/set_model", {"sessionId": self.id, "modelId": model})
            self.model, self._effort = model, ""
        if effort and effort != self._effort:
            option = {"sessionId": self.id, "configId": "reasoning_effort", "value": effort}
            await engine.call("session/set_config_option", option)
            self._effort = effort


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
