"""The listing of skills and its budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.skills import Skill, SkillTracker, listing

SKILLS = st.lists(
    st.builds(
        Skill, st.from_regex(r"[a-z]{1,12}", fullmatch=True), st.text(max_size=600), st.just("/skills/x")
    ),
    max_size=12,
)


@given(SKILLS, st.integers(0, 3000))
def test_the_listing_keeps_to_its_budget_and_an_entry_to_its_size(skills: list[Skill], budget: int) -> None:
    text = listing(skills, budget=budget)
    assert len(text) <= budget
    assert all(len(line.encode()) <= 400 for line in text.split("\n"))
    names = [line[2:].partition(" ")[0].rstrip(":") for line in text.split("\n") if line]
    assert names == [skill.name for skill in skills][: len(names)]


def test_descriptions_shrink_before_names_go() -> None:
    skills = [Skill(f"skill{i}", "word " * 50, f"/s/{i}") for i in range(4)]
    full, short = listing(skills, budget=10_000), listing(skills, budget=200)
    names, some = listing(skills, budget=80), listing(skills, budget=40)
    assert full.count("word") > short.count("word") > 0
    assert "word" not in names
    assert names.count("skill") == 4
    assert 0 < some.count("skill") < 4


def test_half_of_the_window_is_the_budget() -> None:
    skills = [Skill(f"skill{i:04}", "d" * 300, f"/s/{i:04}") for i in range(1000)]
    assert len(listing(skills, window_tokens=1000)) <= 2000
    assert len(listing(skills)) > 300_000
    assert listing(skills) == listing(skills, window_tokens=200_000)


def test_what_did_not_fit_counts_as_announced_and_a_compaction_forgets_it_all() -> None:
    tracker = SkillTracker()
    tracker.add(Skill(f"skill{i}", "text", f"/s/{i}") for i in range(100))
    assert tracker.announce(window_tokens=100)
    assert tracker.announce(window_tokens=100) == ""
    assert len(tracker.announced) == 100
    tracker.forget_announced()
    assert tracker.announce().count("\n") == 99


def test_a_restored_name_is_not_announced_again_and_a_removed_skill_not_at_all() -> None:
    tracker = SkillTracker()
    tracker.restore(["old"])
    tracker.add([Skill("old", "", "/s/old"), Skill("gone", "", "/s/gone"), Skill("new", "", "/s/new")])
    tracker.remove(["gone"])
    assert tracker.announce() == "- new (/s/new)"
