"""What lines mean, and which calls they become."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.model.instructions import COUNT_MAX, Instruction, call_for, parse

LINES = [
    ("run ls", "run", {"command": "ls"}),
    ("RUN: ls -la | head", "run", {"command": "ls -la | head"}),
    ("please run `ls -la`", "run", {"command": "ls -la"}),
    ("- run echo 'a b'", "run", {"command": "echo 'a b'"}),
    ("2) run 'ls'", "run", {"command": "ls"}),
    ("read notes.txt", "read", {"path": "notes.txt"}),
    ('read "a file.txt"', "read", {"path": "a file.txt"}),
    ("list .", "list", {"path": "."}),
    ("search foo in bar in src/in", "search", {"pattern": "foo in bar", "path": "src/in"}),
    ("write hello to a.txt", "write", {"text": "hello", "path": "a.txt"}),
    ("write road to nowhere to a.txt", "write", {"text": "road to nowhere", "path": "a.txt"}),
    ("write a.txt: hello to you", "write", {"path": "a.txt", "text": "hello to you"}),
    ("write a.txt: x: y", "write", {"path": "a.txt", "text": "x: y"}),
    (r'write "one\ntwo\n" to a.txt', "write", {"text": "one\ntwo\n", "path": "a.txt"}),
    (r"write 'one\ntwo' to a.txt", "write", {"text": r"one\ntwo", "path": "a.txt"}),
    ('write "to" to "to"', "write", {"text": "to", "path": "to"}),
    ("replace a with b in c.txt", "replace", {"old": "a", "new": "b", "path": "c.txt"}),
    (
        "replace a with b with c in d in e",
        "replace",
        {"old": "a", "new": "b with c in d", "path": "e"},
    ),
    ("replace 'a with b' with \"\" in c", "replace", {"old": "a with b", "new": "", "path": "c"}),
    ("ask Really?", "ask", {"question": "Really?", "options": ("Yes", "No")}),
    ("ask Which? red | blue", "ask", {"question": "Which?", "options": ("red", "blue")}),
    ("ask tell me", "ask", {"question": "tell me", "options": ("Yes", "No")}),
    ("ask What? only this", "ask", {"question": "What? only this", "options": ("Yes", "No")}),
    ("count to 3", "count", {"number": 3}),
    ("count to 99999999999999999999", "count", {"number": COUNT_MAX}),
]


@pytest.mark.parametrize(("line", "verb", "values"), LINES, ids=[line for line, _, _ in LINES])
def test_line(line: str, verb: str, values: dict[str, Any]) -> None:
    parsed = parse(line)
    assert parsed.unknown == ()
    assert parsed.instructions == (Instruction(verb, values),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "line",
    ["hello", "running ls", "run", "write x", "replace a in b", "count to", "I run ls", "runls"],
)
def test_line_that_is_no_instruction(line: str) -> None:
    assert parse(line).instructions == ()
    assert parse(line).unknown == (line,)


def test_block_keeps_the_order_and_the_unknown_lines() -> None:
    parsed = parse("\nrun a\n\nhello there\n  read b\n")
    assert [i.verb for i in parsed.instructions] == ["run", "read"]
    assert parsed.unknown == ("hello there",)


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    parsed = parse(text)
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(parsed.instructions) + len(parsed.unknown) <= len(lines)


def tool(name: str, required: list[str], **properties: Any) -> dict[str, Any]:
    return {"name": name, "parameters": {"type": "object", "required": required, "properties": properties}}


STRING = {"type": "string"}
GROK = [
    tool(
        "run_terminal_command", ["command", "description"], command=STRING, description=STRING, timeout=STRING
    ),
    tool("read_file", ["target_file"], target_file=STRING, offset={"type": "integer"}),
    tool("list_dir", ["target_directory"], target_directory=STRING),
    tool("grep", ["pattern"], pattern=STRING, path=STRING),
    tool("write", ["file_path", "content"], file_path=STRING, content=STRING),
    tool(
        "search_replace",
        ["file_path", "old_string", "new_string"],
        file_path=STRING,
        old_string=STRING,
        new_string=STRING,
        replace_all={"type": "boolean"},
    ),
    tool(
        "ask_user_question",
        ["questions"],
        questions={
            "type": "array",
            "items": {"properties": {"question": STRING, "options": {"items": {"type": "object"}}}},
        },
    ),
]
PI = [
    tool("bash", ["command"], command=STRING),
    tool("read", ["path"], path=STRING),
    tool("write", ["path", "content"], path=STRING, content=STRING),
    tool("edit", ["path", "oldText", "newText"], path=STRING, oldText=STRING, newText=STRING),
    tool("question", ["question"], question=STRING, options={"items": STRING}),
]


@pytest.mark.parametrize(
    ("tools", "line", "name", "arguments"),
    [
        (GROK, "run ls", "run_terminal_command", {"command": "ls", "description": "run ls"}),
        (GROK, "read a", "read_file", {"target_file": "a"}),
        (GROK, "list a", "list_dir", {"target_directory": "a"}),
        (GROK, "search x in a", "grep", {"pattern": "x", "path": "a"}),
        (GROK, "write t to a", "write", {"content": "t", "file_path": "/ws/a"}),
        (GROK, "write t to /abs", "write", {"content": "t", "file_path": "/abs"}),
        (
            GROK,
            "replace a with b in c",
            "search_replace",
            {"file_path": "c", "old_string": "a", "new_string": "b"},
        ),
        (
            GROK,
            "ask Which? a | b",
            "ask_user_question",
            {
                "questions": [
                    {
                        "question": "Which?",
                        "options": [{"label": "a", "description": "a"}, {"label": "b", "description": "b"}],
                    }
                ]
            },
        ),
        (PI, "run ls", "bash", {"command": "ls"}),
        (PI, "read a", "read", {"path": "a"}),
        (PI, "replace a with b in c", "edit", {"path": "c", "oldText": "a", "newText": "b"}),
        (PI, "ask Which? a | b", "question", {"question": "Which?", "options": ["a", "b"]}),
    ],
)
def test_call(tools: list[dict[str, Any]], line: str, name: str, arguments: dict[str, Any]) -> None:
    (instruction,) = parse(line).instructions
    call = call_for(instruction, tools, "/ws")
    assert call is not None
    assert (call.name, dict(call.arguments)) == (name, arguments)


@pytest.mark.parametrize(
    "tools",
    [
        pytest.param([], id="none"),
        pytest.param([tool("bash", ["command", "token"], command=STRING, token=STRING)], id="required"),
        pytest.param([tool("run_terminal_command", [], line=STRING)], id="no parameter for the command"),
        pytest.param([{"name": "run_terminal_command"}], id="no schema"),
        pytest.param([tool("read_file", [], command=STRING)], id="another tool"),
    ],
)
def test_no_call_when_no_tool_can_take_it(tools: list[dict[str, Any]]) -> None:
    (instruction,) = parse("run ls").instructions
    assert call_for(instruction, tools) is None


def test_the_offered_spelling_of_a_name_is_kept() -> None:
    (instruction,) = parse("run ls").instructions
    call = call_for(instruction, [tool("Bash", ["command"], command=STRING)])
    assert call is not None
    assert call.name == "Bash"
