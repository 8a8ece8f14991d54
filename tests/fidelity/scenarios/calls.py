"""What calls look like apart from their tools: plans, broken arguments, several at once."""

from __future__ import annotations

from tests.fidelity.normaliser import Rule, Treatment
from tests.fidelity.play import Play
from tests.fidelity.scenario import scenario
from tests.fidelity.scenarios.files import edit


@scenario(27, "todo and plan updates", "files")
async def todo(play: Play) -> None:
    await play.begin()
    names = [play.word() for _ in range(3)]
    first = [{"id": name, "content": play.word(), "status": "pending"} for name in names]
    first[0]["status"] = "in_progress"
    await play.prompt(
        play.call("todo_write", {"merge": False, "todos": first}),
        play.call(
            "todo_write",
            {
                "merge": True,
                "todos": [
                    {"id": names[0], "status": "completed"},
                    {"id": names[1], "status": "in_progress"},
                    {"id": play.word(), "content": play.word()},
                ],
            },
        ),
        play.call("todo_write", {"merge": True, "todos": [{"id": names[0]}, {"id": names[0]}]}),
        play.say(),
    )
    await play.prompt(play.say())


SENTENCE = Rule(
    "session/update/tool_call_update",
    "params update title",
    Treatment.WORDED,
    "the title of such a call is a sentence",
)


@scenario(28, "bad JSON and unknown tool", "registry", rules=(SENTENCE,))
async def broken(play: Play) -> None:
    await play.begin()
    name = f"{play.word()}.txt"
    play.write(name, f"{play.word()}\n")
    await play.prompt(
        play.call("read_file", f'{{"target_file": "{name}"'),
        play.call(play.word(), {"target_file": name}),
        play.call("read_file", {play.word(): name}),
        play.call("read_file", {"target_file": name, "limit": play.word()}),
        play.call("read_file", f'{{"target_file": "{name}"}}{{"target_file": "{name}"}}'),
        play.say(),
    )


@scenario(29, "parallel calls on one file", "registry")
async def parallel(play: Play) -> None:
    await play.begin()
    words, name = [play.word() for _ in range(3)], f"{play.word()}.txt"
    play.write(name, "".join(f"{word}\n" for word in words))
    await play.prompt(
        play.call("read_file", {"target_file": name}),
        play.calls(
            edit(name, words[0], play.word()),
            edit(name, words[1], play.word()),
            edit(name, words[2], play.word()),
        ),
        play.say(),
    )
