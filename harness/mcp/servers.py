"""The MCP servers of one session: connected beside its work, their tools offered while they are there.

A client names them when it opens the session, and others when it loads it again.  Nothing of a session waits
for a server, except a turn for a moment; what becomes of each is told to the client, and to the model with
the next prompt.  Two sessions never share a connection, even to one address.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from harness.foreign import ForeignTool, ToolServers
from harness.limits import LIMITS
from harness.mcp.config import HttpServer, Server, StdioServer, Unusable, read_servers
from harness.mcp.connection import Connection, Lost, Receive, Transport
from harness.mcp.protocol import Failing, McpError, RemoteTool, qualified
from harness.mcp.results import tool_output
from harness.mcp.stdio import StdioTransport
from harness.mcp.streamable import HttpTransport
from harness.outcome import FaultKind, ToolFault, ToolOutput
from harness.registry.contract import CallContext, ToolKind

__all__ = ["SessionServers"]

_LOG = logging.getLogger("mcp")

_FAULTS = {
    Failing.TIMEOUT: FaultKind.TIMEOUT,
    Failing.AUTH: FaultKind.UNAUTHORIZED,
    Failing.ERROR: FaultKind.EXECUTION,
}


class Bridge(Protocol):
    """Where tools of servers are put."""

    def serve(self, server: str, tools: Sequence[ForeignTool]) -> None: ...
    def tool_name(self, kind: ToolKind) -> str: ...
    def tool_servers(self) -> ToolServers: ...


@dataclasses.dataclass(eq=False)
class _Served:
    """One entry of a session's list and what became of it."""

    entry: Server | Unusable
    connection: Connection | None = None
    status: str = "initializing"  #: ready, unavailable
    why: str = ""
    auth: bool = False
    tools: tuple[RemoteTool, ...] = ()
    work: asyncio.Task[None] | None = None  #: connecting, or reading the tools again
    awaited: bool = False  #: by a turn
    stale: bool = False  #: its tools have changed since they were asked for

    @property
    def name(self) -> str:
        return self.entry.name

    def news(self) -> tuple[str, ...]:
        """What the model knows of it, to see whether that has changed."""
        return (self.status, self.why, *(tool.name for tool in self.tools))


