"""One word as bash reads it; bash itself is the oracle."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.permissions.shell.parse import parse
from harness.permissions.shell.words import ansi_c, read_word

BASH = shutil.which("bash")


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("rm", "rm"),
        ("r'm'", "rm"),
        ('"rm"', "rm"),
        ("\\rm", "rm"),
        ("r\\m", "rm"),
        ("$'rm'", "rm"),
        ("$'\\x72m'", "rm"),
        ("$'\\162\\155'", "rm"),
        ("$'\\u0072m'", "rm"),
        ("r\"\"m''", "rm"),
        ('"a\\"b\\$c"', 'a"b$c'),
        ("'a\\b'", "a\\b"),
        ("a\\ b", "a b"),
        ("{}", "{}"),
        ("a$", "a$"),
    ],
)
def test_fixed_words(written: str, text: str) -> None:
    word = read_word(written)
    assert word is not None
    assert (word.text, word.fixed) == (text, True)


@pytest.mark.parametrize(
    ("written", "fixed_part"),
    [
        ("$x", ""),
        ("a${x}b", "a"),
        ('"a$(ls)"', "a"),
        ("`ls`", ""),
        ("<(ls)", ""),
        ("{rm,x}", ""),
        ("a{1..3}", "a"),
        ("$(ls)", ""),
        ("$((1))", ""),
        ('$"text"', ""),
        ("$'\\xff'", ""),
        ("$@", ""),
        ("a$*", "a"),
        ("$'a\\0b'", ""),
    ],
)
def test_words_that_only_the_running_shell_knows(written: str, fixed_part: str) -> None:
    word = read_word(written)
    assert word is not None
    assert word.dynamic
    assert word.text == fixed_part


@pytest.mark.parametrize("written", ["'a", '"a', "a\\", "$'a", "a b", "a;b", "a|b", "a>b"])
def test_what_is_no_single_word(written: str) -> None:
    assert read_word(written) is None


@pytest.mark.parametrize("written", ["*", "a?", "[ab]c", "src/*.py"])
def test_names_that_stand_for_files(written: str) -> None:
    word = read_word(written)
    assert word is not None
    assert word.glob
    assert not word.fixed


def test_escapes_that_cut_a_word_short_are_not_guessed() -> None:
    assert ansi_c("a\\x00b") is None
    assert ansi_c("\\c") is None
    assert ansi_c("\\n\\t\\e") == "\n\t\x1b"


PIECES = st.lists(
    st.sampled_from(
        [
            "a",
            "rm",
            "'x y'",
            '"p q"',
            "\\z",
            "$'\\x41'",
            "$'\\102'",
            "\\'",
            '"\\""',
            "$'\\''",
            "''",
            "~x",
            "-",
            "=",
        ]
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.skipif(BASH is None, reason="needs bash as the oracle")
@settings(max_examples=150, deadline=None)
@given(PIECES)
def test_a_fixed_word_is_what_bash_makes_of_it(pieces: list[str]) -> None:
    written = "".join(["x", *pieces])
    word = read_word(written)
    if word is None or not word.fixed:
        return
    done = subprocess.run([str(BASH), "-c", f"printf '%s.' {written}"], capture_output=True, check=True)
    assert done.stdout.decode() == word.text + "."
    commands = parse(f"echo {written}").commands
    assert [w.text for w in commands[0].words] == ["echo", word.text]
