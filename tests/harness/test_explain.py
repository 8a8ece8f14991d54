"""``grok-gateway tools``: the toolset as a whole, and the record of one real call."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.operate import cli
from harness.explain import main
from harness.registry.overview import grouped


def steps(text: str) -> dict[str, str]:
    """The record by heading; what is indented belongs to the heading above."""
    found = dict[str, str]()
    heading = ""
    for line in text.splitlines():
        heading = line[:12].strip() or heading
        found[heading] = f"{found[heading]}\n{line[12:]}" if heading in found else line[12:]
    return found


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rules and answers of the person who runs the tests do not count."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GROK_HOME", str(home / ".grok"))
    monkeypatch.delenv("GROK_SANDBOX", raising=False)
    return home


def record(
    capsys: pytest.CaptureFixture[str], folder: Path, call: str, *flags: str
) -> tuple[int, dict[str, str]]:
    code = main([f"--cwd={folder}", f"--explain={call}", *flags])
    return code, steps(capsys.readouterr().out)


def test_a_read_is_told_from_the_name_to_both_projections(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    word = secrets.token_hex(8)
    (tmp_path / "x.txt").write_text(f"{word}\n")
    code, told = record(capsys, tmp_path, 'read_file {"target_file": "x.txt", "offset": "1"}')
    assert code == 0
    assert told["advertised"].startswith("yes: read_file is GrokBuild:read_file (read), changes nothing")
    assert json.loads(told["parsed"]) == {"variant": "ReadFile", "target_file": "x.txt", "offset": 1}
    assert told["gate"] == "allowed without asking"
    assert told["path"] == f"x.txt → {tmp_path / 'x.txt'}"
    assert told["cwd"] == f"{tmp_path}\ncommands contained: no, no profile is chosen"
    assert told["effect"].startswith("no file changed, no task left\ntook ")
    completeness, client = told["client"].split("\n")[:2]
    assert completeness == "complete"
    assert json.loads(client)["FileContent"]["raw_output"] == f"{word}\n"
    assert told["model"] == f"complete\n| 1→{word}"


def test_an_edit_runs_only_when_it_may_and_its_effect_is_real(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.txt").write_text("before\n")
    call = 'search_replace {"file_path": "x.txt", "old_string": "before", "new_string": "afterwards"}'
    code, told = record(capsys, tmp_path, call)
    assert code == 1
    assert "would be asked" in told["gate"]
    assert "effect" not in told
    assert (tmp_path / "x.txt").read_text() == "before\n"
    code, told = record(capsys, tmp_path, call, "--yes")
    assert code == 0
    assert (tmp_path / "x.txt").read_text() == "afterwards\n"
    assert f"changed {tmp_path / 'x.txt'}: 7 → 11 bytes" in told["effect"]
    code, told = record(capsys, tmp_path, call, "--yes")
    assert code == 1
    assert "a failure that the model can mend" in told["client"]


def test_a_rule_of_the_home_decides_and_is_named(
    tmp_path: Path, own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = own_home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"permissions": {"deny": ["Bash(rm *)"]}}')
    (tmp_path / "x.txt").touch()
    call = "run_terminal_command " + json.dumps({"command": "sh -c 'rm -f x.txt'", "description": "d"})
    code, told = record(capsys, tmp_path, call, "--yes")
    assert code == 1
    assert told["gate"].startswith("deny: ")
    assert "rm *" in told["gate"]
    assert (tmp_path / "x.txt").exists()


def test_a_call_that_is_none_says_so_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = record(capsys, tmp_path, "teleport {}")
    assert (code, told["advertised"], told["parsed"]) == (
        1,
        "no\nunregistered: no tool teleport is registered",
        "no (unknown_tool)",
    )
    code, told = record(capsys, tmp_path, 'search_replace {"file_path": "x"}')
    assert (code, told["parsed"]) == (1, "no (invalid_arguments)")
    assert "`old_string`, `new_string` are missing" in told["model"]
    code, told = record(capsys, tmp_path, 'search_replace {"file_path": "x"}', "--mode=read_only")
    assert "capability: a tool of kind edit is not allowed in the mode read_only" in told["advertised"]


def test_the_record_says_where_an_ignored_path_leads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("secret*\n")
    (tmp_path / "secret.txt").write_text("x\n")
    _, told = record(capsys, tmp_path, 'read_file {"target_file": "./secret.txt"}')
    assert told["path"] == f"./secret.txt → {tmp_path / 'secret.txt'}, ignored by git"


def test_what_is_not_contained_says_so_and_what_is_cannot_reach_far(
    tmp_path: Path, own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far = own_home / "far.txt"
    arguments = json.dumps({"command": f"echo x > {far}; echo x > near.txt", "description": "d"})
    _, told = record(capsys, tmp_path, f"run_terminal_command {arguments}", "--yes", "--contain=strict")
    held = told["cwd"].split("\n")[1]
    if held.startswith("commands contained: bwrap"):
        assert held == f"commands contained: bwrap, may write {tmp_path}, no network"
        assert (far.exists(), (tmp_path / "near.txt").exists()) == (False, True)
    else:
        assert held.startswith("commands contained: no, bwrap ")
        assert (far.exists(), (tmp_path / "near.txt").exists()) == (True, True)


def test_nothing_is_left_in_the_folder_or_running(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = f"{1000 + secrets.randbelow(10**6)}.5"
    call = json.dumps({"command": f"sleep {seconds}", "description": "d", "background": True})
    code, told = record(capsys, tmp_path, f"run_terminal_command {call}", "--yes")
    assert code == 0
    assert f"runs in the background, and is ended with this program: sleep {seconds}" in told["effect"]
    assert told["client"].startswith("running")
    assert told["model"].startswith("running")
    assert subprocess.run(["pgrep", "-f", f"^sleep {seconds}"], check=False).returncode == 1
    code, told = record(capsys, tmp_path, "enter_plan_mode")
    assert (code, "told plan_mode_entered × 1" in told["effect"]) == (0, True)
    question = {"question": "Which?", "options": [{"label": n, "description": n} for n in "ab"]}
    _, told = record(capsys, tmp_path, "ask_user_question " + json.dumps({"questions": [question]}))
    assert "raised" not in told["effect"]
    assert list(tmp_path.iterdir()) == []


def test_the_toolset_is_listed_with_a_reason_for_every_absence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "--mode=read_only", "--without=notifications"]) == 0
    document = json.loads(capsys.readouterr().out)
    names = [row["name"] for row in document["tools"]]
    assert "read_file" in names
    assert "search_replace" not in names
    assert all(row["read_only"] or row["kind"] in ("plan", "search_tool") for row in document["tools"])
    assert document["absent"]["GrokBuild:search_replace"]["stage"] == "capability"
    assert document["absent"]["GrokBuild:image_gen"]["stage"] == "unregistered"
    assert "notifications" not in document["offers"]
    assert main(["--mode=read_only"]) == 0
    text = capsys.readouterr().out
    assert "GrokBuild:read_file" in text
    assert "not allowed in the mode read_only" in text


def test_absences_are_grouped_by_their_reason() -> None:
    absent = {
        "A:x": {"stage": "unregistered", "reason": "no tool A:x is registered"},
        "A:y": {"stage": "unregistered", "reason": "no tool A:y is registered"},
        "A:z": {"stage": "capability", "reason": "not now"},
    }
    assert grouped(absent) == {"because this engine has no such tool": ["A:x", "A:y"], "not now": ["A:z"]}


@pytest.mark.parametrize(
    "flags", [["--preset=nothing"], ["--cwd=/no/such/folder"], ["--mode=odd"], ["--without=air"]]
)
def test_usage(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(flags)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: grok-gateway tools")


def test_the_command_line_hands_everything_to_the_engine_in_a_child(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.txt").write_text("line\n")
    call = 'read_file {"target_file": "x.txt"}'
    assert cli.main(["tools", "--cwd", str(tmp_path), "--explain", call]) == 0
    assert f"x.txt → {tmp_path / 'x.txt'}" in capfd.readouterr().out
    assert cli.main(["tools", "--explain", "teleport {}", "--mode", "all", "--yes"]) == 1
    assert cli.main(["tools", "--mode", "odd"]) == 2


def test_the_gateway_is_imported_without_its_engine() -> None:
    program = "import sys, gateway.operate.tools; sys.exit(any(m.startswith('harness') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
