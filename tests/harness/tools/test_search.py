"""Searching without ``rg``: the same language, the same files, the same output."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.limits import LIMITS, SIZES
from harness.outcome import FaultKind, ToolFault
from harness.workspace.executor import HostExecutor
from harness.workspace.host_filesystem import HostFileSystem
from harness.workspace.memory_filesystem import MemoryFileSystem
from harness.workspace.search import Mode, SearchRequest, SearchResult
from harness.workspace.search.globs import GlobError, Overrides, compile_glob
from harness.workspace.search.pattern import PatternError, compile_pattern
from harness.workspace.search.ripgrep import command_line
from harness.workspace.search.run import in_memory, search
from tests.harness.tools.conftest import Changed
from tests.harness.workspace.conftest import HostTree

RG = os.environ.get("GROK_GATEWAY_TEST_RG") or shutil.which("rg")


def request(root: str, pattern: str = "needle", **more: object) -> SearchRequest:
    plain = SearchRequest(pattern, root, root)
    return dataclasses.replace(plain, **more)  # type: ignore[arg-type]


class TestPattern:
    @pytest.mark.parametrize(
        ("pattern", "yes", "no"),
        [
            ("n{2}", "nn", "n"),
            ("a(?i)B", "ab", "AB"),
            ("(a(?i)b)c", "aBc", "aBC"),
            ("(?i:a)b", "Ab", "AB"),
            ("(?x) a b # c", "ab", "a b"),
            ("(?<n>a)(?P<m>b)", "ab", "ba"),
            ("[[:alpha:]]+1", "ab1", "1"),
            ("[^[:alpha:]]", "1", "a"),
            ("[[:^digit:]]", "a", "1"),
            ("[a-c[x-z]]", "y", "d"),
            ("[a[^b-z]]", "A", "b"),
            ("[]x]", "]", "y"),
            ("[^]x]", "y", "]"),
            ("[a-]", "-", "b"),
            ("[&~|]", "~", "a"),
            (r"\x41\u0042\U00000043\x{44}\u{45}", "ABCDE", "abcde"),
            (r"\p{Lu}\pL", "Éa", "éa"),
            (r"\P{L}", "1", "a"),
            (r"[\p{Nd}x]", "٣", "a"),
            (r"\p{gc=Letter}", "a", "1"),
            (r"a\z", "ba", "ab"),
            (r"\<a\>", "a b", "ab"),
            ("a++", "aa", "b"),
            ("a**b", "b", "a"),
            ("(ab)?c", "c", "b"),
            ("a+?b", "aab", "b"),
            (r"\\n", "a\\n", "an"),
            (r"\{\}", "{}", "{"),
            ("}", "}", "a"),
            ("", "", None),
            ("a|", "", None),
            ("(?s-i).", "a", ""),
        ],
    )
    def test_means_the_same(self, pattern: str, yes: str, no: str | None) -> None:
        compiled = compile_pattern(pattern, ignore_case=False, multiline=False)
        assert compiled.search(yes)
        assert no is None or not compiled.search(no)

    @pytest.mark.parametrize(
        "pattern",
        [
            *("(", "a)", "(a", "[a", "[", "a{", "{", "*a", "+", "?", "\\", "x{2,1}", "(?", "(?z)", "(?i"),
            *(r"(a)\1", r"\y", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?P=n)", r"\xZZ", r"\x{}"),
            *(r"a\nb", "a\nb", "[a&&b]", "[z-a]", r"\p{Nonsense}", "(?i)(a", "(?i)a)", "[[:alpha:]"),
        ],
    )
    def test_is_refused(self, pattern: str) -> None:
        with pytest.raises(PatternError):
            compile_pattern(pattern, ignore_case=False, multiline=False)

    @given(st.text(alphabet="ab()[]{}*+?|\\^$.-:,12niUx&<>=!P#\n", max_size=14))
    def test_never_anything_else_than_a_pattern_or_a_refusal(self, pattern: str) -> None:
        for multiline in (False, True):
            try:
                compile_pattern(pattern, ignore_case=True, multiline=multiline)
            except PatternError:
                continue

    def test_lines(self) -> None:
        assert compile_pattern(r"a\nb.c", ignore_case=False, multiline=True).search("a\nb\nc")
        assert compile_pattern("^b$", ignore_case=False, multiline=True).search("a\nb\nc")


class TestGlobs:
    @pytest.mark.parametrize(
        ("glob", "path", "fits"),
        [
            ("*.py", "a/b.py", True),
            ("*.py", "b.pyc", False),
            ("a/*.py", "a/b.py", True),
            ("a/*.py", "x/a/b.py", False),
            ("a/*.py", "a/x/b.py", False),
            ("/b.py", "b.py", True),
            ("/b.py", "a/b.py", False),
            ("**/b.py", "b.py", True),
            ("a/**", "a/x/b.py", True),
            ("a/**", "a", False),
            ("a/**/b.py", "a/b.py", True),
            ("a/**/b.py", "a/x/y/b.py", True),
            ("*.{ts,tsx}", "a.tsx", True),
            ("*.{ts,tsx}", "a.tsy", False),
            ("{a,b/**}", "b/c", True),
            ("a,b", "a,b", True),
            ("[ab].c", "a.c", True),
            ("[!ab].c", "c.c", True),
            ("[!a]b", "/b", False),
            ("?.c", "ab.c", False),
            (r"\*.c", "*.c", True),
            (r"\*.c", "a.c", False),
            ("a[", "a[", None),
            ("{a,b", "a", None),
            ("a\\", "a", None),
        ],
    )
    def test_fits(self, glob: str, path: str, fits: bool | None) -> None:
        if fits is None:
            with pytest.raises(GlobError):
                compile_glob(glob)
        else:
            assert (compile_glob(glob)[0].match(path) is not None) == fits

    def test_the_last_one_decides(self) -> None:
        overrides = Overrides(["*.py", "!a.py"])
        assert overrides.wants("b.py", False) is True
        assert overrides.wants("a.py", False) is False
        assert overrides.wants("a.txt", False) is False, "something else was wanted"
        assert overrides.wants("dir", True) is None
        assert Overrides(["!a.py"]).wants("b.py", False) is None

    @given(st.text(alphabet="ab*?[]!{},/\\.-^", max_size=10), st.text(alphabet="ab/.", max_size=8))
    def test_never_anything_else_than_an_answer_or_a_refusal(self, glob: str, path: str) -> None:
        try:
            Overrides([glob]).wants(path, False)
        except GlobError:
            return


def populate(tree: HostTree) -> None:
    put = tree.put
    put(".git/HEAD", "ref: refs/heads/main\n")
    put(".git/config", "[core]\n\trepositoryformatversion = 0\n")
    put(".git/objects/x", "")
    put(".git/refs/x", "")
    put(".gitignore", "*.log\nbuild/\n")
    put("ig.log", "needle\n")
    put("build/x.txt", "needle\n")
    put(".hid", "needle\n")
    put("a.txt", "one\nneedle here\nthree\nfour\nNeedle again\nsix\n")
    put("b/c.py", "def needle():\n    pass\n\n\nneedle()\n")
    put("b/d.rs", "fn main(){}\n")
    put("nonl.txt", "zz needle")
    put("crlf.txt", b"a\r\nneedle\r\nb\r\n")
    put("bin.dat", b"needle\x00abc\n")
    put("bad.txt", b"need\xffle\nneedle \xff\n")
    put("bom.txt", b"\xef\xbb\xbfneedle\nx\n")
    put("utf16.txt", "needle\nzwei\n".encode("utf-16"))
    put("long.txt", "q" * 1500 + " needle " + "r" * 1500 + "\n")
    put("many.txt", "".join("SEVEN\n" if n % 7 == 0 else f"{n}\n" for n in range(40)))
    put("multi.txt", "start\nmid\nend\nstart\nend\n")
    put("sub/.ignore", "skip.txt\n")
    put("sub/.rgignore", "rgskip.txt\n!ig2.log\n")
    put("sub/skip.txt", "needle\n")
    put("sub/rgskip.txt", "needle\n")
    put("sub/ig2.log", "needle\n")
    put("sub/keep.txt", "needle\n")
    put("Makefile", "needle:\n")
    put("empty.txt", "")
    tree.symlink("b/ln.txt", "../a.txt")


REQUESTS: list[dict[str, object]] = [
    *({"pattern": p} for p in ("needle", "^needle", "needle$", "NEEDLE", "(?i)N", "", "nothing", "(", "[a-")),
    *({"pattern": p} for p in (r"\bneedle\b", "[[:upper:]]eedle", r"\p{Lu}eedle", "x*", "^$", r"n\seedle")),
    *({"globs": (g,)} for g in ("*.py", "*.{py,txt}", "!*.py", "b/**", "/b/*", "*.log", ".hid", "*", "[!a]")),
    *({"file_type": t} for t in ("py", "txt", "make", "nonsense")),
    *({"before": b, "after": a} for b, a in ((1, 1), (0, 2), (3, 0))),
    *({"pattern": "SEVEN", "before": n, "after": n} for n in (1, 2, 3, 4)),
    *({"mode": m} for m in (Mode.COUNT, Mode.FILES_WITH_MATCHES, Mode.FILES)),
    *({"mode": Mode.FILES, "hidden": True, "globs": g} for g in ((), ("!.git",), ("*.txt",))),
    *({"pattern": p, "multiline": True} for p in ("start.*end", r"start\nmid", "^", "$", r"mid\n\w+", r"\n")),
    *({"pattern": p, "multiline": True, "mode": Mode.COUNT} for p in ("start", "e", "start.*end")),
    {"ignore_case": True},
    {"hidden": True},
]  # fmt: skip


@pytest.mark.skipif(not RG, reason="needs rg: on the path, or named by GROK_GATEWAY_TEST_RG")
def test_the_same_as_rg(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    populate(tree)
    assert RG
    places = [f"{tree.root}/{name}" for name in ("b", "bin.dat", "build", "ig.log", "utf16.txt")]
    elsewhere = [fields | {"path": place} for place in places for fields in ({}, {"pattern": "n.*$"})]
    for fields in (*REQUESTS, *elsewhere):
        wanted = request(tree.root, **fields)
        theirs = subprocess.run(command_line(RG, wanted), cwd=tree.root, capture_output=True, check=False)
        ours = in_memory(HostFileSystem(), {}, wanted)
        assert (ours.exit_code, ours.stdout) == (theirs.returncode, theirs.stdout), wanted
        assert bool(ours.stderr) == bool(theirs.stderr), wanted


class TestInMemory:
    def found(self, files: dict[str, str | bytes], pattern: str = "needle", **more: object) -> list[str]:
        fs = MemoryFileSystem({f"/w/{name}": content for name, content in files.items()})
        result = in_memory(fs, {}, request("/w", pattern, **more))
        return result.stdout.decode().split("\n")[:-1]

    def test_content_by_file(self) -> None:
        files: dict[str, str | bytes] = {"b": "needle\n", "a/x": "1\nneedle\n"}
        assert self.found(files) == ["/w/a/x", "2:needle", "", "/w/b", "1:needle"]

    def test_context(self) -> None:
        text = "1\nneedle\n3\n4\n5\nneedle"
        assert self.found({"a": text}, before=1, after=1) == [
            *("/w/a", "1-1", "2:needle", "3-3", "--", "5-5", "6:needle")
        ]

    def test_counts(self) -> None:
        assert self.found({"a": "needle needle\nneedle\n"}, mode=Mode.COUNT) == ["/w/a:2"]

    def test_a_binary_file_is_told_only_when_it_was_named(self) -> None:
        files: dict[str, str | bytes] = {"a": b"needle\0"}
        assert self.found(files) == []
        (line,) = self.found(files, path="/w/a")
        assert "binary file matches" in line

    def test_a_large_file_is_skipped(self) -> None:
        assert self.found({"a": b"needle\n" + b"x" * SIZES.grep_file}) == []

    def test_a_long_line_is_cut(self) -> None:
        line = self.found({"a": "needle" + "é" * 2000})[1]
        assert line.startswith("1:needleé")
        assert len(line) < SIZES.grep_line + 50


class TestOnTheHost:
    @pytest.fixture
    def files(self, tmp_path: Path) -> HostTree:
        tree = HostTree(tmp_path)
        populate(tree)
        return tree

    async def run(
        self, wanted: SearchRequest, cancelled: asyncio.Event | None = None, path: str = "/nowhere"
    ) -> SearchResult:
        env = {"PATH": path, "HOME": "/nowhere"}
        return await search(HostFileSystem(), HostExecutor(env), env, wanted, cancelled or asyncio.Event())

    async def test_the_program_prints_what_the_function_does(self, files: HostTree) -> None:
        wanted = request(files.root, before=1)
        here = in_memory(files.fs, {}, wanted)
        there = await self.run(wanted)
        assert there == here
        assert there.stdout

    async def test_a_pattern_that_never_ends_is_ended(
        self, files: HostTree, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files.put("evil.txt", "a" * 60 + "\n")
        monkeypatch.setattr("harness.workspace.search.run.LIMITS", Changed(LIMITS, search=1))
        result = await self.run(request(files.root, "^(a+)+$|^(a|a)*b"))
        assert result.exit_code in (0, 1)
        result = await self.run(request(files.root, "^(a+)+b$"))
        assert result.timed_out

    async def test_a_cancelled_turn_ends_it(self, files: HostTree) -> None:
        files.put("evil.txt", "a" * 60 + "\n")
        cancelled = asyncio.Event()
        running = asyncio.ensure_future(self.run(request(files.root, "^(a+)+b$"), cancelled))
        await asyncio.sleep(0.5)
        cancelled.set()
        with pytest.raises(ToolFault) as caught:
            await running
        assert caught.value.kind is FaultKind.CANCELLED

    async def test_what_is_searched_is_not_imported(self, files: HostTree) -> None:
        files.put("harness/__init__.py", "raise SystemExit(77)\n")
        files.put("json.py", "raise SystemExit(78)\n")
        assert (await self.run(request(files.root))).exit_code == 0

    async def test_output_is_bounded(self, files: HostTree, monkeypatch: pytest.MonkeyPatch) -> None:
        files.put("wide.txt", "needle\n" * 100_000)
        monkeypatch.setattr("harness.workspace.search.run.SIZES", Changed(SIZES, grep_output=50_000))
        result = await self.run(request(files.root))
        assert result.truncated
        assert result.exit_code == 0
        assert len(result.stdout) == 50_000

    async def test_failures_are_told(self, files: HostTree) -> None:
        result = await self.run(request(files.root, "("))
        assert result.exit_code == 2
        assert b"unclosed group" in result.stderr


def test_a_request_survives_the_way_to_its_program() -> None:
    wanted = request("/w", "né\n“", globs=("a", "!b"), mode=Mode.COUNT, before=3, file_type="py")
    assert SearchRequest.from_json(wanted.to_json()) == wanted
