"""What stands between a call and its effect: permissions, hooks, questions, plan mode."""

from __future__ import annotations

from typing import Any

from tests.fidelity.agent import Message
from tests.fidelity.play import Play
from tests.fidelity.scenario import Deviation, scenario
from tests.fidelity.scenarios.terminal import command

PERMISSION, HOOK = "session/request_permission", "_x.ai/hooks/run"
QUESTION, PLAN = "_x.ai/ask_user_question", "_x.ai/exit_plan_mode"


def answers(play: Play, method: str, *results: Any) -> None:
    """Answer requests of a kind one after the other; the last answer stays."""
    rest = list(results)

    async def answer(params: Message) -> Any:
        return rest.pop(0) if len(rest) > 1 else rest[0]

    play.agent.handlers[method] = answer


def selected(option: str, **meta: Any) -> Message:
    answer: Message = {"outcome": {"outcome": "selected", "optionId": option}}
    return {**answer, "_meta": meta} if meta else answer


def asked(play: Play) -> tuple[str, Message]:
    """A call that the default mode does not allow by itself."""
    return command(play, f"python3 -c \"print('{play.word()}')\"")


@scenario(30, "allow then reject", "permissions")
async def reject(play: Play) -> None:
    await play.begin(yolo=False)
    answers(play, PERMISSION, selected("allow-once"), selected("reject-once"))
    await play.prompt(play.calls(asked(play)), play.calls(asked(play), asked(play)), play.say())


@scenario(31, "reject with a message", "permissions")
async def reject_and_go_on(play: Play) -> None:
    await play.begin(yolo=False)
    answers(play, PERMISSION, selected("reject-once", followup_message=f"{play.word()} {play.word()}"))
    await play.prompt(play.calls(asked(play)), play.say())


def hooks(event: str, timeout: int = 20, **more: Any) -> Message:
    return {"x.ai/hooks": {event: [{"hookCallbackIds": [event], "timeout": timeout, **more}]}}


@scenario(32, "pre hook denies", "permissions")
async def pre_hook(play: Play) -> None:
    await play.begin(**hooks("pre_tool_use", matcher="run_terminal.*|read_file"))
    answers(play, HOOK, {"decision": "deny", "reason": play.word()}, {})
    text = f"echo {play.word()}"
    await play.prompt(play.calls(command(play, text)), play.calls(command(play, text)), play.say())


@scenario(33, "post hook adds context", "permissions")
async def post_hook(play: Play) -> None:
    await play.begin(**hooks("post_tool_use"))
    answers(play, HOOK, {"additionalContext": play.word()}, {"decision": "block", "reason": play.word()})
    text = f"echo {play.word()}"
    await play.prompt(play.calls(command(play, text)), play.calls(command(play, text)), play.say())


@scenario(34, "stop hook blocks", "permissions")
async def stop_hook(play: Play) -> None:
    await play.begin(**hooks("stop"))
    answers(play, HOOK, {"decision": "block", "reason": play.word()}, {"additionalContext": play.word()}, {})
    await play.prompt(play.say(), play.say(), play.say())


@scenario(35, "question", "permissions")
async def question(play: Play) -> None:
    await play.begin()
    labels = [play.word() for _ in range(3)]
    options = [{"label": label, "description": play.word()} for label in labels]
    texts = [play.word(), play.word()]
    accepted = {
        "outcome": "accepted",
        "answers": {texts[0]: labels[:2]},
        "annotations": {texts[0]: {"notes": play.word()}},
    }
    answers(play, QUESTION, accepted, {"outcome": "cancelled"})
    await play.prompt(
        play.call(
            "ask_user_question",
            {"questions": [{"question": texts[0], "options": options, "multi_select": True}]},
        ),
        play.call("ask_user_question", {"questions": [{"question": texts[1], "options": options[:2]}]}),
        play.say(),
    )


@scenario(36, "plan mode exit", "permissions")
async def plan(play: Play) -> None:
    await play.begin()
    answers(play, PLAN, {"outcome": "approved"})
    refused = f"{play.word()}.txt"
    await play.prompt(
        play.call("enter_plan_mode", {}),
        play.call("search_replace", {"file_path": refused, "old_string": "", "new_string": play.word()}),
        play.call("exit_plan_mode", {}),
        play.say(),
    )


#: Every event that a client can register for.
EVENTS = [
    "session_start",
    "user_prompt_submit",
    "pre_tool_use",
    "post_tool_use",
    "post_tool_use_failure",
    "permission_denied",
    "stop",
    "stop_failure",
    "stop_cancelled",
    "notification",
    "session_end",
]


#: Told of events before the first line of a session is on the disk, too.
TRANSCRIPT = Deviation(
    "_x.ai/hooks/event",
    "params transcriptPath",
    "the original leaves the path out as long as the file is not there",
)


@scenario(50, "events of hooks", "permissions", differs=(TRANSCRIPT,))
async def events(play: Play) -> None:
    """All of them: calls that work, fail, are rejected with a message and without one; a cancelled turn."""
    registered = {event: [{"hookCallbackIds": [event], "timeout": 20}] for event in EVENTS}
    await play.begin(yolo=False, **{"x.ai/hooks": registered})
    answers(play, HOOK, {})
    followup = selected("reject-once", followup_message=play.word())
    answers(play, PERMISSION, selected("allow-once"), followup, selected("reject-once"))
    await play.prompt(
        play.calls(asked(play)),
        play.call("read_file", {"target_file": f"{play.word()}.txt"}),
        play.calls(asked(play)),
        play.say(),
    )
    await play.prompt(play.calls(asked(play)))
    turn = play.send(play.say(gate="held"))
    await play.model.waiting("held")
    play.agent.notify("session/cancel", {"sessionId": play.session})
    await turn
