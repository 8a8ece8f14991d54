"""What the engine asks: hooks, permissions, questions and plans, each answered once.

Thin: the decisions are in `capabilities`, `permissions` and `questions`.  Whatever goes wrong here ends in an
answer that lets nothing run; Grok takes no answer, and an error, for leave.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from gateway.wire import acp
from workers.pi import checks, permissions, questions
from workers.pi.binding import PRE, STOP
from workers.pi.capabilities import Capabilities, Kind, Tool, Verdict, classify, decide
from workers.pi.conversation import Conversation
from workers.pi.engine import CallFailed, Engine
from workers.pi.peer import Peer
from workers.pi.settings import PiSettings

__all__ = ["Answering"]

log = logging.getLogger(__name__)

#: Characters of a call's input in the dialog of ask mode.
_INPUT = 2000

ALLOW, DENY = "Allow", "Deny"

Answer = Mapping[str, Any]


class _Desk(Protocol):
    """What the answering needs of the provider."""

    engine: Engine
    settings: PiSettings

    def conversation_of(self, grok: str) -> Conversation | None:
        """The conversation of a Grok session or of a subagent's."""


class Answering:
    """Answers of one Pi process; `asked` starts one, `closed` ends one that is settled without us."""

    def __init__(self, desk: _Desk, peer: Peer) -> None:
        self._desk, self._peer = desk, peer
        self._open = dict[str, asyncio.Task[None]]()
        self._hints = dict[str, asyncio.Task[Mapping[str, bool]]]()  # by Grok session

    def asked(self, shown: str, method: str, params: Mapping[str, Any]) -> None:
        """A reverse request; ``shown`` is its id."""
        task = asyncio.get_running_loop().create_task(self._answer(shown, method, params))
        self._open[shown] = task
        task.add_done_callback(lambda task: self._open.pop(shown, None))

    def closed(self, shown: str) -> None:
        """Somebody else has settled it: a dialog about it goes."""
        if task := self._open.get(shown):
            task.cancel()

    def close(self) -> None:
        """The client is gone for good; the gates themselves are settled by the proxy."""
        for task in (*self._open.values(), *self._hints.values()):
            task.cancel()

    async def _answer(self, shown: str, method: str, params: Mapping[str, Any]) -> None:
        answer: Answer = _closed(method, params)
        try:
            answer = await self._decide(method, params)
        except Exception:  # a defect of ours must not let a tool run
            log.exception("a question of the engine could not be answered: %s", method)
        self._desk.engine.answer(shown, answer)

    async def _decide(self, method: str, params: Mapping[str, Any]) -> Answer:
        conversation = self._desk.conversation_of(str(params.get("sessionId")))
        if conversation is None:
            return _closed(method, params)  # a throwaway session, or one that Pi has left
        match method:
            case acp.HOOK:
                return await self._hook(conversation, params)
            case acp.PERMISSION:
                return await self._permission(conversation, params)
            case acp.QUESTION:
                return await self._questions(conversation, params)
            case acp.PLAN_APPROVAL:
                return await self._plan(conversation, params)
        return {}

    # -- hooks ---------------------------------------------------------------------------------

    async def _hook(self, conversation: Conversation, params: Mapping[str, Any]) -> Answer:
        callback = params.get("hookCallbackId")
        if callback == PRE:
            return await self._pre_tool(conversation, params)
        if callback == STOP:
            command = self._desk.settings.stop_check
            if params.get("reason") != "end_turn" or not command:
                return {"decision": "continue"}
            why = await checks.stop(command, conversation.cwd, self._desk.settings.limits.check)
            return {"decision": "block", "reason": why} if why else {"decision": "continue"}
        return await self._post_tool(conversation, params)

    async def _pre_tool(self, conversation: Conversation, params: Mapping[str, Any]) -> Answer:
        name, call_id = str(params.get("toolName") or ""), str(params.get("toolUseId") or "")
        # The window of a disconnected Pi: whoever may not come back cannot agree.
        if not await self._peer.present():
            return self._denied(conversation, call_id, "Pi is not connected to the gateway.")
        call = conversation.call(call_id)
        tool = classify(name, call.stamp if call else None, params.get("toolInput"))
        verdict = await self._verdict(conversation, tool)
        if verdict.answer == "ask":
            verdict = await self._ask_leave(conversation, tool, call_id, params.get("toolInput"))
        if verdict.answer == "allow":
            return {"decision": "allow"}
        return self._denied(conversation, call_id, verdict.reason)

    async def _verdict(self, conversation: Conversation, tool: Tool) -> Verdict:
        settings = self._desk.settings
        hinted = False
        if tool.kind is Kind.MCP and settings.mode != "yolo":
            hinted = (await self._hints_of(conversation.grok.id)).get(tool.name, False)
        return decide(
            tool,
            settings.mode,
            Capabilities.of(conversation.active, settings.mode),
            deny=settings.deny,
            allow=settings.allow,
            mcp_read_only=settings.mcp_read_only,
            hinted_read_only=hinted,
            ui=self._peer.ui,
        )

    async def _ask_leave(
        self, conversation: Conversation, tool: Tool, call_id: str, tool_input: Any
    ) -> Verdict:
        text = (
            tool_input
            if isinstance(tool_input, str)
            else json.dumps(tool_input, ensure_ascii=False, indent=1)
        )
        text = text if len(text) <= _INPUT else text[:_INPUT] + "…"
        args = {"title": f"Grok wants to run {tool.name}\n{text}", "options": [ALLOW, DENY]}
        answer = await self._peer.ask(
            conversation.session, f"hook:{call_id}", "select", args, self._desk.settings.limits.dialog
        )
        if answer.get("value") == ALLOW:
            conversation.allowed.append(call_id)
            return Verdict("allow")
        if answer.get("value") == DENY or answer.get("cancelled"):
            return Verdict("deny", f"The user does not want {tool.name} to run.")
        return Verdict("deny", f"Nobody was there to agree to {tool.name}.")

    def _denied(self, conversation: Conversation, call_id: str, reason: str) -> Answer:
        conversation.denied(call_id, reason)
        return {"decision": "deny", "reason": reason}

    async def _post_tool(self, conversation: Conversation, params: Mapping[str, Any]) -> Answer:
        call_id = str(params.get("toolUseId") or "")
        call = conversation.call(call_id)
        tool = classify(str(params.get("toolName") or ""), call.stamp if call else None)
        file = (
            checks.edited_file(params.get("toolInput"), conversation.cwd) if tool.kind is Kind.WRITE else None
        )
        if file is None:
            return {"decision": "continue"}
        settings = self._desk.settings
        context = await checks.post_edit(
            settings.post_edit_check, file, conversation.cwd, settings.limits.post_edit
        )
        if not context:
            return {"decision": "continue"}
        if call is not None:
            call.hook_context = context
        return {"decision": "continue", "additionalContext": context}

    # -- permissions ---------------------------------------------------------------------------

    async def _permission(self, conversation: Conversation, params: Mapping[str, Any]) -> Answer:
        settings = self._desk.settings
        call = params.get("toolCall")
        call_id = str(call.get("toolCallId")) if isinstance(call, dict) else ""
        if settings.mode == "yolo" or call_id in conversation.allowed:
            return permissions.with_kind(params, "allow_once")
        if not await self._peer.present():
            return permissions.headless(params, "deny")
        if not self._peer.ui:
            return permissions.headless(params, settings.headless)
        args, answers = permissions.dialog_of(params)
        answer = await self._peer.ask(
            conversation.session, f"perm:{call_id}", "select", args, settings.limits.dialog
        )
        if answer.get("unavailable"):
            return permissions.headless(params, "deny")
        return answers.get(str(answer.get("value")), permissions.CANCELLED)

    async def _questions(self, conversation: Conversation, params: Mapping[str, Any]) -> Answer:
        interview = questions.Interview(params)
        while interview.outcome is None:
            prompt = interview.next()
            answer = await self._peer.ask(
                conversation.session,
                f"ask:{params.get('toolCallId')}:{prompt.key}",
                prompt.kind,
                prompt.args,
                self._desk.settings.limits.dialog,
            )
            value = answer.get("value")
            interview.answered(value if isinstance(value, str) else None)
        return interview.outcome

    async def _plan(self, conversation: Conversation, params: Mapping[str, Any]) -> Answer:
        answer = await self._peer.ask(
            conversation.session,
            f"plan:{params.get('toolCallId')}",
            "select",
            questions.plan_dialog(params),
            self._desk.settings.limits.dialog,
        )
        value = answer.get("value")
        return questions.plan_outcome(value if isinstance(value, str) else None)

    # -- what MCP tools say of themselves --------------------------------------------------------

    async def _hints_of(self, grok: str) -> Mapping[str, bool]:
        """readOnlyHint by tool name; asked once for a session, unknown counts as no."""
        task = self._hints.get(grok)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask_hints(grok))
            self._hints[grok] = task
        try:
            async with asyncio.timeout(self._desk.settings.limits.policy):
                return await asyncio.shield(task)
        except TimeoutError:
            return {}

    async def _ask_hints(self, grok: str) -> Mapping[str, bool]:
        try:
            result = await self._desk.engine.call("_x.ai/mcp/list", {"sessionId": grok})
        except CallFailed as error:
            log.warning("MCP tools are not known: %s", error)
            del self._hints[grok]
            return {}
        return mcp_hints(result)


