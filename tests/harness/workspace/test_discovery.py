"""Rules and skills: which files count, in which order."""

from __future__ import annotations

import pytest

from harness.workspace.discovery import Places, discover_rules, discover_skills
from harness.workspace.frontmatter import frontmatter

from .conftest import Tree

RULES = [
    "home/.grok-home/AGENTS.md",
    "home/.grok-home/rules/a.md",
    "home/.grok-home/rules/b.md",
    "home/.claude/CLAUDE.md",
    "home/.claude/rules/c.md",
    "home/.cursor/rules/d.md",
    "w/CLAUDE.md",
    "w/CLAUDE.local.md",
    "w/AGENTS.md",
    "w/.claude/CLAUDE.md",
    "w/.grok/rules/r.md",
    "w/.claude/rules/cr.md",
    "w/pkg/Agents.md",
    "w/pkg/Claude.md",
    "w/pkg/CLAUDE.md",
    "w/pkg/AGENT.md",
    "w/pkg/AGENTS.md",
    "w/pkg/.cursor/rules/x.md",
]
NO_RULES = [
    "home/AGENTS.md",
    "AGENTS.md",
    "w/GEMINI.md",
    "w/.cursorrules",
    "w/.grok/AGENTS.md",
    "w/.cursor/rules/c.mdc",
    "w/.grok/rules/deeper/no.md",
    "w/pkg/AGENTS.local.md",
    "w/pkg/sub/AGENTS.md",
    "w/other/AGENTS.md",
]


def places(tree: Tree, trusted: bool = True) -> Places:
    home = f"{tree.root}/home"
    return Places(f"{tree.root}/w/pkg", home, f"{home}/.grok-home", trusted)


def plant(tree: Tree) -> None:
    tree.put("w/.git/HEAD", "ref: refs/heads/main\n")
    tree.put("w/pkg/main.py", "1")
    for name in RULES + NO_RULES:
        tree.put(name, f"rule {name}\n")


def found(tree: Tree, trusted: bool = True) -> list[str]:
    return [
        rule.path.removeprefix(tree.root + "/") for rule in discover_rules(tree.fs, places(tree, trusted), {})
    ]


def test_rules_in_their_order(tree: Tree) -> None:
    plant(tree)
    assert found(tree) == RULES
    rules = discover_rules(tree.fs, places(tree), {})
    assert rules[0].content == "rule home/.grok-home/AGENTS.md\n"
    assert [rule.scope for rule in rules] == ["user"] * 6 + ["project"] * 12


def test_an_untrusted_project_says_nothing(tree: Tree) -> None:
    plant(tree)
    assert found(tree, trusted=False) == RULES[:6]


def test_ignored_empty_and_repeated_rules_do_not_count(tree: Tree) -> None:
    plant(tree)
    tree.put("w/.gitignore", "*.local.md\n")
    tree.put("w/AGENTS.md", " \n")
    tree.symlink("w/pkg/CLAUDE.md", "AGENT.md")
    assert found(tree) == [
        name for name in RULES if name not in ("w/CLAUDE.local.md", "w/AGENTS.md", "w/pkg/AGENT.md")
    ]


def test_outside_of_a_checkout_only_the_directory_counts(tree: Tree) -> None:
    tree.put("w/AGENTS.md", "above")
    tree.put("w/pkg/AGENTS.md", "here")
    assert found(tree) == ["w/pkg/AGENTS.md"]


def skill(name: str, text: str = "") -> str:
    return f"---\nname: {name}\ndescription: what {name} does\n---\n{text}"


SKILLS = [
    ("w/pkg/.grok/skills/s4", "local"),
    ("w/.grok/skills/s3", "repo"),
    ("w/.agents/skills/s5", "repo"),
    ("w/.claude/skills/s6", "repo"),
    ("w/.cursor/skills/s11", "repo"),
    ("home/.grok-home/skills/s1", "user"),
    ("home/.agents/skills/s8", "user"),
    ("home/.claude/skills/s7", "user"),
]


