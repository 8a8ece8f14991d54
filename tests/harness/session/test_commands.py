"""Prompts that are commands: what is one, and what is said of a session."""

from __future__ import annotations

import pytest

from harness.session.commands import COMMANDS, Sheet, approval_wish, read_command
from harness.session.compaction import newest_query, summary_in


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/compact", ("compact", "")),
        ("  /Compact  keep the names \n", ("compact", "keep the names")),
        ("/compact\nkeep", ("compact", "keep")),
        ("/context", ("context", "")),
        ("/always-approve on", ("always-approve", "on")),
        ("/compactor", None),
        ("/zzz", None),
        ("compact", None),
        ("please /compact", None),
        ("/", None),
        ("", None),
    ],
)
def test_what_is_a_command(text: str, command: tuple[str, str] | None) -> None:
    assert read_command(text) == command


def test_what_is_told_of_is_what_works() -> None:
    for told in COMMANDS:
        assert read_command(f"/{told['name']}") is not None


@pytest.mark.parametrize("holds", [True, False])
def test_only_on_and_off_decide_whether_tools_run_unasked(holds: bool) -> None:
    assert approval_wish("ON", holds) is True
    assert approval_wish("off", holds) is False
    assert approval_wish("", holds) is not holds
    assert approval_wish("yes", holds) is None


def test_the_sheet_of_a_session() -> None:
    sheet = Sheet("S", None, "/w", "m", 3, 1, 200)
    assert sheet.context() == "**Context:** 1 of 200 tokens (1%)"
    assert all(part in sheet.text() for part in ("(none)", "S", "/w", "m", "3", "1%"))
    parts = [(4035, 2), (2663, 1), (5022, 3), (999, 0)]  # rounded, as in the original
    for tokens, percent in parts:
        assert f"({percent}%)" in Sheet("S", "t", "/w", "m", 3, tokens, 200_000).context()
    assert "(100%)" in Sheet("S", "t", "/w", "m", 3, 900, 200).context()


def test_a_summary_stands_between_its_tags_or_is_all_there_is() -> None:
    long = "word " * 100
    assert summary_in(f"so:\n<summary>\n{long}</summary> bye") == long.strip()
    assert summary_in(f"<summary>{long}") == long.strip()  # the end was cut off
    assert summary_in(long) == long.strip()
    assert summary_in("<summary>too short</summary>") == ""


def test_the_newest_text_of_the_user_is_kept() -> None:
    typed = [{"role": "user", "content": f"<user_query>\n{n}\n</user_query>"} for n in range(2)]
    behind = {"role": "user", "content": "<system-reminder>x</system-reminder>"}
    assert newest_query([*typed, {"role": "assistant", "content": "<user_query>"}, behind]) == [typed[1]]
    assert newest_query([behind]) == []
