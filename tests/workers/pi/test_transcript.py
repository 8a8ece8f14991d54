"""From Pi's transcript to what Grok is given."""

from __future__ import annotations

import base64
from typing import Any

from workers.pi.transcript import (
    HISTORY,
    Entry,
    delivery,
    entries_of,
    person_entry,
    position_of,
    rules_of,
    system_text,
)


def user(text: Any, at: int) -> dict[str, Any]:
    return {"role": "user", "content": text, "timestamp": at}


def assistant(text: str, at: int, provider: str = "grok") -> dict[str, Any]:
    return {
        "role": "assistant",
        "provider": provider,
        "content": [{"type": "text", "text": text}],
        "timestamp": at,
    }


def branch(*messages: dict[str, Any]) -> list[Entry]:
    entries = [
        {"id": f"e{m['timestamp']}", "type": "message", "role": m["role"], "ts": m["timestamp"]}
        for m in messages
    ]
    return entries_of(entries, messages)


def test_only_what_follows_the_watermark_goes_out() -> None:
    entries = branch(user("one", 1), assistant("first", 2), user("two", 3))
    known = position_of(entries, "e1")
    assert known == 1
    what = delivery(entries, known, new=False)
    assert (what.text, what.delivered, what.prompt_entry) == ("two", "e3", "e3")


def test_two_messages_without_an_answer_between_go_out_once_each() -> None:
    entries = branch(user("one", 1), user("two", 2))
    assert delivery(entries, 1, new=False).text == "two"
    assert delivery(entries, 0, new=False).text == "one\n\ntwo"


def test_a_watermark_on_another_branch_is_not_found() -> None:
    assert position_of(branch(user("one", 1)), "gone") is None
    assert position_of(branch(user("one", 1)), "") == 0


def test_nothing_new_is_no_text() -> None:
    entries = branch(user("one", 1), assistant("first", 2))
    assert delivery(entries, 1, new=False).text == ""


def test_another_models_turns_are_told_as_text() -> None:
    call = {"type": "toolCall", "id": "c", "name": "grep", "arguments": {"a": 1}}
    other = assistant("its words", 4, "other")
    other["content"].append(call)
    result = {
        "role": "toolResult",
        "toolName": "grep",
        "isError": True,
        "content": [{"type": "text", "text": "boom"}],
        "timestamp": 5,
    }
    entries = branch(user("one", 1), assistant("mine", 2), user("two", 3), other, result, user("three", 6))
    text = delivery(entries, 1, new=False).text
    history, _, prompt = text.partition("\n\n---\n\n")
    assert prompt == "three"
    assert "mine" not in history
    for part in (
        "[user]\ntwo",
        "[assistant]\nits words",
        'grep({"a": 1})',
        "[tool result grep (failed)]\nboom",
    ):
        assert part in history


def test_a_new_session_gets_the_newest_part_of_a_long_past() -> None:
    entries = branch(user("old " * HISTORY, 1), assistant("mine too", 2), user("now", 3))
    text = delivery(entries, 0, new=True).text
    history = text.removeprefix("Conversation so far (Pi transcript):\n\n").removesuffix("\n\n---\n\nnow")
    assert len(history) == HISTORY + 1
    assert history.startswith("…")
    assert history.endswith("[assistant]\nmine too")


def test_entries_that_are_no_messages_and_compactions_are_left_out() -> None:
    messages = [user("summary of all", 2), user("two", 3)]
    entries = entries_of(
        [
            {"id": "a", "type": "model_change", "ts": 1},
            {"id": "b", "type": "compaction", "ts": 2},
            {"id": "c", "type": "message", "role": "user", "ts": 3},
            {"id": "d", "type": "custom", "customType": "grok-tool", "ts": 4},
        ],
        messages,
    )
    assert delivery(entries, 0, new=False).text == "two"


def test_messages_of_one_moment_are_told_apart_by_their_role() -> None:
    entries = branch(user("asked", 1), assistant("answered", 1, "other"))
    assert [e.message["role"] for e in entries if e.message] == ["user", "assistant"]


def test_without_entries_the_times_are_the_names() -> None:
    messages = [user("one", 1), assistant("a", 2), user("two", 3)]
    first = delivery(entries_of(None, messages[:1]), 0, new=True)
    later = entries_of(None, messages)
    assert delivery(later, position_of(later, first.delivered) or 0, new=False).text == "two"


def test_a_wake_is_recognised_and_never_told() -> None:
    messages = [user("go on", 5)]
    listed = {
        "id": "w",
        "type": "custom_message",
        "customType": "grok-wake",
        "ts": 5,
        "details": {"id": "t9"},
    }
    what = delivery(entries_of([listed], messages), 0, new=False)
    assert (what.wake, what.text) == ("t9", "")
    more = [listed, {"id": "u", "type": "message", "role": "user", "ts": 6}]
    after = delivery(entries_of(more, [*messages, user("next", 6)]), 0, new=False)
    assert (after.wake, after.text) == ("", "next")


def test_an_image_is_named_in_the_text() -> None:
    block = {"type": "image", "mimeType": "image/jpeg", "data": base64.b64encode(b"picture").decode()}
    what = delivery(branch(user([{"type": "text", "text": "see"}, block], 1)), 0, new=False)
    (image,) = what.images
    assert image.data == b"picture"
    assert image.name.endswith(".jpg")
    assert f"{{{image.name}}}" in what.text


def test_the_newest_thing_of_a_person() -> None:
    assert person_entry(branch(user("one", 1), assistant("a", 2))) == "e1"
    assert person_entry([]) == ""


def test_system_messages_are_patched_by_name() -> None:
    system = [
        {"content": "", "sections": {"preamble": "P", "tools": "T", "skills": "S"}},
        {"sections": {"skills": None, "addendum": "A"}},
    ]
    assert system_text(system) == "P\n\nT\n\nA"
    assert rules_of(system).endswith("\n\nP\n\nA")


def test_pis_own_tools_are_left_out_of_an_older_prompt() -> None:
    old = "You are an expert.\n\nAvailable tools:\n- read: x\n\nGuidelines:\n- y\n\nCurrent directory: /w"
    rules = rules_of([{"content": old}])
    assert "You are an expert." in rules
    assert "Current directory: /w" in rules
    assert "Available tools" not in rules
    assert "Guidelines" not in rules
