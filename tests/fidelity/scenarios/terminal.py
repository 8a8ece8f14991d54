"""Commands: foreground, background, waits, kills, monitors."""

from __future__ import annotations

import asyncio

from tests.fidelity.agent import Message
from tests.fidelity.normaliser import Rule, Treatment
from tests.fidelity.play import Play
from tests.fidelity.scenario import Deviation, scenario

RUN = "run_terminal_command"
#: The time after which a foreground command goes to the background: seconds in tests, not the usual fifteen.
SOON = {"GROK_FOREGROUND_BLOCK_BUDGET_MS": "700"}


def command(play: Play, text: str, **more: object) -> tuple[str, Message]:
    return RUN, {"command": text, "description": play.word(), **more}


async def background(play: Play, text: str, **more: object) -> str:
    """Have a turn start a command in the background; its task id."""
    await play.prompt(
        play.calls(command(play, text, background=True, **more)), play.say(), play.say(), play.say()
    )
    return await newest_task(play)


async def newest_task(play: Play) -> str:
    message = await play.agent.until(lambda m: m.get("method") == "_x.ai/task_backgrounded", play.started)
    play.started += 1
    return str(message["params"]["update"]["task_id"] if "update" in message["params"] else task_of(message))


def task_of(message: Message) -> str:
    params = message["params"]
    return str(params.get("task_id") or params.get("taskId"))


@scenario(8, "command exits 3", "terminal")
async def exits(play: Play) -> None:
    await play.begin()
    text = f"echo {play.word()}; echo {play.word()} >&2; echo {play.word()}; exit 3"
    await play.prompt(play.calls(command(play, text)), play.say())


@scenario(9, "five megabytes of output", "terminal")
async def five_megabytes(play: Play) -> None:
    await play.begin()
    play.write("pour.py", POUR)
    words = [play.word() for _ in range(3)]
    await play.prompt(play.calls(command(play, f"python3 pour.py {' '.join(words)}")), play.say())


POUR = """\
import sys

first, each, last = sys.argv[1:]
body = "".join(f"{each} {number:07}\\n" for number in range(260_000))
text = f"{first}\\n{body}"[: 5_000_000 - len(last) - 1] + last + "\\n"
sys.stdout.write(text)
"""


@scenario(10, "time-out", "terminal")
async def time_out(play: Play) -> None:
    """In the background, where it kills, and in the foreground, where it does not wait for the usual time."""
    await play.begin()
    text = f"echo {play.word()}; sleep 30; echo {play.word()}"
    task = await background(play, text, timeout=1500)
    await play.update("turn_completed", 2)
    await play.prompt(
        play.call("get_command_or_subagent_output", {"task_ids": [task]}),
        play.calls(command(play, f"echo {play.word()}; sleep 2; exit 6", timeout=1000)),
        play.say(),
        play.say(),
    )
    await play.update("turn_completed", 4)


@scenario(11, "moved to the background", "terminal", env=SOON)
async def moved(play: Play) -> None:
    await play.begin()
    text = f"echo {play.word()}; sleep 2; echo {play.word()}; exit 4"
    await play.prompt(play.calls(command(play, text)), play.say(), play.say())
    await play.update("turn_completed", 2)


@scenario(12, "background completes and wakes", "terminal")
async def wakes(play: Play) -> None:
    await play.begin()
    text = f"sleep 1; echo {play.word()}; echo {play.word()}"
    await play.prompt(play.calls(command(play, text, background=True)), play.say(), play.say())
    await play.update("turn_completed", 2)


@scenario(13, "kill reaches grandchildren", "terminal")
async def kill(play: Play) -> None:
    await play.begin()
    seconds = f"{play.number(10**6, 10**7)}.5"
    task = await background(play, f"echo {play.word()}; (sleep {seconds} & sleep {seconds}; wait) | cat")
    for _ in range(100):
        if play.processes(f"sleep\0{seconds}") == 2:
            break
        await asyncio.sleep(0.05)
    play.facts["before"] = play.processes(f"sleep\0{seconds}")
    await play.prompt(
        play.call("get_command_or_subagent_output", {"task_ids": [task]}),
        play.call("kill_command_or_subagent", {"task_id": task}),
        play.call("kill_command_or_subagent", {"task_id": task}),
        play.call("kill_command_or_subagent", {"task_id": play.word()}),
        play.say(),
    )
    play.facts["gone"] = await play.gone(f"sleep\0{seconds}")


