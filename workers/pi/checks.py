"""Checks of the user after an edit and at the end of a turn: programs, bounded in time and output.

A file's name is always an argument of its own, never part of a shell's text.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.wire.process import end_group, spawn, wait_exit
from workers.flow import Reader

__all__ = ["Finding", "edited_file", "post_edit", "run", "stop"]

#: Bytes of a check's output that are kept; the rest is read and dropped.
_KEPT = 2**20
#: Characters of it that the model gets after an edit, and at the end of a turn.
_EDIT_TEXT, _STOP_TEXT = 4000, 8000

#: Members of a tool's input that name the edited file.
_FILES = ("file_path", "target_file", "path", "absolute_path", "filePath")

_PYTHON = "import ast,sys; ast.parse(open(sys.argv[1],'rb').read(), sys.argv[1])"
_JSON = "import json,sys; json.load(open(sys.argv[1],encoding='utf-8-sig'))"
_TYPESCRIPT = (
    "const m=require('node:module'),f=require('node:fs');"
    "if(m.stripTypeScriptTypes)m.stripTypeScriptTypes(f.readFileSync(process.argv[1],'utf8'))"
)

#: Syntax checks that need nothing of the user: command for a suffix, the file's name is added.
_BUILT_IN: Mapping[str, Sequence[str]] = {
    ".py": (sys.executable, "-I", "-c", _PYTHON),
    ".json": (sys.executable, "-I", "-c", _JSON),
    **dict.fromkeys((".js", ".mjs", ".cjs"), ("node", "--check")),
    **dict.fromkeys((".ts", ".mts", ".cts"), ("node", "--no-warnings", "-e", _TYPESCRIPT)),
}

_PLACE = re.compile(r"\"\{file\}\"|'\{file\}'|\{file\}")


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """How a check ended.  ``code`` None: it was ended by force after ``seconds``."""

    code: int | None
    output: str
    seconds: float

    @property
    def failed(self) -> bool:
        return self.code != 0

    def text(self, length: int) -> str:
        """What the model is told."""
        head = f"exit code {self.code}" if self.code is not None else f"no end after {self.seconds:g} s"
        output = self.output.strip()
        return f"{head}\n{output if len(output) <= length else output[:length] + '…'}".strip()


def edited_file(tool_input: Any, cwd: str) -> Path | None:
    """The file that a call has edited; None when its input names none that is there."""
    values = tool_input if isinstance(tool_input, dict) else {}
    name = next((values[key] for key in _FILES if isinstance(values.get(key), str)), "")
    path = Path(cwd, name)
    return path if name and path.is_file() else None


async def post_edit(command: str, file: Path, cwd: str, seconds: float) -> str:
    """The context for the model after an edit, "" when there is nothing to say.

    ``command``: the user's, with ``{file}`` for the file's name; "" for the built-in checks.
    """
    if command:
        text = _PLACE.sub('"$1"', command)
        argv = ["bash", "-lc", text, "check", str(file)]
    else:
        built_in = _BUILT_IN.get(file.suffix.lower())
        if built_in is None or shutil.which(built_in[0]) is None:
            return ""
        argv = [*built_in, str(file)]
    finding = await run(argv, cwd, seconds)
    return f"The check of {file} failed: {finding.text(_EDIT_TEXT)}" if finding.failed else ""


async def stop(command: str, cwd: str, seconds: float) -> str:
    """Why the turn must not end yet, "" when it may."""
    finding = await run(["bash", "-lc", command], cwd, seconds)
    return f"The check at the end of the turn failed: {finding.text(_STOP_TEXT)}" if finding.failed else ""


async def run(argv: Sequence[str], cwd: str, seconds: float) -> Finding:
    """Run a program and everything it starts; ends it when time is up or the caller is cancelled."""
    try:
        process = spawn(argv, env=dict(os.environ), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        return Finding(127, f"cannot start {argv[0]}: {error.strerror}", seconds)
    assert process.stdout is not None
    output = bytearray()
    os.set_blocking(process.stdout.fileno(), False)
    reader = Reader(
        process.stdout.fileno(), lambda data: output.extend(data[: _KEPT - len(output)]), lambda error: None
    )
    ended = False
    try:
        ended = await wait_exit(process, seconds)
    finally:
        await asyncio.shield(end_group(process))
        reader.drain()
        reader.close()
        process.stdout.close()
    return Finding(process.returncode if ended else None, output.decode("utf-8", "replace"), seconds)
