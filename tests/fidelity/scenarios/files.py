"""Files: reading, editing, creating, listing, searching."""

from __future__ import annotations

from tests.fidelity.agent import Message
from tests.fidelity.play import Play
from tests.fidelity.scenario import scenario


def edit(name: str, old: str, new: str, **more: object) -> tuple[str, Message]:
    return "search_replace", {"file_path": name, "old_string": old, "new_string": new, **more}


def text_file(play: Play, count: int = 9, end: str = "\n") -> tuple[str, list[str]]:
    """A file of random lines; its name and its lines."""
    name, lines = f"{play.word()}.txt", play.lines(count)
    play.write(name, "".join(line + end for line in lines))
    return name, lines


@scenario(17, "read range and missing file", "files")
async def read(play: Play) -> None:
    await play.begin()
    name, _ = text_file(play, 34)
    play.write(empty := f"{play.word()}.txt", "")
    await play.prompt(
        play.call("read_file", {"target_file": name, "offset": 8, "limit": 15}),
        play.call("read_file", {"target_file": name, "offset": -4}),
        play.call("read_file", {"target_file": name, "offset": 60}),
        play.call("read_file", {"target_file": str(play.work / name), "offset": 0, "limit": 2}),
        play.call("read_file", {"target_file": empty}),
        play.call("read_file", {"target_file": f"{play.word()}/{play.word()}.txt"}),
        play.call("read_file", {"target_file": "."}),
        play.say(),
    )


@scenario(18, "edit unique with diff", "files")
async def unique(play: Play) -> None:
    await play.begin()
    name, lines = text_file(play, 12)
    await play.prompt(
        play.call("read_file", {"target_file": name}),
        play.calls(
            edit(name, f"{lines[5]}\n{lines[6]}", f"{play.word()}\n{play.word()} {lines[6]}\n{play.word()}")
        ),
        play.call("read_file", {"target_file": name}),
        play.say(),
    )


@scenario(19, "edit ambiguous", "files")
async def ambiguous(play: Play) -> None:
    await play.begin()
    word, name = play.word(), f"{play.word()}.txt"
    play.write(name, f"{word}\n{play.word()}\n{word} {word}\n")
    await play.prompt(
        play.call("read_file", {"target_file": name}), play.calls(edit(name, word, play.word())), play.say()
    )


@scenario(20, "replace all", "files")
async def replace_all(play: Play) -> None:
    await play.begin()
    word, name = play.word(), f"{play.word()}.txt"
    play.write(name, "".join(f"{play.word()} {word}\n{play.word()}\n" for _ in range(3)))
    await play.prompt(
        play.call("read_file", {"target_file": name}),
        play.calls(edit(name, word, play.word(), replace_all=True)),
        play.say(),
    )


@scenario(21, "no match and nearest line", "files")
async def no_match(play: Play) -> None:
    await play.begin()
    name, lines = text_file(play)
    near = lines[4].split()[0]
    same = lines[2]
    await play.prompt(
        play.call("read_file", {"target_file": name}),
        play.calls(edit(name, f"{near} {play.word()[:4]}", play.word())),
        play.calls(edit(name, play.word(), play.word())),
        play.calls(edit(name, same, same)),
        play.calls(edit(f"{play.word()}.txt", play.word(), play.word())),
        play.say(),
    )


@scenario(22, "confusable punctuation", "files")
async def confusable(play: Play) -> None:
    await play.begin()
    name, words = f"{play.word()}.txt", [play.word() for _ in range(4)]
    curly = f"{words[0]} “{words[1]}” — {words[2]}… ‘{words[3]}’ –\u00a0{words[0]}\n"
    plain = f'{words[0]} "{words[1]}" -- {words[2]}...'
    play.write(name, f"{play.word()}\n{curly}{play.word()}\n")
    await play.prompt(
        play.call("read_file", {"target_file": name}), play.calls(edit(name, plain, play.word())), play.say()
    )


@scenario(23, "gitignored and directory", "files")
async def ignored(play: Play) -> None:
    await play.begin_in_repository()
    hidden, folder = f"{play.word()}.log", play.word()
    play.write(hidden, f"{play.word()}\n")
    play.write(f"{folder}/{play.word()}.txt", f"{play.word()}\n")
    await play.prompt(
        play.calls(edit(hidden, play.word(), play.word())),
        play.calls(edit(folder, play.word(), play.word())),
        play.call("read_file", {"target_file": hidden}),
        play.call("read_file", {"target_file": folder}),
        play.say(),
    )


@scenario(24, "CRLF", "files")
async def crlf(play: Play) -> None:
    await play.begin()
    name, lines = text_file(play, 5, "\r\n")
    mixed, words = f"{play.word()}.txt", [play.word() for _ in range(4)]
    play.write(mixed, f"{words[0]}\r\n{words[1]}\n{words[2]}\r\n{words[3]}")
    await play.prompt(
        play.call("read_file", {"target_file": name}),
        play.calls(edit(name, f"{lines[1]}\n{lines[2]}", f"{play.word()}\n{play.word()}\n{play.word()}")),
        play.calls(edit(name, f"{lines[3]}\r\n{lines[4]}", play.word())),
        play.calls(edit(mixed, words[1], play.word())),
        play.say(),
    )


@scenario(25, "empty old string creates", "files")
async def create(play: Play) -> None:
    await play.begin()
    name, empty = f"{play.word()}/{play.word()}/{play.word()}.txt", f"{play.word()}.txt"
    play.write(empty, "")
    await play.prompt(
        play.calls(edit(name, "", "\n".join(play.lines(3)))),
        play.calls(edit(empty, "", play.word() + "\n")),
        play.call(
            "write",
            {"file_path": f"{play.word()}/{play.word()}.txt", "content": "\n".join(play.lines(2)) + "\n"},
        ),
        play.call("write", {"file_path": empty, "content": play.word() + "\n"}),
        play.say(),
    )


@scenario(26, "list and grep with ignores", "files")
async def listing(play: Play) -> None:
    await play.begin_in_repository()
    word, folder = play.word(), play.word()
    for name in (
        f"{folder}/{play.word()}.txt",
        f"{folder}/{play.word()}.log",
        f"{play.word()}.py",
        f".{play.word()}",
    ):
        play.write(name, f"{play.word()}\n{word} {play.word()}\n{play.word()}\n")
    await play.prompt(
        play.call("list_dir", {"target_directory": "."}),
        play.call("list_dir", {"target_directory": play.word()}),
        play.call("grep", {"pattern": word, "path": folder}),
        play.call("grep", {"pattern": word.upper(), "path": folder, "-i": True, "-C": 1}),
        play.call("grep", {"pattern": word, "glob": "*.py", "-A": 1}),
        play.call("grep", {"pattern": play.word()}),
        play.call("grep", {"pattern": f"({word}"}),
        play.say(),
    )
