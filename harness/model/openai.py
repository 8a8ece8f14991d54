"""Chat completions as OpenAI-compatible servers stream them: bytes in, pieces and one answer out.

Two layers without I/O below the connection (`harness.model.client`): `EventStream` finds the events in the
bytes, `Assembler` makes an `Answer` of them and says what is new.  Servers differ in what they leave out,
so nothing is demanded but what an answer needs: an index of a tool call may be missing or stand still, an
id may be missing, arguments may come as an object, usage may not come, and a server may answer a streaming
request with one whole JSON object.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from harness.limits import SIZES
from harness.model.errors import Failure, ModelError

if TYPE_CHECKING:
    from harness.model.endpoints import Endpoint

__all__ = [
    "Answer",
    "Assembler",
    "CallPart",
    "EventStream",
    "ModelCall",
    "Piece",
    "Text",
    "Thought",
    "Usage",
    "pieces_of",
    "request_body",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """More of the answer's text."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Thought:
    """More of the reasoning that comes before the text."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class CallPart:
    """More of a tool call; the first part of a call has its id and name."""

    index: int
    id: str | None
    name: str | None
    arguments: str


Piece = Text | Thought | CallPart


@dataclasses.dataclass(frozen=True, slots=True)
class ModelCall:
    """A whole tool call; ``arguments`` is the text that the model wrote, perhaps no JSON."""

    id: str
    name: str
    arguments: str


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call; ``input`` includes what was cached, ``output`` the reasoning."""

    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What one model call came to.  ``finish`` is the server's word: stop, tool_calls, length, …"""

    text: str = ""
    thought: str = ""
    calls: tuple[ModelCall, ...] = ()
    finish: str = "stop"
    usage: Usage = Usage()
    seconds: float = 0


