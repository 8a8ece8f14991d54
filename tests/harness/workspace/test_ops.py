"""Sessions and their toolsets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from harness.registry.capabilities import CapabilityMode
from harness.registry.config import ToolConfig, ToolServerConfig
from harness.workspace.containment import Containment
from harness.workspace.executor import Executed, Execution
from harness.workspace.memory_filesystem import MemoryFileSystem
from harness.workspace.ops import ToolsChanged, WorkspaceOps
from harness.workspace.refusal import Refusal, RefusalCode
from harness.workspace.session import WorkspaceSession
from harness.workspace.swap import Decision, Trigger


def config(*tools: str) -> ToolServerConfig:
    return ToolServerConfig(tuple(ToolConfig(tool) for tool in tools))


class Terminal:
    def __init__(self, session_id: str, env: Mapping[str, str]) -> None:
        self.session_id, self.env, self.closed = session_id, env, False

    async def close(self) -> None:
        self.closed = True


class NoPrograms:
    async def run(self, execution: Execution) -> Executed:
        raise FileNotFoundError(execution.argv[0])


class Composer:
    """Composes slowly, in the middle of which a test may do something; a toolset is the tools' ids."""

    def __init__(self) -> None:
        self.meanwhile: Callable[[], None] = lambda: None
        self.composed: list[tuple[str, ...]] = []
        self.threads: set[str] = set()

    def __call__(self, session: WorkspaceSession, wanted: ToolServerConfig) -> Any:
        self.threads.add(threading.current_thread().name)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        ids = tuple(tool.id for tool in wanted.tools)
        if "broken" in ids:
            raise ValueError("broken")
        self.composed.append(ids)
        return [session.id, str(session.mode), *ids]


class World:
    def __init__(self) -> None:
        self.composer = Composer()
        self.terminals: list[Terminal] = []
        self.changes: list[ToolsChanged] = []
        self.ops = WorkspaceOps(
            fs=MemoryFileSystem(),
            env={"HOME": "/home/me", "A": "1"},
            executors=lambda _contained: NoPrograms(),
            terminals=self._terminal,
            composer=self.composer,
            default=config("read"),
            on_change=self.changes.append,
        )

    def _terminal(self, session_id: str, env: Mapping[str, str], contained: Containment) -> Any:
        self.terminals.append(Terminal(session_id, env))
        return self.terminals[-1]

    def tools(self, session_id: str = "s") -> list[str]:
        toolset = self.ops.session(session_id).toolset
        assert isinstance(toolset, list)
        return toolset[2:]

    def in_loop(self, act: Callable[[], object]) -> Callable[[], None]:
        """For `Composer.meanwhile`: done in the loop while the composer's thread waits for it."""
        loop = asyncio.get_running_loop()

        def from_thread() -> None:
            async def run() -> None:
                result = act()
                if asyncio.iscoroutine(result):
                    await result

            asyncio.run_coroutine_threadsafe(run(), loop).result(5)

        return from_thread


@pytest.fixture
def world() -> World:
    return World()


async def refused(code: RefusalCode, awaitable: Any) -> None:
    with pytest.raises(Refusal) as caught:
        await awaitable
    assert caught.value.code is code


# -- sessions --------------------------------------------------------------------------------------------


async def test_create(world: World) -> None:
    session = await world.ops.create("s", "/w", env={"B": "2"})
    assert (session.mode, session.depth, session.fork_budget) == (CapabilityMode.ALL, 0, None)
    assert session.env == {"HOME": "/home/me", "A": "1", "B": "2"}
    assert world.tools() == ["read"]
    assert world.ops.session("s") is session
    assert threading.current_thread().name not in world.composer.threads


async def test_refusals(world: World) -> None:
    await world.ops.create("s", "/w")
    await refused(RefusalCode.EMPTY_ID, world.ops.create("", "/w"))
    await refused(RefusalCode.EXISTS, world.ops.create("s", "/w"))
    await refused(RefusalCode.NOT_FOUND, world.ops.fork("x", "c"))
    await refused(RefusalCode.MISSING_SESSION, world.ops.call(None, lambda session: asyncio.sleep(0)))
    await refused(RefusalCode.NOT_FOUND, world.ops.call("x", lambda session: asyncio.sleep(0)))
    await refused(RefusalCode.UNAUTHORISED, world.ops.drop("x", "s"))
    await refused(RefusalCode.UNAUTHORISED, world.ops.update_tools("x", "s", config()))
    await world.ops.close()
    assert world.ops.sessions() == []
    await refused(RefusalCode.SHUTTING_DOWN, world.ops.create("t", "/w"))
    assert all(terminal.closed for terminal in world.terminals)


async def test_an_id_is_taken_while_its_tools_are_composed_and_free_when_that_fails(world: World) -> None:
    seen: list[RefusalCode] = []

    async def again() -> None:
        try:
            await world.ops.create("s", "/w")
        except Refusal as refusal:
            seen.append(refusal.code)

    world.composer.meanwhile = world.in_loop(again)
    with pytest.raises(ValueError, match="broken"):
        await world.ops.create("s", "/w", config=config("broken"))
    assert seen == [RefusalCode.EXISTS]
    assert world.terminals[0].closed
    await world.ops.create("s", "/w")


