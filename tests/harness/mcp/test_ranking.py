"""Tools are found by words."""

from __future__ import annotations

from harness.tools.ranking import ranked

TEXTS = {
    "srv__add_numbers": "srv__add_numbers Adds two numbers and gives the sum a b",
    "srv__echo": "srv__echo Says it again text",
    "linear__createIssue": "linear__createIssue Open a ticket title",
    "other__add_numbers": "other__add_numbers Adds two numbers and gives the sum a b",
}


def names(query: str) -> list[str]:
    return [name for name, _ in ranked(TEXTS, query)]


def test_forms_of_a_word_and_parts_of_a_name_are_found() -> None:
    assert names("adding number") == ["other__add_numbers", "srv__add_numbers"]
    assert names("create issues") == ["linear__createIssue"]
    assert names("TICKET") == ["linear__createIssue"]


def test_the_servers_name_tells_equals_apart() -> None:
    assert names("srv add numbers")[0] == "srv__add_numbers"
    assert set(names("srv")) == {"srv__add_numbers", "srv__echo"}


def test_what_fits_nothing_finds_nothing() -> None:
    assert names("zebra") == []
    assert names("") == []
    assert ranked({}, "x") == []