def request_body(
    endpoint: Endpoint,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]],
    effort: str | None = None,
) -> dict[str, Any]:
    """The body of a streaming request; settings that nobody made are left to the server."""
    body: dict[str, Any] = {
        "model": endpoint.model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if tools:
        body["tools"] = tools
    optional = {
        "max_tokens": endpoint.max_tokens,
        "temperature": endpoint.temperature,
        "top_p": endpoint.top_p,
        "reasoning_effort": (effort or endpoint.effort) if endpoint.efforts else None,
    }
    return body | {name: value for name, value in optional.items() if value is not None}


# -- events ----------------------------------------------------------------------------------------


class EventStream:
    """Server-sent events: the data of each event, whatever the reads cut and however lines end."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False

    def feed(self, data: bytes) -> list[bytes]:
        """The data of the events that these bytes complete.  Raises ModelError for an endless one."""
        if not data:
            return []
        second_half = self._after_cr and data.startswith(b"\n")  # of a CR LF that a read has cut
        self._after_cr = data.endswith(b"\r")
        if second_half:
            data = data[1:]
        first, *rest = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._line += first
        self._size += len(data)
        events = list[bytes]()
        for piece in rest:
            self._end_line(events)
            self._line += piece
        if events:
            self._size = len(self._line) + sum(map(len, self._data))
        if self._size > SIZES.model_event:
            raise ModelError(Failure.HTTP, f"an event of the stream exceeds {SIZES.model_event} bytes")
        return events

    def finish(self) -> list[bytes]:
        """The event that the end of the stream completes, if any: the last line end may be missing."""
        events = list[bytes]()
        if self._line:
            self._end_line(events)
        self._end_line(events)
        return events

    def _end_line(self, events: list[bytes]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data = []
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))


# -- answers ---------------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class _Slot:
    id: str
    name: str
    told: bool = False
    arguments: list[str] = dataclasses.field(default_factory=list)


class Assembler:
    """Puts an answer together from the events of a stream."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thought: list[str] = []
        self._slots: list[_Slot] = []
        self._by_index: dict[int, int] = {}
        self._finish: str | None = None
        self._usage = Usage()
        self._size = 0
        self.done = False  #: the server has said that nothing more comes

    def event(self, data: bytes) -> list[Piece]:
        """What an event adds.  Raises ModelError when the server reports a failure in the stream."""
        if data.strip() == b"[DONE]":
            self.done = True
            return []
        self._size += len(data)
        if self._size > SIZES.model_answer:
            raise ModelError(Failure.HTTP, f"the answer exceeds {SIZES.model_answer} bytes")
        try:
            body = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise ModelError(Failure.HTTP, f"the stream holds no JSON: {error}", transient=True) from error
        if not isinstance(body, dict):
            return []
        if body.get("error"):
            raise _reported(body["error"])
        if isinstance(usage := body.get("usage"), dict):
            self._usage = _usage(usage)
        pieces = list[Piece]()
        for choice in _objects(body.get("choices")):
            if choice.get("index", 0) == 0:
                self._choice(choice, pieces)
        return pieces

    def answer(self) -> Answer:
        """The whole answer.  Raises ModelError when the stream broke off, or held nothing."""
        if self._finish is None and not self.done:
            raise ModelError(Failure.HTTP, "the model's stream broke off", transient=True)
        calls = tuple(ModelCall(s.id, s.name, "".join(s.arguments)) for s in self._slots if s.name)
        finish = self._finish or ("tool_calls" if calls else "stop")
        text = "".join(self._text)
        if not text.strip() and not calls and finish not in ("content_filter", "length"):
            raise ModelError(
                Failure.EMPTY, "the model's answer holds neither text nor a tool call", transient=True
            )
        return Answer(text, "".join(self._thought), calls, finish, self._usage)

    def _choice(self, choice: Mapping[str, Any], pieces: list[Piece]) -> None:
        delta = choice.get("delta") or choice.get("message")
        delta = delta if isinstance(delta, dict) else {}
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str) and thought:
            self._thought.append(thought)
            pieces.append(Thought(thought))
        text = delta.get("content") or delta.get("refusal")
        if isinstance(text, str) and text:
            self._text.append(text)
            pieces.append(Text(text))
        for call in _objects(delta.get("tool_calls")):
            self._call(call, pieces)
        if isinstance(finish := choice.get("finish_reason"), str):
            self._finish = finish

    def _call(self, call: Mapping[str, Any], pieces: list[Piece]) -> None:
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        name, arguments = _text(function.get("name")), function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        slot_index = self._slot(call, name)
        slot = self._slots[slot_index]
        slot.name = slot.name or name
        slot.arguments.append(arguments or "")
        if slot.told:
            if arguments:
                pieces.append(CallPart(slot_index, None, None, arguments))
        elif slot.name:
            slot.told = True
            pieces.append(CallPart(slot_index, slot.id, slot.name, "".join(slot.arguments)))

    def _slot(self, call: Mapping[str, Any], name: str) -> int:
        """Where a part belongs.  A server may give every call the index 0, or none at all."""
        call_id, index = _text(call.get("id")), call.get("index")
        place = self._by_index.get(index) if isinstance(index, int) else len(self._slots) - 1
        if place is not None and place >= 0:
            known = self._slots[place]
            another = bool(name) and known.told and ((call_id and call_id != known.id) or index is None)
            if not another:
                return place
        self._slots.append(_Slot(call_id or f"call_{secrets.token_hex(12)}", name))
        place = len(self._slots) - 1
        if isinstance(index, int):
            self._by_index[index] = place
        return place


def _objects(value: Any) -> list[dict[str, Any]]:
    """The objects in what should be a list of them."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _usage(usage: Mapping[str, Any]) -> Usage:
    def number(source: Any, name: str) -> int:
        value = source.get(name) if isinstance(source, dict) else None
        return int(value) if isinstance(value, (int, float)) and value >= 0 else 0

    return Usage(
        number(usage, "prompt_tokens"),
        number(usage, "completion_tokens"),
        number(usage.get("prompt_tokens_details"), "cached_tokens"),
        number(usage.get("completion_tokens_details"), "reasoning_tokens"),
    )


def _reported(error: Any) -> ModelError:
    """A failure that came inside the stream, where no status code tells whether it may pass."""
    message = error.get("message") if isinstance(error, dict) else error
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) else None
    transient = status is None or status >= 500 or status == 429
    kind = Failure.RATE_LIMITED if status == 429 else Failure.API
    return ModelError(kind, f"the endpoint reports: {message}", transient=transient, status=status)


async def pieces_of(chunks: AsyncIterator[bytes], assembler: Assembler) -> AsyncIterator[Piece]:
    """The pieces in a streaming body."""
    events = EventStream()
    async for chunk in chunks:
        for data in events.feed(chunk):
            for piece in assembler.event(data):
                yield piece
        if assembler.done:
            return
    for data in events.finish():
        for piece in assembler.event(data):
            yield piece
