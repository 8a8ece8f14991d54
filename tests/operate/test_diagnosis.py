"""Every finding, from the facts that cause it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from gateway.engine import Engine
from gateway.operate.diagnosis import Facts, Folder, Listener, Secret, diagnose, permissive_rules

HERE = Path("/state")
GROK = Engine("grok", ("/g",), True, "1.0.41", None, False, "your models", "found in PATH")
OFFLINE = dataclasses.replace(GROK, offline=True, note="the offline model")
READY = {"state": "ready", "pid": 7, "adopted": False}
RUNNING = {"components": [{"name": "gateway", "state": "RUNNING"}], "leader": READY}
OURS = Listener("127.0.0.1", 5, "python", ours=True)
HEALTHY = Facts(engine=GROK, folders=[Folder(HERE)], secret=Secret(HERE / "secret"), linger="yes")


def findings(**changes: Any) -> dict[str, list[tuple[str, str]]]:
    """By check: (result, text and advice)."""
    found = dict[str, list[tuple[str, str]]]()
    for one in diagnose(dataclasses.replace(HEALTHY, **changes)):
        found.setdefault(one.check, []).append((one.result, f"{one.text} → {one.advice}"))
    return found


def test_a_healthy_installation_has_nothing_but_ok() -> None:
    for changes in ({}, {"status": RUNNING, "listeners": [OURS], "unit_installed": True}):
        results = {result for lines in findings(**changes).values() for result, _ in lines}
        assert results == {"ok"}


@pytest.mark.parametrize(
    ("check", "changes", "result", "words"),
    [
        ("python", {"python": (3, 10, 1)}, "fail", "3.10.1"),
        ("python", {"python": (3, 14, 0)}, "fail", "3.14.0"),
        ("packages", {"packages": {"uvloop": None, "orjson": "3"}}, "fail", "uvloop"),
        ("packages", {"compiled_websockets": False}, "warn", "C extension"),
        ("setpriv", {"programs": {"setpriv": False}}, "warn", "util-linux"),
        ("engine", {"engine": None, "engine_problem": "no grok"}, "fail", "no grok"),
        ("engine", {"engine": None, "programs": {"npm": False}}, "fail", "npm"),
        ("model", {"engine": OFFLINE}, "warn", "the offline model"),
        ("disk", {"free_bytes": 2**20}, "fail", "256 MiB"),
        ("folders", {"folders": [Folder(HERE, 0o755)]}, "fail", "chmod 700 /state"),
        ("folders", {"folders": [Folder(HERE, uid=12)]}, "fail", "uid 12"),
        ("folders", {"folders": [Folder(HERE, writable=False)]}, "fail", "not writable"),
        ("secret", {"secret": Secret(HERE, 0o644)}, "fail", "read by others"),
        ("secret", {"secret": Secret(HERE, problem="not 64 digits")}, "fail", "not 64 digits"),
        ("port", {"listeners": [Listener("127.0.0.1", 9, "nginx")]}, "fail", "nginx (pid 9)"),
        ("port", {"listeners": [Listener("0.0.0.0", None)]}, "fail", "another user"),
        ("port", {"status": RUNNING}, "fail", "nobody listens"),
        ("port", {"status": RUNNING, "listeners": [OURS, Listener("::1", 9, "x")]}, "warn", "localhost"),
        ("port", {"listeners": [Listener("::1", 9, "x")]}, "warn", "localhost"),
        ("proxies", {"proxies": ["http_proxy"]}, "warn", "NO_PROXY"),
        ("processes", {"remains": ["leader (pid 3)"]}, "warn", "leader (pid 3)"),
        (
            "processes",
            {"status": {"components": [{"name": "gateway", "state": "FATAL"}], "leader": READY}},
            "fail",
            "logs gateway",
        ),
        (
            "processes",
            {
                "status": {
                    "components": [{"name": "gateway", "state": "RUNNING", "reason": "silent"}],
                    "leader": READY,
                }
            },
            "fail",
            "silent",
        ),
        ("leader", {"status": {**RUNNING, "leader": {"state": "broken", "reason": "why"}}}, "fail", "why"),
        ("journals", {"journals": 2}, "warn", "2 connections"),
        ("service", {"unit_installed": True, "linger": "no"}, "warn", "enable-linger"),
        ("service", {"unit_installed": True, "linger": "unknown"}, "warn", "unknown"),
        ("permissions", {"permissive": [(HERE, "allow *")]}, "warn", "allow *"),
    ],
)
def test_finding(check: str, changes: dict[str, Any], result: str, words: str) -> None:
    lines = findings(**changes)[check]
    assert any(found == result and words in text for found, text in lines), lines


@pytest.mark.parametrize("no_proxy", ["*", "127.0.0.1", "example.com, 127.0.0.1"])
def test_a_proxy_that_leaves_loopback_alone_is_no_finding(no_proxy: str) -> None:
    assert "proxies" not in findings(proxies=["http_proxy"], no_proxy=no_proxy)


def test_journals_of_a_running_gateway_are_no_leftovers() -> None:
    assert "journals" not in findings(journals=2, status=RUNNING, listeners=[OURS])


def test_a_folder_that_is_not_there_yet_is_no_finding() -> None:
    assert findings(folders=[Folder(HERE, None)])["folders"][0][0] == "ok"


@pytest.mark.parametrize(
    ("config", "rules"),
    [
        ({}, []),
        ({"ui": {"permission_mode": "always-approve"}}, ["[ui] permission_mode = always-approve"]),
        ({"ui": {"permission_mode": "ask"}}, []),
        ({"permission_mode": "bypassPermissions"}, ["permission_mode = bypassPermissions"]),
        (
            {"permissions": {"defaultMode": "bypassPermissions"}},
            ["[permissions] defaultMode = bypassPermissions"],
        ),
        ({"permission": {"allow": ["Bash(git *)", "Read", "Edit(src/**)"]}}, []),
        (
            {"permission": {"allow": ["Bash", "Bash(*)", "*", "MCPTool( ** )"]}},
            [
                "[permission] allow Bash",
                "[permission] allow Bash(*)",
                "[permission] allow *",
                "[permission] allow MCPTool( ** )",
            ],
        ),
        ({"permissions": {"allow": ["Write(*)"]}}, ["[permissions] allow Write(*)"]),
        ({"permission": {"deny": ["Bash"]}}, []),
        ({"permission": {"allow": "Bash"}, "ui": [], "permissions": {"allow": [1]}}, []),
    ],
)
def test_permissive_rules(config: dict[str, Any], rules: list[str]) -> None:
    assert permissive_rules(config) == rules
