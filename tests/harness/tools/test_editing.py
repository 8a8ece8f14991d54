"""The decision table of exact replacement, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.tools.editing.confusables import fold, lines_with
from harness.tools.editing.details import details, numbered_snippet
from harness.tools.editing.hints import confusable_lines, nearest_line
from harness.tools.editing.replace import Rules, Verdict, decide

BOM = b"\xef\xbb\xbf"

#: name, bytes before (None: no file), old, new, rules, verdict, bytes after (None: unchanged)
TABLE: list[tuple[str, bytes | None, str, str, Rules, Verdict, bytes | None]] = [
    ("unique", b"a\nb\nc\n", "b", "B", Rules(), Verdict.REPLACE, b"a\nB\nc\n"),
    ("unique over lines", b"a\nb\nc\n", "a\nb\n", "x\n", Rules(), Verdict.REPLACE, b"x\nc\n"),
    ("deletion", b"a\nb\n", "a\n", "", Rules(), Verdict.REPLACE, b"b\n"),
    ("everything deleted", b"a", "a", "", Rules(), Verdict.REPLACE, b""),
    ("unique with replace all", b"a b", "a", "x", Rules(replace_all=True), Verdict.REPLACE, b"x b"),
    ("ambiguous", b"a a", "a", "b", Rules(), Verdict.MANY, None),
    ("replace all", b"a b a", "a", "xyz", Rules(replace_all=True), Verdict.REPLACE, b"xyz b xyz"),
    ("overlapping ones count from the left", b"aaaaa", "aa", "b", Rules(), Verdict.MANY, None),
    ("overlapping, all", b"aaaaa", "aa", "b", Rules(replace_all=True), Verdict.REPLACE, b"bba"),
    ("new contains old", b"ab", "a", "aa", Rules(replace_all=True), Verdict.REPLACE, b"aab"),
    ("none", b"a\n", "z", "b", Rules(), Verdict.NO_MATCH, None),
    ("none, all", b"a\n", "z", "b", Rules(replace_all=True), Verdict.NO_MATCH, None),
    ("equal", b"a", "a", "a", Rules(), Verdict.SAME, None),
    ("equal where nothing is", None, "a", "a", Rules(), Verdict.SAME, None),
    ("both empty", None, "", "", Rules(), Verdict.SAME, None),
    ("missing", None, "a", "b", Rules(), Verdict.MISSING, None),
    ("created", None, "", "x\ny", Rules(), Verdict.CREATE, b"x\ny"),
    ("created with CRLF as it was given", None, "", "x\r\ny", Rules(), Verdict.CREATE, b"x\r\ny"),
    ("an empty file is filled", b"", "", "x", Rules(), Verdict.CREATE, b"x"),
    ("empty old on a full file", b"full", "", "x", Rules(), Verdict.NOT_EMPTY, None),
    ("empty old on a mark alone", BOM, "", "x", Rules(), Verdict.NOT_EMPTY, None),
    ("empty old, allowed", b"full", "", "x", Rules(overwrite=True), Verdict.CREATE, b"x"),
    ("old in an empty file", b"", "a", "b", Rules(), Verdict.NO_MATCH, None),
    ("CRLF", b"a\r\nb\r\nc", "a\nb", "A\nB", Rules(), Verdict.REPLACE, b"A\r\nB\r\nc"),
    ("CRLF, one line", b"a\r\nb\r\n", "b", "B", Rules(), Verdict.REPLACE, b"a\r\nB\r\n"),
    ("CRLF, new lines", b"a\r\n", "a", "x\ny", Rules(), Verdict.REPLACE, b"x\r\ny\r\n"),
    ("CRLF in new", b"a\r\n", "a", "x\r\ny", Rules(), Verdict.REPLACE, b"x\r\ny\r\n"),
    ("CRLF in old is not found", b"a\r\nb\r\n", "a\r\nb", "x", Rules(), Verdict.NO_MATCH, None),
    ("CRLF in old of an LF file", b"a\nb\n", "a\r\nb", "x", Rules(), Verdict.NO_MATCH, None),
    ("CRLF in new of an LF file stays", b"a\nb\n", "a", "x\r\ny", Rules(), Verdict.REPLACE, b"x\r\ny\nb\n"),
    ("mixed ends become one", b"a\r\nb\nc\r\n", "b", "B", Rules(), Verdict.REPLACE, b"a\r\nB\r\nc\r\n"),
    ("mixed, no match: untouched", b"a\r\nb\n", "z", "B", Rules(), Verdict.NO_MATCH, None),
    ("lone CR stays", b"a\rb\nc\r\n", "b", "B", Rules(), Verdict.REPLACE, b"a\rB\r\nc\r\n"),
    ("CR CR LF stays", b"a\r\r\nb\r\n", "b", "B", Rules(), Verdict.REPLACE, b"a\r\r\nB\r\n"),
    ("lone CR is matched", b"a\rb", "\r", "\n", Rules(), Verdict.REPLACE, b"a\nb"),
    ("mark kept", BOM + b"a\n", "a", "b", Rules(), Verdict.REPLACE, BOM + b"b\n"),
    ("mark matched", BOM + b"a\n", "\ufeffa", "b", Rules(), Verdict.REPLACE, b"b\n"),
    ("mark and CRLF", BOM + b"a\r\nb\r\n", "b\n", "", Rules(), Verdict.REPLACE, BOM + b"a\r\n"),
    (
        "invalid kept",
        b"\xff a \xc3\n\xed\xa0\x80",
        "a",
        "é",
        Rules(),
        Verdict.REPLACE,
        b"\xff \xc3\xa9 \xc3\n\xed\xa0\x80",
    ),
    ("invalid is not the replacement character", b"a\xff", "\ufffd", "x", Rules(), Verdict.NO_MATCH, None),
    ("NUL", b"a\x00b", "\x00", "-", Rules(), Verdict.REPLACE, b"a-b"),
    ("no half of a character", b"\xc3\xa9", "\u00c3", "x", Rules(), Verdict.NO_MATCH, None),
    ("half a pair in old", b"a\xed\xa0\x80", "\ud800", "x", Rules(), Verdict.NOT_TEXT, None),
    ("half a pair in new", b"a", "a", "\udcff", Rules(), Verdict.NOT_TEXT, None),
    ("look-alikes are not equal", "“a”".encode(), '"a"', "x", Rules(), Verdict.NO_MATCH, None),
    ("folded", "say “a” — b".encode(), '"a" -- b', "x", Rules(folded=True), Verdict.REPLACE, b"say x"),
    ("folded, old has others", "‘a’".encode(), "’a‘", "x", Rules(folded=True), Verdict.REPLACE, b"x"),
    (
        "folded, exact goes first",
        "'a' ‘b’".encode(),
        "'a'",
        "x",
        Rules(folded=True),
        Verdict.REPLACE,
        "x ‘b’".encode(),
    ),
    ("folded, several", "“a” “a”".encode(), '"a"', "x", Rules(folded=True), Verdict.MANY, None),
    (
        "folded, all",
        "“a” “a”".encode(),
        '"a"',
        "x",
        Rules(folded=True, replace_all=True),
        Verdict.REPLACE,
        b"x x",
    ),
    ("folded, half a dash", "a—b".encode(), "a-", "x", Rules(folded=True), Verdict.OVERLAP, None),
    (
        "folded, half dots",
        "a…".encode(),
        "..",
        "x",
        Rules(folded=True, replace_all=True),
        Verdict.OVERLAP,
        None,
    ),
    ("folded, none", "“a”".encode(), "z", "x", Rules(folded=True), Verdict.NO_MATCH, None),
    (
        "folded and CRLF",
        "“a”\r\nb\r\n".encode(),
        '"a"\nb',
        "x",
        Rules(folded=True),
        Verdict.REPLACE,
        b"x\r\n",
    ),
]


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_table(row: tuple[str, bytes | None, str, str, Rules, Verdict, bytes | None]) -> None:
    _, before, old, new, rules, verdict, after = row
    decision = decide(before, old, new, rules)
    assert decision.verdict is verdict
    assert decision.data == (after if after is not None else b"")


pieces = st.sampled_from(["a", "b", "ab", " ", "\n", "\r\n", "\r", "é", "“", "—", "\ufeff", "…", "x\ny"])
texts = st.lists(pieces, max_size=12).map("".join)
garbage = st.lists(
    st.one_of(
        pieces.map(str.encode), st.sampled_from([b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x00", b"\xe2\x80"])
    ),
    max_size=14,
).map(b"".join)


@given(texts, texts.filter(bool), texts)
def test_equals_a_reference_on_text(before: str, old: str, new: str) -> None:
    """Against the plain text: LF view, `str.replace`, CRLF again."""
    decision = decide(before.encode(), old, new, Rules(replace_all=True))
    crlf = "\r\n" in before
    plain = before.replace("\r\n", "\n")
    if old == new:
        assert decision.verdict is Verdict.SAME
    elif old not in plain:
        assert decision.verdict is Verdict.NO_MATCH
    else:
        put = new.replace("\r\n", "\n") if crlf else new
        expected = plain.replace(old, put)
        assert decision.data.decode() == (expected.replace("\n", "\r\n") if crlf else expected)
        assert decision.matches == plain.count(old)
        assert decision.line_ends_unified == (crlf and before.count("\n") != before.count("\r\n"))


@given(garbage, texts.filter(bool), texts)
def test_only_the_match_changes_in_a_file_of_any_bytes(before: bytes, old: str, new: str) -> None:
    decision = decide(before, old, new, Rules(replace_all=True))
    if decision.verdict is not Verdict.REPLACE:
        assert decision.data == b""
        return
    crlf = b"\r\n" in before
    rest = decision.body
    for span in reversed(decision.spans):
        rest = rest[: span.start] + span.old + rest[span.end :]
    assert rest == (before.replace(b"\r\n", b"\n") if crlf else before)
    assert decision.data == (decision.body.replace(b"\n", b"\r\n") if crlf else decision.body)


@given(garbage, texts, texts)
def test_without_replace_all_a_change_is_a_unique_one(before: bytes, old: str, new: str) -> None:
    decision = decide(before, old, new, Rules())
    if decision.verdict is Verdict.REPLACE:
        assert decision.matches == len(decision.spans) == 1


@given(garbage, texts.filter(bool))
def test_folding_leads_back(before: bytes, old: str) -> None:
    folded = fold(before)
    for start, end, whole in folded.find(fold(old.encode()).data):
        assert 0 <= start <= end <= len(before)
        if whole:
            assert fold(before[start:end]).data == fold(old.encode()).data


def test_context_is_that_of_the_new_file() -> None:
    before = b"".join(b"line %d\n" % number for number in range(1, 9))
    decision = decide(before, "line 4\nline 5\n", "x\ny\nz\n", Rules())
    (record,) = details(decision, "line 4\nline 5\n", "x\ny\nz\n")
    assert record["old_line"] == record["new_line"] == 4
    assert record["context_before"] == "line 1\nline 2\nline 3\n"
    assert record["context_after"] == "line 6\nline 7\nline 8\n"
    assert record["line_prefix"] == ""


def test_context_skips_the_rest_of_the_last_line() -> None:
    decision = decide(b"a b c\nd\ne", "b", "B", Rules())
    (record,) = details(decision, "b", "B")
    assert record["line_prefix"] == "a "
    assert record["context_before"] == ""
    assert record["context_after"] == "d\ne"


def test_context_of_every_place() -> None:
    decision = decide(b"x a y a\na\n", "a", "bb", Rules(replace_all=True))
    records = details(decision, "a", "bb")
    assert [record["line_prefix"] for record in records] == ["x ", "x bb y ", ""]
    assert [record["new_line"] for record in records] == [1, 1, 2]
    assert [record["context_after"] for record in records] == ["bb\n", "bb\n", ""]
    assert records[2]["context_before"] == "x bb y bb\n"


def test_deletion_shows_what_follows_the_line_that_moved_up() -> None:
    decision = decide(b"1\n2\n3\n4\n5\n", "1\n", "", Rules())
    assert details(decision, "1\n", "")[0]["context_after"] == "3\n4\n5\n"


def test_snippet_has_numbers_and_gaps() -> None:
    before = b"".join(b"%d\n" % number for number in range(1, 21))
    decision = decide(before.replace(b"19\n", b"2\n"), "2\n", "two\n", Rules(replace_all=True))
    text = numbered_snippet(decision)
    assert text.split("\n")[:2] == ["1→1", "2→two"]
    assert "..." in text.split("\n")
    assert "19→two" in text.split("\n")


@pytest.mark.parametrize(
    ("before", "old", "expected"),
    [
        (
            b"first\nthe identifier_long here\nsecond identifier_long\n",
            "say identifier_long now",
            (2, "the identifier_long here"),
        ),
        (b"abc de\nq\n", "q b", (1, "abc de")),
        (b"  indented thing  \n", "indented  thing", (1, "  indented thing")),
        (b"alpha\r\nbeta\r\n", "alpha\r\nbeta", (1, "alpha")),
        (b"a\xff word\n", "no word", (1, "a\ufffd word")),
        (b"here\n", "line 99 not here!", None),
        (b"first\n", "\nfirst", None),
        (b"first\n", "  \nfirst", None),
        (b"", "a", None),
    ],
)
def test_nearest_line(before: bytes, old: str, expected: tuple[int, str] | None) -> None:
    found = nearest_line(before, old)
    assert (found and (found.number, found.text)) == expected


@pytest.mark.parametrize(
    ("before", "old", "expected"),
    [
        ("say “hello” — now\nplain\n", 'say "hello" -- now', [1]),
        ("plain\nx “q”\nplain\ny ‘r’\nx\n", "x \"q\"\nplain\ny 'r'", [2, 4]),
        ("k “q”\n" * 3, 'k "q"\nk "q"\n', [1, 2, 3]),
        ("a\u00a0b\r\nc\r\n", "a b\nc", [1]),
        ("d …\n", "d ..", [1]),
        ("“q”\n", "z", []),
        ("q\n", '"q"', []),
        ("a — b\nother words\n", "a -- b\nother  words", []),
    ],
)
def test_confusable_lines(before: str, old: str, expected: list[int]) -> None:
    assert confusable_lines(before.encode(), old) == expected


def test_lines_are_those_that_the_region_touches() -> None:
    data = "“\nb\n”\n".encode()
    assert lines_with(data, 0, len(data)) == [1, 3]
    assert lines_with(data, data.index(b"b"), data.index(b"b") + 1) == []
