"""Turns without tools, and the model's failures."""

from __future__ import annotations

import contextlib

from tests.fidelity.agent import RpcError
from tests.fidelity.play import Play
from tests.fidelity.scenario import Deviation, scenario


@scenario(0, "opening", "agent")
async def opening(play: Play) -> None:
    """What every play begins with: `initialize`, `session/new`, the tools that the model is offered."""
    await play.begin()
    await play.prompt(play.say())
    await play.settle()


@scenario(1, "text in chunks", "agent")
async def text(play: Play) -> None:
    await play.begin()
    await play.prompt(play.say(" ".join(play.lines(4)), chunks=4))
    await play.settle()


@scenario(2, "thoughts then text", "agent")
async def thoughts(play: Play) -> None:
    await play.begin()
    await play.prompt(play.say(" ".join(play.lines(3)), think=" ".join(play.lines(3)), chunks=3))
    await play.settle()


@scenario(3, "refusal", "agent")
async def refusal(play: Play) -> None:
    await play.begin()
    await play.prompt(play.say(finish="content_filter"))
    await play.prompt(play.say())


@scenario(4, "token limit", "agent")
async def token_limit(play: Play) -> None:
    await play.begin()
    with contextlib.suppress(RpcError):
        await play.prompt(play.say(chunks=2, finish="length"))
    await play.prompt(play.say())


#: After a broken stream.
RESUMED = Deviation(
    "session/update/agent_message_chunk",
    "*",
    "after a broken stream the original sends the text from its beginning again; here it goes on where it "
    "broke, and text that differs follows on a new line",
)


@scenario(5, "broken stream", "agent", differs=(RESUMED,))
async def broken_stream(play: Play) -> None:
    """The same text again; then one that differs from the middle on; then one that differs at once."""
    await play.begin()
    broken = {"chunks": 10, "drop": True, "linger": 0.2, "times": 1}
    await play.prompt(play.say(" ".join(play.lines(5)), **broken))
    text, start = " ".join(play.lines(5)), 3
    other = " ".join([*text.split()[:start], *play.lines(4)])
    await play.prompt(play.say(text, **broken, then=play.say(other, chunks=7)))
    await play.prompt(
        play.say(" ".join(play.lines(5)), **broken, then=play.say(" ".join(play.lines(2)), chunks=3))
    )


@scenario(6, "model 401", "agent")
async def unauthorised(play: Play) -> None:
    await play.begin()
    with contextlib.suppress(RpcError):
        await play.prompt(play.say(play.word(), status=401))
    await play.prompt(play.say())


@scenario(7, "two tool rounds", "agent")
async def rounds(play: Play) -> None:
    await play.begin()
    name = f"{play.word()}.txt"
    play.write(name, "\n".join(play.lines(3)) + "\n")
    await play.prompt(
        play.call("read_file", {"target_file": name}, think=play.word(), text=play.word()),
        play.call("run_terminal_command", {"command": f"echo {play.word()}", "description": play.word()}),
        play.say(chunks=2),
    )
