"""The command line of ``rg`` for a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.limits import SIZES
from harness.workspace.search.request import Mode, SearchRequest

__all__ = ["command_line"]

_MODES: Mapping[Mode, Sequence[str]] = {
    Mode.CONTENT: ("--heading", "--line-number"),
    Mode.FILES_WITH_MATCHES: ("--files-with-matches",),
    Mode.COUNT: ("--count",),
    Mode.FILES: ("--files",),
}


def command_line(program: str, request: SearchRequest) -> list[str]:
    """Sorted by name: ``rg`` would otherwise print in the order in which its threads happen to finish.

    ``--no-config``: a person's own settings (colours, other patterns to ignore) are not the model's.
    """
    argv = [program, "--no-config", "--color=never", "--with-filename", *_MODES[request.mode]]
    argv += ("--sortr=modified",) if request.by_time else ("--sort=path",)
    argv.append(f"--max-filesize={SIZES.grep_file}")
    if request.mode is Mode.CONTENT:
        argv += (f"--max-columns={SIZES.grep_line}", "--max-columns-preview")
        argv += (f"--before-context={request.before}", f"--after-context={request.after}")
    if request.ignore_case:
        argv.append("--ignore-case")
    if request.multiline:
        argv += ("--multiline", "--multiline-dotall")
    if request.hidden:
        argv.append("--hidden")
    argv += (f"--glob={glob}" for glob in request.globs)
    if request.file_type:
        argv.append(f"--type={request.file_type}")
    if request.mode is not Mode.FILES:
        argv.append(f"--regexp={request.pattern}")
    return [*argv, "--", request.path]
