"""Rooms and their doors: who may import whom, and that tools reach the host only through their session."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "harness").rglob("*.py"))

#: What reaches files, processes, sockets or other code by itself.
HOST = frozenset(
    [
        "os",
        "subprocess",
        "pathlib",
        "shutil",
        "io",
        "tempfile",
        "glob",
        "fileinput",
        "socket",
        "socketserver",
        "signal",
        "pty",
        "fcntl",
        "mmap",
        "ctypes",
        "multiprocessing",
        "concurrent",
        "threading",
        "importlib",
        "runpy",
        "select",
        "selectors",
        "stat",
        "platform",
        "sqlite3",
        "shelve",
        "dbm",
        "zipfile",
        "tarfile",
        "gzip",
        "bz2",
        "lzma",
        "urllib",
        "http",
        "ftplib",
        "psutil",
        "aiohttp",
        "dulwich",
        "watchfiles",
    ]
)
#: Of a pure module's names, those that ask the host.
ASKING = frozenset(
    [
        "exists",
        "lexists",
        "isfile",
        "isdir",
        "islink",
        "ismount",
        "getsize",
        "getmtime",
        "getatime",
        "getctime",
        "realpath",
        "abspath",
        "expanduser",
        "expandvars",
        "samefile",
        "create_subprocess_exec",
        "create_subprocess_shell",
        "open_connection",
        "start_server",
        "open_unix_connection",
        "subprocess_exec",
        "subprocess_shell",
        "run_in_executor",
        "to_thread",
    ]
)
BUILT_IN = frozenset({"open", "exec", "eval", "compile", "__import__", "input", "breakpoint"})
#: Doors to the host inside the engine: only the session may use them.
DOORS = (
    "harness.workspace.host_filesystem",
    "harness.workspace.executor",
    "harness.workspace.terminal.process",
)

#: Decisions of the registry and the tools; the gathering of the families imports them by name.
PURE = [
    path
    for path in FILES
    if path.relative_to(ROOT).parts[1] in ("tools", "registry")
    and path.relative_to(ROOT) != Path("harness/tools/__init__.py")
]
#: Rooms of the gateway that the engine may enter.
OPEN = ("gateway.wire", "gateway.paths")
EXCEPTIONS = {("harness/registry/toolset.py", "platform")}


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def reaching(tree: ast.AST) -> Iterator[str]:
    """Everything in a file by which it could reach the host around its session."""
    for name in imports(tree):
        if name.partition(".")[0] in HOST or name.startswith(DOORS) or name.rpartition(".")[2] in ASKING:
            yield name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ASKING:
            yield node.attr
        if isinstance(node, ast.Name) and node.id in BUILT_IN:
            yield node.id


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PURE, ids=name_of)
def test_tools_and_registry_never_touch_the_host(path: Path) -> None:
    found = set(reaching(ast.parse(path.read_text())))
    assert found - {name for file, name in EXCEPTIONS if file == name_of(path)} == set()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_the_engine_imports_itself_and_the_wire_only(path: Path) -> None:
    for name in imports(ast.parse(path.read_text())):
        assert not name.startswith("workers"), name
        if name.partition(".")[0] == "gateway":
            assert name in ("gateway", "gateway.__version__") or name.startswith(OPEN), name


@pytest.mark.parametrize("room", ["gateway", "workers"])
def test_nobody_imports_the_engine(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        assert not any(
            name.partition(".")[0] == "harness" for name in imports(ast.parse(path.read_text()))
        ), path


@pytest.mark.parametrize(
    ("source", "caught"),
    [
        ("import os", "os"),
        ("from os import path", "os"),
        ("import os.path as p", "os.path"),
        ("def f():\n    import subprocess", "subprocess"),
        ("from pathlib import Path", "pathlib"),
        ("import asyncio\nasyncio.create_subprocess_shell('ls')", "create_subprocess_shell"),
        ("from asyncio import create_subprocess_exec", "asyncio.create_subprocess_exec"),
        ("import posixpath\nposixpath.exists('x')", "exists"),
        ("from posixpath import realpath", "posixpath.realpath"),
        ("open('x')", "open"),
        ("f = open", "open"),
        ("__import__('os')", "__import__"),
        ("from harness.workspace.host_filesystem import HostFileSystem", "harness.workspace.host_filesystem"),
        ("import importlib", "importlib"),
    ],
)
def test_each_way_around_the_session_is_caught(source: str, caught: str) -> None:
    assert caught in set(reaching(ast.parse(source)))


def test_what_only_computes_is_let_through() -> None:
    source = "import posixpath, asyncio\nposixpath.join(0)\nasyncio.Event()\nfrom harness.limits import SIZES"
    assert set(reaching(ast.parse(source))) == set()


def test_every_file_of_a_tool_family_is_registered() -> None:
    """A file with TOOLS that nobody gathers would be a tool that nobody has."""
    gathered = (ROOT / "harness/tools/__init__.py").read_text()
    for path in (ROOT / "harness/tools").glob("*.py"):
        tree = ast.parse(path.read_text())
        targets = [
            t for node in tree.body if isinstance(node, ast.AnnAssign | ast.Assign) for t in _targets(node)
        ]
        if "TOOLS" in targets:
            assert f'"{path.stem}"' in gathered, path


def _targets(node: ast.AnnAssign | ast.Assign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]