SUBSETS = {
    ("all", "all"), ("all", "read_write"), ("all", "execute"), ("all", "read_only"),
    ("read_write", "read_write"), ("read_write", "read_only"),
    ("execute", "execute"), ("execute", "read_only"),
    ("read_only", "read_only"),
}  # fmt: skip


@pytest.mark.parametrize("child", list(CapabilityMode))
@pytest.mark.parametrize("parent", list(CapabilityMode))
async def test_a_fork_never_widens(world: World, parent: CapabilityMode, child: CapabilityMode) -> None:
    await world.ops.create("root", "/w", config=config("a", "b"))
    await world.ops.fork("root", "parent", mode=parent)
    fork = world.ops.fork("parent", "child", mode=child)
    if (str(parent), str(child)) not in SUBSETS:
        await refused(RefusalCode.WIDENING, fork)
        return
    session = await fork
    assert (session.mode, session.depth) == (child, 2)
    assert session.toolset == ["child", str(child), "a", "b"]


async def test_generations_are_bounded(world: World) -> None:
    await world.ops.create("r", "/w")
    await world.ops.fork("r", "a", generations=2)
    await world.ops.fork("a", "b", generations=9)
    assert world.ops.session("b").fork_budget == 1
    await world.ops.fork("b", "c")
    assert world.ops.session("c").fork_budget == 0
    await refused(RefusalCode.MAX_DEPTH, world.ops.fork("c", "d"))


async def test_a_fork_inherits_and_overlays(world: World) -> None:
    parent = await world.ops.create("r", "/w", env={"B": "2"}, display_cwd="/shown")
    same = await world.ops.fork("r", "a", env={"B": "3"})
    other = await world.ops.fork("r", "b", cwd="/elsewhere")
    assert (same.cwd, same.display_cwd, same.env["A"], same.env["B"]) == ("/w", "/shown", "1", "3")
    assert (other.cwd, other.display_cwd) == ("/elsewhere", None)
    assert parent.env["B"] == "2"
    assert same.terminal is not parent.terminal


async def test_dropping_ends_the_sessions_own_terminal_only(world: World) -> None:
    agents = Terminal("agent", {})
    session = await world.ops.bind("s", "/w", ["agent's"], agents)  # type: ignore[arg-type]
    assert session.terminal is agents
    own = world.terminals[0]
    await world.ops.bind("s", "/other", ["newer"], agents)  # type: ignore[arg-type]
    assert session.cwd == "/w"
    assert session.toolset == ["newer"]
    await world.ops.drop("s", "s")
    assert own.closed
    assert not agents.closed


# -- toolsets --------------------------------------------------------------------------------------------


async def test_an_unchanged_configuration_composes_nothing(world: World) -> None:
    session = await world.ops.create("s", "/w", config=config("a"))
    before = session.toolset
    session.begin_prompt()
    assert await world.ops.update_tools("s", "s", config("a")) is Decision.REUSE
    assert session.toolset is before
    assert world.composer.composed == [("a",)]
    assert world.changes == []


async def test_a_change_between_turns_applies_at_once(world: World) -> None:
    session = await world.ops.create("s", "/w")
    terminal = session.terminal
    assert await world.ops.update_tools("s", "s", config("a")) is Decision.APPLY
    assert world.tools() == ["a"]
    assert session.terminal is terminal  # with what runs in it
    assert world.changes == [ToolsChanged("s", Trigger.UPDATE)]


async def test_a_change_during_a_turn_waits_for_its_end(world: World) -> None:
    await world.ops.create("s", "/w")
    world.ops.begin_prompt("s")
    await refused(RefusalCode.TURN_ACTIVE, world.ops.update_tools("s", "s", config("x"), wait=False))
    assert await world.ops.update_tools("s", "s", config("a")) is Decision.DEFER_TURN
    assert await world.ops.update_tools("s", "s", config("b")) is Decision.DEFER_TURN
    assert world.tools() == ["read"]
    assert await world.ops.end_prompt("s") is Decision.APPLY
    assert world.tools() == ["b"]  # the newest wish
    assert await world.ops.end_prompt("s") is None


async def test_wishing_back_what_is_there_forgets_the_wish(world: World) -> None:
    await world.ops.create("s", "/w", config=config("a"))
    world.ops.begin_prompt("s")
    await world.ops.update_tools("s", "s", config("b"))
    assert await world.ops.update_tools("s", "s", config("a")) is Decision.REUSE
    assert await world.ops.end_prompt("s") is None
    assert world.tools() == ["a"]


