"""What was changed where, for a client's card and for the model's next step.

Lines are numbered as in the new file, also those of the old text: that is how the original counts, and a
client shows the file as it is now.
"""

from __future__ import annotations

from typing import Any

from harness.limits import SIZES
from harness.tools.editing.replace import Decision, Span

__all__ = ["details", "numbered_snippet", "whole_file"]


def details(decision: Decision, old: str, new: str) -> list[dict[str, Any]]:
    """One record for each replaced place, with the lines around it."""
    lines = decision.body.split(b"\n")
    if lines[-1] == b"":
        del lines[-1]
        complete = True
    else:
        complete = False
    records = list[dict[str, Any]]()
    row = position = 0
    for span in decision.spans:
        row += decision.body.count(b"\n", position, span.start)
        position = span.start
        records.append(_record(decision, span, row, lines, complete, old, new))
    return records


def _record(
    decision: Decision, span: Span, row: int, lines: list[bytes], complete: bool, old: str, new: str
) -> dict[str, Any]:
    body = decision.body
    begin = body.rfind(b"\n", 0, span.start) + 1
    written = body[span.start : span.end]
    height = written.count(b"\n") + (not written.endswith(b"\n"))
    after = row + max(1, height)
    context = SIZES.edit_context
    return {
        "old_string": _text(span.old) if decision.folded else old,
        "old_line": row + 1,
        "new_string": new,
        "new_line": row + 1,
        "context_before": _join(lines, max(0, row - context), row, complete),
        "context_after": _join(lines, after, after + context, complete),
        "line_prefix": _text(body[begin : span.start]),
    }


def whole_file(old: str, new: str) -> list[dict[str, Any]]:
    """The record of a file that was written as a whole."""
    return [
        {
            "old_string": old,
            "old_line": 1,
            "new_string": new,
            "new_line": 1,
            "context_before": "",
            "context_after": "",
            "line_prefix": "",
        }
    ]


def numbered_snippet(decision: Decision) -> str:
    """The replaced places of the new file with line numbers and some lines around each."""
    lines = decision.body.split(b"\n")
    if lines[-1] == b"":
        del lines[-1]
    shown = dict[int, bytes]()
    row = position = 0
    for span in decision.spans:
        row += decision.body.count(b"\n", position, span.start)
        position = span.start
        last = row + decision.body.count(b"\n", span.start, span.end)
        for number in range(max(0, row - SIZES.edit_context), last + SIZES.edit_context + 1):
            if number < len(lines):
                shown[number] = lines[number]
    out = list[str]()
    previous = -1
    for number in sorted(shown):
        if out and number != previous + 1:
            out.append("...")
        out.append(f"{number + 1}→{_text(shown[number])}")
        previous = number
    return "\n".join(out)


def _join(lines: list[bytes], start: int, stop: int, complete: bool) -> str:
    picked = lines[start:stop]
    if not picked:
        return ""
    ends_open = not complete and start + len(picked) == len(lines)
    return _text(b"\n".join(picked)) + ("" if ends_open else "\n")


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
