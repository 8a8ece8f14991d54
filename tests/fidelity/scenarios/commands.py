"""Prompts that are commands to the engine."""

from __future__ import annotations

from tests.fidelity.normaliser import Rule, Treatment
from tests.fidelity.play import Play
from tests.fidelity.scenario import Deviation, scenario
from tests.fidelity.scenarios.terminal import command

_COUNTED = "counts the engine's own system prompt and tool texts, and its own words around a summary"
ESTIMATES = tuple(
    Rule("*/auto_compact_completed", f"params update tokens_{when}", Treatment.TYPED, _COUNTED)
    for when in ("before", "after")
)
OWN_SUMMARY = (
    Deviation("*/compaction_checkpoint", "whole message", "there is no going back to before a summary here"),
    Deviation(
        "session/update/user_message_chunk",
        "whole message",
        "the command is on the disk before it is carried out, in the original afterwards",
    ),
    Deviation("model compaction", "body *", "each engine asks for a summary in its own words"),
    Deviation("model turn", "body messages*", "and stands its own around it"),
)
SHEET = Rule(
    "session/update/agent_message_chunk",
    "params update content text",
    Treatment.WORDED,
    "what is said of a session has each engine's own words",
)
SAID = Deviation(
    "session/update/agent_message_chunk",
    "whole message",
    "/context says how much of the window is used; the original leaves that to its own screen",
)


@scenario(51, "compact", "agent", differs=OWN_SUMMARY, rules=ESTIMATES)
async def compact(play: Play) -> None:
    """By command, with and without a wish; the next turn works on the summary."""
    await play.begin()
    await play.prompt(play.calls(command(play, f"echo {play.word()}")), play.say())
    await ask(play, "/compact")
    await play.prompt(play.say())
    await ask(play, f"/compact {play.word()}")
    await play.settle()
    await play.load(play.agent)


@scenario(52, "commands without a model", "agent", differs=(SAID,), rules=(SHEET,))
async def commands(play: Play) -> None:
    await play.begin()
    await play.prompt(play.say())
    for text in ("/context", "/session-info", "/always-approve off", "/always-approve on"):
        await ask(play, text)
    await play.settle()


async def ask(play: Play, text: str) -> None:
    """A prompt with exactly this text."""
    block = {"type": "text", "text": text}
    await play.agent.request("session/prompt", {"sessionId": play.session, "prompt": [block]})