def test_skills_from_near_to_far(tree: Tree) -> None:
    tree.put("w/.git/HEAD", "ref: refs/heads/main\n")
    tree.put("w/pkg/main.py", "1")
    tree.put("w/.gitignore", ".claude/\n")
    for path, _ in SKILLS:
        tree.put(f"{path}/SKILL.md", skill(path.rpartition("/")[2]))
    for path in ("w/skills/no", "home/.grok/skills/no", "w/pkg/sub/.grok/skills/no"):
        tree.put(f"{path}/SKILL.md", skill("no"))
    tree.put("w/.grok/skills/loose.md", skill("loose"))
    tree.put("w/.grok/commands/cm.md", "---\ndescription: cmd\n---\nrun")
    skills = discover_skills(tree.fs, places(tree))
    named = [(s.name, s.scope) for s in skills if not s.command]
    assert named == [(path.rpartition("/")[2], scope) for path, scope in SKILLS]
    assert skills[0].path == f"{tree.root}/w/pkg/.grok/skills/s4/SKILL.md"
    assert skills[0].description == "what s4 does"
    (command,) = [s for s in skills if s.command]
    assert (command.name, command.description, command.scope) == ("cm", "cmd", "repo")
    assert [s.scope for s in discover_skills(tree.fs, places(tree, trusted=False))] == ["user"] * 3


def test_the_nearer_of_two_with_one_name(tree: Tree) -> None:
    tree.put("w/.git/HEAD", "x")
    tree.put("w/.grok/skills/one/SKILL.md", skill("Same_Name"))
    tree.put("w/pkg/.claude/skills/other/SKILL.md", skill("same name"))
    (only,) = discover_skills(tree.fs, places(tree))
    assert (only.name, only.scope) == ("same-name", "local")


@pytest.mark.parametrize(
    ("text", "name", "description", "described"),
    [
        ("No head.\nStill first.\n\nSecond.", "dir", "No head. Still first.", False),
        ("---\ndescription: d\n---\n", "dir", "d", True),
        ("---\nname: n\n---\n# Title\n\nBody text.\n", "n", "Body text.", False),
        ("---\nname: unfinished\n", "dir", "--- name: unfinished", False),
        ("", "dir", "", False),
    ],
)
def test_what_is_missing_is_taken_from_elsewhere(
    tree: Tree, text: str, name: str, description: str, described: bool
) -> None:
    tree.put("w/pkg/.grok/skills/dir/SKILL.md", text)
    (one,) = discover_skills(tree.fs, places(tree))
    assert (one.name, one.description, one.described) == (name, description, described)


def test_switches(tree: Tree) -> None:
    switches = "user-invocable: false\ndisable-model-invocation: true\n"
    head = f"---\nname: x\n{switches}when-to-use: now\nargument-hint: '[x]'\n---\n"
    tree.put("w/pkg/.grok/skills/x/SKILL.md", head)
    (one,) = discover_skills(tree.fs, places(tree))
    assert (one.user_invocable, one.model_invocable, one.when_to_use, one.argument_hint) == (
        False,
        False,
        "now",
        "[x]",
    )


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ("k: plain words", "plain words"),
        ("k: word # remark", "word"),
        ("k: a#b", "a#b"),
        ("k: with: colon", "with: colon"),
        ('k: "quoted \\"x\\"" # remark', 'quoted "x"'),
        ("k: 'it''s'", "it's"),
        ("k: on", "on"),
        ("k: >\n  folded\n  text", "folded text"),
        ("k: >-\n  folded", "folded"),
        ("k: |\n  line one\n  line two", "line one\nline two"),
        ("k: begins\n  and goes on", "begins and goes on"),
        ("k: [a, 'b', c]", "a, b, c"),
        ("k:\n  - a\n  - b", "a, b"),
        ("k:\n- a\n- b", "a, b"),
        ("k:", ""),
        ("k:\n  inner: 1", ""),
        ("other: 1", None),
        ("k:novalue", None),
    ],
)
def test_heads(lines: str, value: str | None) -> None:
    values, body = frontmatter(f"---\n{lines}\nlast: 1\n---\n\nbody\n")
    assert values.get("k") == value
    assert values["last"] == "1"
    assert body == "body"


def test_no_head() -> None:
    assert frontmatter("text\n---\n") == ({}, "text\n---\n")
