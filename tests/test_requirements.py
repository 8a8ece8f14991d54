"""The locked dependencies are those of pyproject.toml: `make up` on a fresh machine installs nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BUILD_FILE = ROOT / "requirements/build.in"
BUILD = [line for line in BUILD_FILE.read_text().splitlines() if line[:1] not in ("#", "")]
RUN = [*PROJECT["dependencies"], *BUILD]
TEST = [*RUN, *PROJECT["optional-dependencies"]["test"]]


def locked(file: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / file).read_text().splitlines()
    pinned = [re.match(r"([\w.-]+)==(\S+)", line) for line in lines]
    return {canonicalize_name(found[1]): found[2] for found in pinned if found}


@pytest.mark.parametrize(("file", "wanted"), [("run.txt", RUN), ("test.txt", TEST)])
def test_everything_is_locked_in_a_version_that_is_allowed(file: str, wanted: list[str]) -> None:
    versions = locked(file)
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement


def test_the_tests_run_with_what_runs() -> None:
    assert locked("run.txt").items() <= locked("test.txt").items()


@pytest.mark.parametrize("file", ["run.txt", "test.txt"])
def test_every_version_has_hashes_and_no_place_to_come_from(file: str) -> None:
    text = (ROOT / "requirements" / file).read_text()
    assert "://" not in text
    assert "--index-url" not in text
    for entry in re.split(r"\n(?=\S)", text.strip()):
        assert "--hash=sha256:" in entry, entry
