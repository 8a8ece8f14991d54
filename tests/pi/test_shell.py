"""The extension by itself: strict types, what it imports, and its tests on Node."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.pi.pi import EXTENSION, INSTALLED, NODE

HERE = Path(__file__).parent
TSC = INSTALLED / "node_modules/typescript/bin/tsc"


def run(*command: object, cwd: Path) -> None:
    done = subprocess.run(
        [str(NODE), *map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_are_strict() -> None:
    types = INSTALLED / "node_modules/@types"
    run(TSC, "--project", EXTENSION, "--typeRoots", types, cwd=EXTENSION)


def test_it_imports_nothing_but_node() -> None:
    sources = [file.read_text("utf-8") for file in EXTENSION.glob("*.ts")]
    assert sources
    imported = {name for source in sources for name in re.findall(r'\bfrom "([^"]+)"', source)}
    assert all(name.startswith(("node:", "./")) for name in imported), imported


def test_the_shell_against_a_scripted_gateway() -> None:
    run("--test", "--test-timeout=60000", "shell.test.ts", cwd=HERE)


def test_it_stays_thin() -> None:
    lines = [line for file in EXTENSION.glob("*.ts") for line in file.read_text("utf-8").splitlines()]
    assert len([line for line in lines if line.strip()]) <= 400, "decisions belong into workers/pi"
