"""The bridge: parse, call, two projections, reminders, foreign tools, tasks, state."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from harness.outcome import Completeness, Diff, FaultKind, Notification, ToolFault, ToolOutput
from harness.registry.capabilities import CapabilityMode
from harness.registry.config import ToolConfig
from harness.registry.contract import CallContext, Resources, ToolKind, ToolSpec
from harness.registry.registry import Registry
from harness.skills import Skill
from harness.toolbridge import ParsedCall, Result, ToolBridge
from harness.workspace.terminal.book import Snapshot, TaskKind
from tests.harness.registry.tools import EDIT, KILL, OUTPUT, READ, RUN, TODO, Echo, config, schema


def snapshot(task_id: str, **changes: Any) -> Snapshot:
    plain = Snapshot(
        task_id=task_id,
        call_id=f"call-{task_id}",
        command=f"make {task_id}",
        display=None,
        cwd="/",
        kind=TaskKind.BASH,
        owner="s",
        description=None,
        started=0.0,
        finished=5.0,
        duration=5.0,
        output="built",
        output_file=f"/log/{task_id}",
        truncated=False,
        total_bytes=5,
        exit_code=0,
        signal=None,
        pid=1,
        block_waited=False,
        explicitly_killed=False,
        kill_delivered=False,
        backgrounded=True,
    )
    return dataclasses.replace(plain, **changes)


class Terminal:
    """What the bridge asks of a terminal, over a list of tasks."""

    def __init__(self) -> None:
        self.all = list[Snapshot]()
        self.written = set[str]()
        self.asked = list[tuple[str, str]]()

    def tasks(self, owner: str | None, *, with_output: bool = True) -> list[Snapshot]:
        return [task for task in self.all if task.owner == owner]

    def untold(self, owner: str | None) -> list[Snapshot]:
        return [t for t in self.tasks(owner) if t.completed and t.task_id not in self.written]

    def tell(self, ids: Iterable[str]) -> list[str]:
        fresh = [i for i in ids if i not in self.written]
        self.written.update(fresh)
        return fresh

    def told(self) -> frozenset[str]:
        return frozenset(self.written)

    async def kill(self, task_id: str, source: str) -> str:
        self.asked.append((task_id, source))
        return "killed"

    async def kill_foreground(self, owner: str) -> None:
        self.asked.append(("foreground", owner))

    def background_foreground(self, call_id: str) -> bool:
        return call_id == "running"


class Session:
    id = "s"
    cwd = "/work"

    def __init__(self) -> None:
        self.terminal = Terminal()
        self.in_flight = 0

    @contextlib.contextmanager
    def call_in_flight(self) -> Iterator[None]:
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1


class Scripted:
    """A tool that does what it is told, with the context it was given kept."""

    def __init__(self, work: Any, **spec: Any) -> None:
        given = {
            "namespace": "GrokBuild",
            "id": "work",
            "kind": ToolKind.OTHER,
            "description": "Work.",
            "input_schema": schema(x={"type": "integer"}),
        }
        self.spec = ToolSpec(**{**given, **spec})
        self.work = work
        self.contexts = list[CallContext]()

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        self.contexts.append(context)
        result = self.work(arguments, context)
        return await result if asyncio.iscoroutine(result) else result  # type: ignore[no-any-return]


def bridge(
    *tools: Any, entries: tuple[ToolConfig, ...] = (), mode: CapabilityMode = CapabilityMode.ALL
) -> ToolBridge:
    registry = Registry(tools)
    given = entries or tuple(ToolConfig(tool.spec.key) for tool in tools)
    toolset = registry.compose(config(*given), mode)
    return ToolBridge(toolset, Session())  # type: ignore[arg-type]


def parsed(over: ToolBridge, name: str, arguments: str | Mapping[str, Any] = "{}") -> ParsedCall:
    result = over.parse(name, arguments)
    assert isinstance(result, ParsedCall), result
    return result


def refused(over: ToolBridge, name: str, arguments: str | Mapping[str, Any] = "{}") -> ToolOutput:
    result = over.parse(name, arguments)
    assert isinstance(result, ToolOutput)
    assert result.is_error
    assert result.raw() is None
    return result


async def called(over: ToolBridge, name: str, arguments: str = "{}", **more: Any) -> Result:
    return await over.call(parsed(over, name, arguments), "call-1", **more)


def plain(_: Mapping[str, Any], __: CallContext) -> ToolOutput:
    return ToolOutput("Text", {"text": "for the client"}, "for the model")


# -- parse -----------------------------------------------------------------------------------------


def test_a_call_is_parsed_under_the_clients_names_and_shown_canonically() -> None:
    entry = ToolConfig(
        RUN.spec.key, name_override="shell", params_name_overrides={"is_background": "background"}
    )
    over = bridge(RUN, OUTPUT, KILL, entries=(entry, ToolConfig(OUTPUT.spec.key), ToolConfig(KILL.spec.key)))
    call = parsed(over, "shell", '{"background": "yes", "command": "ls", "timeout": "50"}')
    assert call.arguments == {"is_background": True, "command": "ls", "timeout": 50}
    assert list(call.raw_input.items()) == [
        ("variant", "Bash"),
        ("command", "ls"),
        ("timeout", 50),
        ("is_background", True),
    ]
    assert call.card() == {
        "version": 1,
        "name": "shell",
        "kind": "execute",
        "namespace": "grok_build",
        "label": "Run Command",
        "read_only": False,
        "input": {"command": "ls"},
    }
    assert parsed(over, "shell", '{"command": "ls"}').raw_input["is_background"] is False
    assert "input" not in call.tool.card()


def test_an_unknown_tool_is_a_value_and_says_what_may_be_meant() -> None:
    entries = (ToolConfig(READ.spec.key, name_override="look"), ToolConfig(EDIT.spec.key))
    over = bridge(READ, EDIT, TODO, entries=entries)
    assert refused(over, "lok").fields == {"failure": "unknown_tool"}
    assert "Did you mean `look`?" in refused(over, "lok").prompt
    assert "It is called `look` here." in refused(over, "read_file").prompt
    assert "does not list it" in refused(over, "todo_write").prompt
    assert refused(over, "zzzzzz").prompt.startswith("There is no tool `zzzzzz` in this session.\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "`path` is missing"),
        ("", "`path` is missing"),
        ("{bad", "not valid JSON"),
        ("[1]", "one JSON object"),
        ('{"path": 5}', "`path` must be a string"),
    ],
)
def test_wrong_arguments_are_a_value_and_are_shown_again(text: str, said: str) -> None:
    entry = ToolConfig(READ.spec.key, params_name_overrides={"target_file": "path"})
    over = bridge(READ, entries=(entry,))
    output = refused(over, "read_file", text)
    assert output.fields == {"failure": "invalid_arguments"}
    assert said in output.prompt
    assert ("The arguments were" in output.prompt) is bool(text)
    assert text in output.prompt


def test_a_huge_wrong_text_is_not_sent_back_whole() -> None:
    assert len(refused(bridge(READ), "read_file", '{"offset": "' + "x" * 10**6 + '"}').prompt) < 10_000


def test_half_a_character_goes_nowhere() -> None:
    over = bridge(READ)
    for output in (refused(over, "read_file", '{"target_file": "\ud83d"}'), refused(over, "look\ud83d")):
        assert output.prompt.encode()


async def test_of_several_objects_the_one_that_fits_is_carried_out_and_the_model_is_told() -> None:
    over = bridge(READ)
    call = parsed(over, "read_file", '{"offset": 1}{"target_file": "a"}\n{"target_file": "b"}')
    assert call.arguments == {"target_file": "a"}
    text = (await over.call(call, "call-1")).prompt_text
    assert text.startswith("read_file: ['target_file']\n\n<system-reminder>\n")
    assert "3 JSON objects" in text
    assert "missing" in refused(over, "read_file", '{"offset": 1}{"offset": 2}').prompt


def test_what_a_hook_put_in_place_is_checked_again() -> None:
    over = bridge(READ)
    assert parsed(over, "read_file", {"target_file": "other"}).arguments == {"target_file": "other"}
    assert refused(over, "read_file", {"offset": 1}).fields == {"failure": "invalid_arguments"}


# -- call ------------------------------------------------------------------------------------------


async def test_the_two_projections_differ_and_reminders_touch_only_one() -> None:
    diff = Diff("a", None, "new")
    made = ToolOutput(
        "SearchReplace",
        {"done": 1},
        "done",
        completeness=Completeness.COMPLETE,
        prompt_completeness=Completeness.TRUNCATED,
        diffs=(diff,),
    )
    over = bridge(Scripted(lambda *_: made))
    over.add_reminders(lambda output: [f"after {output.type}", "twice"])
    result = await called(over, "work")
    assert result.output is made
    assert result.output.raw() == {"type": "SearchReplace", "done": 1}
    assert result.prompt_text == (
        "done\n\n<system-reminder>\nafter SearchReplace\n</system-reminder>"
        "\n\n<system-reminder>\ntwice\n</system-reminder>"
    )
    assert (result.output.completeness, result.prompt_completeness) == ("complete", "truncated")


async def test_a_call_is_given_its_own_names_parameters_and_folder() -> None:
    tool = Scripted(
        plain,
        kind=ToolKind.READ,
        params_schema=schema(deep={"type": "boolean"}),
        default_params={"deep": False},
    )
    entries = (ToolConfig("GrokBuild:work", {"deep": True}, "look", {"x": "y"}),)
    over = bridge(tool, entries=entries)
    told = list[Notification]()
    stop = asyncio.Event()
    await called(over, "look", '{"y": 3}', cwd="/elsewhere", notify=told.append, cancelled=stop)
    context = tool.contexts[0]
    assert (context.call_id, context.cwd, dict(context.params)) == ("call-1", "/elsewhere", {"deep": True})
    assert context.names.own("x") == "y"
    assert context.names.tool(ToolKind.READ) == "look"
    assert context.names.param(ToolKind.READ, "x") == "y"
    assert context.names.tool(ToolKind.EDIT) == ""
    assert context.cancelled is stop
    context.notify(Notification("progress", {}))
    assert len(told) == 1


async def test_the_session_knows_that_a_call_is_running_until_it_has_ended() -> None:
    over = bridge(Scripted(lambda _, context: ToolOutput("Text", {}, str(context.session.in_flight))))
    assert (await called(over, "work")).prompt_text == "1"
    assert over._session.in_flight == 0


async def test_logical_failures_are_values_and_only_the_machinery_raises() -> None:
    failed = ToolOutput("Bash", {"exit_code": 3}, "exit: 3", is_error=True)
    assert (await called(bridge(Scripted(lambda *_: failed)), "work")).output.is_error

    def lost(*_: Any) -> ToolOutput:
        raise ToolFault(FaultKind.NETWORK, "the server has gone")

    with pytest.raises(ToolFault) as fault:
        await called(bridge(Scripted(lost)), "work")
    assert fault.value.kind is FaultKind.NETWORK

    def broken(*_: Any) -> ToolOutput:
        raise KeyError("inner")

    with pytest.raises(ToolFault, match=r"execution: work failed: KeyError") as fault:
        await called(bridge(Scripted(broken)), "work")
    assert isinstance(fault.value.__cause__, KeyError)
    with pytest.raises(ToolFault, match="without a result"):
        await called(bridge(Scripted(lambda *_: None)), "work")


async def test_a_cancelled_call_is_cancelled_not_a_fault() -> None:
    async def wait(*_: Any) -> ToolOutput:
        await asyncio.sleep(3600)
        raise AssertionError

    task = asyncio.create_task(called(bridge(Scripted(wait)), "work"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_tool_behind_a_tool_is_named() -> None:
    tool = Scripted(plain, kind=ToolKind.USE_TOOL, input_schema=schema(tool_name={"type": "string"}))
    result = await called(bridge(tool), "work", '{"tool_name": "srv__look"}')
    assert result.effective_tool_name == "srv__look"


# -- reminders of tasks ----------------------------------------------------------------------------


async def test_an_end_is_told_once_by_the_next_result() -> None:
    over = bridge(Scripted(plain), RUN, OUTPUT, KILL)
    terminal = over._session.terminal
    terminal.all += [snapshot("a", exit_code=3), snapshot("b", finished=None), snapshot("c", owner="other")]
    first, second = await called(over, "work"), await called(over, "work")
    assert '"a" has ended: exit code 3, after 5.0s' in first.prompt_text
    assert "make a" in first.prompt_text
    assert "get_task_output with the id a" in first.prompt_text
    assert "Still running: b (make b)" in first.prompt_text
    assert "kill_task" in first.prompt_text
    assert '"c"' not in first.prompt_text
    assert second.prompt_text == "for the model"
    assert first.output.raw() == second.output.raw()


async def test_the_start_of_a_task_names_the_others_that_run() -> None:
    async def start(_: Mapping[str, Any], context: CallContext) -> ToolOutput:
        return ToolOutput("BackgroundTaskStarted", {"task_id": "new"}, "started")

    over = bridge(Scripted(start), RUN, OUTPUT, KILL)
    terminal = over._session.terminal
    terminal.all.append(snapshot("new", finished=None))
    assert (await called(over, "work")).prompt_text == "started"
    terminal.all += [snapshot("a", finished=None), snapshot("b", finished=None, duration=61.0), snapshot("c")]
    text = (await called(over, "work")).prompt_text
    assert '2 other background tasks still run:\n- "b" (for 61s): make b\n- "a" (for 5s)' in text
    assert '"c" has ended' in text
    assert '"new"' not in text


async def test_an_end_that_the_result_itself_tells_is_not_told_again() -> None:
    told = ToolOutput("TaskOutput", {}, "a has ended", settles=frozenset({"a"}))
    over = bridge(Scripted(lambda *_: told))
    over._session.terminal.all.append(snapshot("a"))
    assert (await called(over, "work")).prompt_text == "a has ended"
    assert over.drain_completions() == []


async def test_without_a_tool_for_output_the_reminder_holds_it_or_its_beginning() -> None:
    over = bridge(Scripted(plain), READ)
    terminal = over._session.terminal
    terminal.all += [
        snapshot("a"),
        snapshot("b", output="x" * 9000, total_bytes=12345),
        snapshot("c", output=""),
    ]
    text = (await called(over, "work")).prompt_text
    assert "Its output:\nbuilt" in text
    assert "of 12345 bytes; read the rest with read_file from /log/b" in text
    assert len(text) < 4000
    assert "printed nothing" in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"explicitly_killed": True, "signal": "SIGTERM"}, "The user ended it. Do not start it again"),
        ({"signal": "SIGTERM", "duration": 0.2}, "may have matched the command itself"),
    ],
)
async def test_odd_ends_come_with_a_hint(changes: dict[str, Any], said: str) -> None:
    over = bridge(Scripted(plain))
    over._session.terminal.all.append(snapshot("a", **changes))
    text = (await called(over, "work")).prompt_text
    assert "signal SIGTERM" in text
    assert said in text


async def test_the_terse_family_gets_no_reminders() -> None:
    over = bridge(Scripted(plain, namespace="GrokBuildConcise"))
    over._session.terminal.all.append(snapshot("a"))
    assert (await called(over, "work")).prompt_text == "for the model"


async def test_tasks_are_listed_and_ended_without_a_model() -> None:
    over = bridge(READ)
    terminal = over._session.terminal
    terminal.all += [snapshot("a"), snapshot("c", owner="other")]
    assert [task.task_id for task in over.list_tasks()] == ["a"]
    assert await over.kill_task("a") == "killed"
    await over.kill_foreground_commands()
    assert terminal.asked == [("a", "user"), ("foreground", "s")]
    assert over.background_foreground_command("running")
    assert not over.background_foreground_command("none")


# -- tools of servers ------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"q": {"type": "string", "title": "Q"}}, "$defs": {"odd": {}}}


async def test_a_servers_tool_is_offered_as_it_came_and_called_as_it_was_asked() -> None:
    over = bridge(READ)
    seen = list[Mapping[str, Any]]()

    async def handler(arguments: Mapping[str, Any], _: CallContext) -> Any:
        seen.append(arguments)
        return {"found": [1, 2]}

    over.register_mcp_tool("srv__find", handler, SCHEMA, description="Find ${{ things }}." + "y" * 5000)
    definition = over.definitions()[-1]["function"]
    assert definition["parameters"] == SCHEMA
    assert definition["description"].startswith("Find ${{ things }}.y")
    assert len(definition["description"]) == 2048
    result = await called(over, "srv__find", '{"q": 5, "more": null}')
    assert seen == [{"q": 5, "more": None}]
    assert result.output.raw() == {"type": "Dynamic", "value": {"found": [1, 2]}}
    assert parsed(over, "srv__find", '{"q": 5}').card()["namespace"] == "mcp"
    assert [d["function"]["name"] for d in over.definitions(built_in_only=True)] == ["read_file"]


async def test_a_servers_long_text_is_bounded_and_said_to_be() -> None:
    over = bridge(READ)

    async def handler(*_: Any) -> str:
        return "é" * 20_000

    over.register_mcp_tool("srv__long", handler, SCHEMA)
    result = await called(over, "srv__long")
    assert len(result.prompt_text.encode()) < 20_100
    assert "40000 bytes in all" in result.prompt_text
    assert (result.output.completeness, result.prompt_completeness) == ("complete", "truncated")
    assert len(result.output.fields["text"]) == 20_000


async def _nothing(*_: Any) -> str:
    return ""


def test_names_of_servers_tools_are_taken_once_and_given_back() -> None:
    over = bridge(READ)
    over.register_mcp_tool("srv__a", _nothing, SCHEMA)
    over.register_mcp_tool("srv__b", _nothing, SCHEMA)
    for name in ("srv__a", "read_file"):
        with pytest.raises(ToolFault, match=f"there is a tool {name} already"):
            over.register_mcp_tool(name, _nothing, SCHEMA)
    assert over.unregister_mcp_tool("srv__a")
    assert not over.unregister_mcp_tool("srv__a")
    over.register_mcp_tool("srv__a", _nothing, SCHEMA)
    assert over.unregister_mcp_prefix("srv__") == ["srv__b", "srv__a"]
    assert len(over.definitions()) == 1


def test_another_toolset_keeps_the_servers_tools_but_its_own_names_first() -> None:
    over = bridge(READ)
    over.register_mcp_tool("todo_write", _nothing, SCHEMA)
    over.register_mcp_tool("srv__a", _nothing, SCHEMA)
    over.replace(Registry([TODO]).compose(config(TODO)))
    assert [tool.spec.key for tool in over.toolset.tools] == ["GrokBuild:todo_write", "MCP:srv__a"]
    assert over.toolset.absent["MCP:todo_write"].stage == "name_taken"
    over.replace(Registry([READ]).compose(config(READ), CapabilityMode.READ_ONLY))
    reason = over.why_absent("srv__a")
    assert reason is not None
    assert reason.stage == "capability"


# -- skills and state ------------------------------------------------------------------------------


async def test_a_skill_that_was_found_is_announced_with_the_next_result_and_once() -> None:
    over = bridge(Scripted(plain))
    new = over.discover_skills([Skill("bake", "How to bake.", "/s/bake"), Skill("cook", "Again.", "/s/bake")])
    assert [skill.name for skill in new] == ["bake"]
    first, second = await called(over, "work"), await called(over, "work")
    assert "- bake: How to bake. (/s/bake)" in first.prompt_text
    assert second.prompt_text == "for the model"
    assert over.announced_skills() == {"bake"}


class Counter:
    state_key = "counter"

    def __init__(self) -> None:
        self.value = 0

    def state(self) -> int:
        return self.value

    def restore(self, state: int) -> None:
        self.value = state


async def test_what_was_told_announced_and_kept_survives() -> None:
    over = bridge(Scripted(plain))
    over.resources.get(Counter).value = 7
    over.discover_skills([Skill("bake", "How to bake.", "/s/bake")])
    over._session.terminal.all.append(snapshot("a"))
    await called(over, "work")
    state = over.state()
    assert state["state"] == {"counter": 7, "announced_skills": ["bake"], "told": ["a"]}

    later = bridge(Scripted(plain))
    later.restore({**state, "unknown": 1})
    later._session.terminal.all.append(snapshot("a"))
    later.discover_skills([Skill("bake", "How to bake.", "/s/bake")])
    assert later.state()["state"]["counter"] == 7  # before anybody has asked for it
    assert later.resources.get(Counter).value == 7
    assert (await called(later, "work")).prompt_text == "for the model"


def test_a_resource_is_one_of_its_type_and_can_be_put_in_place() -> None:
    resources = Resources()
    assert resources.find(Counter) is None
    assert resources.get(Counter) is resources.get(Counter)
    other = Counter()
    resources.insert(other)
    assert resources.get(Counter) is other


def test_an_echo_is_a_tool() -> None:
    assert bridge(Echo(TODO.spec)).toolset.named("todo_write") is not None
