"""From Pi's transcript to what Grok is given: every entry that it does not have yet, once.

Sans-I/O.  A message has no id; the session's entries have, and their timestamps are those of the messages.
`undelivered` joins both behind the watermark, the newest entry that Grok knows.  Grok's own answers are left
out, what others have said is told as text, and what the user has said last is the prompt.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = [
    "HISTORY",
    "Delivery",
    "Entry",
    "Image",
    "delivery",
    "entries_of",
    "person_entry",
    "position_of",
    "rules_of",
    "side_text",
    "system_text",
]

#: Characters of an older transcript that a new Grok session is given.
HISTORY = 60_000

PROVIDER = "grok"
WAKE = "grok-wake"


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    """An image of a message, to be kept as a file: Grok takes no image in a prompt."""

    data: bytes
    suffix: str

    @property
    def name(self) -> str:
        return f"{hashlib.sha256(self.data).hexdigest()[:16]}{self.suffix}"


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the branch, with its message where the context has one."""

    id: str
    type: str
    role: str
    custom: str = ""
    message: Mapping[str, Any] | None = None
    wake: str = ""  #: of a ``grok-wake``: the turn of Grok's that it asks for


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """What goes to Grok now."""

    prompt_entry: str  #: newest entry that a person has made: the prompt's id is made from it
    delivered: str  #: the watermark once Grok has it
    text: str  #: "" if there is nothing new
    images: tuple[Image, ...] = ()
    wake: str = ""  #: Pi only wants to hear a turn that Grok has started by itself


def entries_of(
    entries: Iterable[Mapping[str, Any]] | None, messages: Sequence[Mapping[str, Any]]
) -> list[Entry]:
    """Join entries and messages by time, oldest first.  Without entries each message is one."""
    if entries is None:
        return [
            Entry(f"{m.get('role')}:{m.get('timestamp')}", "message", str(m.get("role")), message=m)
            for m in messages
        ]
    by_time = dict[Any, list[Mapping[str, Any]]]()
    for message in messages:
        by_time.setdefault(message.get("timestamp"), []).append(message)
    joined = list[Entry]()
    for entry in entries:
        at = by_time.get(entry.get("ts")) or []
        role = str(entry.get("role") or "")
        found = next((m for m in at if _fits(str(m.get("role")), role)), None)
        if found is not None:
            at.remove(found)
        details = entry.get("details")
        custom = str(entry.get("customType") or "")
        wake = str(details.get("id") or "") if custom == WAKE and isinstance(details, dict) else ""
        joined.append(Entry(str(entry.get("id")), str(entry.get("type")), role, custom, found, wake))
    return joined


def _fits(of_message: str, of_entry: str) -> bool:
    # What is neither an answer nor a tool's result reaches a provider as the user's.
    own = of_entry if of_entry in ("assistant", "toolResult") else "user"
    return of_message == own


def position_of(entries: Sequence[Entry], delivered: str) -> int | None:
    """How many entries Grok knows; None when the watermark is not on this branch."""
    if not delivered:
        return 0
    return next((i for i in range(len(entries), 0, -1) if entries[i - 1].id == delivered), None)


def delivery(entries: Sequence[Entry], known: int, *, new: bool) -> Delivery:
    """``known``: entries that Grok has, `position_of`.  ``new``: the Grok session is new."""
    fresh = [e for e in entries[known:] if e.message is not None and e.type != "compaction"]
    own = [e for e in fresh if not (_is_grok(e) and not new)]
    wake = next((e.wake for e in reversed(own) if e.wake), "") if own and own[-1].wake else ""
    own = [e for e in own if not e.wake]
    last_other = max((i for i, e in enumerate(own) if not _is_user(e)), default=-1)
    told, asked = own[: last_other + 1], own[last_other + 1 :]
    if new and not told and len(asked) > 1:
        told, asked = asked[:-1], asked[-1:]
    images = list[Image]()
    prompt = "\n\n".join(filter(None, (_text(e.message, images) for e in asked)))
    history = _history(told, images)
    if history and prompt:
        heading = (
            "Conversation so far (Pi transcript):" if new else "What has happened in Pi since (transcript):"
        )
        prompt = f"{heading}\n\n{history}\n\n---\n\n{prompt}"
    elif history:
        prompt = f"What has happened in Pi since (transcript):\n\n{history}\n\n---\n\nGo on."
    last = own[-1].id if own else (entries[known - 1].id if known else "")
    return Delivery(person_entry(entries), last, prompt, tuple(images), wake)


