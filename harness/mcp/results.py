"""What a server's tool gave, as the two projections of a result.

Texts are for the model, whole or cut with the rest in a file of the session; pictures and sounds are named,
since no model endpoint here takes them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.limits import SIZES
from harness.outcome import Completeness, ToolOutput

__all__ = ["result_text", "tool_output"]


def result_text(result: Mapping[str, Any]) -> str:
    """All that a model can read of a result; structured content speaks where nothing else does."""
    content = result.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    text = "\n".join(part for block in blocks if (part := _block(block)))
    structured = result.get("structuredContent")
    if not text and structured is not None:
        return json.dumps(structured, ensure_ascii=False, separators=(",", ":"))
    return text


def _block(block: Mapping[str, Any]) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block.get("text", ""))
    if kind in ("image", "audio"):
        size = len(str(block.get("data", ""))) * 3 // 4
        return f"[{kind} of type {block.get('mimeType')}, about {size} bytes, not shown]"
    if kind == "resource_link":
        return f"[resource {block.get('uri')}: {block.get('name', '')}]"
    if kind == "resource":
        inner = block.get("resource")
        resource: Mapping[str, Any] = inner if isinstance(inner, dict) else {}
        if isinstance(resource.get("text"), str):
            return f"[resource {resource.get('uri')}]\n{resource['text']}"
        return f"[resource {resource.get('uri')} of type {resource.get('mimeType')}, not shown]"
    return f"[content of the unknown type {str(kind)[:40]!r}, not shown]"


def tool_output(server: str, tool: str, result: Mapping[str, Any], call_id: str, folder: Path) -> ToolOutput:
    """The output of a call; of a long one the whole text is written into ``folder``."""
    whole = result_text(result)
    text, cut = _bounded(whole, call_id, folder)
    failed = result.get("isError") is True
    names = {"tool_name": tool, "server_name": server}
    fields: dict[str, Any] = {**names, "output": {"Error" if failed else "OkayOutput": text}}
    if failed:
        fields["is_error"] = True
    prompt = f"{tool} of {server} reports a failure: {text}" if failed else text
    completeness = Completeness.TRUNCATED if cut else Completeness.COMPLETE
    return ToolOutput("MCP", fields, prompt, is_error=failed, completeness=completeness)


def _bounded(text: str, call_id: str, folder: Path) -> tuple[str, bool]:
    data = text.encode(errors="replace")
    if len(data) <= SIZES.mcp_output:
        return data.decode(), False  # half a character could not be sent on
    shown = data[: SIZES.mcp_output].decode(errors="ignore")
    kept = _kept(data, call_id, folder)
    return f"{shown}\n\n[Cut here: the first {SIZES.mcp_output} of {len(data)} bytes. {kept}]", True


def _kept(data: bytes, call_id: str, folder: Path) -> str:
    path = folder / f"{re.sub(r'[^A-Za-z0-9_-]', '_', call_id)[:100]}.{'json' if _is_json(data) else 'txt'}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        return f"The rest could not be kept: {error.strerror}."
    return f"All of it is in {path}."


def _is_json(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict | list)
    except (ValueError, RecursionError):
        return False
