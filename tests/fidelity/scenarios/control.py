"""What a client does to a turn under way."""

from __future__ import annotations

import asyncio

from tests.fidelity.agent import Agent, Message
from tests.fidelity.play import Play
from tests.fidelity.scenario import Deviation, scenario
from tests.fidelity.scenarios.gate import PERMISSION, asked, selected
from tests.fidelity.scenarios.terminal import command


@scenario(37, "cancel and queued prompt", "agent")
async def cancel(play: Play) -> None:
    await play.begin()
    seconds = f"{play.number(10**6, 10**7)}.5"
    first = play.send(play.calls(command(play, f"echo {play.word()}; sleep {seconds}")), play.say())
    for _ in range(200):
        if play.processes(f"sleep\0{seconds}"):
            break
        await asyncio.sleep(0.05)
    second = play.send(play.say())
    await play.settle(0.5)
    play.agent.notify("session/cancel", {"sessionId": play.session})
    await asyncio.gather(first, second)
    play.facts["gone"] = await play.gone(f"sleep\0{seconds}")


@scenario(38, "interject", "agent")
async def interject(play: Play) -> None:
    """While a tool runs, and when nothing does."""
    await play.begin()
    slow = play.calls(command(play, f"sleep 3; echo {play.word()}"))
    turn = play.send(slow, play.say(), play.say(), play.say())
    await play.update("tool_call")
    await play.settle(0.5)
    await play.agent.request("_x.ai/interject", {"sessionId": play.session, "text": play.word()})
    await turn
    await play.settle()
    await play.agent.request("_x.ai/interject", {"sessionId": play.session, "text": play.word()})
    await play.update("turn_completed", 2)


#: Behind a load.
TOLD_LATER = Deviation(
    "_x.ai/session_notification/model_changed",
    "whole message",
    "either engine tells it some time after a load, or not any more when something else happens first",
    timing=True,
)


@scenario(39, "second client gets the pending prompt", "leader", led=True, differs=(TOLD_LATER,))
async def joined(play: Play) -> None:
    """It loads the session in a turn whose first client does not answer, and answers instead."""
    await play.begin(yolo=False)
    silent(play.agent)
    turn = play.send(play.calls(asked(play)), play.say())
    await play.agent.until(lambda message: message.get("method") == PERMISSION)
    second = await play.bridge()

    async def allow(params: Message) -> Message:
        return selected("allow-once")

    second.handlers[PERMISSION] = allow
    await play.load(second)
    await second.quiet(0.3)
    await turn
    await second.quiet(0.3)


@scenario(40, "bridge killed then leader killed", "leader", led=True, differs=(TOLD_LATER,))
async def killed(play: Play) -> None:
    """The turn goes on without its client; another one loads it; the leader dies under that one."""
    await play.begin()
    play.send(play.calls(command(play, f"echo {play.word()}")), play.say(gate="held"), play.say())
    await play.model.waiting("held")
    play.agent.process.kill()
    while play.agent.exit is None:
        await asyncio.sleep(0.02)
    play.model.release("held")
    second = await play.bridge()
    await play.settle(1.0)
    await play.load(second)
    await second.quiet(0.5)  # what is told behind the load
    assert play.leader is not None
    play.leader.kill()
    await second.until(lambda message: message.get("method") == "x.ai/leader_reconnected")
    marker = play.model.script([play.say()], play.word())
    blocks = [{"type": "text", "text": f"{play.word()} {marker}"}]
    params = {"sessionId": play.session, "prompt": blocks, "_meta": {"promptId": play.word()}}
    await second.request("session/prompt", params)
    await second.quiet(0.3)


def silent(agent: Agent) -> None:
    """Never answer a permission prompt."""

    async def nothing(params: Message) -> None:
        return None

    agent.handlers[PERMISSION] = nothing
