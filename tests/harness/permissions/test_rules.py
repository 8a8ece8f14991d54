"""Rules as users write them, and files of rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.permissions import Mode, load_settings, parse_mode
from harness.permissions.rules import Action, Rule, RuleSet, Target, parse_rule, parse_section, parse_table


def one(found: RuleSet) -> Rule:
    (rule,) = found.rules
    return rule


@pytest.mark.parametrize(
    ("text", "target", "pattern", "prefix", "domain"),
    [
        ("Bash", Target.BASH, "", False, False),
        ("Bash(*)", Target.BASH, "", False, False),
        ("Bash()", Target.BASH, "", False, False),
        ("Bash(git *)", Target.BASH, "git *", False, False),
        ("Bash(git commit:*)", Target.BASH, "git commit", True, False),
        ("Bash(echo \\(a\\))", Target.BASH, "echo (a)", False, False),
        ("Bash(f(x))", Target.BASH, "f(x)", False, False),
        ("Read(src/**)", Target.READ, "src/**", False, False),
        ("Edit(**/*.rs)", Target.EDIT, "**/*.rs", False, False),
        ("Write(a)", Target.EDIT, "a", False, False),
        ("Glob", Target.GREP, "", False, False),
        ("MCPTool(s__*)", Target.MCP, "s__*", False, False),
        ("mcp__s", Target.MCP, "s__*", False, False),
        ("mcp__s__t", Target.MCP, "s__t", False, False),
        ("mcp__s__*", Target.MCP, "s__*", False, False),
        ("mcp__*", Target.MCP, "", False, False),
        ("WebFetch(domain:example.com)", Target.WEB_FETCH, "example.com", False, True),
        ("WebFetch(https://a/*)", Target.WEB_FETCH, "https://a/*", False, False),
        ("*", Target.ANY, "", False, False),
    ],
)
def test_texts(text: str, target: Target, pattern: str, prefix: bool, domain: bool) -> None:
    assert one(parse_rule(text, Action.DENY, "x")) == Rule(Action.DENY, target, pattern, prefix, domain, "x")


@pytest.mark.parametrize("text", ["Agent(model:opus)", "NotebookEdit", "Skill(x)", "bash(x)"])
def test_rules_of_other_agents_restrict_nothing(text: str) -> None:
    found = parse_rule(text, Action.DENY, "x")
    assert not found.rules
    assert found.notes


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("Bash(rm *", Target.BASH),
        ("Read)", Target.READ),
        ("", Target.ANY),
        (5, Target.ANY),
        ("((", Target.ANY),
    ],
)
def test_a_broken_restriction_asks_for_its_whole_tool(text: Any, target: Target) -> None:
    for action in (Action.DENY, Action.ASK):
        rule = one(parse_rule(text, action, "x"))
        assert (rule.action, rule.target, rule.pattern) == (Action.ASK, target, "")
        assert rule.problem
    assert not parse_rule(text, Action.ALLOW, "x").rules


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (
            {"action": "allow", "tool": "bash", "pattern": "git *"},
            Rule(Action.ALLOW, Target.BASH, "git *", source="x"),
        ),
        ({"tool": "bash", "pattern": "git *"}, Rule(Action.DENY, Target.BASH, "git *", source="x")),
        ({"action": "ask", "tool": "edit"}, Rule(Action.ASK, Target.EDIT, source="x")),
        (
            {"action": "deny", "tool": "webfetch", "pattern": "a.b", "pattern_mode": "domain"},
            Rule(Action.DENY, Target.WEB_FETCH, "a.b", domain=True, source="x"),
        ),
        (
            {"action": "allow", "tool": "mcp", "pattern": "s__*"},
            Rule(Action.ALLOW, Target.MCP, "s__*", source="x"),
        ),
    ],
)
def test_tables(table: dict[str, str], expected: Rule) -> None:
    assert one(parse_table(table, "x")) == expected


def test_a_broken_table_asks() -> None:
    assert one(parse_table({"action": "forbid", "tool": "bash"}, "x")).action is Action.ASK
    assert one(parse_table(3, "x")).target is Target.ANY
    assert one(parse_table({"action": "deny", "tool": "read", "pattern": 3}, "x")).target is Target.READ


def test_one_bad_rule_does_not_take_the_others_with_it() -> None:
    found = parse_section(
        {"rules": [{"action": "bogus", "tool": "bash"}, {"tool": "bash", "pattern": "rm *"}]}, "x"
    )
    assert Rule(Action.DENY, Target.BASH, "rm *", source="x") in found.rules


# -- files -----------------------------------------------------------------------------------------


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    made = {name: tmp_path / name for name in ("home", "grok", "system", "project")}
    for folder in made.values():
        folder.mkdir()
    (made["project"] / "sub").mkdir()
    return made


def load(places: dict[str, Path], **options: Any) -> Any:
    project = places["project"]
    return load_settings(
        str(project / "sub"),
        str(project),
        places["grok"],
        places["home"],
        {},
        system=places["system"],
        **options,
    )


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def patterns(settings: Any, action: Action) -> set[str]:
    return {r.pattern for r in settings.rules.rules if r.action is action and not r.problem}


def test_every_source_is_read(places: dict[str, Path]) -> None:
    toml = '[permission]\ndeny = ["Bash(NAME)"]\n'
    write(places["grok"] / "config.toml", toml.replace("NAME", "own"))
    write(places["grok"] / "requirements.toml", toml.replace("NAME", "required"))
    write(places["system"] / "managed_config.toml", toml.replace("NAME", "managed"))
    write(places["project"] / ".grok/config.toml", toml.replace("NAME", "root"))
    write(places["project"] / "sub/.grok/config.toml", toml.replace("NAME", "sub"))
    for folder, name in (("home", "settings.json"), ("project", "settings.local.json")):
        deny = {"permissions": {"deny": [f"Bash({folder})"]}}
        write(places[folder] / ".claude" / name, json.dumps(deny))
    found = load(places, deny=("Bash(flag)",), allow=("Bash(allowed)",))
    assert patterns(found, Action.DENY) == {
        "own",
        "required",
        "managed",
        "root",
        "sub",
        "home",
        "project",
        "flag",
    }
    assert patterns(found, Action.ALLOW) == {"allowed"}


def test_a_project_that_is_not_trusted_can_only_restrict(places: dict[str, Path]) -> None:
    write(
        places["project"] / ".grok/config.toml",
        '[permission]\nallow = ["Bash(a)"]\nask = ["Bash(b)"]\ndeny = ["Bash(c)"]\n'
        '[ui]\npermission_mode = "yolo"\n',
    )
    found = load(places)
    assert (patterns(found, Action.ALLOW), patterns(found, Action.ASK)) == (set(), {"b"})
    assert patterns(found, Action.DENY) == {"c"}
    assert found.mode is Mode.DEFAULT
    assert any("trusted" in note for note in found.rules.notes)
    assert patterns(load(places, trusted=True), Action.ALLOW) == {"a"}
    project = str(places["project"])
    write(places["grok"] / "trusted_folders.toml", f'[folders."{project}"]\ntrusted = true\ndecided_at = 1\n')
    assert patterns(load(places), Action.ALLOW) == {"a"}


@pytest.mark.parametrize("name", ["config.toml", "requirements.toml", "managed_config.toml"])
@pytest.mark.parametrize("text", ["[permission", "permission = 3\n", "[permission]\nrules = 3\n", "\udcff"])
def test_a_file_that_cannot_be_read_asks_for_everything(
    places: dict[str, Path], name: str, text: str
) -> None:
    (places["grok"] / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    found = load(places)
    assert any(r.action is Action.ASK and r.target is Target.ANY and r.problem for r in found.rules.rules)


def test_modes_and_their_lock(places: dict[str, Path]) -> None:
    write(places["home"] / ".claude/settings.json", '{"permissions": {"defaultMode": "acceptEdits"}}')
    assert load(places).mode is Mode.ACCEPT_EDITS
    write(
        places["grok"] / "config.toml",
        '[ui]\npermission_mode = "always-approve"\nremember_tool_approvals = false\n',
    )
    found = load(places)
    assert (found.mode, found.remember) == (Mode.BYPASS, False)
    write(places["grok"] / "requirements.toml", "[ui]\ndisable_bypass_permissions_mode = true\n")
    found = load(places)
    assert found.mode is Mode.DEFAULT
    assert found.clamped(Mode.BYPASS) is Mode.DEFAULT
    assert found.clamped(Mode.AUTO) is Mode.AUTO


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("yolo", Mode.BYPASS),
        ("bypassPermissions", Mode.BYPASS),
        ("ask", Mode.DEFAULT),
        ("DONTASK", Mode.DONT_ASK),
        ("x", None),
        (3, None),
    ],
)
def test_names_of_modes(name: object, mode: Mode | None) -> None:
    assert parse_mode(name) is mode
