"""What a client sent as a prompt, as the queue shows it and as the model reads it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from harness.session.conversation import reminder

__all__ = ["Prompt", "read_prompt"]


@dataclasses.dataclass(frozen=True, slots=True)
class Prompt:
    """``shown`` is the text alone; ``query`` goes into the user query, ``attached`` behind it."""

    shown: str
    query: str
    attached: str = ""
    dropped: tuple[str, ...] = ()  #: what was left out, and why


def read_prompt(blocks: Sequence[Mapping[str, Any]]) -> Prompt:
    """Text as it is, linked files as ``@path``, embedded ones behind the query; images are left out."""
    texts, query = list[str](), list[str]()
    files, links, dropped = list[str](), list[str](), list[str]()
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            texts.append(str(block.get("text", "")))
            query.append(texts[-1])
        elif kind == "resource_link":
            uri = str(block.get("uri", ""))
            query.append(f"@{_path(uri)}")
            links.append(f"{len(links)}. {block.get('name') or _path(uri)} -> {uri}")
        elif kind == "resource" and isinstance(block.get("resource"), dict):
            resource = block["resource"]
            if isinstance(resource.get("text"), str):
                files.append(_embedded(_path(str(resource.get("uri", ""))), resource["text"]))
            else:
                dropped.append(f"The attachment {resource.get('uri', '')} is not text and was left out.")
        elif kind in ("image", "audio"):
            dropped.append(f"An attachment of the type {kind} was left out: this engine sends text only.")
    behind = list[str]()
    if files:
        behind.append(reminder("Files that the user attached:\n\n" + "\n\n".join(files)))
    if links:
        behind.append(reminder("Files that the user named:\n" + "\n".join(links)))
    behind += [reminder(note) for note in dropped]
    return Prompt("\n\n".join(texts), " ".join(query), "\n\n".join(behind), tuple(dropped))


def _path(uri: str) -> str:
    return unquote(urlsplit(uri).path) if uri.startswith("file:") else uri


def _embedded(path: str, text: str) -> str:
    return f'<file_contents path="{path}">\n{text}\n</file_contents>'