def side_text(entries: Sequence[Entry]) -> str:
    """The prompt of a call that is no conversation: the one message as it is, several as a transcript."""
    messages = [entry.message for entry in entries if entry.message is not None]
    images = list[Image]()
    if len(messages) == 1:
        return _text(messages[0], images)
    return "\n\n".join(filter(None, (_told(message, images) for message in messages)))


def person_entry(entries: Sequence[Entry]) -> str:
    """The newest entry that a person, or something in their place, has made; "" without one."""
    return next((e.id for e in reversed(entries) if _is_user(e)), "")


def _is_user(entry: Entry) -> bool:
    return entry.message is not None and entry.message.get("role") == "user"


def _is_grok(entry: Entry) -> bool:
    message = entry.message or {}
    return message.get("role") == "assistant" and message.get("provider") == PROVIDER


def _history(entries: Sequence[Entry], images: list[Image]) -> str:
    parts = [_told(entry.message or {}, images) for entry in entries]
    text = "\n\n".join(filter(None, parts))
    return text if len(text) <= HISTORY else "…" + text[-HISTORY:]


def _told(message: Mapping[str, Any], images: list[Image]) -> str:
    """One message of others as text."""
    role, text = message.get("role"), _text(message, images)
    if role == "assistant":
        calls = [c for c in _blocks(message) if c.get("type") == "toolCall"]
        lines = [f"{c.get('name')}({json.dumps(c.get('arguments'), ensure_ascii=False)})" for c in calls]
        parts = [f"[assistant]\n{text}"] if text else []
        return "\n".join(parts + ([f"[tool calls]\n{chr(10).join(lines)}"] if lines else []))
    if role == "toolResult":
        failed = " (failed)" if message.get("isError") else ""
        return f"[tool result {message.get('toolName')}{failed}]\n{text}"
    return f"[user]\n{text}" if text else ""


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _text(message: Mapping[str, Any] | None, images: list[Image]) -> str:
    parts = list[str]()
    for block in _blocks(message or {}):
        if block.get("type") == "text":
            parts.append(str(block.get("text", "")))
        elif block.get("type") == "image" and (image := _image(block)) is not None:
            images.append(image)
            parts.append(f"[image: {{{image.name}}}]")
    return "\n".join(filter(None, parts))


def _image(block: Mapping[str, Any]) -> Image | None:
    try:
        data = base64.b64decode(str(block.get("data", "")), validate=True)
    except (binascii.Error, ValueError):
        return None
    kind = re.sub(r"[^a-z0-9]", "", str(block.get("mimeType", "")).rpartition("/")[2].lower())
    return Image(data, "." + ("jpg" if kind == "jpeg" else kind or "bin"))


# -- system prompt -------------------------------------------------------------------------------------

#: Sections of Pi's prompt that speak of Pi's own tools, its own rules of using them and its own manual.
_PI_ONLY = frozenset({"tools", "rules", "docs"})
#: How paragraphs of the same content begin in a prompt that is one text.
_PI_PARAGRAPHS = (
    "Available tools:",
    "In addition to the tools above",
    "Guidelines:",
    "Pi documentation",
)

_BRIDGE = (
    "You answer as the model of the Pi coding agent. Use your own tools: Pi's tools cannot be called by "
    "you, whatever the text below says of them."
)


def system_text(system: Iterable[Mapping[str, Any]], *, own_only: bool = False) -> str:
    """Pi's system prompt from its system messages; a later one changes sections by name.

    ``own_only``: without what only describes Pi's own tools.
    """
    content, sections = list[str](), dict[str, str]()
    for message in system:
        if isinstance(message.get("content"), str) and message["content"].strip():
            content.append(message["content"])
        changes = message.get("sections")
        for name, value in changes.items() if isinstance(changes, dict) else ():
            if isinstance(value, str):
                sections[name] = value
            else:
                sections.pop(name, None)
    if own_only:
        content = list(map(_without_pi, content))
        sections = {name: value for name, value in sections.items() if name not in _PI_ONLY}
    return "\n\n".join(part for part in (*content, *sections.values()) if part.strip())


def rules_of(system: Iterable[Mapping[str, Any]]) -> str:
    """What Grok gets as rules: Pi's system prompt without what describes Pi's own tools."""
    text = system_text(system, own_only=True)
    return f"{_BRIDGE}\n\n{text}" if text else _BRIDGE


def _without_pi(text: str) -> str:
    for name in _PI_ONLY:
        text = re.sub(rf"<{name}>.*?</{name}>\s*", "", text, flags=re.DOTALL)
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n\n".join(p for p in paragraphs if not p.lstrip().startswith(_PI_PARAGRAPHS))
