"""A denied command stays denied, however it is quoted and whatever is wrapped around it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.limits import SIZES
from harness.permissions import Mode
from harness.permissions.access import Access, AccessKind
from harness.permissions.grants import Grants
from harness.permissions.manager import Act, Case, judge
from harness.permissions.paths import Paths
from harness.permissions.policy import rule
from harness.permissions.shell.reach import reach
from tests.harness.permissions.support import CWD, HOME, command, gate, rules, tree, word

Wrap = Callable[[str], str]

NAMES = [
    "rm",
    "r'm'",
    "'rm'",
    '"rm"',
    "\\rm",
    "r\\m",
    "$'rm'",
    "$'\\x72m'",
    "$'\\162\\x6d'",
    "/bin/rm",
    "r''m",
    '"r"m',
    "r''\\m",
]
ARGUMENTS = [
    "-rf /data",
    "-r -f '/data'",
    "$X",
    '"$HOME"/x',
    "-- *",
    "x 2>/dev/null",
    ">/dev/null x",
    "-rf `pwd`",
]


def double(text: str) -> str:
    escaped = "".join("\\" + c if c in '\\"$`' else c for c in text)
    return f'"{escaped}"'


def ansi(text: str) -> str:
    if len(text) > 2000:
        return shlex.quote(text)
    return "$'" + "".join(f"\\x{ord(c):02x}" for c in text) + "'"


QUOTES: list[Wrap] = [shlex.quote, double, ansi]


def shell(name: str) -> list[Wrap]:
    return [lambda text, quote=quote: f"{name} {quote(text)}" for quote in QUOTES]


#: Around any script: it is given as a text.
AS_TEXT: list[Wrap] = [
    *shell("bash -c"),
    *shell("sh -ec"),
    *shell("bash -o pipefail -c"),
    *shell("eval"),
    *shell("sudo -n bash -c"),
    *shell("timeout 5 sh -c"),
    *shell("nice -n 3 bash -lc"),
    *shell("xargs -0 sh -c"),
    *shell("find . -maxdepth 0 -exec bash -c"),
    *shell("nohup zsh -c"),
    *shell("flock /tmp/l -c"),
    *shell("ssh -p 22 host"),
    *shell("su - user -c"),
    *shell("watch -n 1"),
    *shell("bash <<<"),
    lambda text: f"bash <<'ENDE'\n{text}\nENDE" if "ENDE" not in text else f"bash -c {shlex.quote(text)}",
    lambda text: f"trap {shlex.quote(text)} EXIT",
    lambda text: f"echo {shlex.quote(text)} | sh" if "\\" not in text else f"eval {shlex.quote(text)}",
    lambda text: f"setsid -w sh -c {shlex.quote(text)}",
    lambda text: f"command bash --norc -c {shlex.quote(text)} name x",
]
#: Around a script of one line.
AS_SYNTAX: list[Wrap] = [
    lambda text: f"true && {text}",
    lambda text: f"false || {text}",
    lambda text: f"ls; {text}; pwd",
    lambda text: f"ls | {text}",
    lambda text: f"( {text} )",
    lambda text: f"{{ {text}; }}",
    lambda text: f"if true; then {text}; fi",
    lambda text: f"for i in 1 2; do {text}; done",
    lambda text: f"while true; do {text}; done",
    lambda text: f"case x in x) {text};; esac",
    lambda text: f"f() {{ {text}; }}; f",
    lambda text: f"! {text}",
    lambda text: f"echo $( {text} )",
    lambda text: f'echo "a $( {text} ) b"',
    lambda text: f"cat <({text})",
    lambda text: f"X=$( {text} ) ls",
    lambda text: f"[[ -n $( {text} ) ]]",
    lambda text: f"ls > /dev/null && {text} &",
    lambda text: f"cat <<E1\n$( {text} )\nE1",
]
#: Around a simple command only.
AS_PREFIX: list[Wrap] = [
    lambda text: f"env {text}",
    lambda text: f"env -i -u A B=1 {text}",
    lambda text: f"A=1 B='2 3' {text}",
    lambda text: f"timeout -k 1 -s KILL 5 {text}",
    lambda text: f"nice -n 5 {text}",
    lambda text: f"nohup {text}",
    lambda text: f"sudo -u root -E {text}",
    lambda text: f"xargs -n 1 {text}",
    lambda text: f"time -p {text}",
    lambda text: f"exec {text}",
    lambda text: f"command {text}",
    lambda text: f"stdbuf -oL {text}",
    lambda text: f"setsid {text}",
    lambda text: f"find . -exec {text} {{}} \\;",
    lambda text: f"coproc {text}",
    lambda text: f"strace -f {text}",
    lambda text: f"busybox {text}" if not text.startswith("/") else f"env {text}",
    lambda text: f"taskset -c 0 {text}",
]
TABLES = {"prefix": AS_PREFIX, "syntax": AS_SYNTAX, "text": AS_TEXT}
LAYERS = [(kind, place) for kind, table in TABLES.items() for place in range(len(table))]


def wrapped(text: str, layers: list[tuple[str, int]]) -> str:
    """The text in all layers; where one does not fit around what is there, a shell is put in between."""
    simple = line = True
    for kind, place in layers:
        if (kind == "prefix" and not simple) or (kind == "syntax" and not line):
            text, simple, line = f"bash -c {shlex.quote(text)}", True, True
        text = TABLES[kind][place](text)
        line = "\n" not in text and not text.endswith("&")
        # variables, `time` and `coproc` stand at the beginning of a command or not at all
        plain = kind == "prefix" and not text.startswith(("A=1", "time", "coproc", "find"))
        simple = plain or (kind == "text" and line and not {"|", "<"} & set(text))
    return text


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(NAMES),
    st.sampled_from(ARGUMENTS),
    st.lists(st.sampled_from(LAYERS), min_size=1, max_size=8),
    st.sampled_from(["Bash(rm:*)", "Bash(rm *)", "Bash(rm)"]),
)
def test_always_denied(name: str, arguments: str, layers: list[tuple[str, int]], text: str) -> None:
    script = wrapped(f"{name} {arguments}", layers)
    assume(len(script) <= SIZES.shell_script)  # each layer of escapes is four times as long; longer is asked
    access = Access(AccessKind.BASH, script)
    found = reach(script)
    ruling = rule(access, rules({"deny": [text], "allow": ["Bash"]}), Paths(tree(), CWD, HOME), found)
    assert ruling.deny is not None, script
    for mode in Mode:
        outcome = judge(Case(access, ruling, mode, Grants(allowed_commands=frozenset({script})), found))
        assert outcome.act is Act.DENY


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    "script", ['ls "x', "rm )", "ls &&", "$X -rf /", "$(echo rm) x", "ls\x00", "eval $X", "bash -c"]
)
async def test_what_cannot_be_taken_apart_is_never_waved_through(
    script: str, mode: Mode, tmp_path: Path
) -> None:
    for section in (
        {"deny": ["Bash(rm:*)"], "allow": ["Bash"]},
        {"ask": ["Bash(rm *)"], "allow": ["Bash(ls *)"]},
    ):
        verdict = word(await gate(tmp_path, section, mode=mode).decide(command(script)))
        assert verdict in ("ask", "deny")
        if mode is not Mode.DONT_ASK and not script.startswith("rm"):
            assert verdict == "ask"
