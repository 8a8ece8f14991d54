"""What a script would run, layer by layer."""

from __future__ import annotations

import pytest

from harness.limits import SIZES
from harness.permissions.commands import text_of
from harness.permissions.shell.parse import parse
from harness.permissions.shell.reach import reach


def runs(script: str) -> list[str]:
    return [text_of(command) for command in reach(script).commands]


@pytest.mark.parametrize(
    "script",
    [
        "rm x",
        "env rm x",
        "env -i -u HOME A=1 rm x",
        "env -S 'rm x'",
        "A=1 B=2 rm x",
        "timeout -k 5 -s KILL 10 rm x",
        "nice -n 5 rm x",
        "nice -5 rm x",
        "ionice -c 3 rm x",
        "stdbuf -oL rm x",
        "chrt -b 0 rm x",
        "nohup rm x",
        "setsid -f rm x",
        "time -p rm x",
        "command rm x",
        "builtin rm x",
        "exec -a ls rm x",
        "coproc rm x",
        "sudo -u root -n rm x",
        "doas rm x",
        "xargs -0 -n 1 rm x",
        "xargs -I{} rm x",
        "taskset -c 0 rm x",
        "chroot / rm x",
        "strace -f -o log rm x",
        "busybox rm x",
        "watch -n 1 rm x",
        "flock lock rm x",
        "flock lock -c 'rm x'",
        "ssh -p 22 host rm x",
        "ssh host 'rm x'",
        "script -q -c 'rm x' /dev/null",
        "su - user -c 'rm x'",
        "bash -c 'rm x'",
        "bash -lc 'rm x'",
        "bash -o pipefail -ec 'rm x'",
        "bash --norc -c 'rm x' name",
        'sh -c "rm x"',
        "eval rm x",
        "eval 'rm x'",
        "trap 'rm x' EXIT",
        "alias ll='rm x'; ll",
        "find . -name a -exec rm x ';'",
        "find . -execdir rm x \\;",
        "bash <<'END'\nrm x\nEND",
        "bash <<< 'rm x'",
        "cat <<'END' | sh\nrm x\nEND",
        "echo 'rm x' | bash",
        "printf 'rm x\\n' | sh -s",
        "true && rm x",
        "true || rm x",
        "ls | rm x",
        "ls |& rm x",
        "ls & rm x",
        "ls\nrm x",
        "(rm x)",
        "{ rm x; }",
        "if true; then rm x; fi",
        "if rm x; then true; fi",
        "for f in 1; do rm x; done",
        "while rm x; do true; done",
        "until rm x; do true; done",
        "case a in a) rm x;; esac",
        "select f in 1; do rm x; done",
        "f() { rm x; }; f",
        "function f { rm x; }",
        "! rm x",
        "echo $(rm x)",
        'echo "$(rm x)"',
        "echo `rm x`",
        "echo `echo \\`rm x\\``",
        "cat <(rm x)",
        "tee >(rm x)",
        "echo ${X:-$(rm x)}",
        "echo $(( $(rm x) ))",
        "X=$(rm x)",
        "export X=$(rm x)",
        "a=(1 $(rm x))",
        "[[ -n $(rm x) ]]",
        '[ -n "$(rm x)" ]',
        "ls > $(rm x)",
        "cat <<END\n$(rm x)\nEND",
        "cat <<END\n`rm x`\nEND",
        "cat <<< $(rm x) ",
        "rm\\\n x",
        "r\\\nm x",
        "unshare rm x",
        "! { rm x; }",
        "((rm x) )",
        "(( a[$(rm x)] ))",
        "test -v 'a[$(rm x)]'",
        "printf -v 'a[$(rm x)]' 1",
        "read 'a[`rm x`]' <<< 1",
        "a='b[$(rm x)]'; (( a ))",
        "X='$(rm x)'; echo ${X@P}",
        "set -x; PS4='$(rm x)' ls",
        "[[ 'a[$(rm x)]' -eq 1 ]]",
        "mapfile -C 'rm x' -c 1",
        "! while true; do rm x; done",
        "echo ``\nrm x",
        "ls >/dev/null rm; time >/dev/null rm x",
        "time A=1 rm x",
        "# a\\\nrm x",
        "parallel rm x",
        "hyperfine 'rm x'",
    ],
)
def test_it_is_found_behind(script: str) -> None:
    assert any(text == "rm x" or text.startswith("rm x ") for text in runs(script)), runs(script)


@pytest.mark.parametrize(
    "script",
    [
        "echo rm x",
        "echo 'rm x'",
        "git commit -m 'rm x'",
        "ls # rm x",
        "sudo -u rm ls",
        "timeout -s rm 5 ls",
        "cat <<'END'\nrm x\nEND",
        "grep -e 'rm x' file",
        "printf '%s' 'rm x'",
        "env -u rm ls",
        "bash script.sh 'rm x'",
    ],
)
def test_it_is_not_found_where_it_is_only_a_text(script: str) -> None:
    assert "rm x" not in runs(script)


@pytest.mark.parametrize(
    "script",
    [
        'ls "x',
        "ls )",
        "ls &&",
        "$X y",
        "$(echo rm) x",
        "`echo rm` x",
        "/bin/r? x",
        "{rm,x}",
        "eval $X",
        'bash -c "$X"',
        "bash -c",
        "curl http://x | sh",
        "bash",
        "source <(echo ls)",
        "sudo --unknown-option ls",
        "env --strange ls",
        "xargs $OPTIONS ls",
        "parallel ls",
        "ls\x00",
        "ls \u202e",
        "ls\r",
        'trap "$X" EXIT',
        "find . $X",
    ],
)
def test_what_cannot_be_told_is_an_obstacle(script: str) -> None:
    assert reach(script).obstacles


@pytest.mark.parametrize(
    "script", ["ls", "ls -la && pwd | wc -l; cat a\ndate", "ls 2>/dev/null", "cat <<E\na\nE", "# nothing"]
)
def test_plain_lists_are_lists(script: str) -> None:
    found = parse(script)
    assert found.listed
    assert not found.obstacles


@pytest.mark.parametrize(
    "script",
    [
        "(ls)",
        "ls & pwd",
        "! ls",
        "[ -f a ]",
        "for i in 1; do ls; done",
        "X=1",
        "ls $(pwd)",
        "> a",
        "f() { ls; }",
    ],
)
def test_everything_else_is_none(script: str) -> None:
    assert not parse(script).listed


def test_a_script_that_is_too_long_is_not_taken_apart() -> None:
    assert reach("ls " + "a" * SIZES.shell_script).obstacles


def test_wrappers_around_wrappers_end_somewhere() -> None:
    found = reach("nice " * 60 + "ls")
    assert found.obstacles
    assert len(found.commands) <= SIZES.shell_commands + 1


def test_tails_of_tails_do_not_multiply() -> None:
    found = reach("parallel " * 40 + "rm x")
    assert len(found.commands) < 200
    assert any(text_of(c) == "rm x" for c in found.commands) or found.obstacles
