"""What is searched for, and what comes back."""

from __future__ import annotations

import dataclasses
import json
from enum import StrEnum

__all__ = ["Mode", "SearchRequest", "SearchResult"]


class Mode(StrEnum):
    """What is printed: matching lines, names of files with matches, counts, or names of all files."""

    CONTENT = "content"
    FILES_WITH_MATCHES = "files_with_matches"
    COUNT = "count"
    FILES = "files"


@dataclasses.dataclass(frozen=True, slots=True)
class SearchRequest:
    """``path`` is absolute and printed as it stands here; ``cwd`` is what globs are relative to."""

    pattern: str
    path: str
    cwd: str
    mode: Mode = Mode.CONTENT
    globs: tuple[str, ...] = ()
    file_type: str | None = None
    before: int = 0
    after: int = 0
    ignore_case: bool = False
    multiline: bool = False
    hidden: bool = False
    by_time: bool = False  # the newest first instead of by name

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> SearchRequest:
        fields = json.loads(text)
        return cls(**{**fields, "mode": Mode(fields["mode"]), "globs": tuple(fields["globs"])})


@dataclasses.dataclass(frozen=True, slots=True)
class SearchResult:
    """Output as ``rg`` prints it; exit 0: found, 1: nothing, 2: failed.

    ``truncated``: there was more output than is taken; ``timed_out``: the search was ended before it was
    done.  In both cases what was printed until then is kept.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes = b""
    truncated: bool = False
    timed_out: bool = False
