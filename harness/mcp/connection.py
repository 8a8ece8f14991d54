"""One server of a session: connected, asked, and connected again when it was lost.

A `Link` is one life of a connection: a transport that was opened and shaken hands with, and the requests that
wait on it.  A `Connection` has one link at a time and makes the next one when it is needed.

A call is made a second time only where the first cannot have been answered: the server could not be
reached, did not know the session any more, or closed without a byte of an answer.  Whoever serves lent tools
passes them to another process that way.  An error that a server reports is its answer and is not asked for
again.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from harness.limits import LIMITS, SIZES
from harness.mcp import protocol
from harness.mcp.config import Server
from harness.mcp.protocol import Asked, Failing, Hello, McpError, RemoteTool, Reply
from harness.model.errors import redacted

__all__ = ["Connection", "Transport"]

T = TypeVar("T")

_AGAIN = frozenset({Failing.ABSENT, Failing.DROPPED, Failing.EXPIRED})
#: Failures of a request that leave the link as it is.
_ALIVE = frozenset({Failing.ERROR, Failing.TIMEOUT, Failing.REFUSED, Failing.AUTH})


class Transport(Protocol):
    """See `harness.mcp.stdio` and `harness.mcp.streamable`; all but ``inline`` may raise McpError."""

    inline: bool

    async def open(self) -> None: ...
    def negotiated(self, version: str) -> None: ...
    def listen(self) -> None: ...
    async def send(self, message: Mapping[str, Any]) -> None: ...
    async def close(self) -> None: ...


Receive = Callable[[object], None]
Lost = Callable[[McpError], None]


class Link:
    """One life of a connection."""

    def __init__(self, make: Callable[[Receive, Lost], Transport], tools_changed: Callable[[], None]) -> None:
        self._transport = make(self._take, self.lose)
        self._tools_changed = tools_changed
        self._ids = itertools.count()
        self._open = dict[int, asyncio.Future[Reply]]()
        self._errands = set[asyncio.Task[None]]()
        self._lost: McpError | None = None
        self.hello = Hello("", "")

    @property
    def alive(self) -> bool:
        return self._lost is None

    async def greet(self, server: str) -> None:
        """Open the transport and shake hands.  Raises McpError."""
        await self._transport.open()
        result = await self.request("initialize", protocol.initialize(server), LIMITS.mcp_longest)
        self.hello = protocol.read_hello(result)
        self._transport.negotiated(self.hello.version)
        await self._transport.send(protocol.notification("notifications/initialized"))
        self._transport.listen()

    async def request(self, method: str, params: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
        """The result.  Raises McpError; a request that is given up is called off at the server."""
        if self._lost is not None:
            raise self._lost
        number = next(self._ids)
        answer = self._open[number] = asyncio.get_running_loop().create_future()
        sending = asyncio.ensure_future(self._transport.send(protocol.request(number, method, params)))
        try:
            async with asyncio.timeout(seconds):
                await asyncio.wait((answer, sending), return_when=asyncio.FIRST_COMPLETED)
                if not answer.done():
                    sending.result()
                    if self._transport.inline:
                        raise McpError(Failing.BROKEN, "its answer ended without a result")
                return protocol.read_reply(await answer)
        except TimeoutError:
            self._call_off(number, method, "it took too long")
            raise McpError(Failing.TIMEOUT, f"no answer within {seconds:g} s") from None
        except asyncio.CancelledError:
            self._call_off(number, method, "client cancelled")
            raise
        except McpError as error:
            if error.kind not in _ALIVE:
                self.lose(error)
            raise
        finally:
            del self._open[number]
            for future in (answer, sending):
                if not future.cancel() and not future.cancelled():
                    future.exception()  # seen: another failure came first

    def lose(self, error: McpError) -> None:
        """There will be no more answers on this link."""
        self._lost = self._lost or error
        for answer in self._open.values():
            if not answer.done():
                answer.set_exception(error)

    async def close(self) -> None:
        self.lose(McpError(Failing.BROKEN, "the session has closed its connection"))
        for errand in self._errands:
            errand.cancel()
        await self._transport.close()

    # -- what the server says by itself ----------------------------------------------------------
    def _take(self, value: object) -> None:
        for message in protocol.incoming(value):
            if isinstance(message, Reply):
                answer = self._open.get(message.id) if type(message.id) is int else None
                if answer is not None and not answer.done():
                    answer.set_result(message)
            elif isinstance(message, Asked):
                self._send_aside(protocol.response(message))
            elif message.method == "notifications/tools/list_changed":
                self._tools_changed()

    def _call_off(self, number: int, method: str, reason: str) -> None:
        if method != "initialize" and self.alive:
            self._send_aside(protocol.cancelled(number, reason))

    def _send_aside(self, message: Mapping[str, Any]) -> None:
        """Send something that nobody waits for; a server that asks without end gets no answers."""
        if len(self._errands) < SIZES.mcp_errands:
            errand = asyncio.get_running_loop().create_task(self._aside(message))
            self._errands.add(errand)
            errand.add_done_callback(self._errands.discard)

    async def _aside(self, message: Mapping[str, Any]) -> None:
        try:
            async with asyncio.timeout(LIMITS.mcp_notice):
                await self._transport.send(message)
        except (McpError, TimeoutError):
            pass  # whether the server lives shows at the next call


class Connection:
    """The server, whichever link leads to it.

    ``tools_changed``: the server says that it has other tools.  ``reached(error)``: a link was made, or why
    it was not.
    """

    def __init__(
        self,
        server: Server,
        make: Callable[[Receive, Lost], Transport],
        *,
        tools_changed: Callable[[], None] = lambda: None,
        reached: Callable[[McpError | None], None] = lambda _: None,
    ) -> None:
        self.server = server
        self._make, self._tools_changed, self._reached = make, tools_changed, reached
        self._link: Link | None = None
        self._making = asyncio.Lock()
        self._ends = set[asyncio.Task[None]]()
        self._closed = False

    @property
    def instructions(self) -> str:
        return self._link.hello.instructions if self._link else ""

    async def tools(self) -> list[RemoteTool]:
        """All tools of the server, connected if need be.  Raises McpError."""
        async with self._told(self.server.times.startup):
            return await self._twice(self._listed)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result of a tool, errors of its own work among it.  Raises McpError."""
        params = {"name": tool, "arguments": dict(arguments)}
        seconds = self.server.times.of_call(tool)
        async with self._told(seconds + self.server.times.startup):
            return await self._twice(lambda link: link.request("tools/call", params, seconds))

    async def close(self) -> None:
        """End the link and what is being ended; bounded by the transports."""
        self._closed = True
        link, self._link = self._link, None
        if link is not None:
            self._end(link)
        if self._ends:
            await asyncio.wait(tuple(self._ends))

    def _told(self, seconds: float) -> _Told:
        return _Told(seconds, self.server)

    async def _twice(self, ask: Callable[[Link], Awaitable[T]]) -> T:
        """Ask, and once more where the first time cannot have been answered."""
        link = await self._linked()
        try:
            return await ask(link)
        except McpError as error:
            if error.kind not in _AGAIN:
                raise
        return await ask(await self._linked())

    async def _linked(self) -> Link:
        """A link that lives; made anew when the last one was lost.  Raises McpError."""
        async with self._making:
            if self._closed:
                raise McpError(Failing.BROKEN, "its session has ended")
            if self._link is not None and self._link.alive:
                return self._link
            if self._link is not None:
                self._end(self._link)
            link = self._link = Link(self._make, self._tools_changed)
            try:
                async with asyncio.timeout(self.server.times.startup):
                    await link.greet(self.server.name)
            except TimeoutError:
                error = McpError(Failing.TIMEOUT, f"no handshake within {self.server.times.startup:g} s")
                self._give_up(link, error)
                raise error from None
            except McpError as error:
                self._give_up(link, error)
                raise
            except asyncio.CancelledError:
                link.lose(McpError(Failing.BROKEN, "connecting was given up"))
                raise
            self._reached(None)
            return link

    def _give_up(self, link: Link, error: McpError) -> None:
        link.lose(error)
        self._end(link)
        self._link = None
        self._reached(_clean(error, self.server))

    def _end(self, link: Link) -> None:
        """Close a link beside what goes on: a process may take its time."""
        self._spawn(link.close())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    @staticmethod
    async def _listed(link: Link) -> list[RemoteTool]:
        tools, cursor = dict[str, RemoteTool](), ""
        for _ in range(SIZES.mcp_pages):
            params = {"cursor": cursor} if cursor else {}
            page, following = protocol.read_tools(
                await link.request("tools/list", params, LIMITS.mcp_longest)
            )
            tools |= {tool.name: tool for tool in page}
            if not following or following == cursor or len(tools) >= SIZES.mcp_tools:
                break
            cursor = following
        return list(tools.values())[: SIZES.mcp_tools]


class _Told:
    """Bounds what is done with a server, and cleans what is said of its failure of secrets."""

    def __init__(self, seconds: float, server: Server) -> None:
        self._server, self._seconds = server, seconds
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise McpError(Failing.TIMEOUT, f"no answer within {self._seconds:g} s") from None
        if isinstance(error, McpError):
            raise _clean(error, self._server) from None


def _clean(error: McpError, server: Server) -> McpError:
    return McpError(error.kind, redacted(str(error), server.secrets()))
