"""Where the embedded engine is meant to differ: each shows the original's defect and the other behaviour."""

from __future__ import annotations

import asyncio

from tests.fidelity.agent import Message
from tests.fidelity.play import Play
from tests.fidelity.scenario import Deviation, scenario
from tests.fidelity.scenarios.files import edit
from tests.fidelity.scenarios.gate import HOOK, hooks
from tests.fidelity.scenarios.terminal import background, command

CLOSED = "nobody answers a pre hook: the original runs the tool then, the embedded engine refuses it"
WAITED = (
    "after a cancelled wait the original goes on to count the task as waited for, so its end wakes nobody"
)
RAN = {"the tool ran": (True, False)}
BYTES = "the original writes replacement characters over bytes that are no UTF-8; here they are kept"
EMPTY = (
    "an empty old string overwrites a whole file in the original; here it is refused unless the file is empty"
)


@scenario(41, "hook unanswered", "permissions", differs=(Deviation("*", "*", CLOSED),), meant=RAN)
async def unanswered(play: Play) -> None:
    await play.begin(**hooks("pre_tool_use", timeout=2))

    async def silence(params: Message) -> None:
        return None

    play.agent.handlers[HOOK] = silence
    name = f"{play.word()}.txt"
    await play.prompt(play.calls(command(play, f"touch {name}")), play.say())
    play.facts["the tool ran"] = (play.work / name).exists()


@scenario(42, "hook without a client", "leader", led=True, differs=(Deviation("*", "*", CLOSED),), meant=RAN)
async def undriven(play: Play) -> None:
    """The bridge dies before the hook is asked; the turn goes on in the leader."""
    await play.begin(**hooks("pre_tool_use", timeout=2))
    name = f"{play.word()}.txt"
    play.send(play.calls(command(play, f"touch {name}"), gate="held"), play.say())
    await play.model.waiting("held")
    play.agent.process.kill()
    while play.agent.exit is None:
        await asyncio.sleep(0.02)
    play.model.release("held")
    await asyncio.sleep(4)
    play.facts["the tool ran"] = (play.work / name).exists()


@scenario(
    45, "invalid UTF-8", "files", differs=(Deviation("*", "*", BYTES),), meant={"bytes kept": (False, True)}
)
async def invalid(play: Play) -> None:
    await play.begin()
    name, words = f"{play.word()}.txt", [play.word() for _ in range(2)]
    play.write(name, words[0].encode() + b" \xe9\xff " + words[1].encode() + b"\n")
    await play.prompt(play.calls(edit(name, words[0], play.word())), play.say())
    play.facts["bytes kept"] = b"\xe9\xff" in (play.work / name).read_bytes()


@scenario(
    46,
    "empty old string on a full file",
    "files",
    differs=(Deviation("*", "*", EMPTY),),
    meant={"content kept": (False, True)},
)
async def overwrite(play: Play) -> None:
    await play.begin()
    name, kept = f"{play.word()}.txt", play.word()
    play.write(name, f"{kept}\n")
    await play.prompt(play.calls(edit(name, "", play.word())), play.say())
    play.facts["content kept"] = kept in (play.work / name).read_text()


@scenario(
    47,
    "wait cancelled",
    "terminal",
    differs=(Deviation("result _x.ai/task/list", "* block_waited", WAITED),),
    meant={"counts as waited for": (True, False)},
)
async def forgotten(play: Play) -> None:
    await play.begin()
    task = await background(play, f"echo {play.word()}; sleep 300")
    turn = play.send(
        play.call("get_command_or_subagent_output", {"task_ids": [task], "timeout_ms": 30000}), play.say()
    )
    await play.update("tool_call", 2)
    await play.settle(0.8)
    play.agent.notify("session/cancel", {"sessionId": play.session})
    await turn
    await play.settle(0.5)
    listed = await play.agent.request("_x.ai/task/list", {"sessionId": play.session})
    play.facts["counts as waited for"] = listed["result"]["tasks"][0]["block_waited"]
    await play.agent.request("_x.ai/task/kill", {"sessionId": play.session, "taskId": task})
    await play.settle(0.5)