def mcp_hints(result: Mapping[str, Any]) -> dict[str, bool]:
    """Which tools of an ``_x.ai/mcp/list`` say that they only read, by ``<server>__<tool>``."""
    inner = result.get("result")
    servers = (inner if isinstance(inner, dict) else result).get("servers")
    hints = dict[str, bool]()
    for server in servers if isinstance(servers, list) else ():
        session = server.get("session") if isinstance(server, dict) else None
        tools = session.get("tools") if isinstance(session, dict) else None
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict):
                hints[f"{server.get('name')}__{tool.get('name')}"] = _hint(tool)
    return hints


def _hint(tool: Mapping[str, Any]) -> bool:
    meta = tool.get("_meta") if isinstance(tool.get("_meta"), dict) else tool.get("meta")
    annotations = tool.get("annotations")
    return any(
        isinstance(place, dict) and place.get(name) is True
        for place in (meta, annotations)
        for name in ("readOnlyHint", "pi/readOnly")
    )


def _closed(method: str, params: Mapping[str, Any]) -> Answer:
    """The answer that lets nothing run."""
    if method == acp.HOOK:
        if params.get("hookCallbackId") == PRE:
            return {"decision": "deny", "reason": "Nothing may run in this session."}
        return {"decision": "continue"}
    if method == acp.PERMISSION:
        return permissions.with_kind(params, "reject_once")
    return questions.CANCELLED