async def test_what_cannot_be_composed_is_said_at_once_also_in_a_turn(world: World) -> None:
    await world.ops.create("s", "/w")
    world.ops.begin_prompt("s")
    with pytest.raises(ValueError, match="broken"):
        await world.ops.update_tools("s", "s", config("broken"))
    assert await world.ops.end_prompt("s") is None
    assert world.tools() == ["read"]


async def test_a_turn_that_begins_while_tools_are_composed(world: World) -> None:
    await world.ops.create("s", "/w")
    world.composer.meanwhile = world.in_loop(lambda: world.ops.begin_prompt("s"))
    assert await world.ops.update_tools("s", "s", config("a")) is Decision.DEFER_TURN
    assert world.tools() == ["read"]
    await world.ops.end_prompt("s")
    assert world.tools() == ["a"]


async def test_a_turn_that_ends_while_a_wish_is_tried(world: World) -> None:
    await world.ops.create("s", "/w")
    world.ops.begin_prompt("s")
    world.composer.meanwhile = world.in_loop(lambda: world.ops.end_prompt("s"))
    await world.ops.update_tools("s", "s", config("a"))
    assert world.tools() == ["a"]


async def test_a_turn_that_begins_while_the_wish_is_applied(world: World) -> None:
    await world.ops.create("s", "/w")
    world.ops.begin_prompt("s")
    await world.ops.update_tools("s", "s", config("a"))
    world.composer.meanwhile = world.in_loop(lambda: world.ops.begin_prompt("s"))
    assert await world.ops.end_prompt("s") is Decision.DEFER_TURN
    assert world.tools() == ["read"]
    assert await world.ops.end_prompt("s") is Decision.APPLY
    assert world.tools() == ["a"]


async def test_the_same_configuration_installed_meanwhile_is_reused(world: World) -> None:
    await world.ops.create("s", "/w")
    installed: list[object] = []

    async def other() -> None:
        await world.ops.update_tools("s", "s", config("a"))
        installed.append(world.ops.session("s").toolset)

    world.composer.meanwhile = world.in_loop(other)
    assert await world.ops.update_tools("s", "s", config("a")) is Decision.REUSE
    assert world.ops.session("s").toolset is installed[0]
    assert len(world.changes) == 1


async def test_the_agents_toolset_is_kept(world: World) -> None:
    mine: Any = ["agent's"]
    session = await world.ops.bind("s", "/w", mine, Terminal("agent", {}))  # type: ignore[arg-type]
    await refused(RefusalCode.EXTERNALLY_OWNED, world.ops.update_tools("s", "s", config("a")))
    assert await world.ops.rebind("s", config("a")) is Decision.KEEP_EXTERNAL
    assert await world.ops.rebuild(Trigger.MCP_SNAPSHOT) == {"s": Decision.KEEP_EXTERNAL}
    assert session.toolset is mine


async def test_an_owner_that_is_back_waits_for_running_calls(world: World) -> None:
    session = await world.ops.create("s", "/w", config=config("a"))
    with session.call_in_flight():
        assert await world.ops.rebind("s", config("b")) is Decision.DEFER_IN_FLIGHT
        assert world.tools() == ["a"]
    assert await world.ops.rebind("s", config("b")) is Decision.APPLY
    assert world.tools() == ["b"]


async def test_servers_tools_change_in_a_turn_too(world: World) -> None:
    session = await world.ops.create("s", "/w")
    world.ops.begin_prompt("s")
    before = session.toolset
    assert await world.ops.rebuild(Trigger.MCP_SNAPSHOT, changed=False) == {"s": Decision.REUSE}
    assert session.toolset is before
    assert await world.ops.rebuild(Trigger.MCP_SNAPSHOT) == {"s": Decision.APPLY}
    assert session.toolset is not before


async def test_a_rebuild_that_is_overtaken_starts_again(world: World) -> None:
    await world.ops.create("s", "/w", config=config("a"))
    world.composer.meanwhile = world.in_loop(lambda: world.ops.update_tools("s", "s", config("b")))
    assert await world.ops.rebuild(Trigger.MCP_SNAPSHOT) == {"s": Decision.APPLY}
    assert world.tools() == ["b"]


async def test_a_failed_rebuild_leaves_a_stale_toolset_that_the_same_wish_renews(world: World) -> None:
    session = await world.ops.create("s", "/w", config=config("a"))
    await world.ops.create("t", "/w")
    before = session.toolset

    def fail() -> None:
        raise ValueError("a server is gone")

    world.composer.meanwhile = fail
    assert await world.ops.rebuild(Trigger.MCP_SNAPSHOT) == {"t": Decision.APPLY}
    assert session.toolset is before
    assert await world.ops.update_tools("s", "s", config("a")) is Decision.APPLY
    assert await world.ops.update_tools("s", "s", config("a")) is Decision.REUSE


async def test_calls_in_flight_are_counted(world: World) -> None:
    session = await world.ops.create("s", "/w")

    async def work(inner: WorkspaceSession) -> int:
        return inner.in_flight

    assert await world.ops.call("s", work) == 1
    assert session.in_flight == 0
