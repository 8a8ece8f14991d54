"""What a client does to a turn under way."""

from __future__ import annotations

import asyncio

from tests.fidelity.play import Play
from tests.fidelity.scenario import scenario
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
    turn = play.send(
        play.calls(command(play, f"sleep 1.5; echo {play.word()}")), play.say(), play.say(), play.say()
    )
    await play.update("tool_call")
    await play.settle(0.5)
    await play.agent.request("_x.ai/interject", {"sessionId": play.session, "text": play.word()})
    await turn
    await play.settle()
    await play.agent.request("_x.ai/interject", {"sessionId": play.session, "text": play.word()})
    await play.update("turn_completed", 2)