@scenario(14, "wait then cancelled", "terminal")
async def wait(play: Play) -> None:
    await play.begin()
    short = await background(play, f"sleep 2; echo {play.word()}")
    long = await background(play, f"echo {play.word()}; sleep 300")
    output = "get_command_or_subagent_output"
    turn = play.send(
        play.call(output, {"task_ids": [short], "timeout_ms": 30000}),
        play.call(output, {"task_ids": [short, long, play.word()], "timeout_ms": 500}),
        play.call(output, {"task_ids": [short, long], "timeout_ms": 30000}),
        play.say(),
    )
    await play.update("tool_call", 5)
    await play.settle(0.8)
    await play.agent.request("_x.ai/task/list", {"sessionId": play.session})
    play.agent.notify("session/cancel", {"sessionId": play.session})
    await turn
    await play.agent.request("_x.ai/task/kill", {"sessionId": play.session, "taskId": long})
    await play.settle(0.5)


@scenario(15, "monitor lines wake", "terminal")
async def monitor(play: Play) -> None:
    await play.begin()
    first, second, third = (play.word() for _ in range(3))
    text = f"sleep 1.5; echo {first}; echo {second} >&2; sleep 1.5; echo {third}; sleep 1; exit 5"
    watch = {"command": text, "description": play.word(), "timeout_ms": 60000}
    await play.prompt(play.call("monitor", watch), play.say(), play.say(), play.say(), play.say())
    await play.update("turn_completed", 4)


ENDED = (
    "a monitor that was stopped for its flood leaves its process running in the original; here the process "
    "is ended, and its owner hears of that end"
)
#: What tells of that end, and the turn that it wakes.
AFTER_THE_END = (
    *("_x.ai/task_completed/*", "_x.ai/session_notification/background_tasks", "result _x.ai/task/*"),
    *(
        "_x.ai/queue/changed",
        "_x.ai/session/prompt_complete",
        "model turn",
        "session/update/agent_message_chunk",
    ),
    *("_x.ai/session_notification/response_completed", "_x.ai/session_notification/turn_completed"),
)
FLOOD = "how often a tick of the monitor falls on how many lines is a matter of time"


@scenario(
    16,
    "monitor flood stops",
    "terminal",
    rules=(
        Rule("_x.ai/monitor_event/monitor_event", "params update event_text", Treatment.FLOOD, FLOOD),
        Rule("model turn", "body messages * content", Treatment.FLOOD, FLOOD),
        Rule("_x.ai/queue/changed", "params runningText", Treatment.FLOOD, FLOOD),
        Rule("*", "** output", Treatment.FLOOD, FLOOD),
        Rule("*", "** output_for_prompt", Treatment.FLOOD, FLOOD),
        Rule(
            "session/update/tool_call_update", "params update content * content text", Treatment.FLOOD, FLOOD
        ),
        Rule("*", "** total_bytes", Treatment.TYPED, FLOOD),
        Rule("*", "** output_total_bytes", Treatment.TYPED, FLOOD),
    ),
    distinct=("_x.ai/monitor_event/monitor_event",),
    differs=tuple(Deviation(kind, "*", ENDED) for kind in AFTER_THE_END),
    meant={"process after the stop": (1, 0)},
)
async def flood(play: Play) -> None:
    """The model is kept waiting meanwhile: what it hears afterwards comes in one piece."""
    await play.begin()
    word = play.word()
    watch = {"command": f"while :; do echo {word}; sleep 0.05; done", "description": play.word()}
    turn = play.send(play.call("monitor", watch), play.say(gate="flood"), play.say(), play.say())
    await play.model.waiting("flood")
    events = [await monitor_event(play, 1)]
    while "[Monitor stopped" not in events[-1] and "stop" not in events[-1].lower():
        events.append(await monitor_event(play, len(events) + 1))
    play.facts["stopped after half a minute"] = 28 < len(events) < 60
    await asyncio.sleep(1)  # the process is not silent: it cannot be waited for
    play.facts["process after the stop"] = min(1, play.processes(word))
    play.model.release("flood")
    await turn
    await play.agent.request("_x.ai/task/list", {"sessionId": play.session})
    await play.agent.request(
        "_x.ai/task/kill", {"sessionId": play.session, "taskId": await newest_task(play)}
    )
    await play.settle(1.0)


async def monitor_event(play: Play, count: int) -> str:
    message = await play.agent.until(lambda m: m.get("method") == "_x.ai/monitor_event", count)
    return str(message["params"]["update"]["event_text"])
