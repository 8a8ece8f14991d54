"""The few lines of YAML at the head of a Markdown file, as far as skills and rules use them.

Scalars (plain, quoted, folded ``>`` and literal ``|``) and simple lists; anything deeper is left out.  A
YAML library would bring types that nobody here wants: ``name: on`` is a name, not a truth value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

__all__ = ["frontmatter"]

_KEY = re.compile(r"([A-Za-z0-9_][\w.-]*)\s*:(?:\s+(.*))?$")
_BLOCK = re.compile(r"([>|])[+-]?\d*$")


def frontmatter(text: str) -> tuple[dict[str, str], str]:
    """Keys with their values, and the text behind the head; a list is its items joined by commas."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return {}, text
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), None)
    if end is None:
        return {}, text
    return _read(lines[1:end]), "\n".join(lines[end + 1 :]).lstrip("\n")


def _read(lines: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    at = 0
    while at < len(lines):
        found = _KEY.match(lines[at])
        at += 1
        if found is None:
            continue
        first = at
        while at < len(lines) and (not lines[at].strip() or lines[at][:1] in " \t-"):
            at += 1
        values[found[1]] = _value((found[2] or "").strip(), lines[first:at])
    return values


def _value(head: str, below: Sequence[str]) -> str:
    block = _BLOCK.match(head)
    inner = [line.strip() for line in below]
    if block is not None:
        glue = "\n" if block[1] == "|" else " "
        return glue.join(inner).strip()
    if head.startswith("[") and head.endswith("]"):
        return ", ".join(_scalar(item.strip()) for item in head[1:-1].split(",") if item.strip())
    if not head and any(line.startswith("- ") for line in inner):
        return ", ".join(_scalar(line[2:].strip()) for line in inner if line.startswith("- "))
    return _scalar(" ".join([head, *(line for line in inner if line and not _KEY.match(line))]).strip())


def _scalar(text: str) -> str:
    if text.startswith('"'):
        try:
            value, _ = json.JSONDecoder().raw_decode(text)
        except ValueError:
            return text.strip('"')
        return str(value)
    if text.startswith("'"):
        closing = re.match(r"'((?:[^']|'')*)'", text)
        return closing[1].replace("''", "'") if closing else text.strip("'")
    return re.split(r"\s+#", text, maxsplit=1)[0].strip()
