"""The vendor's methods beside ACP's own, ``_x.ai/…``: what a client may ask a session or the agent.

Most answers stand in a ``result`` of their own inside the message's; those that do not are marked so in
the table.  The names come with an underscore; without it they are no methods, as in the original.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from harness.acp import INTERNAL_ERROR, AcpError, invalid_params, method_not_found
from harness.session.commands import COMMANDS
from harness.session.prompt import Prompt

if TYPE_CHECKING:
    from harness.agent import Agent

__all__ = ["extension"]

_PREFIX = "_x.ai/"

Method = Callable[["Agent", Mapping[str, Any]], Awaitable[Any]]


async def extension(agent: Agent, method: str, params: Mapping[str, Any], is_request: bool) -> Any:
    """Do what a method outside of ACP asks for.  Raises AcpError."""
    if not method.startswith(_PREFIX):
        raise method_not_found()
    name = method.removeprefix("_")
    if name in _WRAPPED:
        return {"result": await _WRAPPED[name](agent, params)}
    if name in _BARE:
        return await _BARE[name](agent, params)
    if not is_request and name in _NOTICES:
        return await _NOTICES[name](agent, params)
    if name.startswith(_OF_THE_WORKSPACE):
        return {"result": await _workspace(agent, name.removeprefix("x.ai/"), params)}
    raise method_not_found(f"unknown ACP extension method: {name}")


# -- turns -----------------------------------------------------------------------------------------


async def _interject(agent: Agent, params: Mapping[str, Any]) -> dict[str, Any]:
    session_id, text = params.get("sessionId"), params.get("text")
    held = agent.sessions.get(str(session_id))
    if held is None:
        raise invalid_params(f"session not found: {session_id}")
    if not isinstance(text, str):
        raise invalid_params("missing field `text`")
    interjection = params.get("interjectionId")
    # Said behind the answer, which tells that it is on its way.
    said = str(interjection) if interjection is not None else None
    agent.say_later(lambda: held.actor.interject(text, said))
    return {"status": "queued"}


async def _compact(agent: Agent, params: Mapping[str, Any]) -> dict[str, Any]:
    """As the command, with its place in the queue."""
    session_id = params.get("sessionId", params.get("session_id"))
    focus = params.get("userContext")
    text = f"/compact {focus}" if isinstance(focus, str) and focus.strip() else "/compact"
    outcome = await agent.held({"sessionId": session_id}).actor.prompt(Prompt(text, text))
    if outcome.error is not None:
        raise AcpError(*outcome.error)
    return {}


# -- what is known ---------------------------------------------------------------------------------


async def _info(agent: Agent, params: Mapping[str, Any]) -> dict[str, Any]:
    held = agent.sessions.get(str(params.get("sessionId")))
    if held is None:
        return {}
    actor, endpoint = held.actor, held.actor.endpoint
    used = actor.context_tokens
    return {
        "cwd": held.cwd,
        "sessionId": actor.id,
        "agentName": "grok-build-plan",
        "model": endpoint.model,
        "modelDisplayName": endpoint.name,
        "apiBackend": "ChatCompletions",
        "turns": actor.turns,
        "context": {
            "used": used,
            "total": endpoint.context_window,
            "freeTokens": max(0, endpoint.context_window - used),
            "usagePct": min(100, -(-used * 100 // endpoint.context_window)),
            "toolDefinitionsCount": len(actor.tool_names),
            "turnCount": actor.turns,
            "messageCount": actor.messages,
        },
    }


async def _usage(agent: Agent, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"usage": agent.held(params).actor.total.report()}


async def _sessions(agent: Agent, params: Mapping[str, Any]) -> dict[str, Any]:
    """Those in memory, and behind them those that rest on disk."""
    from harness.roster import dormant

    kept = await agent.residents.kept()
    rows = [{**agent.residents.row(i), "title": held.actor.title} for i, held in agent.sessions.items()]
    return {"sessions": rows + [dormant(summary) for summary in kept if summary.id not in agent.sessions]}


async def _session_list(agent: Agent, params: Mapping[str, Any]) -> Any:
    return await agent.listed(params, more=True)


async def _updates(agent: Agent, params: Mapping[str, Any]) -> Any:
    from harness.roster import history_page

    entries = await agent.residents.history(str(params.get("sessionId")), str(params.get("cwd")))
    return history_page(entries, params)


async def _close(agent: Agent, params: Mapping[str, Any]) -> Any:
    return await agent.handle("session/close", params, True)


async def _delete(agent: Agent, params: Mapping[str, Any]) -> Any:
    await agent.handle("session/delete", params, True)
    return {"success": True}


async def _models(agent: Agent, params: Mapping[str, Any]) -> dict[str, Any]:
    held = agent.sessions.get(str(params.get("sessionId")))
    return agent.models(held.actor.endpoint if held else agent.default_endpoint())


async def _commands(agent: Agent, params: Mapping[str, Any]) -> dict[str, Any]:
    held = agent.sessions.get(str(params.get("sessionId")))
    return {"commands": list(COMMANDS), "tools": held.actor.tool_names if held else []}


async def _mcp(agent: Agent, params: Mapping[str, Any]) -> dict[str, Any]:
    session_id = str(params.get("sessionId"))
    if session_id not in agent.sessions:
        return {"servers": []}
    return {"servers": agent.residents.assembly.servers(session_id), "sessionMcpResolved": True}


async def _update_mcp(agent: Agent, params: Mapping[str, Any]) -> dict[str, Any]:
    """Other servers for a session, and no others than these."""
    session_id, servers = agent.held(params).actor.id, params.get("mcpServers")
    if not isinstance(servers, list):
        raise invalid_params("missing field `mcpServers`")
    meta = params.get("_meta")
    wishes = meta if isinstance(meta, dict) else {}
    agent.say_later(lambda: agent.residents.assembly.serve(session_id, servers, wishes))
    return {"ok": True}


async def _rename(agent: Agent, params: Mapping[str, Any]) -> dict[str, Any]:
    title = params.get("title")
    if not isinstance(title, str):
        raise invalid_params("missing field `title`")
    held = agent.held(params)
    agent.say_later(lambda: held.actor.rename(title))
    return {"success": True}


# -- the workspace ---------------------------------------------------------------------------------

_OF_THE_WORKSPACE = ("x.ai/git/", "x.ai/hunk-tracker/")


async def _workspace(agent: Agent, name: str, params: Mapping[str, Any]) -> Any:
    """Repository and hunks of a session."""
    from harness.workspace.service import METHODS
    from harness.workspace.vcs import GitError

    if name not in METHODS:
        raise method_not_found()
    try:
        return await METHODS[name](agent.held(params).actor.workspace, params)
    except ValueError as error:
        raise invalid_params(f"invalid params: {error}") from error
    except (GitError, OSError) as error:
        raise AcpError(INTERNAL_ERROR, "Internal error", str(error)) from error


async def _rewind_points(agent: Agent, params: Mapping[str, Any]) -> dict[str, Any]:
    from harness.workspace.service import rewind_points

    return rewind_points(agent.held(params).actor.workspace)


# -- tasks -----------------------------------------------------------------------------------------


async def _tasks(agent: Agent, params: Mapping[str, Any]) -> dict[str, Any]:
    return {"tasks": [task.wire() for task in agent.held(params).actor.tasks()]}


async def _kill(agent: Agent, params: Mapping[str, Any]) -> dict[str, Any]:
    task_id = params.get("taskId")
    if not isinstance(task_id, str):
        raise invalid_params("missing field `taskId`")
    return {"taskId": task_id, "outcome": await agent.held(params).actor.kill_task(task_id)}


async def _background(agent: Agent, params: Mapping[str, Any]) -> dict[str, Any]:
    """The user sends a running command to the background."""
    return {"backgrounded": agent.held(params).actor.send_to_background(str(params.get("toolCallId")))}


# -- the queue -------------------------------------------------------------------------------------


async def _queue_remove(agent: Agent, params: Mapping[str, Any]) -> None:
    agent.held(params).actor.remove_queued(str(params.get("id")), _version(params))


async def _queue_edit(agent: Agent, params: Mapping[str, Any]) -> None:
    text = params.get("newText")
    if isinstance(text, str):
        agent.held(params).actor.edit_queued(str(params.get("id")), text, _version(params))


async def _queue_reorder(agent: Agent, params: Mapping[str, Any]) -> None:
    ids = params.get("orderedIds")
    agent.held(params).actor.reorder_queue([str(i) for i in ids] if isinstance(ids, list) else [])


async def _queue_clear(agent: Agent, params: Mapping[str, Any]) -> None:
    agent.held(params).actor.clear_queue()


def _version(params: Mapping[str, Any]) -> int | None:
    version = params.get("expectedVersion")
    return version if isinstance(version, int) else None


_WRAPPED: Mapping[str, Method] = {
    "x.ai/interject": _interject,
    "x.ai/session/info": _info,
    "x.ai/sessions/list": _sessions,
    "x.ai/session/list": _session_list,
    "x.ai/models/list": _models,
    "x.ai/mcp/list": _mcp,
    "x.ai/session/update_mcp_servers": _update_mcp,
    "x.ai/task/list": _tasks,
    "x.ai/task/kill": _kill,
    "x.ai/terminal/background": _background,
}
_BARE: Mapping[str, Method] = {
    "x.ai/session/usage": _usage,
    "x.ai/compact_conversation": _compact,
    "x.ai/session/rename": _rename,
    "x.ai/session/updates": _updates,
    "x.ai/session/close": _close,
    "x.ai/session/delete": _delete,
    "x.ai/commands/list": _commands,
    "x.ai/rewind/points": _rewind_points,
}
_NOTICES: Mapping[str, Method] = {
    "x.ai/queue/remove": _queue_remove,
    "x.ai/queue/edit": _queue_edit,
    "x.ai/queue/reorder": _queue_reorder,
    "x.ai/queue/clear": _queue_clear,
}
