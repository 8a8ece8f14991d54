"""Frames between a bridge and its leader: four bytes of length, big-endian, and an object of JSON.

A bridge sends ``register`` first, then ``acp`` with one line of its client in ``payload``; the leader answers
``registered`` and sends ``acp`` as well.  Both sides may send ``ping`` and ``pong``.  One frame is one write,
and a reader keeps what it has of the next one: nothing is lost between two reads.
"""

from __future__ import annotations

import json

from harness.limits import SIZES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["ID_KINDS", "FrameError", "FrameReader", "acp", "frame"]

HEAD = 4
#: What the id of a request may be; another one may be nested without end.
ID_KINDS = (str, int, float, type(None))


class FrameError(Exception):
    """What came is no frame; nothing behind it can be understood."""


def frame(message: dict[str, Any]) -> bytes:
    """``message`` as bytes to send.  Raises FrameError when it is too large."""
    body = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    if len(body) > SIZES.frame:
        raise FrameError(f"a message of {len(body)} bytes; {SIZES.frame} are allowed")
    return len(body).to_bytes(HEAD, "big") + body


def acp(line: str) -> bytes:
    """One line of ACP as a frame."""
    return frame({"type": "acp", "payload": line})


class FrameReader:
    """Bytes in, messages out."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """The messages that are whole now.  Raises FrameError."""
        self._data += data
        found: list[dict[str, Any]] = []
        position = 0
        while (end := self._end(position)) is not None:
            found.append(_message(bytes(self._data[position + HEAD : end])))
            position = end
        del self._data[:position]
        return found

    def _end(self, position: int) -> int | None:
        if len(self._data) < position + HEAD:
            return None
        size = int.from_bytes(self._data[position : position + HEAD], "big")
        if size > SIZES.frame:
            raise FrameError(f"a message of {size} bytes; {SIZES.frame} are allowed")
        end = position + HEAD + size
        return end if len(self._data) >= end else None


def _message(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise FrameError(f"no JSON in a frame: {error}") from error
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise FrameError("a frame without a type")
    return message
