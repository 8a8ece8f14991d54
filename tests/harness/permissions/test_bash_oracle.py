"""What bash runs, we have found: random scripts, with bash itself as the oracle.

Nothing real is run: there is no program on the PATH, and every unknown name ends in a function that writes
down what it was called with.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness.permissions.commands import allowing
from harness.permissions.shell.reach import reach
from tests.harness.permissions.support import rules

BASH = shutil.which("bash")
HANDLER = 'command_not_found_handle() { printf "%s\\0" "$1" >&NUMBER; }\n'
BITS = st.sampled_from(
    [
        *(
            "rm",
            "r",
            "m",
            "'m'",
            "'r'",
            '"m"',
            '"r"',
            "\\m",
            "\\r",
            "\\\n",
            "\\",
            "$'r'",
            "$'\\x6d'",
            "''",
            '""',
        ),
        *(" ", " ", " ", "\t", "x", "A=1", "A=", "=", "+=", ">/dev/null", "2>&1", "</dev/null", "<<<"),
        *(
            "&&",
            ";",
            "|",
            "&",
            "\n",
            "(",
            ")",
            "{ ",
            "; }",
            "! ",
            "#",
            "-c",
            "--",
            "eval ",
            "command ",
            "exec ",
        ),
        *(
            "$X",
            "`",
            "$(",
            "$((",
            "))",
            "{r,}",
            "~",
            "*",
            "[",
            "]",
            "[[ ",
            " ]]",
            "a=(",
            "f() ",
            "time ",
            "coproc ",
        ),
        *(
            "if ",
            "; then ",
            "; fi",
            "case x in x) ",
            ";; esac",
            "for i in a; do ",
            "; done",
            "<<E\n",
            "\nE\n",
        ),
    ]
)


def ran(script: str) -> set[str]:
    """The names that bash looked for when it ran the script."""
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory() as folder:
        number = log.fileno()
        subprocess.run(
            [str(BASH), "--norc", "-c", HANDLER.replace("NUMBER", str(number)) + script],
            cwd=folder,  # a redirection may make files
            env={"PATH": "/nowhere", "HOME": folder},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(number,),
            timeout=20,
            check=False,
        )
        log.seek(0)
        return set(log.read().decode(errors="replace").split("\0"))


@pytest.mark.skipif(BASH is None, reason="needs bash as the oracle")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(BITS, min_size=1, max_size=12).map("".join))
@example("r''\\m x")
@example("A=x'y'\\z rm x")
@example(">/dev/null'y'\\z rm x")
@example("cat <<E\n`rm x`\nE")
@example("r\\\nm x")
@example("ls \\\\\nrm x")
@example("! rm >/dev/null x")
@example("! { rm x; }")
@example("echo ``\nrm x")
@example("# a\\\nrm x")
@example("time A=1 rm x")
@example('""\\ # exec ;rm x')
def test_whatever_bash_runs_was_found_or_is_asked(script: str) -> None:
    if "rm" not in ran(script):
        return
    found = reach(script)
    assert found.obstacles or any(command.name == "rm" for command in found.commands), script


@pytest.mark.skipif(BASH is None, reason="needs bash as the oracle")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.one_of(BITS, st.sampled_from(["x ", "x", "; x", "&& x ", "| x"])), min_size=1, max_size=10)
)
@example(["x ", "\\\\", "\n", "rm"])
@example(["x", " >/dev/null", " rm"])
@example(["# x", "\\\n", "rm"])
def test_nothing_else_runs_where_a_rule_allows_x(bits: list[str]) -> None:
    script = "".join(bits)
    if not allowing(rules({"allow": ["Bash(x:*)"]}), reach(script)):
        return
    assert ran(script) <= {"", "x"}, script
