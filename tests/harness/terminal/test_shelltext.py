"""The scanner: which `&` is an operator, where statements begin."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.workspace.terminal.shelltext import background_operator, scan, words


@pytest.mark.parametrize(
    "command",
    [
        "a && b",
        "a &> f",
        "a &>> f",
        "a >& f",
        "a 2>&1",
        "a <&3",
        "a |& b",
        "echo 'a & b'",
        'echo "a & b"',
        'echo "$(echo "a & b")"',
        "echo \\& x",
        "echo $((1 & 2)) $(( 3&4 ))",
        "(( x & y ))",
        "echo ${x:-a & b}",
        'echo "${x:-\'a & b}"',
        "$'it\\'s & this'",
        "# a & b",
        "true # a & b",
        "cat <<EOF\na & b\nEOF",
        "cat <<'EOF' | tee x\na & b\nEOF\ntrue",
        "cat <<-EOF\n\ta & b\n\tEOF\ntrue",
        'cat <<"E F"\n&\nE F\ntrue',
        "cat <<\\EOF\n&\nEOF",
        "cat <<A <<B\n&\nA\n&\nB\ntrue",
        "cat <<EOF\nnever & closed",
        "case $x in a) b ;;& c) d ;& esac",
        "sleep 1 & wait",
        "sleep 1 & wait $!",
        "a &\nb &\nwait  # for both",
        "a & wait $(jobs -p)",
        "",
        "'",
        '"',
        "\\",
        "$(",
        "`",
    ],
)
def test_no_operator(command: str) -> None:
    assert background_operator(command) is None


@pytest.mark.parametrize(
    ("command", "offset"),
    [
        ("a & b", 2),
        ("a&", 1),
        ("(a &)", 3),
        ("$(a &)", 4),
        ("`a &`", 3),
        ("a && b & c", 7),
        ("echo a#b & c", 9),
        ("echo $# & c", 8),
        ("a <<< b & c", 8),
        ("cat <<EOF\nx\nEOF\nsleep 1 &", 24),
        ("cat <<EOF\n EOF\nEOF\n&", 19),
        ("sleep 1 & echo wait", 8),
        ("sleep 1 & waiter", 8),
        ("wait; sleep 1 &", 14),
        ("echo '&' & x", 9),
        ("a 2>&1 & b", 7),
        ('echo "$(a & b)"', 10),
        ("echo $(wait) & x", 13),
        ("echo $((1<<2)) & x", 15),
    ],
)
def test_operator(command: str, offset: int) -> None:
    assert background_operator(command) == offset


@given(st.text())
def test_any_text_is_scanned(text: str) -> None:
    found = scan(text)
    assert all(text[i] == "&" for i in found.operators)
    for start, end in found.statements:
        assert 0 <= start < end <= len(text)
        words(text, start, end)


@given(st.text(alphabet="a&|;<>()$`'\"\\#{}\n\t 1EOF-"))
def test_shell_like_text_is_scanned(text: str) -> None:
    found = scan(text)
    assert list(found.operators) == sorted(set(found.operators))


@given(st.text(alphabet=st.characters(exclude_characters="\0")))
def test_quoted_text_has_no_operator(text: str) -> None:
    quoted = f"echo {shlex.quote(text)}"
    assert background_operator(quoted) is None
    assert background_operator(f"{quoted} & true") == len(quoted) + 1


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\0"), min_size=1), min_size=1))
def test_words_are_those_that_were_quoted(parts: list[str]) -> None:
    command = " ".join(f"'{part}'" for part in parts if "'" not in part)
    expected = [part for part in parts if "'" not in part]
    assert [word.text for word in words(command, 0, len(command))] == expected
