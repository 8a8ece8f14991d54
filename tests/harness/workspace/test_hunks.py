"""Hunks: who owns what, and what is left after a decision."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.workspace.hunks import HunkEvent, HunkMode, HunkTracker, Restored, Source
from harness.workspace.linediff import differences, patch, split_lines

PATH = "/w/file"
BASE = "".join(f"line {n}\n" for n in range(1, 31))


def changed(text: str, **lines: str | None) -> str:
    """``l5="x"`` replaces line 5, None removes it."""
    parts = split_lines(text)
    for name, new in lines.items():
        parts[int(name[1:]) - 1] = "" if new is None else f"{new}\n"
    return "".join(parts)


class Watched(HunkTracker):
    def __init__(self, mode: HunkMode = HunkMode.AGENT_ONLY) -> None:
        self.events: list[HunkEvent] = []
        super().__init__(mode, self.events.append, clock=lambda: 1.0)

    def told(self) -> list[tuple[str, str | None]]:
        told = [(event.kind, event.reason) for event in self.events]
        self.events.clear()
        return told

    def owners(self) -> list[tuple[int, Source, int | None]]:
        return [(h.new_start, h.origin.source, h.origin.prompt_index) for h in self.hunks()]


AGENT, FOREIGN = Source.AGENT, Source.EXTERNAL_ON_AGENT_FILE


def test_an_edit_is_a_hunk_with_its_turn() -> None:
    tracker = Watched()
    tracker.agent_wrote(PATH, changed(BASE, l5="five", l20=None), BASE, 3)
    first, second = tracker.hunks()
    assert (first.old_start, first.old_count, first.new_start, first.new_count) == (5, 1, 5, 1)
    assert (first.old_text, first.new_text) == ("line 5\n", "five\n")
    assert (second.old_start, second.old_count, second.new_start, second.new_count) == (20, 1, 19, 0)
    assert tracker.owners() == [(5, AGENT, 3), (19, AGENT, 3)]
    assert tracker.told() == [("file_added", None), ("added", None), ("added", None)]


def test_a_later_turn_owns_what_it_touches_only() -> None:
    tracker = Watched()
    one = changed(BASE, l5="five")
    tracker.agent_wrote(PATH, one, BASE, 0)
    known = tracker.hunks()[0]
    two = "new first\n" + changed(one, l25="late")
    tracker.agent_wrote(PATH, two, one, 1)
    assert tracker.owners() == [(1, AGENT, 1), (6, AGENT, 0), (26, AGENT, 1)]
    assert tracker.hunks()[1].id == known.id
    assert ("moved", None) in tracker.told()
    assert [h.new_start for h in tracker.hunks(prompt_index=0)] == [6]


def test_somebody_else_on_the_agents_file() -> None:
    tracker = Watched()
    one = changed(BASE, l5="five")
    tracker.agent_wrote(PATH, one, BASE, 0)
    tracker.told()
    tracker.file_changed(PATH, changed(one, l5="FIVE", l10="ten"))
    assert tracker.owners() == [(5, FOREIGN, None), (10, FOREIGN, None)]
    assert tracker.told() == [("content_changed", None), ("added", None)]


def test_a_change_seen_only_by_the_next_edit() -> None:
    tracker = Watched()
    one = changed(BASE, l5="five")
    tracker.agent_wrote(PATH, one, BASE, 0)
    theirs = changed(one, l15="theirs")
    tracker.agent_wrote(PATH, changed(theirs, l25="mine"), theirs, 1)
    assert tracker.owners() == [(5, AGENT, 0), (15, FOREIGN, None), (25, AGENT, 1)]


def test_taking_back_the_middle_leaves_the_owner_of_the_rest() -> None:
    tracker = Watched()
    one = changed(BASE, l5="a", l6="b", l7="c")
    tracker.agent_wrote(PATH, one, BASE, 0)
    tracker.file_changed(PATH, changed(one, l6="line 6"))
    assert tracker.owners() == [(5, AGENT, 0), (7, AGENT, 0)]


def test_undoing_by_hand_removes_the_hunk() -> None:
    tracker = Watched()
    tracker.agent_wrote(PATH, changed(BASE, l5="five"), BASE, 0)
    tracker.told()
    tracker.file_changed(PATH, BASE)
    assert tracker.hunks() == []
    assert tracker.told() == [("removed", "superseded")]


def test_modes() -> None:
    only, everything = Watched(), Watched(HunkMode.ALL_DIRTY)
    for tracker in (only, everything):
        tracker.file_changed(PATH, "new\n", "old\n")
    assert only.hunks() == []
    assert everything.owners() == [(1, Source.EXTERNAL, None)]
    everything.file_changed(PATH, "old\n")
    assert everything.paths() == []  # nobody needs to remember it
    assert everything.told()[-1] == ("file_removed", None)


def test_accepting_moves_the_baseline() -> None:
    tracker = Watched()
    text = changed(BASE, l5="five\nand more", l15=None, l25="late")
    tracker.agent_wrote(PATH, text, BASE, 0)
    first, second, third = tracker.hunks()
    tracker.told()
    tracker.accept([first.id])
    assert [h.id for h in tracker.hunks()] == [second.id, third.id]
    assert tracker.current(PATH) == text
    assert tracker.told() == [
        ("moved", None),
        ("moved", None),
        ("removed", "accepted"),
        ("baseline_updated", None),
    ]
    assert tracker.reject([second.id, third.id]) == [Restored(PATH, changed(BASE, l5="five\nand more"))]
    assert tracker.hunks() == []
    assert [reason for _, reason in tracker.told()] == ["rejected", "rejected"]


def test_of_equal_hunks_the_right_one_goes() -> None:
    tracker = Watched()
    base = "x\n" * 3 + "".join(f"{n}\n" for n in range(20)) + "x\n" * 3
    text = "".join(f"{n}\n" for n in range(20))
    tracker.agent_wrote(PATH, text, base, 0)
    first, second = tracker.hunks()
    assert first.old_text == second.old_text == "x\nx\nx\n"
    tracker.accept([first.id])
    assert [(h.id, h.old_start) for h in tracker.hunks()] == [(second.id, 21)]


def test_rejecting_a_created_file_removes_it() -> None:
    tracker = Watched()
    tracker.agent_wrote(PATH, "one\n", None, 0)
    assert tracker.reject(h.id for h in tracker.hunks()) == [Restored(PATH, None)]
    tracker = Watched()
    tracker.agent_wrote(PATH, None, "one\n", 0)
    assert tracker.reject(h.id for h in tracker.hunks()) == [Restored(PATH, "one\n")]


def test_a_commit_is_the_new_baseline() -> None:
    tracker = Watched()
    text = changed(BASE, l5="five", l25="late")
    tracker.agent_wrote(PATH, text, BASE, 0)
    kept = tracker.hunks()[1]
    tracker.told()
    tracker.committed(PATH, changed(BASE, l5="five"))
    assert [h.id for h in tracker.hunks()] == [kept.id]
    assert tracker.told() == [("removed", "accepted"), ("baseline_updated", None)]


def test_summary_and_patch() -> None:
    tracker = Watched()
    tracker.agent_wrote(PATH, changed(BASE, l5="five\nmore"), BASE, 0)
    tracker.file_changed(PATH, changed(BASE, l5="five\nmore", l20=None))
    summary = tracker.summary()
    assert (summary.files, summary.hunks, summary.additions, summary.deletions) == (1, 2, 2, 2)
    assert summary.by_source == {AGENT: 1, FOREIGN: 1}
    assert "-line 5\n+five\n+more\n" in tracker.patch(PATH)


def test_a_patch_says_where_no_line_end_is() -> None:
    assert patch("f", "a", "b") == (
        "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"
    )


LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "d\r\n", "\x0c\n", "x"]), max_size=12).map(
    "".join
)


@given(LINES, LINES)
def test_regions_rebuild_the_new_text(old: str, new: str) -> None:
    old_lines, new_lines = split_lines(old), split_lines(new)
    assert "".join(old_lines) == old
    rebuilt, at = [], 0
    for region in differences(old_lines, new_lines):
        rebuilt += old_lines[at : region.old_start] + new_lines[region.new_start : region.new_end]
        assert old_lines[region.old_start : region.old_end] != new_lines[region.new_start : region.new_end]
        at = region.old_end
    assert rebuilt + old_lines[at:] == new_lines


@given(st.data())
def test_any_mix_of_changes_and_decisions(data: st.DataObject) -> None:
    """Hunks describe the way from the baseline to the current text, whatever was done before."""
    tracker = Watched(HunkMode.ALL_DIRTY)
    accepted = current = data.draw(LINES)
    tracker.agent_wrote(PATH, current, current, 0)
    for turn in range(data.draw(st.integers(1, 6))):
        hunks = tracker.hunks(path=PATH)
        action = data.draw(st.sampled_from(["agent", "other", "accept", "reject"]))
        if action == "agent":
            new = data.draw(LINES)
            tracker.agent_wrote(PATH, new, current, turn)
            current = new
        elif action == "other":
            current = data.draw(LINES)
            tracker.file_changed(PATH, current)
        else:
            chosen = [h for h in hunks if data.draw(st.booleans())]
            rest = {h.id for h in hunks} - {h.id for h in chosen}
            if action == "accept":
                lines = split_lines(accepted)
                for hunk in reversed(chosen):
                    lines[hunk.region.old_start : hunk.region.old_end] = split_lines(hunk.new_text)
                accepted = "".join(lines)
                tracker.accept(h.id for h in chosen)
            else:
                for restored in tracker.reject(h.id for h in chosen):
                    assert restored.content is not None
                    current = restored.content
            assert not {h.id for h in tracker.hunks()} & {h.id for h in chosen}
            if not chosen:
                assert {h.id for h in tracker.hunks()} == rest
        lines = split_lines(accepted)
        for hunk in reversed(tracker.hunks(path=PATH)):
            assert "".join(lines[hunk.region.old_start : hunk.region.old_end]) == hunk.old_text
            lines[hunk.region.old_start : hunk.region.old_end] = split_lines(hunk.new_text)
        assert "".join(lines) == current
        assert max(Counter(h.id for h in tracker.hunks()).values(), default=1) == 1


@pytest.mark.parametrize("lines", [2_000, 20_000])
def test_a_long_file_of_equal_lines_is_quick(lines: int) -> None:
    text = "same\n" * lines
    tracker = Watched()
    tracker.agent_wrote(PATH, "first\n" + text + "last\n", text, 0)
    assert {owner for _, owner, _ in tracker.owners()} == {AGENT}
