"""``write``: a whole file, new or in place of the old one."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any, ClassVar

from harness.limits import SIZES
from harness.outcome import Diff, FaultKind, Location, ToolFault, ToolOutput
from harness.registry.contract import CallContext, Tool, ToolKind, ToolSpec
from harness.tools import file_access
from harness.tools.editing.details import whole_file
from harness.tools.editing.replace import is_text
from harness.tools.file_access import Found, TooLargeError, find
from harness.workspace.filesystem import os_error
from harness.workspace.paths import ResolvedPath

__all__ = ["TOOLS", "Write"]


class Write:
    """Belongs to the compatibility family by its name, and to the default set."""

    spec: ClassVar = ToolSpec(
        namespace="OpenCode",
        id="write",
        kind=ToolKind.WRITE,
        variant="Write",
        notifications=("file_written",),
        reads={"path": "file_path"},
        description=(
            "Write a whole file.\n\n"
            "- What the file held before is lost"
            "${% if tools.by_kind.read %}, so look at it with ${{ tools.by_kind.read }} first"
            "${% endif %}.\n"
            "- Missing parent directories are made."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "file_path": {"type": "string", "description": "The absolute path of the file."},
                "content": {"type": "string", "description": "Everything the file is to contain."},
            },
            "required": ["file_path", "content"],
        },
    )

    async def run(self, arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        content: str = arguments["content"]
        if not is_text(content):
            raise ToolFault(
                FaultKind.INVALID_ARGUMENTS, f"{context.names.own('content')} holds half of a surrogate pair"
            )
        path = await context.session.resolve(arguments["file_path"], cwd=context.cwd)
        if path.directory:
            raise file_access.host_fault(os_error(errno.EISDIR, path.path))
        for _ in range(SIZES.edit_attempts):
            found = await _before(context, path)
            if await file_access.put(context, path, found, content.encode()):
                return _written(context, path.path, found, content)
        raise ToolFault(FaultKind.EXECUTION, f"{path.shown} is being written by something else all the time")


async def _before(context: CallContext, path: ResolvedPath) -> Found:
    try:
        return await find(context, path)
    except TooLargeError:
        raise ToolFault(
            FaultKind.EXECUTION, f"{path.shown} has more than {SIZES.file_bytes} bytes; remove it first"
        ) from None
    except OSError as error:
        raise file_access.host_fault(error) from error


def _written(context: CallContext, path: str, found: Found, content: str) -> ToolOutput:
    previous = "" if found.data is None else found.data.decode(errors="replace")
    text = f"The file {path} was created." if found.data is None else f"Replaced what was in {path}."
    applied = {
        "old_string": previous,
        "new_string": content,
        "tool_output_for_prompt": text,
        "tool_output_for_prompt_concise": text,
        "absolute_path": path,
        "edits": {"details": whole_file(previous, content)},
    }
    return ToolOutput(
        "SearchReplace",
        {"EditsApplied": applied},
        text,
        diffs=(Diff(path, previous, content),),
        locations=(Location(path, 1),),
    )


TOOLS: tuple[Tool, ...] = (Write(),)
