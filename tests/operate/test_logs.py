"""`logs`: the last lines, and following over a rotation."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.operate.logs import Follower, show
from gateway.paths import Paths


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path / "c", tmp_path / "s", tmp_path / "r")
    paths.create()
    return paths


def test_last_lines_of_one_log(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    paths.log("gateway").write_text("one\ntwo\nthree\n")
    assert show(paths, "gateway", 2, follow=False) == 0
    assert capsys.readouterr().out == "two\nthree\n"


def test_component_names_are_log_names(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    paths.log("worker_00").write_text("one\n")
    assert show(paths, "worker:worker_00", 5, follow=False) == 0
    assert capsys.readouterr().out == "one\n"


def test_all_logs(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    paths.log("gateway").write_text("one\n")
    paths.log("leader").write_text("two\n")
    assert show(paths, None, 5, follow=False) == 0
    assert capsys.readouterr().out == "==> gateway <==\none\n==> leader <==\ntwo\n"


@pytest.mark.parametrize("name", ["nobody", "../../etc/passwd", ""])
def test_no_such_log(paths: Paths, capsys: pytest.CaptureFixture[str], name: str) -> None:
    paths.log("gateway").write_text("one\n")
    assert show(paths, name, 5, follow=False) == 1
    assert "there are: gateway" in capsys.readouterr().out


def test_nothing_logged_yet(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(paths, None, 5, follow=False) == 1
    assert "there are: none" in capsys.readouterr().out


def test_follow_over_partial_lines_and_rotation(paths: Paths) -> None:
    file = paths.log("gateway")
    file.write_text("one\ntw")
    follower = Follower(file)
    assert follower.last(9) == ["one"]
    with file.open("a") as stream:
        stream.write("o\nthr")
    assert list(follower.added()) == ["two"]
    file.rename(file.with_suffix(".log.1"))
    assert list(follower.added()) == []
    file.write_text("four\n")
    assert list(follower.added()) == ["four"]
    file.write_text("5\n")  # truncated in place
    assert list(follower.added()) == ["5"]
    assert list(follower.added()) == []


def test_bytes_that_are_not_text(paths: Paths) -> None:
    paths.log("leader").write_bytes(b"a\xffb\n")
    assert Follower(paths.log("leader")).last(1) == ["a�b"]