class SessionServers:
    """``notify`` tells the session's client, ``announce`` that the tools are others."""

    def __init__(
        self,
        session_id: str,
        cwd: str,
        folder: Path,
        environ: Mapping[str, str],
        bridge: Bridge,
        notify: Callable[[str, Mapping[str, Any]], None],
        announce: Callable[[], None],
    ) -> None:
        self._id, self._cwd, self._folder, self._environ = session_id, cwd, folder, environ
        self._bridge, self._notify, self._announce = bridge, notify, announce
        self._config: Mapping[str, Any] = {}  # the client's newest word on times
        self._served = dict[str, _Served]()
        self._told = dict[str, tuple[str, ...]]()  # to the model
        self._patient = False  # nobody looks on: the first turn is to have all tools
        self._tasks = set[asyncio.Task[None]]()
        self._endings = set[asyncio.Task[None]]()  # never cancelled: a process must be seen to its end
        known = bridge.tool_servers()
        known.connecting, known.seek = self._connecting, self._seek

    # -- the client ------------------------------------------------------------------------------
    def use(self, entries: Sequence[object], meta: Mapping[str, Any], *, anew: bool = True) -> None:
        """Have these servers and no others; those that stay as they are keep their connection.

        ``anew``: the session was opened, and its client waits to hear even that there are none.
        """
        config, hints = meta.get("mcpConfig"), meta.get("startupHints")
        self._config = config if isinstance(config, dict) else self._config
        if isinstance(hints, dict) and hints.get("nonInteractive") is True:
            self._patient = True
        wanted = dict[str, Server | Unusable]()
        for one in read_servers(entries, self._config, self._id):
            if one is not wanted.setdefault(one.name, one) and isinstance(one, Unusable):
                self._unavailable(_Served(one), "invalid_config", one.why)
        gone = [held for held in self._served.values() if wanted.get(held.name) != held.entry]
        for held in gone:
            self._remove(held)
        fresh = [_Served(entry) for name, entry in wanted.items() if name not in self._served]
        self._served |= {held.name: held for held in fresh}
        if fresh:
            self._progress(len(fresh), 0)
            for held in fresh:
                held.work = self._spawn(self._connect(held))
            self._spawn(self._follow(fresh))
        elif gone or anew or self._served:
            self._initialized(0)

    def rows(self) -> list[dict[str, Any]]:
        """The servers as a client's list shows them."""
        return [_row(one) for one in self._served.values()]

    async def close(self) -> None:
        """End all connections and processes; bounded by the transports."""
        working = tuple(self._tasks)
        for task in working:
            task.cancel()
        for one in self._served.values():
            self._end(one)
        self._served.clear()
        await asyncio.gather(*working, *self._endings, return_exceptions=True)

    # -- turns -----------------------------------------------------------------------------------
    async def ready(self) -> str:
        """Wait a moment for servers that still connect; what the model has not heard of them."""
        new = [one for one in self._served.values() if not one.awaited]
        if working := [one.work for one in new if one.work is not None]:
            await asyncio.wait(working, timeout=LIMITS.mcp_startup if self._patient else LIMITS.mcp_turn)
        for one in new:
            one.awaited = True  # a slow one must not hold up each turn
        now = {name: one.news() for name, one in self._served.items()}
        gone = sorted(self._told.keys() - now.keys())
        changed = [one for name, one in self._served.items() if self._told.get(name) != now[name]]
        self._told = now
        return self._news(changed, gone) if changed or gone else ""

    def _news(self, changed: Sequence[_Served], gone: Sequence[str]) -> str:
        search, use = (self._bridge.tool_name(kind) for kind in (ToolKind.SEARCH_TOOL, ToolKind.USE_TOOL))
        lines = ["Servers with further tools:"]
        for one in changed:
            if one.status == "ready":
                said = one.connection.instructions if one.connection else ""
                lines.append(f"- {one.name}: connected, {len(one.tools)} tools{f'. {said}' if said else ''}")
            elif one.status == "unavailable":
                lines.append(f"- {one.name}: not available: {one.why}")
            else:
                lines.append(f"- {one.name}: still connecting")
        lines += [f"- {name}: removed, with its tools" for name in gone]
        if search and use:
            lines.append(
                f"`{search}` finds their tools and shows what each takes; call them through `{use}` with "
                "arguments that fit what was shown."
            )
        return "<system-reminder>\n" + "\n".join(lines) + "\n</system-reminder>"

    # -- connecting ------------------------------------------------------------------------------
    async def _follow(self, fresh: Sequence[_Served]) -> None:
        """Tell how far the connecting is, and when it is over."""
        began = time.monotonic()
        working = {one.work for one in fresh if one.work is not None}
        while working:
            done, working = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
            for one in fresh:
                if one.work in done and one.work is not None and not one.work.cancelled():
                    self._settled(one, one.work.exception())
            self._progress(len(fresh), len(fresh) - len(working))
        self._initialized(time.monotonic() - began)
        if any(one.tools for one in fresh):
            self._announce()

    def _settled(self, one: _Served, error: BaseException | None) -> None:
        """A failure of our own must not look like a server that still connects."""
        if error is not None:
            _LOG.error("session %s: connecting a server broke", self._id, exc_info=error)
            self._unavailable(one, "handshake_failed", f"an error of the engine ({type(error).__name__})")

    async def _connect(self, one: _Served) -> None:
        if isinstance(one.entry, Unusable):
            self._unavailable(one, "invalid_config", one.entry.why)
            return
        one.connection = Connection(
            one.entry,
            self._transport(one.entry),
            tools_changed=functools.partial(self._tools_changed, one),
            reached=functools.partial(self._reached, one),
        )
        await self._read_tools(one)
        if one.stale:
            await self._read_again(one)

    async def _read_tools(self, one: _Served) -> None:
        assert one.connection is not None
        one.stale = False
        try:
            tools = await one.connection.tools()
        except McpError as error:
            self._unavailable(one, "handshake_failed", str(error), auth=error.kind is Failing.AUTH)
            return
        if self._served.get(one.name) is not one:
            return  # removed meanwhile
        usable = [tool for tool in tools if qualified(one.name, tool.name) is not None]
        other = one.status == "ready" and one.tools != tuple(usable)
        one.tools = tuple(usable)
        offered = [self._foreign(one, tool) for tool in usable if not tool.hidden]
        self._bridge.serve(one.name, offered)
        if one.status != "ready":
            self._tell(one, "ready", "initialized")
        if other:
            self._announce()

    async def _read_again(self, one: _Served) -> None:
        one.stale = True
        while one.stale:
            await asyncio.sleep(LIMITS.mcp_gather)
            await self._read_tools(one)

    def _foreign(self, one: _Served, tool: RemoteTool) -> ForeignTool:
        name = qualified(one.name, tool.name)
        assert name is not None, "the others were left out"
        run = functools.partial(self._run, one, tool.name)
        return ForeignTool(name, tool.schema, run, description=tool.description, server=one.name)

    def _transport(self, server: Server) -> Callable[[Receive, Lost], Transport]:
        if isinstance(server, HttpServer):
            return lambda receive, _: HttpTransport(server, receive)
        env = server.environment(self._environ, self._id)
        return lambda receive, lost: StdioTransport(server, env, self._cwd, receive, lost)

    def _remove(self, one: _Served) -> None:
        del self._served[one.name]
        self._bridge.serve(one.name, ())
        if one.work is not None:
            one.work.cancel()
        self._end(one)
        self._tell(one, "unavailable", "config_removed")

    def _end(self, one: _Served) -> None:
        if one.connection is not None:
            self._keep(one.connection.close(), self._endings)

    # -- what becomes of a server ----------------------------------------------------------------
    def _reached(self, one: _Served, error: McpError | None) -> None:
        """A connection was made, or could not be; the first one is told with its tools."""
        if error is None and one.status == "unavailable" and (one.work is None or one.work.done()):
            self._tools_changed(one)
        elif error is not None and one.status == "ready":
            self._unavailable(one, "handshake_failed", str(error), auth=error.kind is Failing.AUTH)

    def _tools_changed(self, one: _Served) -> None:
        """Read the tools again."""
        if one.work is not None and not one.work.done():
            one.stale = True
        elif self._served.get(one.name) is one:
            one.work = self._spawn(self._read_again(one))

    def _unavailable(self, one: _Served, reason: str, why: str, *, auth: bool = False) -> None:
        one.why, one.auth = why, auth
        self._tell(one, "unavailable", reason, why)

    def _tell(self, one: _Served, status: str, reason: str, detail: str = "") -> None:
        one.status = status
        if status == "ready":
            one.why, one.auth = "", False
        about = {"name": one.name, "source": "local", "status": status, "reason": reason}
        more = {"detail": detail} if detail else {}
        told = {"sessionId": self._id, **about, **more, "tools": None}
        self._notify("_x.ai/mcp/server_status", told)

    def _initialized(self, seconds: float) -> None:
        count = sum(len(one.tools) for one in self._served.values())
        told = {"sessionId": self._id, "mcpToolCount": count, "elapsedMs": int(seconds * 1000)}
        self._notify("_x.ai/mcp_initialized", told)

    def _progress(self, total: int, settled: int) -> None:
        told = {"total": total, "connected": settled, "sessionId": self._id}
        self._notify("_x.ai/mcp/init_progress", told)

    # -- calls -----------------------------------------------------------------------------------
    def _connecting(self) -> Sequence[str]:
        return [one.name for one in self._served.values() if one.status == "initializing"]

    async def _seek(self, name: str) -> str:
        """A tool that is not there: wait for its server, or try that once more; why it is still not there."""
        one = self._served.get(name.partition("__")[0])
        if one is None:
            return ""
        if one.status == "unavailable" and one.connection is not None:
            self._tools_changed(one)
        if one.status != "ready" and one.work is not None and one.connection is not None:
            await asyncio.wait((one.work,), timeout=one.connection.server.times.startup)
        return f"The server `{one.name}` is not available: {one.why}" if one.why else ""

    async def _run(
        self, one: _Served, tool: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolOutput:
        assert one.connection is not None
        try:
            result = await one.connection.call(tool, arguments)
        except McpError as error:
            kind = _FAULTS.get(error.kind, FaultKind.NETWORK)
            raise ToolFault(kind, f"the server `{one.name}` gave no result: {error}") from None
        folder = self._folder / "mcp"
        return await asyncio.to_thread(tool_output, one.name, tool, result, context.call_id, folder)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._keep(work, self._tasks)

    @staticmethod
    def _keep(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task


def _row(one: _Served) -> dict[str, Any]:
    session: dict[str, Any] = {"enabled": True, "status": one.status}
    if one.tools:
        session["tools"] = [_shown(tool) for tool in sorted(one.tools, key=lambda tool: tool.name)]
    if one.auth:
        session["authRequired"] = True
    transport = "stdio" if isinstance(one.entry, StdioServer) else "http"
    return {"name": one.name, "source": "local", "type": transport, "session": session}


def _shown(tool: RemoteTool) -> dict[str, Any]:
    meta = {"_meta": dict(tool.meta)} if tool.meta else {}
    return {"name": tool.name, "description": tool.description, **meta, "enabled": True}
