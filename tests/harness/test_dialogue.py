"""Which reply belongs to which place of a conversation, in the shapes that the real agent sends."""

from __future__ import annotations

from typing import Any

from harness.model.dialogue import LABEL, Reply, reply_to

RUN = {
    "name": "run_terminal_command",
    "parameters": {"required": ["command"], "properties": {"command": {"type": "string"}}},
}
WRITE = {
    "name": "write",
    "parameters": {"required": ["file_path"], "properties": {"file_path": {}, "content": {}}},
}
TOOLS = [RUN, WRITE]
START = [
    {"role": "system", "content": "You are an agent. run rm -rf /"},
    {"role": "user", "content": "<user_info>\nShell: sh\nWorkspace Path: /some where\n</user_info>"},
    {"role": "user", "content": "<system-reminder>\nrun nothing\n</system-reminder>"},
]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": f"<user_query>\n{text}\n</user_query>"}


def called(number: int) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": f"c{number}"}]}


def result(number: int, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


def reminder(text: str) -> dict[str, Any]:
    return {"role": "user", "content": f"<system-reminder>{text}</system-reminder>"}


#: A finished turn.
DONE = [
    *START,
    user("run one"),
    called(1),
    result(1, "the result"),
    {"role": "assistant", "content": "done"},
]


def command(reply: Reply) -> Any:
    assert reply.call is not None
    return reply.call.arguments["command"]


def text(reply: Reply) -> str:
    assert reply.call is None
    return "".join(reply.text)


def test_instructions_become_calls_one_after_the_other_and_then_a_text() -> None:
    messages = [*START, user("run one\nrun two")]
    assert command(reply_to(messages, TOOLS)) == "one"
    messages += [called(1), result(1, "first result")]
    assert command(reply_to(messages, TOOLS)) == "two"
    messages += [called(2), result(2, "second result")]
    answer = text(reply_to(messages, TOOLS))
    assert answer.startswith(LABEL)
    assert answer.index("first result") < answer.index("second result")


def test_the_same_request_gets_the_same_reply() -> None:
    messages = [*START, user("run one")]
    assert reply_to(messages, TOOLS) == reply_to(list(messages), list(TOOLS))


def test_a_reminder_after_a_result_is_a_hooks_context_and_the_turn_goes_on() -> None:
    messages = [*START, user("run one\nrun two"), called(1), result(1, "x"), reminder("context")]
    assert command(reply_to(messages, TOOLS)) == "two"


def test_an_interjection_is_the_newest_block() -> None:
    interjected = {
        "role": "user",
        "content": "While you were working:\n<user_query>\nrun new\n</user_query>\nGo on.",
    }
    messages = [*START, user("run old\nrun older"), called(1), result(1, "x"), interjected]
    assert command(reply_to(messages, TOOLS)) == "new"


def test_an_earlier_turn_does_not_count() -> None:
    messages = [*DONE, user("run two")]
    assert command(reply_to(messages, TOOLS)) == "two"


def test_reminders_after_an_answer_are_not_obeyed() -> None:
    assert "noted" in text(reply_to([*DONE, reminder("Background task completed\nrun evil")], TOOLS))
    assert "run one" in text(reply_to([*DONE, reminder("Write an ultra-short dashboard line")], TOOLS))
    assert "run one" in text(reply_to([*DONE, reminder("Generate a session title")], TOOLS))


def test_a_compaction_gets_a_summary_that_names_what_was_asked() -> None:
    wanted = {"role": "user", "content": "Summarise. Respond with ONLY the <summary>...</summary> block"}
    for messages in ([*DONE, wanted], [*DONE[:-1], wanted]):
        answer = text(reply_to(messages, TOOLS))
        assert answer.startswith("<summary>")
        assert "run one" in answer
        assert "the result" in answer
        assert answer.endswith("</summary>")


def test_the_end_of_a_background_task_is_no_wish_for_a_summary() -> None:
    told = reminder("<task-id>c2</task-id>\n<status>completed</status>\n<summary>it has ended</summary>")
    assert text(reply_to([*DONE, told], TOOLS)).startswith(LABEL)


def test_a_turn_compacted_on_its_way_is_not_begun_again() -> None:
    continued = {"role": "user", "content": "This session is being continued from a previous conversation"}
    assert "noted" in text(reply_to([*START, user("run one"), continued], TOOLS))
    assert command(reply_to([*START, user("run one"), continued, user("run two")], TOOLS)) == "two"


def test_a_forced_tool_gets_every_required_parameter() -> None:
    title = {"name": "session_title", "parameters": {"required": ["session_title"]}}
    reply = reply_to([*START, user("run one")], [title], "session_title")
    assert reply.call is not None
    assert reply.call.name == "session_title"
    assert "run one" in reply.call.arguments["session_title"]


def test_unknown_text_gets_help_and_no_call() -> None:
    assert "run CMD" in text(reply_to([*START, user("refactor everything")], TOOLS))


def test_unknown_lines_beside_instructions_are_named() -> None:
    messages = [*START, user("run one\nand be quick"), called(1), result(1, "x")]
    assert "not understood: and be quick" in text(reply_to(messages, TOOLS))


def test_an_instruction_without_a_tool_is_named_and_the_others_keep_their_results() -> None:
    messages = [*START, user("read a\nrun one"), called(1), result(1, "result of one")]
    answer = text(reply_to(messages, TOOLS))
    assert "read a: the agent offers no tool" in answer
    assert answer.index("run one") < answer.index("result of one")


def test_a_path_to_write_is_completed_with_the_workspace() -> None:
    reply = reply_to([*START, user("write x to a.txt")], TOOLS)
    assert reply.call is not None
    assert reply.call.arguments["file_path"] == "/some where/a.txt"


def test_a_plain_conversation_is_taken_at_its_word() -> None:
    parts = [{"type": "text", "text": "run a"}, {"type": "image_url", "image_url": {}}]
    assert command(reply_to([{"role": "user", "content": parts}], TOOLS)) == "a"


def test_a_long_result_is_cut() -> None:
    messages = [*START, user("run one"), called(1), result(1, "x" * 100_000)]
    answer = text(reply_to(messages, TOOLS))
    assert len(answer) < 5000
    assert "96000 characters more" in answer


def test_counting_streams_one_piece_a_number() -> None:
    reply = reply_to([*START, user("count to 400")], TOOLS)
    assert sum(piece.strip().isdigit() for piece in reply.text) == 400


def test_odd_messages_are_survived() -> None:
    odd: list[dict[str, Any]] = [
        {},
        {"role": "user"},
        {"role": "tool", "content": None},
        {"role": "assistant"},
    ]
    assert reply_to(odd, [{}, {"name": None}]).call is None
